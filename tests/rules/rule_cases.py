"""Analyses from plain numbers: a two-rank job with steps of one second, and for each rule the job that it is about. Not a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from rn50_advisor.advisor.model.analysis import (
    JOB,
    Analysis,
    Coincidence,
    Death,
    HotLine,
    LoaderFacts,
    PeriodicStall,
    SpeedChange,
    Stall,
    StalledRank,
)
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import WorkerFeed, WorkerModel, forecast
from rn50_advisor.advisor.model.recording import Meta
from rn50_advisor.advisor.model.report import Budget, Segment, StepTime, Throughput

Phases = dict[str, float]

OWN_PHASES = ("input_wait", "forward", "backward", "optimizer", "gap.evaluation", "gap.checkpoint", "gap")
SCRIPT = "/job/train.py"
META = Meta(
    "job", ("python", "train.py"), "/job", "node", 0.0, 0, 100_000_000_000, ended_ns=100_000_000_000, exit_code=0
)


def rank(own_s: float = 1.0, **given: float) -> Phases:
    """One rank's own time: what is not given is split among forward, backward and optimizer as 3 : 6 : 1."""
    rest = own_s - sum(given.values())
    compute = {"forward": 0.3 * rest, "backward": 0.6 * rest, "optimizer": 0.1 * rest}
    return {**dict.fromkeys(OWN_PHASES, 0.0), **compute, **given}


def job(
    own: Mapping[int, Phases],
    *,
    values: Mapping[str, float | Mapping[int, float]] | None = None,
    late: Mapping[int, float] | None = None,
    wire_s: float = 0.0,
    steady: int = 200,
    cores: float | None = 16.0,
    job_cores: float = 4.0,
    **more: Any,
) -> Analysis:
    """A job whose ranks own these seconds of a one-second step. `values`: a number for the job, or one for each rank."""
    found: dict[tuple[str, str], float] = {("step.time_s", JOB): 1.0, ("step.samples", JOB): 8.0}
    for number, phases in own.items():
        scope = f"rank:{number}"
        found["step.input_wait_s", scope] = phases["input_wait"]
        found["step.compute_s", scope] = phases["forward"] + phases["backward"] + phases["optimizer"]
        found["step.evaluation_s", scope] = phases["gap.evaluation"]
        found["step.checkpoint_s", scope] = phases["gap.checkpoint"]
        found["step.gap_s", scope] = phases["gap"]
        found["comm.late_share", scope] = (late or {}).get(number, 0.0)
    cpu = {"cpu.allowed_cores": cores, "cpu.job_cores": job_cores, "cpu.host_busy_cores": job_cores + 0.5}
    plain = {
        **{name: value for name, value in cpu.items() if value is not None},
        "comm.wire_s": wire_s,
        **(values or {}),
    }
    often = plain.get("comm.late_share") or late or dict.fromkeys(own, 1.0)
    if "comm.skew_s" in plain:
        each = plain["comm.skew_s"] / max(sum(often.values()), 1e-9)
        plain.setdefault("comm.kept_waiting_s", {number: each * share for number, share in often.items()})
    for name, value in plain.items():
        scoped = {JOB: value} if not isinstance(value, Mapping) else {f"rank:{n}": v for n, v in value.items()}
        found.update({(name, scope): float(v) for scope, v in scoped.items()})
    slowest = max(own, key=lambda number: sum(own[number].values()))
    made = Analysis(
        meta=META,
        world_size=len(own),
        step_time=StepTime(1.0, 1.1, steady + 3, steady),
        throughput=Throughput(8.0 * len(own), 1.0, 8.0, len(own)),
        values=found,
        model=StepModel(1.0, own, wire_s, job_cpu_s=job_cores, allowed_cores=cores),
        budget=Budget({**own[slowest], "comm_exposed": wire_s}, own),
        excess=_excess(own),
    )
    return replace(played(made), **more)


