"""Values that several rules derive from an analysis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Evidence, Fix, Where
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import Forecast
from rn50_advisor.advisor.model.free_cores import Cores
from rn50_advisor.advisor.model.input.data_loaders import with_helpers_s
from rn50_advisor.advisor.model.measures.host_measures import (
    CPU_AFFINITY_CORES,
    CPU_ALLOWED_CORES,
    CPU_HOST_BUSY_CORES,
    CPU_HOST_CORES,
    CPU_JOB_CORES,
    CPU_OTHER_CORES,
    CPU_STEAL_SHARE,
    MEMORY_HEADROOM_MB,
    MEMORY_WORKER_MB,
    SHM_TOTAL_MB,
    SHM_USED_SHARE,
    THREADS_INTRA_OP,
    THREADS_WAITING,
)
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_CPU_SHARE,
    FETCH_WALL_S,
    LOADER_HELPER_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_BATCHES,
    STEP_EPOCH_START_S,
    STEP_INDEX_S,
    STEP_RUN_DELAY_S,
    STEP_SYSTEM_S,
    STEP_TIME_S,
    STEP_WAITING_S,
)
from rn50_advisor.advisor.model.statistics import others_median
from rn50_advisor.advisor.model.wording.quantities import duration

LAYERS = ("forward", "backward")
COMPUTE = (*LAYERS, "optimizer")
_OF_PARTS = ("all_to_all", "reduce_scatter")  # collectives of ranks that compute parts of one batch
PREFETCH = 2  # torch's default, in batches per worker
# Private memory of a worker if none was measured: forked ones that decode images took 121 and 137 MB, others 10 to 73; those of a
# fork server, which share nothing, 310.
_WORKER_MB = 140.0
# Share of the free memory that more workers may take: peaks and the page cache need the rest.
_MEMORY_SHARE = 0.8
_SHM_SHARE = 0.9  # from there on DAT012 calls it nearly full
# Even a worker that sleeps while it makes a batch has to receive and send data.
_CORE_SHARE_MIN = 0.05
# A cheaper batch is the better fix than more workers only if it gains more than two runs of one job differ by.
_BETTER_RATIO_MAX = 0.95
# A parallel region ends with its last thread. With two threads, steps became shorter than without their own waits by 0.68 to 0.79 of the
# other thread's, in three jobs whose samples were made cheap.
_HELD_UP = 0.75
_COLLECTOR_CALLS_MIN = 2  # stack samples at one line: a single one may be a call that is made now and then
_STALL_SLEEP_SHARE = 0.6  # of the sleep: a stall counts beyond the usual step, which also sleeps a little


def common(by_rank: Mapping[int, float]) -> float:
    """The lower median: at least half of the ranks reach it, and one slow rank alone does not raise it."""
    ordered = sorted(by_rank.values())
    return ordered[(len(ordered) - 1) // 2]


def mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)


def stalls_asleep(a: Analysis) -> bool:
    """True if most of the step's sleep in the script's own code falls into periodic stalls."""
    pulse, waits = a.pulse, a.by_rank(STEP_WAITING_S)
    if pulse is None or pulse.phase not in LAYERS or not waits:
        return False
    return pulse.share * a.value(STEP_TIME_S) >= _STALL_SLEEP_SHARE * max(waits.values())


def model_of(a: Analysis) -> StepModel:
    """The step model, which exists whenever `step.time_s` was measured."""
    if a.model is None:
        raise KeyError("step.time_s")
    return a.model


def taken_from(own: Mapping[str, float], phases: Iterable[str], seconds: float) -> dict[str, float]:
    """A rank's phases after `seconds` are removed in total, from the first phase as far as it goes, then from the next."""
    left = {}
    for phase in phases:
        taken = min(seconds, own[phase])
        left[phase] = own[phase] - taken
        seconds -= taken
    return left


def heap_fault_s(a: Analysis, rank: int) -> float:
    """Seconds per step of kernel time in this rank's compute beyond the others': page faults caused by malloc.

    Whether a process's heap shrinks and grows in each step is chance: of twelve starts of one sound job on two cores, two had a rank
    1.2 times slower by it, a different one each time; with MALLOC_TRIM_THRESHOLD_ set out of reach, ranks differed by 2 %.
    """
    system = a.by_rank(STEP_SYSTEM_S)
    return max(0.0, system[rank] - others_median(system, rank)) if rank in system and len(system) > 1 else 0.0


