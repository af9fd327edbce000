"""`compare` as users call it: on run folders, with exit codes that a CI job can distinguish."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from test_cli_help import imported

from cli_process import advisor
from rn50_advisor.advisor.model.recording import Process
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import KIND_STEP, STEP_FIELDS

MS = 1_000_000
T0_NS = 1_000_000_000_000


def write_run(folder: Path, *, step_ms: float, seed: int, steps: int = 200) -> None:
    """A run of one rank as the agent leaves it: steps of about so many milliseconds, eight samples each."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    meta = {"name": folder.name, "argv": ["python", "train.py"], "cwd": "/job", "host": "node"}
    writer = RunWriter.create(folder, meta={**meta, "started_unix_s": 1.7e9, "started_ns": T0_NS - 10**9})
    writer.put_process(Process(100, "rank", 0, 0, None, 1, "python train.py", T0_NS - 10**9))
    now, rows = T0_NS, []
    for number in range(steps):
        took = int(step_ms * MS * random.uniform(0.97, 1.03))
        third = took // 3
        values = {"step": number, "t_start_ns": now, "t_end_ns": now + 3 * third, "samples": 8, "micro_batches": 1}
        values |= {"forward_ns": third, "backward_ns": third, "optimizer_ns": third}
        rows.append((0, tuple(values.get(name, 0) for name in STEP_FIELDS)))
        now += 3 * third
    writer.put_records(KIND_STEP, 0, rows)
    writer.put_meta(ended_ns=now, exit_code=0)
    writer.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    for name, step_ms, steps in (("before", 30, 200), ("again", 30, 200), ("after", 42, 200), ("stub", 30, 1)):
        write_run(home / "runs" / f"20250131-12000{len(name)}-{name}", step_ms=step_ms, seed=len(name), steps=steps)
    return home


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["before", "again"], 0, "same"),
        (["before", "after"], 0, "regressed"),
        (["after", "before"], 0, "improved"),
        (["before", "after", "--max-regression", "50"], 0, "regressed"),
        (["before", "again", "after", "--max-regression", "5"], 3, "slower by more than 5.0 %"),
        (["before", "stub", "--max-regression", "5"], 4, "could not be compared"),
        (["before", "stub"], 0, "not comparable"),
        (["before"], 64, "at least two runs"),
        (["before", "nothing"], 2, "not a run"),
    ],
)
def test_each_outcome_has_its_exit_code(arguments: list[str], code: int, says: str, home: Path) -> None:
    done = advisor("compare", *arguments, cwd=home)
    assert done.returncode == code, done.stderr
    assert says in (done.stdout + done.stderr).decode()
    if code == 3:
        assert b"slower by more than 5.0 %" in done.stderr, "what failed is said where a log is read"


def test_every_format_is_written_where_it_is_asked_for(home: Path, tmp_path: Path) -> None:
    for name, begin in (("c.html", "<!DOCTYPE html>"), ("c.md", "# ▼ regressed"), ("c.json", "{"), ("c.txt", "▼ regr")):
        done = advisor("compare", "before", "after", "-o", tmp_path / name, cwd=home)
        assert done.returncode == 0 and done.stdout == b"", done.stderr
        assert (tmp_path / name).read_text().startswith(begin)
    assert json.loads((tmp_path / "c.json").read_text())["pairs"][0]["change"] == "regressed"


def test_the_report_is_there_although_the_limit_fails(home: Path, tmp_path: Path) -> None:
    done = advisor("compare", "before", "after", "--max-regression", "5", "-o", tmp_path / "c.json", cwd=home)
    assert done.returncode == 3
    assert json.loads((tmp_path / "c.json").read_text())["gate"]["failed"] == [1]


def test_it_needs_neither_torch_nor_a_screen(home: Path) -> None:
    assert not imported(["compare", "before", "after"], home) & {"torch", "textual", "jinja2", "pynvml"}
