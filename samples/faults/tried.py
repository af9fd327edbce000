"""`python -m samples.faults.tried`: `try` on seeded faults, and what editing the file brings, measured right after it in the same way."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from rn50_advisor.advisor.model.trials import MeasuredSpeedup
from rn50_advisor.advisor.trials.blocks import BlockSchedule, settling_steps
from rn50_advisor.advisor.trials.judgement import PairJudgement, judge
from rn50_advisor.advisor.trials.keeper import Keeper
from rn50_advisor.advisor.trials.pairing import OutOfTime, TrialSide, Turns, in_blocks, schedule_of
from rn50_advisor.advisor.trials.trial_job import Order, TrialFailed
from rn50_advisor.advisor.trials.trying import Settings, Trying
from rn50_advisor.advisor.verdict.diagnose import diagnose
from samples.faults.__main__ import choose
from samples.faults.observe import SAMPLES, launcher
from samples.faults.scenario import Job, Scenario

# Faults whose fix can be applied from outside: one of each mechanism, and sound jobs, of which nothing is to be found faster.
USUAL = (
    "in-process-one-rank",
    "in-process-stream",
    "too-few-workers",
    "twelve-workers-at-once",
    "workers-restart",
    "workers-for-small-tensors",
    "masks-sent-in-every-step",
    "too-many-threads",
    "package-that-takes-the-cores",
    "anomaly-detection-left-on",
    "optimizer-not-fused",
    "momentum-becomes-denormal",
    "embedding-gradients-dense-under-sgd",
    "healthy-resnet18",
)
# Jobs that are measured against themselves: much loading, much computing, several threads.
SAME = (
    "in-process-one-rank",
    "healthy-resnet18",
    "optimizer-not-fused",
    "too-many-threads",
    "embedding-gradients-dense-under-sgd",
)
_NOTHING = {
    "kind": "setup",
    "statements": [{"assign": "torch.backends.cudnn.benchmark", "value": False}],
}  # of no effect on a CPU
_LONG = "--steps=100000"  # a trial ends when it has seen enough
_TRUTH_S = 240.0
_PREFETCHED = 4  # batches, as of two workers


@dataclass(frozen=True, slots=True)
class Row:
    """`edited`: the speed-up of the job with its file edited; None: it was not measured."""

    scenario: str
    truth: tuple[str, ...]
    verdict: str | None  # rule of the best trial
    measured: MeasuredSpeedup | None
    edited: MeasuredSpeedup | None
    took_s: float
    error: str = ""

    @property
    def right(self) -> bool:
        return self.verdict in self.truth if self.truth else self.verdict is None

    @property
    def inside(self) -> bool | None:
        if self.measured is None or self.edited is None:
            return None
        return self.measured.lo <= self.edited.speedup <= self.measured.hi


def command(job: Job, folder: Path) -> list[str]:
    """The job as a user types it, long enough for any trial."""
    arguments = [argument.format(out=folder) for argument in job.arguments]
    has_steps = '"--steps"' in (SAMPLES / job.script).read_text()
    return [*launcher(job), str(SAMPLES / job.script), *arguments, *([_LONG] if has_steps else [])]


def try_scenario(scenario: Scenario, budget_s: float, tell_folder: Path) -> Row:
    job, fixed = scenario.job, scenario.remedy.job if scenario.remedy else None
    assert isinstance(job, Job)
    began_s = time.monotonic()
    argv = tuple(command(job, tell_folder))
    try:
        settings = Settings(argv, tell_folder, budget_s, environment=job.environment)
        tried = Trying(settings, diagnose, click.echo).run()
    except Exception as error:  # noqa: BLE001 - no reason to lose the remaining scenarios
        return Row(scenario.name, scenario.truth.roots, None, None, None, time.monotonic() - began_s, repr(error))
    for trial in tried.trials:
        click.echo(f"    {trial.rule} {trial.knob}: {trial.outcome} {trial.reason} {trial.measured}")
    took_s, best = time.monotonic() - began_s, tried.best
    right = next((trial for trial in tried.trials if trial.rule in scenario.truth.roots), None)
    measured = right.measured if right else None
    edited = _edited(job, as_advised(job, fixed, right.knob), tell_folder) if right and measured and fixed else None
    return Row(scenario.name, scenario.truth.roots, best.rule if best else None, measured, edited, took_s)


def as_advised(job: Job, fixed: Job, knob: str) -> Job:
    """The job with the number of workers that the trial's `knob` has: the remedy may have another one. Else the remedy."""
    call = ast.parse(knob, mode="eval").body if knob.startswith("DataLoader(") else None
    asked = {word.arg: ast.literal_eval(word.value) for word in call.keywords} if isinstance(call, ast.Call) else {}
    if "num_workers" not in asked:
        return fixed
    persistent = asked["num_workers"] and asked.get("persistent_workers")
    return job(f"--workers={asked['num_workers']}", *(["--persistent"] if persistent else []))