def cores_of(a: Analysis) -> Cores:
    """Use of the cores. Raises KeyError if the busy cores of the job or the host were not measured."""
    host = a.get(CPU_HOST_CORES)
    return Cores(
        allowed=a.value(CPU_ALLOWED_CORES),
        job=a.value(CPU_JOB_CORES),
        busy=a.value(CPU_HOST_BUSY_CORES),
        others=a.get(CPU_OTHER_CORES),
        host=host,
        affinity=a.get(CPU_AFFINITY_CORES),
        stolen=(a.get(CPU_STEAL_SHARE) or 0.0) * (host or 0.0),
    )


def idle_cores(a: Analysis) -> float:
    """Idle cores that the job could have used while the steps ran."""
    return cores_of(a).idle


def busy_evidence(a: Analysis) -> Evidence:
    """Evidence that no core is idle: the job uses all cores it is allowed, or the host is fully busy."""
    cores = cores_of(a)
    if cores.allowed - cores.job <= cores.idle:
        note = f"of {cores.allowed:g} allowed: no room for another worker"
        return Evidence.of(CPU_JOB_CORES, cores.job, note=note, form="continues")
    whole = max(cores.allowed, cores.host or 0.0)
    note = f"of {whole:g}{' of the host' if whole > cores.allowed else ' allowed'}: no room for another worker"
    return Evidence.of(CPU_HOST_BUSY_CORES, cores.busy, note=note, form="continues")


def spare_cores(a: Analysis, *, cores: float, share: float) -> float:
    """The idle cores that another worker needs: `cores`, or on larger hosts this share of the allowed ones."""
    return max(cores, share * a.value(CPU_ALLOWED_CORES))


def cpu_of_workers_s(a: Analysis) -> float:
    """CPU seconds per step that loader workers take to make batches, over all their threads and all ranks of the host."""
    shares, batches, helping = a.by_rank(FETCH_CPU_SHARE), batches_made(a), a.by_rank(LOADER_HELPER_SHARE)
    return sum(
        with_helpers_s(shares.get(rank, 0.0) * wall * batches.get(rank, 1.0), helping.get(rank))
        for rank, wall in a.of_host(a.by_rank(FETCH_WALL_S)).items()
        if a.get(LOADER_WORKERS, rank)
    )


def batches_made(a: Analysis) -> dict[int, float]:
    """Batches per step from the training loader, by rank: all of them, unless other loaders feed the step too."""
    loaders = {rank: a.training_loader(rank) for rank in a.by_rank(STEP_BATCHES)}
    own = {rank: loader.per_step for rank, loader in loaders.items() if loader and loader.per_step}
    return {**a.by_rank(STEP_BATCHES), **own}


def own_delay_s(a: Analysis) -> dict[int, float]:
    """Seconds per step that each rank's training thread waits for a core that the job itself, not a neighbour, keeps busy.

    Empty if the neighbours' use was not measured.
    """
    if not _neighbours_known(a):
        return {}
    own = 1.0 - strangers_share(a)
    return {rank: delay * own for rank, delay in a.by_rank(STEP_RUN_DELAY_S).items()}


def held_up_s(a: Analysis) -> dict[int, float]:
    """Seconds per step that each rank's training thread waits for a core held by the job, or for threads of parallel regions that do."""
    kept, step, waiting = 1.0 - strangers_share(a), a.value(STEP_TIME_S), a.by_rank(THREADS_WAITING)
    found = {}
    for rank, delay in own_delay_s(a).items():
        others = (a.get(THREADS_INTRA_OP, rank) or 1.0) - 1.0
        waited = max(0.0, waiting.get(rank, 0.0) * step * kept - delay)
        found[rank] = delay + (_HELD_UP * waited / others if others > 0 else 0.0)
    return found


def strangers_share(a: Analysis) -> float:
    """Share of the cores in use that processes outside the job keep busy among those that the job may use; 0 if it was not measured."""
    if not _neighbours_known(a):
        return 0.0
    cores = cores_of(a)
    taken = cores.taken or 0.0
    return taken / max(cores.job + taken, 1e-9)


def _neighbours_known(a: Analysis) -> bool:
    needed = (CPU_ALLOWED_CORES, CPU_JOB_CORES, CPU_HOST_BUSY_CORES, CPU_OTHER_CORES)
    return all(a.get(measure) is not None for measure in needed)


