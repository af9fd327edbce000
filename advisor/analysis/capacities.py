"""What each stage could deliver alone, from what it did while it was busy; the smallest is the bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from advisor.analysis.loading import Loading
from advisor.core.report import Capacity
from advisor.core.step_model import StepModel

# Workers of one machine share memory bandwidth and caches: parallel efficiency at a few workers, until it is measured. (Measured per
# worker at four workers: 62-89 %.)
_EFFICIENCY = (0.7, 1.0)
_LITTLE = 0.02  # a stage with less than this share of the batch's making is no limit that could be told


def capacities(
    model: StepModel, loading: Mapping[int, Loading | None], samples: float | None, *, comm_measured: bool
) -> tuple[Capacity, ...]:
    """Samples per second of all ranks together; `samples` is one rank's samples per step."""
    if not samples:
        return ()
    ranks = len(model.own)
    made = [known for known in loading.values() if known is not None]
    return (
        _storage(made, ranks),
        _preprocessing(made, ranks, model.allowed_cores),
        _loader(made, ranks),
        _compute(model, samples),
        _communication(model, samples, measured=comm_measured),
    )


def _unknown(stage: str, why: str) -> Capacity:
    return Capacity(stage, None, None, None, why)


def _slowest(made: list[Loading], seconds: Callable[[Loading], float]) -> float:
    """Seconds per sample and lane of the slowest rank: ranks in step are as fast as it is."""
    return max((seconds(m) / m.samples / max(m.workers, 1) for m in made if m.samples), default=0.0)


def _storage(made: list[Loading], ranks: int) -> Capacity:
    if not made:
        return _unknown("storage", "no batch was seen being made")
    read = max(m.read_bytes for m in made)
    blocked, wall = _slowest(made, lambda m: m.blocked_s), _slowest(made, lambda m: m.wall_s)
    if read < 1 or blocked < _LITTLE * wall:
        return _unknown("storage", "nothing was read from a device: the page cache served the data")
    value = ranks / blocked
    return Capacity("storage", value, 0.8 * value, 1.2 * value, "time blocked on reads per sample, over all workers")


def _preprocessing(made: list[Loading], ranks: int, cores: float | None) -> Capacity:
    if not made:
        return _unknown("preprocessing", "no batch was seen being made")
    cpu, wall = _slowest(made, lambda m: m.cpu_s), _slowest(made, lambda m: m.wall_s)
    if cpu < _LITTLE * wall or cpu <= 0:
        return _unknown("preprocessing", "making a batch takes next to no CPU time")
    lanes = max(m.workers for m in made) or 1
    crowd = 1.0 if cores is None else max(1.0, lanes * ranks / cores)  # more lanes than cores take turns
    value = ranks / cpu / crowd
    return Capacity(
        "preprocessing",
        value,
        _EFFICIENCY[0] * value,
        _EFFICIENCY[1] * value,
        "CPU time per sample on the lanes there are",
    )


def _loader(made: list[Loading], ranks: int) -> Capacity:
    wall = _slowest(made, lambda m: m.wall_s)
    if wall <= 0:
        return _unknown("loader", "no batch was seen being made")
    value = ranks / wall
    where = "in the training process" if made[0].workers == 0 else f"{made[0].workers} workers a rank"
    return Capacity("loader", value, 0.9 * value, 1.1 * value, f"batches as they were made, {where}, the slowest rank")


def _compute(model: StepModel, samples: float) -> Capacity:
    rates = []
    for phases in model.own.values():
        busy = phases["forward"] + phases["backward"] + phases["optimizer"]
        if busy > 0:
            rates.append(samples / busy)
    if not rates:
        return _unknown("compute", "no step was seen computing")
    value = min(rates) * len(rates)
    return Capacity("compute", value, 0.95 * value, 1.05 * value, "forward, backward and optimizer of the slowest rank")


def _communication(model: StepModel, samples: float, *, measured: bool) -> Capacity:
    ranks = len(model.own)
    if ranks < 2:
        return _unknown("communication", "one rank: nothing to communicate")
    if not measured:
        return _unknown("communication", "no DistributedDataParallel stamps: not measured")
    if model.wire_s < 1e-6:
        return _unknown("communication", "hidden behind the backward pass")
    value = samples * ranks / model.wire_s
    return Capacity("communication", value, 0.9 * value, 1.1 * value, "exposed wire time per step")
