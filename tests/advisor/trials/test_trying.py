"""One call of `try`: the job's own verdict, its fixes one after the other, refusals, and the winners together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import report_samples as samples
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.findings import Fix, Saving
from rn50_advisor.advisor.model.job_changes import (
    CallChange,
    EnvironmentChange,
    GradientsKept,
    JobChange,
    LauncherChange,
)
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import GpuStrip, Report
from rn50_advisor.advisor.model.trials import Tried
from rn50_advisor.advisor.trials import pairing
from rn50_advisor.advisor.trials.trial_job import TrialFailed
from rn50_advisor.advisor.trials.trying import UNCONTAINED, Settings, Trying, refuse_full_gpus
from simulated_trials import APPLIED, Nature, SimulatedJob, simulation

WORKERS = CallChange.of("DataLoader", num_workers=2)
BUCKETS = CallChange.of("DistributedDataParallel", bucket_cap_mb=100)
THREADS = EnvironmentChange((("OMP_NUM_THREADS", "1"),))


def report(**changes: JobChange) -> Report:
    """A finding for each change, by its rule."""
    model = samples.bottleneck().findings[0]
    saving = Saving((0.01, 0.02), (1.2, 1.6), "model", likely=1.4)
    findings = (replace(model, rule=rule, saving=saving, fixes=(Fix("", call=call),)) for rule, call in changes.items())
    return replace(samples.bottleneck(), findings=tuple(findings))


Try = Callable[..., Tried]


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> Try:
    def run(
        jobs: type[SimulatedJob], diagnosed: Report, given: Report | None = None, *, rules: tuple[str, ...] = ()
    ) -> Tried:
        monkeypatch.setattr(pairing, "TrialJob", jobs)

        def diagnose(recording: Recording) -> Report:
            return diagnosed

        settings = Settings(("train",), tmp_path, 600.0, rules=rules)
        return Trying(settings, diagnose, lines.append).run(given)

    return run


def test_each_fix_is_measured_against_the_same_running_job_and_the_winners_together(tries: Try) -> None:
    jobs = simulation(
        **{
            "train": Nature(step_ms=200),
            "train/num_workers=2": Nature(step_ms=125),
            "train/OMP_NUM_THREADS=1": Nature(step_ms=160),
            "train/num_workers=2/OMP_NUM_THREADS=1": Nature(step_ms=100),
        }
    )
    tried = tries(jobs, report(DAT003=WORKERS, CPU005=THREADS))
    assert [(trial.rule, trial.outcome) for trial in tried.trials] == [("DAT003", "faster"), ("CPU005", "faster")]
    assert [trial.measured.speedup for trial in tried.trials if trial.measured] == pytest.approx([1.6, 1.25], rel=0.02)
    assert tried.together is not None
    assert tried.together.speedup == pytest.approx(2.0, rel=0.02)
    assert tried.best is tried.trials[0]
    assert tried.samples_per_s == pytest.approx(40.0)
    assert [trial.applied for trial in tried.trials] == ["live", "restart"]
    assert jobs.started[:2] == ["train", "train/num_workers=2 switched"]
    assert tried.notes == (UNCONTAINED,)


def test_a_fix_that_brings_nothing_or_makes_the_job_slower_is_no_gain(tries: Try) -> None:
    jobs = simulation(
        **{
            "train": Nature(step_ms=100),
            "train/num_workers=2": Nature(step_ms=100),
            "train/OMP_NUM_THREADS=1": Nature(step_ms=150),
        }
    )
    tried = tries(jobs, report(DAT003=WORKERS, CPU005=THREADS))
    assert [trial.outcome for trial in tried.trials] == ["no_gain", "no_gain"]
    assert "slower" in tried.trials[1].reason
    assert tried.best is None
    assert tried.together is None


def test_advice_of_a_recorded_run_needs_no_verdict_of_its_own(tries: Try) -> None:
    jobs = simulation(**{"train": Nature(step_ms=200), "train/num_workers=2": Nature(step_ms=100)})
    tried = tries(jobs, samples.empty(), report(DAT003=WORKERS))
    assert [trial.outcome for trial in tried.trials] == ["faster"]


def test_what_fails_with_the_change_is_refused_with_its_last_line(tries: Try) -> None:
    jobs = simulation(
        **{"train": Nature(step_ms=100), "train/bucket_cap_mb=100": Nature(step_ms=100, fails_after_s=2.0)}
    )
    [trial] = tries(jobs, report(COM003=BUCKETS)).trials
    assert (trial.outcome, trial.reason) == ("refused", "the job ended with 1 with it: RuntimeError: no")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (
            {"applied": [[0, 0]], "refused": [[0, "no such argument"]], "switches": []},
            "it could not be applied: no such argument",
        ),
        ({"applied": [[0, 0]], "refused": [], "switches": []}, "the job never came to what it changes"),
        (None, "the recorder was not in the job"),
    ],
)
def test_what_the_ranks_did_not_apply_is_refused(tries: Try, told: object, why: str) -> None:
    natures = {"train": Nature(step_ms=100), "train/num_workers=2": Nature(step_ms=100, facts={"trial": told})}
    [trial] = tries(simulation(**natures), report(DAT003=WORKERS)).trials
    assert (trial.outcome, trial.reason, trial.measured) == ("refused", why, None)


def test_a_change_counts_as_made_if_an_earlier_start_of_the_job_came_to_it(tries: Try) -> None:
    """A job that ends is started again, and may be looked at before it switches."""

    class Ending(
        simulation(**{"train": Nature(step_ms=200, steps_max=150), "train/num_workers=2": Nature(step_ms=100)})
    ):  # type: ignore[misc]
        def recording(self) -> Recording | None:
            found = super().recording()
            if found is None or self.schedule is None:
                return found
            first = self.started.count("train/num_workers=2 switched") == 1
            told = {"applied": [[0, int(first)]], "refused": [], "switches": []}
            return replace(found, facts={pid: {**of_rank, "trial": told} for pid, of_rank in found.facts.items()})

    [trial] = tries(Ending, report(DAT003=WORKERS)).trials
    assert (trial.outcome, trial.applied) == ("faster", "live")
    assert Ending.started.count("train/num_workers=2 switched") > 1


def test_changes_that_do_not_fit_are_refused_before_anything_is_started(tries: Try) -> None:
    jobs = simulation(train=Nature(step_ms=100))
    tried = tries(jobs, report(CPU004=LauncherChange("torchrun", ("--numa-binding=node",)), COM001=GradientsKept()))
    assert [trial.reason.partition(":")[0] for trial in tried.trials] == [
        "torchrun does not start this job",
        "it rewrites the training loop",
    ]
    assert jobs.started == ["train"]


def test_on_a_gpu_one_job_switches_and_what_cannot_be_switched_runs_alone(tries: Try) -> None:
    gpu = {"cuda": 0}
    jobs = simulation(
        **{
            "train": Nature(step_ms=100, facts=gpu),
            "train/num_workers=2": Nature(step_ms=50),
            "train/OMP_NUM_THREADS=1": Nature(step_ms=80),
            "train/num_workers=2/OMP_NUM_THREADS=1": Nature(step_ms=40),
        }
    )
    tried = tries(jobs, report(DAT003=WORKERS, CPU005=THREADS))
    assert [(trial.outcome, trial.applied) for trial in tried.trials] == [("faster", "live"), ("faster", "restart")]
    assert [trial.measured.speedup for trial in tried.trials if trial.measured] == pytest.approx([2.0, 1.25], rel=0.02)
    alone = ["train", "train/OMP_NUM_THREADS=1", "train/OMP_NUM_THREADS=1", "train"]
    assert jobs.started[:6] == ["train", "train/num_workers=2 switched", *alone]
    assert "GPU" in tried.notes[-1]


def test_a_switch_that_the_ranks_refuse_is_made_by_a_restart(tries: Try) -> None:
    class Refuses(simulation(train=Nature(step_ms=100), **{"train/num_workers=2": Nature(step_ms=50)})):  # type: ignore[misc]
        def recording(self) -> Recording | None:
            made = super().recording()
            told = {"applied": [[0, 0]], "refused": [[0, "an IterableDataset"]], "switches": []}
            facts = {100: {"cuda": 0, "trial": told if self.schedule else APPLIED}}
            return replace(made, facts=facts) if made else None

    [trial] = tries(Refuses, report(DAT003=WORKERS)).trials
    assert (trial.outcome, trial.applied) == ("faster", "restart")


def test_a_job_too_large_for_two_runs_alone(tries: Try) -> None:
    natures = {
        "train": Nature(step_ms=100, memory_bytes=psutil.virtual_memory().total),
        "train/OMP_NUM_THREADS=1": Nature(step_ms=50),
    }
    jobs = simulation(**natures)
    assert "memory" in tries(jobs, report(CPU005=THREADS)).notes[-1]
    assert jobs.started.count("train") > 4


def test_two_jobs_that_want_the_same_port_run_one_after_the_other(tries: Try) -> None:
    class OnePort(simulation(train=Nature(step_ms=100), **{"train/num_workers=2": Nature(step_ms=50)})):  # type: ignore[misc]
        holder: SimulatedJob | None = None

        def computes_for(self, seconds: float) -> bool:
            if OnePort.holder not in (None, self):
                raise TrialFailed("the job ended with 1", "OSError: address already in use")
            OnePort.holder = self
            return bool(super().computes_for(seconds))

        def end(self) -> None:
            super().end()
            OnePort.holder = None if OnePort.holder is self else OnePort.holder

    tried = tries(OnePort, report(DAT003=WORKERS))
    assert [trial.outcome for trial in tried.trials] == ["faster"]
    assert "address already in use" in tried.notes[-1]


def test_after_a_change_with_which_no_job_starts_the_next_ones_are_tried_in_turns(tries: Try) -> None:
    jobs = simulation(
        **{
            "train": Nature(step_ms=100),
            "train/bucket_cap_mb=100": Nature(step_ms=100, fails_after_s=0.5),
            "train/OMP_NUM_THREADS=1": Nature(step_ms=50),
        }
    )
    tried = tries(jobs, report(COM003=BUCKETS, CPU005=THREADS))
    assert [trial.outcome for trial in tried.trials] == ["refused", "faster"]
    assert jobs.started[:4] == ["train", "train/bucket_cap_mb=100"] * 2, "in turns, and alone"
    assert tried.notes == (UNCONTAINED,)


def test_winners_that_can_all_be_switched_are_switched_together(tries: Try) -> None:
    jobs = simulation(
        **{
            "train": Nature(step_ms=200),
            "train/num_workers=2": Nature(step_ms=125),
            "train/fused=True": Nature(step_ms=160),
            "train/num_workers=2/fused=True": Nature(step_ms=100),
        }
    )
    tried = tries(jobs, report(DAT003=WORKERS, CMP014=CallChange.of("SGD", fused=True)))
    assert [trial.applied for trial in tried.trials] == ["live", "live"]
    assert tried.together is not None
    assert tried.together.speedup == pytest.approx(2.0, rel=0.02)
    assert jobs.started[-1] == "train/num_workers=2/fused=True switched"


def test_a_job_that_fails_by_itself_is_not_tried(tries: Try) -> None:
    with pytest.raises(AdvisorError, match="without any change the job ended with 1"):
        tries(simulation(train=Nature(step_ms=100, fails_after_s=1.5)), report(DAT003=WORKERS))


@pytest.mark.parametrize(
    ("used_gb", "ranks", "refused"), [(72, "0", True), (71, "0", False), (79, "", False), (None, "0", False)]
)
def test_a_full_gpu_leaves_no_room_for_trials(used_gb: float | None, ranks: str, refused: bool) -> None:
    used = None if used_gb is None else used_gb * 1e9
    strips = (GpuStrip(0, "A100"), GpuStrip(1, "A100", mem_used_bytes=used, mem_total_bytes=80e9, ranks=ranks))
    full = replace(samples.empty(), gpus=strips)
    if not refused:
        refuse_full_gpus(full)
        return
    with pytest.raises(AdvisorError, match="90 % of the memory of GPU 1 is in use"):
        refuse_full_gpus(full)


def test_a_job_that_makes_no_steps_in_time_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "TrialJob", simulation(train=Nature(step_ms=1e9)))
    with pytest.raises(AdvisorError, match="no steady steps") as failure:
        Trying(Settings(("train",), tmp_path, -1.0), lambda _: samples.empty(), lambda _: None).run()
    assert "--budget" in failure.value.hint


def test_what_goes_on_is_told(tries: Try, lines: list[str]) -> None:
    jobs = simulation(**{"train": Nature(step_ms=200), "train/num_workers=2": Nature(step_ms=100)})
    tries(jobs, report(DAT003=WORKERS))
    assert lines[0] == "starting the job as it is"
    assert any(line.startswith("DAT003: ") and " pairs, 2.0" in line for line in lines)