def without_delay(model: StepModel, delays: Mapping[int, float]) -> dict[tuple[int, str], float]:
    """Changes for `StepModel.step_if`: these ranks regain these seconds of waiting for a core, spread over their phases."""
    changes: dict[tuple[int, str], float] = {}
    for rank, delay in delays.items():
        own = model.own_s(rank)
        keep = max(0.0, own - delay) / own if own > 0 else 1.0
        changes |= {(rank, phase): seconds * keep for phase, seconds in model.own[rank].items()}
    return changes


def step_without(a: Analysis, phase: str, spared_s: Mapping[int, float]) -> float:
    """The step with these seconds removed from this phase on these ranks."""
    model = model_of(a)
    return model.step_if({(rank, phase): model.own[rank][phase] - seconds for rank, seconds in spared_s.items()})


def lost_to_input(a: Analysis) -> float:
    """Seconds per step lost to waiting for input."""
    model = model_of(a)
    return model.step_s - model.step_if({(rank, "input_wait"): beside_batches(a, rank) for rank in model.own})


def beside_batches(a: Analysis, rank: int) -> float:
    """The part of a rank's input wait that faster loading does not change: starting workers (DAT006), drawing indices (DAT015)."""
    return (a.get(STEP_EPOCH_START_S, rank) or 0.0) + (a.get(STEP_INDEX_S, rank) or 0.0)


def delay_evidence(delay_s: float, least_s: float | None) -> Evidence:
    note = f"the training thread waits {duration(delay_s)} for a core in each step"
    return Evidence.of(STEP_RUN_DELAY_S, delay_s, least_s, note)


def crowding_evidence(step_s: float, crowd_s: float, threshold: float) -> Evidence:
    note = f"{100 * crowd_s / step_s:.0f} % of a step the training thread waits for a core that the workers hold"
    return Evidence.of(STEP_RUN_DELAY_S, crowd_s, threshold * step_s, note)


def where_of(loader: LoaderFacts | None) -> Where | None:
    return Where(loader.file, loader.line) if loader is not None and loader.file else None


def sampler_of(a: Analysis, loader: LoaderFacts | None) -> Where | None:
    """Where most of the indices are drawn: the line of the job's sampler, or the loader's where torch draws them."""
    return next((Where(line.file, line.line) for line in a.drawing_lines), where_of(loader))


def training_loader(a: Analysis, ranks: Mapping[int, float]) -> LoaderFacts | None:
    return next((loader for rank in sorted(ranks) if (loader := a.training_loader(rank)) is not None), None)


def worker_cap(a: Analysis) -> int | None:
    """Workers per rank that fit into the cores (one per rank kept for training), memory and /dev/shm; None if unknown."""
    cores = a.get(CPU_ALLOWED_CORES)
    fits = [] if cores is None else [max(0, math.floor(cores / a.ranks_of_host) - 1)]
    return min([*fits, *(n for _, n in limits_beside_cores(a))], default=None)


def limits_beside_cores(a: Analysis, ahead: int | None = None) -> tuple[tuple[str, int], ...]:
    """Workers per rank that fit into resources other than cores, if known: ("the memory", 5), ("/dev/shm", 12).

    `ahead`: batches that each worker would prefetch, if that is to change.
    """
    ranks_seen = sorted({loader.rank for loader in a.loaders})
    loaders = [loader for rank in ranks_seen if (loader := a.training_loader(rank)) is not None]
    present = max((loader.num_workers for loader in loaders), default=0)
    batch_mb = max((loader.batch_bytes or 0 for loader in loaders), default=0) / 1e6
    now = max((loader.prefetch_factor or PREFETCH for loader in loaders), default=PREFETCH)
    ahead = ahead or now
    ranks, found = a.ranks_of_host, []
    left_mb = a.get(MEMORY_HEADROOM_MB)
    if left_mb is not None:
        measured_mb = a.get(MEMORY_WORKER_MB)
        worker_mb = measured_mb or _WORKER_MB
        deeper_mb = present * (ahead - now) * batch_mb
        more = (_MEMORY_SHARE * left_mb / ranks - deeper_mb) / (worker_mb + ahead * batch_mb)
        name = "the memory" if measured_mb else f"the memory ({_WORKER_MB:g} MB each)"
        found.append((name, max(0, present + math.floor(more))))
    total_mb, used = a.get(SHM_TOTAL_MB), a.get(SHM_USED_SHARE)
    if total_mb and used is not None and batch_mb:
        # its other contents stay there
        others_mb = max(0.0, used * total_mb - ranks * present * now * batch_mb)
        free_mb = (_SHM_SHARE * total_mb - others_mb) / ranks - batch_mb  # the loop still holds one
        found.append(("/dev/shm", max(0, math.floor(free_mb / (ahead * batch_mb)))))
    return tuple(found)


