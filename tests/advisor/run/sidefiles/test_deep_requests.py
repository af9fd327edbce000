"""The agent's side of deep windows: whom it asks and when, and what becomes of a trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kernel_traces import plain, two_steps
from rn50_advisor.advisor.model.gpu.kernel_classes import window_from
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.advisor.run.sidefiles import deep_requests
from rn50_advisor.advisor.run.sidefiles.deep_requests import Candidate, DeepDesk, worth_a_window
from rn50_advisor.probes.rank.side_files import DEEP_REQUEST

BUSY = Candidate(rank=0, pid=7, steps=500, wait_share=0.02, outside_share=0.01)
ON_GPU = {7: {"rank": 0, "cuda": {"name": "NVIDIA H200"}, "torch": "2.11.0+cu130"}}


class Desk:
    def __init__(self, folder: Path, mode: str, budget: float = 0.01) -> None:
        self.rings, self.run = folder / "rings", folder / "run"
        self.rings.mkdir(mode=0o700)
        self.run.mkdir()
        self.news: list[Any] = []
        self.desk = DeepDesk(self.rings, self.run, mode=mode, budget=budget)

    def look(self, facts: dict[int, dict[str, Any]]) -> None:
        self.news += self.desk.look([BUSY], facts)

    def finish(self, within_s: float = 0.0) -> None:
        self.news += self.desk.finish(within_s)

    def left(self, pid: int, text: str) -> dict[int, dict[str, Any]]:
        """The facts of a rank that has left a trace."""
        (self.run / f"deep-{pid}.json").write_text(text)
        window = {"state": "done", "first_step": 10, "steps": 2, "start_s": 0.2, "stop_s": 0.1, "export_s": 0.3}
        return {pid: {"rank": 3, "deep": window}}

    def gaps(self) -> list[str]:
        return [news.reason for news in self.news if isinstance(news, ProbeGap)]


def test_a_trace_is_summed_up_packed_and_kept_beside_the_run(tmp_path: Path) -> None:
    made = Desk(tmp_path, "now")
    text = json.dumps(two_steps(plain).document())
    facts = made.left(4711, text)
    made.look(facts)
    made.look(facts)  # each trace is read once
    made.finish(30.0)
    [event] = made.news
    assert isinstance(event, Event) and (event.kind, event.rank) == ("deep", 3)
    window = window_from(json.loads(json.dumps(event.data)))
    assert window.rank == 3 and window.first_step == 10 and window.cost_s == pytest.approx(0.6)
    packed = made.run / window.trace
    assert gzip.decompress(packed.read_bytes()).decode() == text and packed.stat().st_mode & 0o077 == 0
    assert not list(made.run.glob("*.json"))


def test_a_trace_that_cannot_be_read_is_a_gap(tmp_path: Path) -> None:
    made = Desk(tmp_path, "now")
    made.look(made.left(4711, '{"traceEvents": [') | made.left(4712, "[]"))
    made.finish(30.0)
    assert len(made.gaps()) == 2 and all(why.startswith("its trace cannot be read") for why in made.gaps())
    assert not list(made.run.iterdir())


def test_a_file_larger_than_was_allowed_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep_requests, "TRACE_BYTES_MAX", 10)
    made = Desk(tmp_path, "now")
    made.look(made.left(4711, "x" * 11))
    made.finish(30.0)
    assert made.gaps() == ["its trace cannot be read: ValueError: it is larger than it should be"]


def test_a_missing_window_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    made = Desk(tmp_path, "now")
    made.look({7: {"rank": 0, "deep": {"state": "refused", "reason": "the job replays CUDA graphs"}}})
    made.finish()
    assert made.gaps() == ["the job replays CUDA graphs"]
    assert made.news[0].metric == "kernel.window" and made.news[0].scope == "rank:0"


def test_a_job_that_ended_before_its_window_says_so(tmp_path: Path) -> None:
    made = Desk(tmp_path, "now")
    made.look({7: {"rank": 0}})
    made.finish()
    assert made.gaps() == ["no rank came to its step 12"]


def test_what_was_not_asked_for_is_no_gap(tmp_path: Path) -> None:
    made = Desk(tmp_path, "off")
    made.look(ON_GPU)
    made.finish()
    assert not made.news and not list(made.rings.iterdir())


def test_nobody_is_asked_before_the_budget_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(deep_requests.time, "monotonic", lambda: now[0])
    made = Desk(tmp_path, "auto")
    now[0] += deep_requests.ASSUMED_COST_S / 0.01 - 1
    made.look(ON_GPU)
    assert not (made.rings / DEEP_REQUEST).exists()
    now[0] += 1
    made.look(ON_GPU)
    assert json.loads((made.rings / DEEP_REQUEST).read_text())["pid"] == 7
    (made.rings / DEEP_REQUEST).unlink()
    made.look(ON_GPU)
    assert not (made.rings / DEEP_REQUEST).exists()  # once
    made.finish()
    assert not made.news


@pytest.mark.parametrize(
    ("candidate", "facts", "worth"),
    [
        (BUSY, ON_GPU, True),
        (Candidate(0, 7, 49, 0.02, 0.01), ON_GPU, False),
        (Candidate(0, 7, 50, 0.08, 0.02), ON_GPU, True),
        (Candidate(0, 7, 50, 0.08, 0.03), ON_GPU, False),
        (BUSY, {7: {**ON_GPU[7], "cuda": None}}, False),
        (BUSY, {7: {**ON_GPU[7], "torch": "2.6.0"}}, False),
        (BUSY, {7: {**ON_GPU[7], "torch": "2.7.0a0+git"}}, True),
        (BUSY, {7: {**ON_GPU[7], "torch": None}}, False),
        (BUSY, {}, False),
        # it reads its loss in each step: the host waits for the GPU between them, which computes nearly all the time
        (Candidate(0, 7, 500, 0.02, 0.60, 0.05), ON_GPU, True),
        (Candidate(0, 7, 500, 0.02, 0.02, 0.11), ON_GPU, False),
    ],
)
def test_a_window_is_worth_it_where_a_gpu_computes_nearly_all_the_time(candidate, facts, worth: bool) -> None:
    assert (worth_a_window([candidate], facts) is candidate) is worth


def test_of_several_ranks_the_first_is_asked() -> None:
    other = Candidate(1, 8, 500, 0.0, 0.0)
    assert worth_a_window([other, BUSY], ON_GPU) is BUSY
    assert worth_a_window([], ON_GPU) is None