def measured_against_itself(scenario: Scenario, budget_s: float, folder: Path) -> dict[str, PairJudgement | None]:
    """The answers about a change without effect, switched in one job and by restarts; None: there was no time for one."""
    job = scenario.job
    assert isinstance(job, Job)
    argv, keeper = command(job, folder), Keeper()

    def side(name: str, schedule: BlockSchedule | None = None) -> TrialSide:
        live = {"variants": [[], [_NOTHING]], **asdict(schedule)} if schedule else None
        return TrialSide(Order(argv, job.environment, {"changes": [], "live": live}), folder / name, keeper)

    base, again = side("as-it-is"), side("again")
    found: dict[str, PairJudgement | None] = {"live": None, "restart": None}
    try:
        settling = settling_steps(_PREFETCHED, 1)
        schedule = schedule_of(base.start(math.inf).step_s, settling)
        switching = side("switched", schedule)
        for way, pairs in (
            ("live", in_blocks(switching, schedule, settling, time.monotonic() + budget_s)),
            ("restart", Turns()(base, again, time.monotonic() + budget_s)),
        ):
            with contextlib.suppress(OutOfTime):
                for ratios in pairs:
                    judgement = found[way] = judge(ratios)
                    if not judgement.go_on:
                        break
            switching.end()
    finally:
        base.end()
        again.end()
        keeper.close()
    return found


def _edited(job: Job, fixed: Job, folder: Path) -> MeasuredSpeedup | None:
    keeper = Keeper()
    base, after = (
        TrialSide(Order(command(one, folder), one.environment, {"changes": [], "live": None}), folder / name, keeper)
        for one, name in ((job, "as-it-is"), (fixed, "edited"))
    )
    found = None
    try:
        base.start(math.inf)
        for pairs in Turns()(base, after, time.monotonic() + _TRUTH_S):
            found = judge(pairs, comparisons=1).measured
            click.echo(f"    edited, pair by pair: {' '.join(f'{math.exp(pair):.2f}' for pair in pairs)}")
    except (TrialFailed, OutOfTime) as error:
        click.echo(f"    edited: {error!r}")
    finally:
        base.end()
        after.end()
        keeper.close()
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, metavar="NAME|GLOB", help="These scenarios; default: one of each mechanism.")
@click.option("--budget", type=float, default=180.0, show_default=True, metavar="SECONDS", help="Of each call of try.")
@click.option("--same", is_flag=True, help="Measure jobs against themselves: nothing is to be found faster.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
def main(*, only: tuple[str, ...], budget: float, same: bool, json_file: Path | None) -> None:
    """Try the advised fixes of seeded faults, and compare with what editing the file brings."""
    if same:
        _say_same(only or SAME, budget)
        return
    rows: list[Row] = []
    for scenario in choose(only or USUAL, "all"):
        click.echo(scenario.name)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            rows.append(try_scenario(scenario, budget, Path(name)))
        row = rows[-1]
        found = f"{row.verdict} ({'right' if row.right else 'wrong'})"
        click.echo(f"  {found}, {row.measured}, edited {row.edited}, {row.took_s:.0f} s {row.error}")
        if json_file:
            json_file.write_text("".join(json.dumps(asdict(one)) + "\n" for one in rows))
    held = [row.inside for row in rows if row.inside is not None]
    widths = [(row.measured.hi - row.measured.lo) / 2 / row.measured.speedup for row in rows if row.measured]
    click.echo(f"{sum(row.right for row in rows)} of {len(rows)} right, {sum(held)} of {len(held)} inside")
    if widths:
        click.echo(f"half width: {statistics.median(widths):.1%} in the median, {max(widths):.1%} at most")


def _say_same(names: Sequence[str], budget_s: float) -> None:
    answers: list[str] = []
    for scenario in choose(names, "all"):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            for way, judgement in measured_against_itself(scenario, budget_s, Path(name)).items():
                answers.append(judgement.outcome if judgement else "no time")
                click.echo(f"{scenario.name} {way}: {answers[-1]} {judgement and judgement.measured}")
    click.echo(f"{answers.count('faster')} of {len(answers)} called faster")


if __name__ == "__main__":
    main()