def played(analysis: Analysis) -> Analysis:
    """With the forecast over worker counts that its values give: all batches alike, handed over in no time."""
    walls, workers = analysis.by_rank("fetch.wall_s"), analysis.by_rank("loader.workers")
    shares, delays = analysis.by_rank("fetch.cpu_share"), analysis.by_rank("fetch.delay_share")
    batches, lines = analysis.by_rank("step.batches"), analysis.by_rank("step.run_delay_s")
    kernels, faults = analysis.by_rank("fetch.system_share"), analysis.by_rank("step.system_s")
    model = analysis.model
    if not walls or not workers or model is None:
        return analysis
    feeds = {}
    for number, wall in walls.items():
        busy = sum(model.own[number].values()) - model.own[number]["input_wait"] + model.wire_s
        delay = delays.get(number, 0.0)
        share = shares.get(number, 1.0 - delay)
        feeds[number] = WorkerFeed(
            workers=int(workers.get(number, 0)),
            computing_s=(share * wall,),
            waiting_s=(max(0.0, 1 - share - delay) * wall,),
            rest_s=(busy,),
            batches=batches.get(number, 1.0),
            delay_s=lines.get(number, 0.0),
            kernel_s=kernels.get(number, 0.0) * wall,
            faults_s=min(faults.get(number, 0.0), kernels.get(number, 0.0) * wall),
            training_cores=0.5,
        )
    known = WorkerModel(model, feeds, busy_cores=analysis.get("cpu.job_cores") or 1.0)
    foreseen = forecast(known)
    assert foreseen is not None
    values = {**analysis.values, ("loader.foreseen", JOB): float(foreseen.most)}
    return replace(analysis, workers=known, forecast=foreseen, values=values)


def _excess(own: Mapping[int, Phases]) -> dict[int, Phases]:
    if len(own) < 2:
        return {}
    return {
        number: {p: phases[p] - median(o[p] for n, o in own.items() if n != number) for p in OWN_PHASES}
        for number, phases in own.items()
    }


def without(analysis: Analysis, name: str) -> Analysis:
    """The same job where this value could not be measured."""
    return replace(analysis, values={key: value for key, value in analysis.values.items() if key[0] != name})


def loader(
    number: int, workers: int, *, line: int = 42, training: bool = True, persistent: bool = False, **more: Any
) -> LoaderFacts:
    dataset = more.pop("dataset", {})
    return LoaderFacts(number, line, training, SCRIPT, line, workers, 8, persistent, False, dataset, **more)


def _fed(wait: float, workers: int, wall: float, values: Mapping[str, Any], **more: Any) -> Analysis:
    """Both ranks wait so long for batches that take `wall` seconds to make."""
    own = {0: rank(input_wait=wait), 1: rank(input_wait=wait)}
    made = {"loader.workers": {0: workers, 1: workers}, "fetch.wall_s": {0: wall, 1: wall}, **values}
    return job(own, values=made, **{"loaders": (loader(0, workers), loader(1, workers)), **more})


def _each(value: float) -> dict[int, float]:
    return {0: value, 1: value}


def dat001(
    wait: float = 0.4,
    cpu: float = 0.8,
    delay: float = 0.1,
    busy: float = 15.0,
    *,
    workers: int = 4,
    allowed: float = 16.0,
    wall: float = 4.0,
    crowd: float = 0.0,
    others: float = 0.0,
    working: float = 0.0,
    handed: float = 0.0,
    **more: Any,
) -> Analysis:
    shares: dict[str, Any] = {"loader.busy_share": _each(working)} if working else {}
    shares |= {"fetch.hand_over_s": _each(handed), "step.batches": _each(1.0)} if handed else {}
    shares |= {"fetch.cpu_share": _each(cpu), "fetch.delay_share": _each(delay), "cpu.host_busy_cores": busy}
    shares |= {"cpu.allowed_cores": allowed, "cpu.other_cores": others, "step.run_delay_s": _each(crowd)}
    return _fed(wait, workers, wall, shares, job_cores=min(busy, 12.0), **more)


