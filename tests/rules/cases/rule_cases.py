"""Analyses from plain numbers: a two-rank job with steps of one second, and for each rule the job that it is about. Not a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from rn50_advisor.advisor.model.analysis import (
    JOB,
    Analysis,
    HotLine,
    LoaderFacts,
    PeriodicStall,
)
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import Forecast, WorkerFeed, WorkerModel, forecast
from rn50_advisor.advisor.model.recording import Meta
from rn50_advisor.advisor.model.report import Budget, StepTime, Throughput

Phases = dict[str, float]
OWN_PHASES = ("input_wait", "forward", "backward", "optimizer", "gap.evaluation", "gap.checkpoint", "gap")
SCRIPT = "/job/train.py"
LINE = Where(SCRIPT, 42)
WAIT = {"input_wait": ({"wait": 0.05}, {"wait": 0.0499})}
META = Meta(
    "job", ("python", "train.py"), "/job", "node", 0.0, 0, 100_000_000_000, ended_ns=100_000_000_000, exit_code=0
)

_FORESEEN: dict[str, Forecast] = {}  # by the model: tables ask for the same jobs again and again


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
    found: dict[tuple[str, int | str], float] = {("step.time_s", JOB): 1.0, ("step.samples", JOB): 8.0}
    for number, phases in own.items():
        found["step.input_wait_s", number] = phases["input_wait"]
        found["step.compute_s", number] = phases["forward"] + phases["backward"] + phases["optimizer"]
        found["step.evaluation_s", number] = phases["gap.evaluation"]
        found["step.checkpoint_s", number] = phases["gap.checkpoint"]
        found["step.gap_s", number] = phases["gap"]
        found["comm.late_share", number] = (late or {}).get(number, 0.0)
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
        scoped = value if isinstance(value, Mapping) else {JOB: value}
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
    foreseen = _FORESEEN.get(repr(known)) or forecast(known)
    assert foreseen is not None
    _FORESEEN[repr(known)] = foreseen
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
    number: int,
    workers: int,
    *,
    line: int = 42,
    training: bool = True,
    persistent: bool = False,
    size: int | None = 8,
    **more: Any,
) -> LoaderFacts:
    dataset = more.pop("dataset", {})
    return LoaderFacts(number, line, training, SCRIPT, line, workers, size, persistent, False, dataset, **more)


def _fed(wait: float, workers: int, wall: float, values: Mapping[str, Any], **more: Any) -> Analysis:
    """Both ranks wait so long for batches that take `wall` seconds to make."""
    own = {0: rank(input_wait=wait), 1: rank(input_wait=wait)}
    made = {"loader.workers": {0: workers, 1: workers}, "fetch.wall_s": {0: wall, 1: wall}, **values}
    return job(own, values=made, **{"loaders": (loader(0, workers), loader(1, workers)), **more})


def on_both_ranks(value: float) -> dict[int, float]:
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
    shares: dict[str, Any] = {"loader.busy_share": on_both_ranks(working)} if working else {}
    shares |= {"fetch.hand_over_s": on_both_ranks(handed), "step.batches": on_both_ranks(1.0)} if handed else {}
    shares |= {
        "fetch.cpu_share": on_both_ranks(cpu),
        "fetch.delay_share": on_both_ranks(delay),
        "cpu.host_busy_cores": busy,
    }
    shares |= {"cpu.allowed_cores": allowed, "cpu.other_cores": others, "step.run_delay_s": on_both_ranks(crowd)}
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
        "fetch.blocked_share": on_both_ranks(blocked),
        "fetch.cpu_share": on_both_ranks(1.0 - blocked),
        "fetch.read_mb": on_both_ranks(read_mb),
        "fetch.read_mb_per_s": on_both_ranks(read_mb),
        "data.network_mount": on_both_ranks(network),
    }
    mount = {"mount_point": "/data", "fs_type": "ext4", "network": bool(network)}
    loaders = tuple(loader(number, workers, mount=mount) for number in (0, 1))
    return _fed(wait, workers, 1.0, values, loaders=loaders, **more)


def dat003(wait: float = 0.4, workers: int = 0, wall: float = 0.4, gc: float = 0.0, **more: Any) -> Analysis:
    return _fed(wait, workers, wall, {"step.gc_s": on_both_ranks(gc)}, **more)


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
    values = {
        "loader.busy_share": on_both_ranks(busy),
        "cpu.host_busy_cores": allowed - idle,
        "cpu.allowed_cores": allowed,
    }
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


def hot(line: int, function: str, *, io: bool, samples: int = 9) -> HotLine:
    return HotLine(SCRIPT, line, function, f"{function} (train.py:{line})", samples, samples / 10, io)


def lop004(
    spent: float = 0.2, output: float | None = 0.1, *, seen: bool = True, step_s: float = 1.0, **more: Any
) -> Analysis:
    lines = (hot(71, "log_step", io=True, samples=1), hot(93, "smooth_weights", io=False)) if seen else ()
    values = {"step.time_s": step_s, **({} if output is None else {"gap.io_share": output})}
    return job({0: rank(step_s, gap=spent), 1: rank(step_s, gap=spent)}, values=values, hot_lines=lines, **more)


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
