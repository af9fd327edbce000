"""Shared by the rules on GPUs: their names in words, the ranks they slow down, and the cost of a slower clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, NotMeasured, Saving
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.comm_measures import (
    COLLECTIVES_CALLS,
    COLLECTIVES_HELD_S,
    COLLECTIVES_NORM_CALLS,
    COLLECTIVES_STREAM_S,
    COMM_WIRE_S,
)
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_CLOCK_MHZ
from rn50_advisor.advisor.model.measures.measure import GpuMeasure, RankMeasure
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of

_HOSTS_NAMED = 8  # in a fix
_NORM_CALLS_MIN = 2.0  # a step: a single layer calls once forward and once backward
_ALIKE_SHARE = 0.1  # how much the passes of ranks that wait for each other differ; the last exchange is timed apart
# Measured rate of x16 links by generation, in MB/s; other widths in proportion.
_X16_MB_PER_S = {1: 3000.0, 2: 6000.0, 3: 12000.0, 4: 26000.0, 5: 52000.0, 6: 104000.0}


def of_gpu(a: Analysis, measure: GpuMeasure, gpu: Gpu) -> float | None:
    return a.of_gpu(measure, gpu.index)


def unmeasured(a: Analysis, gpus: Iterable[Gpu], *measures: GpuMeasure) -> tuple[GpuMeasure, ...]:
    """Measures that at least one of these GPUs lacks."""
    some = tuple(gpus)
    return tuple(measure for measure in measures if any(of_gpu(a, measure, gpu) is None for gpu in some))


def unmeasured_of_ranks(a: Analysis, *measures: RankMeasure) -> tuple[RankMeasure, ...]:
    """Measures that at least one rank on the job's GPUs lacks."""
    ranks = {rank for gpu in a.gpu_view.used for rank in gpu.ranks}
    return tuple(measure for measure in measures if ranks - a.by_rank(measure).keys())


def clear_if_measured(rule: str, *missing: str) -> Clear | NotMeasured:
    """The outcome of a rule that found nothing: clear only if all its values were measured."""
    return NotMeasured(rule, missing) if missing else Clear(rule)


def named(gpu: Gpu) -> str:
    """`GPU 3 (rank 3)`."""
    if not gpu.ranks or gpu.made_up_rank:
        return f"GPU {gpu.index}"
    return f"GPU {gpu.index} (rank{'s' if len(gpu.ranks) > 1 else ''} {', '.join(map(str, gpu.ranks))})"


def listed(gpus: Iterable[Gpu]) -> str:
    """`GPU 3`, `GPUs 3 and 5`."""
    return _listed([gpu.index for gpu in gpus])


def placed(gpus: Iterable[Gpu]) -> str:
    """The same with each host's own numbers: `GPU 1 of node-b` in a job on several hosts."""
    return "; ".join(_listed(own) + (f" of {hosts}" if hosts else "") for own, hosts in _by_host(gpus))


def on_each_host(gpus: Iterable[Gpu], command: str, note: str = "") -> str:
    """The command with these GPUs' numbers in place of `{}`: in a job on several hosts, one line per list with its hosts."""
    lines = []
    for own, hosts in _by_host(gpus):
        comment = "; ".join(filter(None, (f"on {hosts}" if hosts else "", note)))
        lines.append(command.format(",".join(map(str, own))) + (f"  # {comment}" if comment else ""))
    return "\n".join(lines)


def _by_host(gpus: Iterable[Gpu]) -> list[tuple[tuple[int, ...], str]]:
    """The hosts' numbers for these GPUs, and the hosts that share them; no host name if the job ran on one."""
    numbers: dict[str, tuple[int, ...]] = {}
    for gpu in gpus:
        numbers[gpu.host] = (*numbers.get(gpu.host, ()), gpu.own_index)
    return [
        (own, _some([host for host, others in numbers.items() if others == own and host]))
        for own in dict.fromkeys(numbers.values())
    ]


def _some(hosts: Sequence[str]) -> str:
    """The first hosts by name; the finding's scope has all of the GPUs."""
    more = len(hosts) - _HOSTS_NAMED
    return ", ".join(hosts) if more <= 0 else f"{', '.join(hosts[:_HOSTS_NAMED])} and {more} more"