def dat002(
    wait: float = 0.4,
    blocked: float = 0.8,
    read_mb: float = 1.0,
    network: float = 0.0,
    *,
    workers: int = 2,
    **more: Any,
) -> Analysis:
    values = {
        "fetch.blocked_share": _each(blocked),
        "fetch.cpu_share": _each(1.0 - blocked),
        "fetch.read_mb": _each(read_mb),
        "fetch.read_mb_per_s": _each(read_mb),
        "data.network_mount": _each(network),
    }
    mount = {"mount_point": "/data", "fs_type": "ext4", "network": bool(network)}
    loaders = tuple(loader(number, workers, mount=mount) for number in (0, 1))
    return _fed(wait, workers, 1.0, values, loaders=loaders, **more)


def dat003(wait: float = 0.4, workers: int = 0, wall: float = 0.4, gc: float = 0.0, **more: Any) -> Analysis:
    return _fed(wait, workers, wall, {"step.gc_s": _each(gc)}, **more)


def dat004(
    wait: float = 0.4,
    busy: float = 0.95,
    idle: float = 11.5,
    workers: int = 2,
    *,
    wall: float = 1.9,
    allowed: float = 16.0,
    **more: Any,
) -> Analysis:
    values = {"loader.busy_share": _each(busy), "cpu.host_busy_cores": allowed - idle, "cpu.allowed_cores": allowed}
    values |= more.pop("values_too", {})
    return _fed(wait, workers, wall, values, job_cores=min(4.0, allowed - idle), **more)


def dat008(
    wait: float = 0.3,
    late: float = 0.9,
    others: float = 0.0,
    busy: float = 0.5,
    *,
    made: float = 0.1,
    slower: float = 5.0,
    **more: Any,
) -> Analysis:
    """Rank 1 waits so long for data; rank 0 computes `busy` seconds and waits for it. `made`: what rank 0's worker takes for a batch."""
    own = {0: rank(others + busy, input_wait=others), 1: rank(input_wait=wait)}
    values = {"fetch.wall_s": {0: made, 1: made * slower}}
    return job(
        own, late={0: 0.0, 1: late}, **{"values": values, "loaders": (loader(0, 2), loader(1, 2, line=57)), **more}
    )


def cmp007(slow: float = 1.0, usual: float = 0.6, late: float = 0.9, elsewhere: float = 0.0, **more: Any) -> Analysis:
    """Rank 1 computes `slow` seconds of the step, rank 0 `usual`; rank 1 loses `elsewhere` seconds besides."""
    own = {0: rank(usual), 1: rank(slow + elsewhere, gap=elsewhere)}
    return job(own, **{"values": {"step.compute_s": {0: usual, 1: slow}}, "late": {0: 0.0, 1: late}, **more})


def com001(wire: float = 0.2, **more: Any) -> Analysis:
    own = {0: rank(1.0 - wire), 1: rank(1.0 - wire)}
    return job(own, wire_s=wire, **{"values": {"comm.megabytes": 100.0}, **more})


def com002(
    skew: float = 0.3,
    late: float = 0.9,
    other: float = 0.05,
    *,
    faults: float = 0.0,
    costs: float | None = None,
    held: float = 0.0,
    **more: Any,
) -> Analysis:
    """Rank 1 comes last in `late` of the steps and causes `costs` of the skew; rank 0 comes last in `other` of them.

    For `faults` of these seconds the kernel serves rank 1's page faults, for `held` of each second a quota holds it back.
    """
    own = {0: rank(1.0 - skew), 1: rank()}
    kept = {} if costs is None else {"comm.kept_waiting_s": {0: (1.0 - costs) * skew, 1: costs * skew}}
    values = {"comm.skew_s": skew, **kept, "step.system_s": {0: 0.01, 1: 0.01 + faults}}
    values["quota.throttled_s_per_s"] = {0: 0.0, 1: held}
    return job(own, late={0: other, 1: late}, values=values, **more)


