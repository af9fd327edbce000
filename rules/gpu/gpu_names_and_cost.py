"""What the rules on GPUs share: their names in words, whom they slow down, and what a slower clock costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, NotMeasured, Saving
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of

_HOSTS_NAMED = 8  # in a fix
# What x16 links of each generation were seen to carry, in MB/s; other widths in proportion.
_X16_MB_PER_S = {1: 3000.0, 2: 6000.0, 3: 12000.0, 4: 26000.0, 5: 52000.0, 6: 104000.0}


def of_gpu(a: Analysis, name: str, gpu: Gpu) -> float | None:
    return a.values.get((name, f"gpu:{gpu.index}"))


def unseen(a: Analysis, gpus: Iterable[Gpu], *names: str) -> tuple[str, ...]:
    """Of these values those that one of these GPUs lacks: what it would have told nobody knows."""
    some = tuple(gpus)
    return tuple(name for name in names if any(of_gpu(a, name, gpu) is None for gpu in some))


def unseen_of_ranks(a: Analysis, *names: str) -> tuple[str, ...]:
    """Of these values those that a rank on one of the job's GPUs lacks."""
    ranks = {rank for gpu in a.gpu_view.used for rank in gpu.ranks}
    return tuple(name for name in names if ranks - a.by_rank(name).keys())


def clear_if_seen(rule: str, *missing: str) -> Clear | NotMeasured:
    """What a rule says that has found nothing: it is clear where it could look at all of it alone."""
    return NotMeasured(rule, missing) if missing else Clear(rule)


def named(gpu: Gpu) -> str:
    """`GPU 3 (rank 3)`."""
    if not gpu.ranks:
        return f"GPU {gpu.index}"
    return f"GPU {gpu.index} (rank{'s' if len(gpu.ranks) > 1 else ''} {', '.join(map(str, gpu.ranks))})"


def listed(gpus: Iterable[Gpu]) -> str:
    """`GPU 3`, `GPUs 3 and 5`."""
    return _listed([gpu.index for gpu in gpus])


def placed(gpus: Iterable[Gpu]) -> str:
    """The same for whoever goes to the machine: of a job on several `GPU 1 of node-b`, by the numbers of each host."""
    return "; ".join(_listed(own) + (f" of {hosts}" if hosts else "") for own, hosts in _by_host(gpus))


def on_each_host(gpus: Iterable[Gpu], command: str, note: str = "") -> str:
    """What to type, with the numbers of these GPUs in place of `{}`: of a job on several hosts a line for each list, and on which."""
    lines = []
    for own, hosts in _by_host(gpus):
        said = "; ".join(filter(None, (f"on {hosts}" if hosts else "", note)))
        lines.append(command.format(",".join(map(str, own))) + (f"  # {said}" if said else ""))
    return "\n".join(lines)


def _by_host(gpus: Iterable[Gpu]) -> list[tuple[tuple[int, ...], str]]:
    """The numbers that hosts have for these GPUs, and the hosts that have the same; no host's name where the job ran on one."""
    numbers: dict[str, tuple[int, ...]] = {}
    for gpu in gpus:
        numbers[gpu.host] = (*numbers.get(gpu.host, ()), gpu.own_index)
    return [
        (own, _some([host for host, others in numbers.items() if others == own and host]))
        for own in dict.fromkeys(numbers.values())
    ]


def _some(hosts: Sequence[str]) -> str:
    """The scope of the finding has all of the GPUs."""
    more = len(hosts) - _HOSTS_NAMED
    return ", ".join(hosts) if more <= 0 else f"{', '.join(hosts[:_HOSTS_NAMED])} and {more} more"


def _listed(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"GPUs {', '.join(most)} and {last}" if most else f"GPU {last}"


def ranks_on(a: Analysis, gpus: Iterable[Gpu]) -> tuple[int, ...]:
    """The ranks on these GPUs; all of the job's ranks are written as none."""
    ranks = sorted({rank for gpu in gpus for rank in gpu.ranks})
    return () if len(ranks) == a.world_size > 1 else tuple(ranks)


def clock_ratio(a: Analysis, gpu: Gpu, others: Iterable[Gpu]) -> tuple[float, float, bool] | None:
    """(own clock over what it could be, that clock in MHz, whether sound GPUs of its model show it); else the board's highest stands in."""
    clock = of_gpu(a, "gpu.clock_mhz", gpu)
    peers = [
        mhz
        for other in others
        if other.name == gpu.name and other is not gpu and (mhz := of_gpu(a, "gpu.clock_mhz", other)) is not None
    ]
    if clock is None or (not peers and not gpu.sm_clock_max_mhz):
        return None
    usual = sorted(peers)[len(peers) // 2] if peers else float(gpu.sm_clock_max_mhz or 0.0)
    return min(1.0, clock / max(usual, 1e-9)), usual, bool(peers)


def step_if_faster(a: Analysis, ratios: Iterable[tuple[Gpu, float]]) -> float:
    """The step if the compute of these GPUs' ranks took only this share of its time."""
    model = model_of(a)
    changes = {
        (rank, phase): model.own[rank][phase] * ratio
        for gpu, ratio in ratios
        for rank in gpu.ranks
        if rank in model.own
        for phase in COMPUTE
    }
    return model.step_if(changes)


def saving_at_peers_clock(
    a: Analysis, held: Sequence[Gpu], sound: Sequence[Gpu], least: float, *, sure: bool
) -> Saving:
    """What GPUs at the clock of their peers bring, or this share of it at least; none for sure where no peer shows that clock."""
    ratios = [(gpu, found) for gpu in held if (found := clock_ratio(a, gpu, sound)) is not None]
    sure = sure and all(by_peers for _, (_, _, by_peers) in ratios)
    model = model_of(a)
    best = step_if_faster(a, ((gpu, ratio) for gpu, (ratio, _, _) in ratios))
    worst = model.step_s - least * (model.step_s - best) if sure else model.step_s
    basis = f"{listed(held)} at the clock of its peers" if sure else f"at most the highest clock of {listed(held)}"
    return model.saving(best, worst, basis)


def link_mb_per_s(gen: float, width: float) -> float:
    return _X16_MB_PER_S.get(round(gen), _X16_MB_PER_S[6]) * width / 16