def forecast_of(a: Analysis) -> Forecast:
    """The forecast over worker counts, which exists wherever `fetch.wall_s` was measured."""
    if a.forecast is None:
        raise KeyError("fetch.wall_s")
    return a.forecast


def workers_that_fit(a: Analysis) -> int | None:
    """Workers per rank that fit: one for each core of the rank, more if they mostly wait, and at most `worker_cap`."""
    cap, cores = worker_cap(a), a.get(CPU_ALLOWED_CORES)
    if cap is None or cores is None or a.workers is None:
        return cap
    own = cores / a.ranks_of_host
    if cap < math.floor(own) - 1:
        return max(1, cap)  # another resource than the cores is short
    return max(1, min([_workers_on_cores(a, own), *(count for _, count in limits_beside_cores(a))]))


def _workers_on_cores(a: Analysis, cores: float) -> int:
    return max(1, math.floor(cores / core_share(a) + 1e-6))


def better_than_workers(a: Analysis, step_s: float) -> bool:
    """True if this step is clearly shorter than the one that is likely with as many workers as are advised."""
    return step_s < _BETTER_RATIO_MAX * math.sqrt(math.prod(forecast_of(a).step_s(workers_for(a)[0])))


def limit_words(a: Analysis) -> str:
    """`8 would fit the cores, 5 the memory`, if another resource than the cores sets the limit; else empty."""
    cores = a.get(CPU_ALLOWED_CORES)
    if cores is None:
        return ""
    on_cores = _workers_on_cores(a, cores / a.ranks_of_host)
    fewer = sorted((-count, name) for name, count in limits_beside_cores(a) if count < on_cores)
    return (
        ", ".join([f"{on_cores} would fit the cores", *(f"{-count} {name}" for count, name in fewer)]) if fewer else ""
    )


def free_space_fix(a: Analysis, workers: int, where: Where | None) -> Fix:
    """The fix if not one worker more would fit: free space first."""
    full = min(limits_beside_cores(a), key=lambda limit: limit[1])[0]
    more = "docker run --shm-size=8g" if full == "/dev/shm" else "a larger limit, or less kept in each worker"
    limits = limit_words(a)
    return Fix(
        f"make room for loader workers: {full} holds no more",
        f"{full}: {more}; then num_workers={workers}" + (f" ({limits})" if limits else ""),
        where,
        "outside the code",
    )


def core_share(a: Analysis) -> float:
    """The share of a core that a worker uses while it always has a batch to make; otherwise it waits for reads or sleeps."""
    shares = [feed.computing_share for feed in a.workers.feeds.values()] if a.workers else []
    return max(_CORE_SHARE_MIN, *shares) if shares else 1.0


def workers_for(a: Analysis) -> tuple[int, int]:
    """(workers per rank advised, workers the step could use): the knee of the forecast, within this machine's limits and without them."""
    expected = forecast_of(a)
    return expected.knee(workers_that_fit(a)), expected.knee()


def no_collections(a: Analysis) -> Fix | None:
    """To leave out the call of the collector in the data set, if stack samples found it repeatedly."""
    line = a.collecting
    if line is None or line.seen < _COLLECTOR_CALLS_MIN:
        return None
    found = f"gc.collect() is called here for each sample: {line.seen} of {line.looks} stacks"
    return Fix("remove gc.collect()", f"# {found}", Where(line.file, line.line), "one line")


def copies_of_one_model(a: Analysis) -> bool:
    """True if all ranks train copies of one model, and exchange nothing in which they could divide its batches among them."""
    ranks = a.world_size
    if ranks < 2 or len(a.rank_facts) != ranks:
        return False
    for facts in a.rank_facts.values():
        if not any(made.get("world_size") == ranks for made in facts.get("ddp", ())):
            return False
        for site in facts.get("collectives", ()):
            if 1 < site.get("group_size", 0) < ranks or site.get("kind") in _OF_PARTS:
                return False
    return True