def cpu001(
    held: float = 0.5, periods: float = 0.6, *, everybody: bool = False, rest: float = 0.6, **more: Any
) -> Analysis:
    """A quota holds rank 1 back (or everybody); the other rank needs `rest` seconds."""
    own = {0: rank(1.0 if everybody else rest), 1: rank()}
    who = (0, 1) if everybody else (1,)
    values: dict[str, Mapping[int, float]] = {
        "quota.cores": dict.fromkeys(who, 0.35),
        "quota.throttled_share": dict.fromkeys(who, periods),
        "quota.throttled_s_per_s": dict.fromkeys(who, held),
    }
    return job(own, values=values, **more)


def cpu002(steal: float = 0.2, **more: Any) -> Analysis:
    return job({0: rank(), 1: rank()}, values={"cpu.steal_share": steal}, **more)


def cpu003(
    delay: float = 0.3,
    others: float = 8.0,
    busy: float = 15.0,
    only: float | None = None,
    *,
    helpers: float | None = None,
    **more: Any,
) -> Analysis:
    """Training threads wait `delay` seconds for a core (rank 0 only `only`), while others keep cores busy, or the job's own helpers."""
    delays = {0: delay if only is None else only, 1: delay}
    values: dict[str, Any] = {"step.run_delay_s": delays, "cpu.other_cores": others, "cpu.host_busy_cores": busy}
    if helpers is not None:
        values["cpu.helper_cores"] = helpers
        more.update(helpers={"python embed.py": helpers}, job_cores=4.0 + helpers)
    return job({0: rank(), 1: rank()}, values=values, **more)


def lop001(
    spent: float = 0.2, gap: float = 0.0, saving: float = 0.0, *, other: float = 0.5, seen: bool = True, **more: Any
) -> Analysis:
    """Rank 0 writes checkpoints, also in this share of the time between its steps; rank 1 needs `other` seconds and waits."""
    sites = ({"id": 0, "file": SCRIPT, "line": 88, "count": 6},) if seen else ()
    own = {0: rank(**{"gap.checkpoint": spent, "gap": gap}), 1: rank(other)}
    return job(own, **{"save_sites": sites, "values": {"gap.save_share": saving}, **more})


def hot(line: int, function: str, *, io: bool, samples: int = 9) -> HotLine:
    return HotLine(SCRIPT, line, function, f"{function} (train.py:{line})", samples, samples / 10, io)


def lop002(spent: float = 0.2, output: float = 0.9, **more: Any) -> Analysis:
    lines = (hot(70, "fit", io=False, samples=1), hot(71, "log_step", io=True))
    own = {0: rank(gap=spent), 1: rank(gap=spent)}
    return job(own, **{"values": {"gap.io_share": output}, "hot_lines": lines, **more})


def lop003(spent: float = 0.3, times: int = 4, **more: Any) -> Analysis:
    found = tuple(Segment("evaluation", float(n), n + 0.5, n, n) for n in range(times))
    loaders = (loader(0, 4), loader(0, 0, line=60, training=False))
    own = {number: rank(**{"gap.evaluation": spent}) for number in (0, 1)}
    return job(own, **{"segments": found, "loaders": loaders, **more})


def lop004(
    spent: float = 0.2, output: float | None = 0.1, *, seen: bool = True, step_s: float = 1.0, **more: Any
) -> Analysis:
    lines = (hot(71, "log_step", io=True, samples=1), hot(93, "smooth_weights", io=False)) if seen else ()
    values = {"step.time_s": step_s, **({} if output is None else {"gap.io_share": output})}
    return job({0: rank(step_s, gap=spent), 1: rank(step_s, gap=spent)}, values=values, hot_lines=lines, **more)


