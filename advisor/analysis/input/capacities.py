"""Measures the rate that each stage could sustain alone. The smallest is the bottleneck; the second smallest caps the gain.

Each interval is two standard errors of the mean over batches or steps, widened by what one run cannot show. For copies it spans the slowest
to the fastest. `basis` states how the rate was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.gpu.device_copies import CopyTime
from rn50_advisor.advisor.analysis.gpu.observed_steps import trains_on_gpu
from rn50_advisor.advisor.analysis.input.loading import Loading, making_of
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution
from rn50_advisor.advisor.analysis.steps.phases import split_of
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.storage.reading_limit import storage_ceiling
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import WorkerModel
from rn50_advisor.advisor.model.input.data_loaders import with_helpers_s
from rn50_advisor.advisor.model.measures.comm_measures import COMM_WIRE_S
from rn50_advisor.advisor.model.measures.input_measures import (
    DATA_NETWORK_MOUNT,
    FETCH_BLOCKED_SHARE,
    FETCH_HAND_OVER_ERROR,
    FETCH_HAND_OVER_S,
    LOADER_HELPER_SHARE,
)
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Capacity
from rn50_advisor.advisor.model.statistics import relative_error
from rn50_advisor.advisor.model.wording.quantities import duration, number

Array = NDArray[np.float64]

_STAGE_SHARE_MIN = 0.02  # a stage below this share of the batch's preparation time cannot be identified as the limit
_OTHER_BLOCKING_SHARE = 0.10  # of a batch's blocked time, which also includes locks and queues
_INPUT_READY_SHARE = 0.05  # of the step's compute; a step that waited no longer had its input ready
_READY_S = 0.003  # taking a finished batch from a worker needs 1.6 to 2.2 ms on two cores
_READY_STEPS_MIN = 20  # steps with their input ready


@dataclass(frozen=True, slots=True)
class CapacityInputs:
    """Everything that capacities are computed from."""

    recording: Recording
    steady: Mapping[int, RankSteps]
    loading: Mapping[int, Loading | None]
    account: StepAttribution
    model: StepModel
    loaders: tuple[LoaderFacts, ...]
    values: Measured
    workers: WorkerModel | None
    copies: Mapping[int, CopyTime]
    uncopied: str  # why the copies of other ranks were not timed


@dataclass(frozen=True, slots=True)
class _Making:
    """Batch making on the rank whose batches take longest per lane. Synchronised ranks are as fast as this one."""

    rank: int
    made: Loading
    lanes: int
    errors: Mapping[str, float]  # by name, two standard errors of the times per batch over their means

    def per_sample_s(self, batch_s: float) -> float:
        return batch_s / self.made.samples / self.lanes


def capacities(seen: CapacityInputs, samples: float | None) -> tuple[Capacity, ...]:
    """Samples per second of all ranks together; `samples` is one rank's samples per step."""
    if not samples:
        return ()
    making = _slowest(seen)
    return (
        _storage(seen, making, samples),
        _preprocessing(seen, making),
        _hand_over(seen, samples),
        _copy(seen, samples),
        _compute(seen, samples),
        _communication(seen, samples),
    )


def _unknown(stage: str, why: str) -> Capacity:
    return Capacity(stage, None, None, None, why)


def _known(stage: str, value: float, error: float, basis: str, *, less: float = 0.0, more: float = 0.0) -> Capacity:
    """A measured capacity. `error` is two standard errors, `less` and `more` further uncertainty below and above; all are relative."""
    return Capacity(stage, value, value * max(0.0, 1 - error) * (1 - less), value * (1 + error) * (1 + more), basis)


def _slowest(seen: CapacityInputs) -> _Making | None:
    found = []
    for rank, made in seen.loading.items():
        if made is not None and made.samples and made.wall_s > 0:
            series = making_of(seen.recording, seen.steady[rank], made, training_loader(seen.loaders, rank))
            errors = {name: relative_error(values) for name, values in series.items()}
            found.append(_Making(rank, made, max(made.workers, 1), errors))
    return max(found, key=lambda making: making.per_sample_s(making.made.wall_s), default=None)


def _reads(seen: CapacityInputs, making: _Making) -> bool:
    """True if blocked time is due to storage: blocks were read, or the data is on a network mount, where reads do not show as blocks."""
    return making.made.reads or bool(seen.values.get((DATA_NETWORK_MOUNT, making.rank)))


def _unclocked(seen: CapacityInputs, making: _Making) -> str:
    """The reason why the blocked time of its batches is unknown; empty if it is known."""
    known = seen.values.get((FETCH_BLOCKED_SHARE, making.rank)) is not None
    return "" if known else seen.values.why(FETCH_BLOCKED_SHARE, making.rank)


