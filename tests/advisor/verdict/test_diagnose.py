"""From a recording to its report: runs of which little was seen, damaged ones, gaps, and the hosts of findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import trial_samples
from recordings import SECOND, STARTED_NS, plan, recording, running, spans
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.errors import NotARun, UsageError
from rn50_advisor.advisor.model.findings import Affected, Finding, Fix, Where
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import GpuStrip, NodeStrip, Verdict
from rn50_advisor.advisor.verdict.diagnose import diagnose, of_a_recording, with_hosts, with_place
from rn50_advisor.advisor.verdict.rule_engine import Judgement
from rule_cases import job, rank

STEP_S = 0.1
MIND = {"input_wait": 5, "forward": 20, "backward": 20, "optimizer": 5, "gap": 50}  # LOP004, as far as these steps go


def seen(steps: int, *, tail: dict[str, float], runs: tuple[Any, ...] = (), counts: tuple[int, ...] = ()) -> Recording:
    """Steps of 0.1 s that pause for half of it, then a tail (ms by phase); `runs`: spans as (label, step, begin, end)."""
    made = recording({0: plan(steps, **MIND)}, tail_ms=tail)
    end = int(made.steps[0]["t_end_ns"][-1])
    made = replace(made, meta=replace(made.meta, last_ns=end, ended_ns=end))
    return replace(made, spans={0: spans(runs, counts)}) if runs else made


def replayed(steps: int, batches: int = 738, seconds: float = 60.0) -> Recording:
    """Steps, then a graph replayed over so many batches, reported as their number grew."""
    began = steps * STEP_S
    runs = tuple(("unseen", steps, began, began + seconds * part) for part in (0.25, 0.5, 1.0))
    counts = (batches // 4, batches // 2, batches)
    return seen(steps, tail={"forward": 950 * seconds, "input_wait": 50 * seconds}, runs=runs, counts=counts)


def test_a_dozen_steps_do_not_speak_for_what_was_fetched_and_not_seen_trained_on() -> None:
    report = diagnose(replayed(12))
    assert report.verdict.state == "inconclusive" and report.verdict.rule is None
    assert "738 batches were fetched but not seen in training" in report.verdict.summary
    assert "the 12 observed steps took 1.20 s of the" in report.verdict.summary
    assert "Tensor.backward()" in report.verdict.summary
    assert {finding.rule for finding in report.findings} == {"LOP004"} and all(
        f.saving is None for f in report.findings
    )
    assert report.as_json()["verdict"]["state"] == "inconclusive"


@pytest.mark.parametrize("steps", [3, 12, 200, 600])
def test_however_many_they_are_as_long_as_they_are_the_smaller_part(steps: int) -> None:
    assert diagnose(replayed(steps)).verdict.state == ("inconclusive" if steps * STEP_S <= 60 else "bottleneck")


def test_a_running_job_is_reported_up_to_now() -> None:
    made = running(replayed(12))
    rows = made.steps[0]
    assert diagnose(replace(made, steps={0: rows[:-1]})).verdict.state == "inconclusive"


def test_an_evaluation_after_training_is_none_of_it() -> None:
    evaluation = seen(12, tail={"evaluation": 60_000}, runs=(("evaluation", 12, 1.2, 61.2),))
    report = diagnose(evaluation)
    assert report.verdict.rule == "LOP004" and "no backward pass was seen" not in report.verdict.summary


def test_batches_before_the_first_step_are_not_training_that_was_missed() -> None:
    made = seen(30, tail={"gap": 10}, runs=(("unseen", 0, -60.0, 0.05), ("skipped", 0, -30.0, 0.0)), counts=(500, 100))
    coverage = analyse(made).coverage
    assert coverage is not None and coverage.unseen_batches == 0
    assert diagnose(made).verdict.rule == "LOP004"


@pytest.mark.parametrize(
    ("steps", "after_s", "state"), [(12, 60, "inconclusive"), (12, 2, "bottleneck"), (200, 600, "bottleneck")]
)
def test_a_few_steps_do_not_speak_for_a_long_time_without_any_mark(steps: int, after_s: float, state: str) -> None:
    """A graph that is replayed on one batch, a subprocess that trains; after many steps it may be an upload as well."""
    verdict = diagnose(seen(steps, tail={"gap": 1000 * after_s})).verdict
    assert verdict.state == state
    assert ("no backward pass was seen" in verdict.summary) == (state == "bottleneck")


def test_a_file_that_cannot_be_analysed_is_no_run() -> None:
    made = recording({0: plan(30)})
    with pytest.raises(NotARun, match=r"^job cannot be analysed: .*; its file may be damaged$") as raised:
        diagnose(replace(made, steps={0: made.steps[0][["step"]]}))
    assert "rn50-advisor bundle" in raised.value.hint


def test_what_a_user_can_act_on_passes_the_wall() -> None:
    with pytest.raises(UsageError, match="no such"), of_a_recording(recording({})):
        raise UsageError("no such option")
    with (
        pytest.raises(NotARun, match="the run cannot be analysed: ZeroDivisionError"),
        of_a_recording(recording({}, meta={"name": ""})),
    ):
        raise ZeroDivisionError


@pytest.mark.parametrize(("number", "name"), [(None, None), (9, "SIGKILL"), (250, "250")])
def test_the_job_ends_by_a_signal_with_its_name(number: int | None, name: str | None) -> None:
    job = diagnose(recording({0: plan(30)}, meta={"exit_code": None, "exit_signal": number})).job
    assert (job.exit_signal, job.exit_code, job.ranks, job.name) == (name, None, 1, "job")
    assert job.argv == ("python", "train.py") and job.duration_s == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("reason", "hint"), [("the disk is full", True), ("the agent was killed", False), (None, False)]
)
def test_recording_that_stopped_is_the_first_gap(reason: str | None, hint: bool) -> None:
    stopped = {"recording_stopped_ns": STARTED_NS + 3 * SECOND, "recording_stopped_reason": reason}
    probe = ProbeGap("gpu.*", "host", "no NVIDIA driver on this machine")
    first, second, *_ = diagnose(recording({0: plan(30)}, meta=stopped, gaps=(probe,))).gaps
    assert first.reason == f"recording stopped 3.0 s after the start: {reason or 'unknown reason'}"
    assert bool(first.hint) is hint and second == probe


def test_the_environment_has_host_folder_and_start() -> None:
    environment = diagnose(recording({0: plan(30)}, meta={"environment": {"cpu_model": "EPYC"}})).environment
    assert {name: environment[name] for name in ("host", "cwd", "started", "cpu_model")} == {
        "host": "node",
        "cwd": "/job",
        "started": 1_700_000_000.0,
        "cpu_model": "EPYC",
    }
    assert "instance_like" not in environment


def test_a_run_without_measured_batches_has_no_worker_curve() -> None:
    assert diagnose(recording({0: plan(30)})).worker_curve is None


def placed(rule: str, **scope: Any) -> tuple[tuple[str, ...], str]:
    """(hosts of the finding, summary of the verdict) in a job of two ranks and GPUs on each of two hosts."""
    nodes = (NodeStrip("a", (0, 1), shown=True), NodeStrip("b", (2, 3)))
    gpus = tuple(GpuStrip(n, "H200", host="ab"[n // 2]) for n in range(4))
    made: Analysis = replace(job({n: rank() for n in range(4)}), nodes=nodes, gpus=gpus)
    finding = Finding(rule, "it is slow", "high", 0.9, 0.1, Affected(**scope))
    verdict = Verdict("bottleneck", rule, "it is slow", "As measured.")
    found = with_hosts(Judgement(verdict, (finding,), ()), made)
    return found.findings[0].scope.hosts, found.verdict.summary


@pytest.mark.parametrize(
    ("rule", "scope", "hosts"),
    [
        ("CMP007", {"ranks": (3,)}, ("b",)),
        ("CMP007", {"ranks": (1, 2)}, ("a", "b")),
        ("GPU001", {"gpus": (0,)}, ("a",)),
        ("CPU003", {}, ("a",)),  # the samples are of the shown host
        ("MEM001", {"hosts": ("b",)}, ("b",)),
        ("COM001", {}, ()),
    ],
)
def test_a_finding_names_the_hosts_of_its_ranks_and_gpus(
    rule: str, scope: dict[str, Any], hosts: tuple[str, ...]
) -> None:
    found, summary = placed(rule, **scope)
    assert found == hosts
    assert summary == (f"On {hosts[0]}. As measured." if len(hosts) == 1 else "As measured.")


def test_of_one_host_no_name_is_needed() -> None:
    made = Judgement(Verdict("healthy", None, "", ""), (Finding("CPU003", "", "high", 0.9, 0.1),), ())
    assert with_hosts(made, job({0: rank()})) is made


def test_the_verdict_names_the_place_that_the_jobs_code_showed() -> None:
    first, other = (
        Finding(rule, "", "high", 1.0, 0.1, fixes=(Fix("put Resize first", "", Where("train.py", 54)),))
        for rule in ("DAT011", "DAT001")
    )
    edited = replace(first, fixes=(replace(first.fixes[0], where=Where("data.py", 33)),))
    verdict = Verdict("bottleneck", "DAT011", "", "Slow. Fix: put Resize first (train.py:54). Predicted: 2×.")
    placed = with_place(verdict, (other, first), (other, edited))
    assert placed.summary == "Slow. Fix: put Resize first (data.py:33). Predicted: 2×."
    assert with_place(verdict, (other, first), (other, first)) == verdict


def test_trials_of_the_run_stand_in_its_report() -> None:
    made = replace(recording({0: plan(40, **MIND)}), tried=trial_samples.several())
    assert diagnose(made).tried == trial_samples.several()
    assert diagnose(replace(made, tried=None)).tried is None