def lop005(total: float = 200.0, run: float = 1000.0, *, first_step: float = 0.1, **more: Any) -> Analysis:
    """Of the start-up this share is the first step's own, a tenth the first fetch."""
    values = {
        "start.total_s": total,
        "start.before_s": (0.9 - first_step) * total,
        "start.fetch_s": 0.1 * total,
        "start.first_step_s": first_step * total,
        "run.duration_s": run,
    }
    return job({0: rank()}, values=values, **more)


def stands(
    number: int, *, waits: bool = False, culprit: bool = False, phase: str = "forward", **more: Any
) -> StalledRank:
    where = {"file": SCRIPT, "line": 33, "function": "find_batch", "leaf": "read (io.py:9)", **more}
    return StalledRank(number, phase, 12, 40.0, culprit=culprit, waiting_in_collective=waits, **where)


def run001(
    stalled: float = 40.0,
    p99: float = 1.2,
    *,
    ended: bool = False,
    ranks: tuple[StalledRank, ...] | None = None,
    is_running: bool = False,
    **more: Any,
) -> Analysis:
    """Rank 1 stands in a function of the user's; rank 0 waits for it."""
    if ranks is None:
        ranks = (stands(0, waits=True, phase="backward"), stands(1, culprit=True))
    return unjudged(stalls=(Stall(50.0, stalled, ended, 1.0, p99, ranks, **more),), running=is_running)


def death(number: int | None, **more: Any) -> Death:
    given = {"exit_code": 1, "signal": None, "oom_killed": False, "phase": "backward", "step": 12, **more}
    return Death(number, 100 + (number or 0), given.pop("t_s", 10.0), **given)


def run002(deaths: tuple[Death, ...] | None = None, *, exit_code: int = 1) -> Analysis:
    """Rank 1 was killed, and the launcher ended rank 0."""
    if deaths is None:
        first = death(1, exit_code=None, signal=9, first=True)
        deaths = (first, death(0, exit_code=None, signal=15, t_s=11.0))
    return unjudged(deaths=deaths, meta=replace(META, exit_code=exit_code))


def run003(
    after: float = 1.4,
    steps: tuple[float, float] = (200.0, 200.0),
    lasted: float = 280.0,
    *,
    alike: bool = False,
    until: float | None = None,
    lost: float | None = None,
    seen: tuple[Coincidence, ...] = (),
    number: int | None = 1,
    phase: str = "forward",
    **more: Any,
) -> Analysis:
    """From step 200 on rank 1 takes `after` seconds where it took one, in its forward."""
    own = {0: rank(), 1: rank()}
    share = (1.0 - 1.0 / after) / 2 if lost is None else lost
    change = SpeedChange(
        step=200, t_s=212.0, until_s=until, before_s=1.0, after_s=after, steps_before=steps[0], steps_after=steps[1],
        lasted_s=lasted, lost_share=share, rank=number, phase=phase, phase_s=after - 1.0, alike=alike, coincidences=seen,
    )  # fmt: skip
    return job(own, **{"changes": (change,), **more})


def run004(
    share: float = 0.2,
    events: int = 12,
    *,
    coincides: str = "",
    phase: str = "gap",
    steps: float | None = 25.0,
    number: int | None = None,
    **more: Any,
) -> Analysis:
    """Every 25 steps one takes far longer, after the optimizer."""
    own = {0: rank(gap=share), 1: rank(gap=share)}
    pulse = PeriodicStall(
        period_steps=steps, period_s=26.0, events=events, steps=25 * events, usual_s=1.0, stall_s=25 * share, share=share,
        rank=number, phase=phase, coincides=coincides, last_step=300,
    )  # fmt: skip
    return job(own, **{"pulse": pulse, "hot_lines": (hot(93, "fetch_metrics", io=False),), **more})


def unjudged(**more: Any) -> Analysis:
    """A job of two ranks without a single steady step."""
    nothing = Throughput(None, None, None, 2)
    return replace(Analysis(META, 2, StepTime(None, None, 0, 0), nothing), **more)