def _storage(seen: CapacityInputs, making: _Making | None, samples: float) -> Capacity:
    if making is None:
        return _unknown("storage", "no batch was seen being loaded")
    if why := _unclocked(seen, making):
        return _unknown("storage", why)
    made = making.made
    if not _reads(seen, making) or made.blocked_s < _STAGE_SHARE_MIN * made.wall_s:
        return _unknown("storage", "nothing was read from a device: the page cache served the data")
    ranks, error = len(seen.model.own), making.errors["waiting"]
    by_lanes = ranks / making.per_sample_s(made.blocked_s)
    ceiling = storage_ceiling(seen.values, made, seen.model.hosts)
    if ceiling is not None and ceiling.reached:
        return _known("storage", min(by_lanes, ceiling.samples_per_s), error, ceiling.why)
    # Whether all lanes can read at once was not observed. Only the rate of one lane and the job's present rate are certain.
    least = max(made.samples / made.blocked_s, ranks * samples / seen.model.step_s)
    value, basis = by_lanes, f"time blocked on reads, by {_lanes(making)} reading at a time"
    if ceiling is not None and ceiling.samples_per_s < by_lanes:
        value, basis = ceiling.samples_per_s, ceiling.why
    else:
        error, basis = error + _OTHER_BLOCKING_SHARE, f"{basis}; other waiting in it ±{_OTHER_BLOCKING_SHARE:.0%}"
    return _known("storage", value, error, basis, less=max(0.0, 1 - least / value))


def _preprocessing(seen: CapacityInputs, making: _Making | None) -> Capacity:
    if making is None:
        return _unknown("preprocessing", "no batch was seen being loaded")
    made, ranks = making.made, len(seen.model.own)
    asleep = 0.0 if _reads(seen, making) else made.blocked_s
    work = made.cpu_s + asleep
    if work < _STAGE_SHARE_MIN * made.wall_s or work <= 0:
        return _unknown("preprocessing", "making a batch takes almost no CPU time")
    by_cores, per_core = _on_all_cores(seen, making)
    value = min(ranks / making.per_sample_s(work), by_cores)
    what = "CPU time" if asleep < _STAGE_SHARE_MIN * made.wall_s else "CPU time and waiting other than reading,"
    more, why = 0.0, _unclocked(seen, making)
    if why and asleep >= _STAGE_SHARE_MIN * made.wall_s:  # all of it may have been waiting for a core
        what = "CPU time and all waiting,"
        at_most = min(ranks / making.per_sample_s(made.cpu_s), by_cores) if made.cpu_s > 0 else value
        more = at_most / value - 1
    slower, how = _in_company(seen, making)
    parts = (f"{what} per sample on {_lanes(making)}, {per_core}", how, why if more > 0 else "")
    error = making.errors["computing"] if made.cpu_s > asleep else making.errors["waiting"]
    basis = "; ".join(part for part in parts if part)
    return _known("preprocessing", value, error, basis, less=slower, more=more)


def _on_all_cores(seen: CapacityInputs, making: _Making) -> tuple[float, str]:
    """Maximum samples/s of all ranks on the allowed cores, counting all threads of a worker, and the rate of one core in words."""
    made, cores = making.made, seen.model.allowed_cores
    if made.cpu_s <= 0:
        return math.inf, "no CPU time"
    per_core = made.samples / with_helpers_s(made.cpu_s, seen.values.get((LOADER_HELPER_SHARE, making.rank)))
    return (seen.model.hosts * cores * per_core if cores else math.inf), f"{number(per_core)} per second and core"


def _in_company(seen: CapacityInputs, making: _Making) -> tuple[float, str]:
    """Relative loss of rate if all lanes work all the time, and its basis in words."""
    cores, busy = seen.model.allowed_cores, making.made.busy_share
    if making.made.workers == 0 or busy is None or seen.workers is None or not cores or cores <= 1:
        return 0.0, ""
    idle = making.lanes * seen.model.ranks_of_host * (1 - busy)
    worst = seen.workers.crowding[1]
    slower = 1 - 1 / (1 + worst * min(idle, cores - 1) / (cores - 1))
    if slower >= 0.01:
        return slower, f"parallel efficiency {_efficiency(seen.workers)}"
    known = f", at a parallel efficiency of {_efficiency(seen.workers)}" if seen.workers.crowding_measured else ""
    return 0.0, f"all of them busy{known}"


def _efficiency(workers: WorkerModel) -> str:
    """Describes how fast a worker computes on a fully busy machine, compared with one that runs alone."""
    most, least = (1 / (1 + slower) for slower in workers.crowding)
    if not workers.crowding_measured:
        return f"{least:.1f}–{most:.1f}, not measured"
    return f"{least:.2f}–{most:.2f} as measured"


def _lanes(making: _Making) -> str:
    if not making.made.workers:
        return "the training process"
    return f"{making.lanes} worker{'s' if making.lanes > 1 else ''} per rank"