def _listed(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"GPUs {', '.join(most)} and {last}" if most else f"GPU {last}"


def ranks_on(a: Analysis, gpus: Iterable[Gpu]) -> tuple[int, ...]:
    """The ranks on these GPUs; empty for all of the job's ranks."""
    ranks = sorted({rank for gpu in gpus for rank in gpu.ranks})
    return () if len(ranks) == a.world_size > 1 else tuple(ranks)


def clock_ratio(a: Analysis, gpu: Gpu, others: Iterable[Gpu]) -> tuple[float, float, bool] | None:
    """(clock over its reference, the reference in MHz, whether it is that of sound peers); else the board's highest clock is used."""
    clock = of_gpu(a, GPU_CLOCK_MHZ, gpu)
    peers = [
        mhz
        for other in others
        if other.name == gpu.name and other is not gpu and (mhz := of_gpu(a, GPU_CLOCK_MHZ, other)) is not None
    ]
    if clock is None or (not peers and not gpu.sm_clock_max_mhz):
        return None
    usual = sorted(peers)[len(peers) // 2] if peers else float(gpu.sm_clock_max_mhz or 0.0)
    return min(1.0, clock / max(usual, 1e-9)), usual, bool(peers)


def step_if_faster(a: Analysis, ratios: Iterable[tuple[Gpu, float]]) -> float:
    """The step if compute of these GPUs' ranks took only this share of its time."""
    model = model_of(a)
    shares = {rank: ratio for gpu, ratio in ratios for rank in gpu.ranks if rank in model.own}
    if shares and meets_within_passes(a) and _alike(a, shares):
        # on the others' streams the same time goes by, as they wait for these in the middle of each pass
        shares = dict.fromkeys(model.own, min(shares.values()))
    changes = {(rank, phase): model.own[rank][phase] * ratio for rank, ratio in shares.items() for phase in COMPUTE}
    return model.step_if(changes)


def meets_within_passes(a: Analysis) -> bool:
    """True if GPUs meet in the middle of forward and backward: in synchronised batch norm, or in collectives that shard the model.

    A stream that waits there for another rank looks like one that computes, unless its waits were timed. Where no exchange was seen at all
    (stages of a pipeline, collectives called from C++ or compiled code), they may meet anywhere.
    """
    if a.by_rank(COLLECTIVES_STREAM_S):
        return False
    if exchange_is_unseen(a):
        return True
    calls, norms, held = (
        a.by_rank(measure) for measure in (COLLECTIVES_CALLS, COLLECTIVES_NORM_CALLS, COLLECTIVES_HELD_S)
    )
    ranks = list(model_of(a).own)
    if not a.on_gpu or len(ranks) < 2 or any(rank not in calls or held.get(rank) for rank in ranks):
        return False
    normed = min(norms.get(rank, 0.0) for rank in ranks) >= _NORM_CALLS_MIN
    return normed or (a.get(COMM_WIRE_S) is None and min(calls[rank] for rank in ranks) >= 1.0)


def exchange_is_unseen(a: Analysis) -> bool:
    """True if a job of several ranks on GPUs calls no collective that was seen, and DistributedDataParallel times none."""
    seen = (*a.by_rank(COLLECTIVES_CALLS), *a.by_rank(COLLECTIVES_HELD_S))
    return a.on_gpu and len(model_of(a).own) > 1 and a.get(COMM_WIRE_S) is None and not seen


def _alike(a: Analysis, some: Iterable[int]) -> bool:
    """True if the other ranks' passes take as long as those of these ranks."""
    passes = {rank: sum(own[phase] for phase in COMPUTE) for rank, own in model_of(a).own.items()}
    longest = max(passes[rank] for rank in some)
    return all(abs(seconds - longest) <= _ALIKE_SHARE * longest for seconds in passes.values())


def saving_at_peers_clock(
    a: Analysis, held: Sequence[Gpu], sound: Sequence[Gpu], least: float, *, sure: bool
) -> Saving:
    """The saving at the clock of the peers, or at worst this share of it.

    Nothing is certain if no peer shows that clock, or if it was not seen that the others wait for these GPUs.
    """
    ratios = [(gpu, found) for gpu in held if (found := clock_ratio(a, gpu, sound)) is not None]
    sure = sure and all(by_peers for _, (_, _, by_peers) in ratios) and not exchange_is_unseen(a)
    model = model_of(a)
    best = step_if_faster(a, ((gpu, ratio) for gpu, (ratio, _, _) in ratios))
    worst = model.step_s - least * (model.step_s - best) if sure else model.step_s
    basis = f"{listed(held)} at the clock of its peers" if sure else f"at most the highest clock of {listed(held)}"
    return model.saving(best, worst, basis)


def link_mb_per_s(gen: float, width: float) -> float:
    return _X16_MB_PER_S.get(round(gen), _X16_MB_PER_S[6]) * width / 16
