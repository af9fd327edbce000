"""Runs of whole machines, recorded through the fake driver: the verdict names what is wrong with each, and nothing where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from samples.faults.catalogue.devices import LINES, Line, scenarios
from samples.faults.score import judge
from samples.gpus.__main__ import ROOT, recorder
from samples.gpus.stories import STORIES

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose

KEPT = sorted(name for name, story in STORIES.items() if story.replay)


Record = Callable[..., Path]


@pytest.fixture(scope="module")
def record(fake_driver: Path) -> Iterator[Record]:
    with recorder(fake_driver) as record:
        yield record


def report_of(story: str, record: Record, folder: Path, **changes: object) -> Report:
    return diagnose(read_recording(record(story, folder, **changes)))


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.rule}-{line.name}")
def test_each_line_holds_from_the_driver_to_the_finding(record: Record, tmp_path: Path, line: Line) -> None:
    fires = report_of(line.story, record, tmp_path / "above", **line.above)
    silent = report_of(line.story, record, tmp_path / "below", **line.below)
    assert line.rule in [finding.rule for finding in fires.findings]
    assert {row.rule: row.state for row in silent.outcomes}[line.rule] == "clear"
    *_, above, below = scenarios(line)
    judged = [judge(scenario.truth, seen.as_json()) for scenario, seen in ((above, fires), (below, silent))]
    assert [(one.right, one.false_alarms) for one in judged] == [(True, ())] * 2, judged


@pytest.mark.parametrize("story", STORIES)
def test_the_verdict_is_the_truth_of_the_story(record: Record, tmp_path: Path, story: str) -> None:
    report = report_of(story, record, tmp_path)
    assert (report.verdict.rule or report.verdict.state) == STORIES[story].truth, report.verdict
    assert not [row for row in report.outcomes if row.state == "crashed"]
    if STORIES[story].truth == "healthy":
        assert tuple(finding.rule for finding in report.findings) == STORIES[story].reported
    assert len(report.gpus) >= STORIES[story].ranks or story == "mismatch"


@pytest.mark.parametrize(
    "lines", [("gpu 0 util 60", "gpu 1 util 60"), ("gpu 0 mem_used 9000000000", "gpu 1 mem_used 9000000000")]
)
def test_gpus_of_somebody_elses_do_not_idle(record: Record, tmp_path: Path, lines: tuple[str, ...]) -> None:
    own = STORIES["on-the-cpu"].extra
    report = report_of("on-the-cpu", record, tmp_path, extra=(*own, *lines))
    assert {row.rule: row.state for row in report.outcomes}["CMP011"] == "clear"


@pytest.mark.parametrize(
    ("lines", "state"),
    [(("gpu 1 util 90",), "clear"), (("fail nvmlDeviceGetUtilizationRates 4 gpu 1",), "not_measured")],
)
def test_near_gpus_are_advised_only_where_they_are_seen_to_idle(
    record: Record, tmp_path: Path, lines: tuple[str, ...], state: str
) -> None:
    report = report_of("far-pair", record, tmp_path, extra=("gpu 1 mem_used 300000000", "gpu 1 util 0", *lines))
    assert {row.rule: row.state for row in report.outcomes}["COM008"] == state


def test_a_rank_whose_gpu_the_driver_does_not_give_out_is_taken_for_no_other(record: Record, tmp_path: Path) -> None:
    lost = "fail nvmlDeviceGetHandleByIndex_v2 999 gpu 1"
    report = report_of("4xL40S", record, tmp_path, extra=(lost,))
    assert [(gpu.index, gpu.ranks) for gpu in report.gpus] == [(0, "0"), (2, "2"), (3, "3")]
    assert report.verdict.state == "inconclusive" and "rank 1" in report.verdict.summary


def test_a_link_at_rest_is_none_that_is_slow_where_nobody_knows_the_load(record: Record, tmp_path: Path) -> None:
    lines = ("fail nvmlDeviceGetUtilizationRates 4", "gpu 2 pcie_gen 1")
    report = report_of("4xL40S", record, tmp_path, extra=lines)
    assert {row.rule: row.state for row in report.outcomes}["GPU006"] == "not_measured"


def test_what_a_stranger_holds_is_not_laid_to_data_parallel(record: Record, tmp_path: Path) -> None:
    lines = ("gpu 0 mem_used 29000000000", "gpu 2 mem_used 46000000000")
    report = report_of("data-parallel", record, tmp_path, extra=lines, strangers=("2 9100 17000000000 0",))
    assert [finding.rule for finding in report.findings] == ["GPU005"]


def test_clocks_that_nobody_can_judge_leave_the_verdict_open_and_say_why(record: Record, tmp_path: Path) -> None:
    report = report_of("mute", record, tmp_path)
    states = {row.rule: row.state for row in report.outcomes}
    assert (states["GPU001"], states["GPU002"]) == ("not_measured", "not_measured")
    (reason,) = {gap.reason for gap in report.gaps if gap.metric == "gpu.clock_reasons"}
    assert report.verdict.state == "inconclusive" and reason in report.verdict.summary


def test_an_old_driver_tells_less_and_enough(record: Record, tmp_path: Path) -> None:
    report = report_of("old-driver", record, tmp_path)
    assert report.environment["driver"] == "470.82.01"
    assert {"gpu.*_active_pct", "gpu.power_brake_s"} <= {gap.metric for gap in report.gaps if "too old" in gap.reason}
    hot = report_of("old-driver", record, tmp_path / "hot", extra=("gpu 1 violation.1 0 +25000000",))
    assert "GPU001" in [finding.rule for finding in hot.findings]


def test_a_gpu_without_ecc_that_must_be_reset_is_not_called_sound(record: Record, tmp_path: Path) -> None:
    off = tuple(f"gpu {gpu} ecc 0" for gpu in range(4))
    report = report_of("4xL40S", record, tmp_path, extra=(*off, "gpu 1 field.230 1"))
    (finding,) = [finding for finding in report.findings if finding.rule == "GPU007"]
    assert finding.scope.gpus == (1,)


def test_what_could_not_be_asked_is_not_called_clear(record: Record, tmp_path: Path) -> None:
    """A container may see clocks, their reasons and power, and nothing else."""
    states = {row.rule: row.state for row in report_of("restricted", record, tmp_path).outcomes}
    assert {states[rule] for rule in ("GPU005", "GPU007")} == {"not_measured"}
    blind = {row.rule: row.state for row in report_of("mismatch", record, tmp_path / "again").outcomes}
    assert {state for rule, state in blind.items() if rule.startswith("GPU") and rule not in ("GPU003", "GPU004")} == {
        "not_measured"
    }


def test_mig_gives_gaps_and_a_reason(record: Record, tmp_path: Path) -> None:
    report = report_of("MIG", record, tmp_path)
    (gap,) = [gap for gap in report.gaps if gap.metric == "gpu.util_pct"]
    assert gap.scope == "gpu:0" and "MIG" in gap.hint


def test_the_driver_is_named_in_the_environment(record: Record, tmp_path: Path) -> None:
    report = report_of("4xL40S", record, tmp_path)
    assert report.environment["driver"] == "575.57.08"
    assert [gpu["name"] for gpu in report.environment["gpus"]] == ["NVIDIA L40S"] * 4


@pytest.mark.parametrize("story", KEPT)
def test_the_runs_kept_for_replay_still_tell_their_story(story: str) -> None:
    bundle = ROOT / "samples" / "runs" / f"{story}.tar.gz"
    assert bundle.stat().st_size < 300_000
    verdict = diagnose(read_recording(bundle)).verdict
    assert (verdict.rule or verdict.state) == STORIES[story].truth


@pytest.mark.parametrize("story", KEPT)
def test_the_runs_kept_for_replay_are_what_their_stories_say_today(record: Record, tmp_path: Path, story: str) -> None:
    """Otherwise: python -m samples.gpus."""
    kept = read_recording(ROOT / "samples" / "runs" / f"{story}.tar.gz")
    made = read_recording(record(story, tmp_path))
    for before, now in ((kept.steps, made.steps), (kept.gpu_steps, made.gpu_steps), (kept.comm, made.comm)):
        assert before.keys() == now.keys()
        for rank, rows in now.items():
            shared = [name for name in rows.dtype.names or () if name in (before[rank].dtype.names or ())]
            assert shared and (before[rank][shared] == rows[shared]).all()
    assert {key: series.value.tolist() for key, series in kept.samples.items()} == {
        key: series.value.tolist() for key, series in made.samples.items()
    }