def _hand_over(seen: CapacityInputs, samples: float) -> Capacity:
    """Rate at which finished batches reach the loop: pickled, sent through shared memory, pinned, taken by the training thread."""
    made = {rank: known for rank, known in seen.loading.items() if known is not None}
    if not made:
        return _unknown("loader", "no batch was seen being loaded")
    if not any(known.workers for known in made.values()):
        return _unknown("loader", "batches are made in the training process: nothing is transferred from workers")
    handed = {rank: seconds for rank in made if (seconds := seen.values.get((FETCH_HAND_OVER_S, rank))) is not None}
    if not handed:
        return _unknown("loader", seen.values.why(FETCH_HAND_OVER_S) or "no batch could be followed to the loop")
    each = {rank: max(seen.values.get((STEP_BATCHES, rank), 1.0), 1e-9) * seconds for rank, seconds in handed.items()}
    slow = max(each, key=lambda rank: each[rank])
    if each[slow] <= 0:
        return _unknown("loader", "no time was measured between finishing a batch and using it")
    error = seen.values.get((FETCH_HAND_OVER_ERROR, slow), 0.0)
    basis = f"{1e3 * handed[slow]:.3g} ms from finished batch to training loop; the loop takes one batch at a time"
    return _known("loader", samples / each[slow] * len(seen.model.own), error, basis)


def _copy(seen: CapacityInputs, samples: float) -> Capacity:
    if not trains_on_gpu(seen.recording):
        return _unknown("copy", "no CUDA device: nothing is copied")
    if not seen.copies:
        return _unknown("copy", seen.uncopied)
    slow = max(seen.copies.values(), key=lambda copies: copies.usual_s)
    value, lo, hi = (samples * len(seen.model.own) / s for s in (slow.usual_s, slow.worst_s, slow.best_s))
    return Capacity("copy", value, lo, hi, slow.basis if len(seen.copies) == 1 else f"{slow.basis}; the slowest rank")


def _compute(seen: CapacityInputs, samples: float) -> Capacity:
    if not all(steps.fed for steps in seen.steady.values()):
        return _unknown("compute", "no loader was seen: fetching and forward cannot be separated")
    found = []
    for rank, steps in seen.steady.items():
        busy, wait = _busy_and_wait(seen, rank, steps)
        if busy.size and busy.sum() > 0:
            found.append(_computed(busy, wait, samples, _copied_s(seen, rank), warmer=seen.model.warmer))
    if not found:
        return _unknown("compute", "no step was seen computing")
    slow = min(found, key=lambda capacity: capacity.samples_per_s or 0.0)
    times = len(found)
    value, lo, hi = (times * (x or 0.0) for x in (slow.samples_per_s, slow.lo, slow.hi))
    return Capacity("compute", value, lo, hi, slow.basis if times == 1 else f"{slow.basis}; the slowest rank")


def _copied_s(seen: CapacityInputs, rank: int) -> float:
    """Seconds of host-to-device copies within the forward pass of a rank; ranks without a sample take the others' value."""
    each = {known: copies.in_forward_s for known, copies in seen.copies.items()}
    return each.get(rank, min(each.values(), default=0.0))


def _computed(busy: Array, wait: Array, samples: float, copied_s: float, *, warmer: float) -> Capacity:
    """Compute capacity of one rank, from the steps that did not wait for input, or from all steps if those are too few."""
    ready = wait <= max(_INPUT_READY_SHARE * float(np.median(busy)), _READY_S)
    busy = np.clip(busy - copied_s, 1e-9, None)
    less = f", {duration(copied_s)} of copies excluded" if copied_s > 0 else ""
    if ready.sum() >= _READY_STEPS_MIN:
        part = busy[ready]
        basis = f"forward, backward and optimizer of {int(ready.sum())} steps whose input was ready{less}"
        return _known("compute", samples / float(part.mean()), relative_error(part), basis)
    basis = (
        f"only {int(ready.sum())} of {busy.size} steps had their input ready, so compute is measured over all steps{less}"
        f"{f', up to {warmer:.0%} more without the waits, which let caches go cold' if warmer else ''}"
    )
    return _known("compute", samples / float(busy.mean()), relative_error(busy), basis, more=warmer)


def _busy_and_wait(seen: CapacityInputs, rank: int, steps: RankSteps) -> tuple[Array, Array]:
    """Seconds of compute and of input wait, one entry per step."""
    phases = split_of(seen.recording, steps, ranks=len(seen.steady)).phases
    busy = phases["forward"] + phases["backward"] + phases["optimizer"]
    return busy[steps.sample], phases["input_wait"][steps.sample]


def _communication(seen: CapacityInputs, samples: float) -> Capacity:
    ranks, account = len(seen.model.own), seen.account
    if ranks > 1 and not account.exposed:
        return _unknown(
            "communication", "not measured: no DistributedDataParallel timestamps, no collectives called from Python"
        )
    if seen.values.get((COMM_WIRE_S, JOB)) is None:
        return _unknown("communication", seen.values.why(COMM_WIRE_S) or "not measured")
    if seen.model.wire_s < 1e-6:
        return _unknown("communication", "hidden behind the backward pass")
    who = "DDP stamped" if any(rows.size for rows in seen.recording.comm.values()) else "called collectives"
    basis = f"exposed network transfer, from {account.sampled_steps} steps that {who}"
    return _known("communication", samples * ranks / seen.model.wire_s, account.wire_error, basis)
