"""A rank that ended because its GPU ran out of memory: what held the memory, and which batch would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rn50_advisor.advisor.model.wording.quantities import bytes_, share

# torch keeps unused reserved memory for later. Beyond this share of the GPU it counts as fragmented.
_FRAGMENTED_SHARE = 0.05
_OTHERS_SHARE = 0.05
_UPDATING = ("clip", "optimizer")  # after the backward pass, when activations are freed
_SAFE = 0.9  # of the computed batch size: leaves room for libraries' workspaces and the allocator's rounding


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Memory of one GPU in bytes when an allocation failed. None: neither the error message nor the recorder has the number."""

    rank: int | None
    asked: float | None = None  # size of the failed allocation
    total: float | None = None
    free: float | None = None
    allowed: float | None = None  # limit that the job has set for this process
    allocated: float | None = None  # held by tensors
    unallocated: float | None = None  # reserved by torch, held by no tensor
    others: float | None = None  # held by other processes, without CUDA's own context
    segments: str = ""  # the setting that lets segments grow in place; empty: it is on
    parameters: float | None = None
    frozen: float | None = None  # weights and buffers of the model that no optimizer updates
    gradients: float | None = None  # all that a backward pass makes
    gradients_held: float | None = None  # gradients present when memory ran out; None: derived from the phase
    state: float | None = None  # whole optimizer state
    state_held: float | None = None  # optimizer state present when memory ran out; None: all of it
    phase: str = ""
    batch: float | None = None  # samples of one micro-batch
    steps: int = 0  # completed before
    # memory of tensors at the end of the first and of the last step seen, if it grew steadily
    grew_from: float | None = None
    grew_to: float | None = None

    @property
    def activations(self) -> float | None:
        """Memory of tensors beyond parameters, gradients and optimizer state: activations and the job's own tensors. None if unknown."""
        if self.allocated is None or self.parameters is None:
            return None
        return max(0.0, self.allocated - self._held)

    @property
    def _gradients_held(self) -> float:
        """Gradients present when memory ran out. Gradients are freed between steps, so by default the phase decides."""
        if self.gradients_held is not None:
            return self.gradients_held
        return (self.gradients or 0.0) if self.phase in _UPDATING else 0.0

    @property
    def _state_held(self) -> float:
        return (self.state or 0.0) if self.state_held is None else self.state_held

    @property
    def _held(self) -> float:
        """Memory of the parts that existed and do not grow with the batch."""
        return (self.parameters or 0.0) + (self.frozen or 0.0) + self._gradients_held + self._state_held

    @property
    def fixed(self) -> float:
        """Memory of the parts that do not grow with the batch, once all of them exist."""
        gradients = max(self.gradients or 0.0, self._gradients_held)
        return (self.parameters or 0.0) + (self.frozen or 0.0) + gradients + max(self.state or 0.0, self._state_held)

    @property
    def grew(self) -> bool:
        return self.grew_from is not None and self.grew_to is not None

    @property
    def fragmented(self) -> bool:
        """True if the request would have fitted into memory that torch held without using it."""
        if self.unallocated is None or self.asked is None or not self.total:
            return False
        return self.unallocated >= self.asked and self.unallocated >= _FRAGMENTED_SHARE * self.total

    @property
    def crowded(self) -> bool:
        return bool(self.others and self.total and self.others >= _OTHERS_SHARE * self.total)

    @property
    def limited(self) -> bool:
        """True if the job's own limit refused the request although the GPU had enough free memory."""
        return self.allowed is not None and self.free is not None and self.free >= (self.asked or 0.0)

    @property
    def _available(self) -> float:
        """Memory that torch may use in total."""
        most = (self.allocated or 0.0) + (self.free or 0.0) + (self.unallocated or 0.0)
        return most if self.allowed is None else min(most, self.allowed)

    @property
    def fits(self) -> int | None:
        """Largest micro-batch that would have fitted: the memory left beside the fixed parts, divided by the memory of one sample.

        None if that is unknown, if no smaller batch would have helped, or if by this arithmetic the failed batch fits.
        """
        known = (self.allocated, self.asked, self.free, self.unallocated)
        if any(value is None for value in known) or not self.batch or self.grew or self.phase in _UPDATING:
            return None
        left = self._available - self.fixed
        if self._a_sample <= 0 or left <= 0:
            return None
        fitting = int(left / self._a_sample)
        return fitting if fitting < self.batch else None

    @property
    def _a_sample(self) -> float:
        return ((self.allocated or 0.0) + (self.asked or 0.0) - self._held) / (self.batch or 1.0)

    @property
    def advised_batch(self) -> int | None:
        """A power of two with some room to spare, below the batch that failed."""
        if self.fits is None:
            return None
        most = _SAFE * self.fits
        if most < 1:
            return None
        size = 1 << (int(most).bit_length() - 1)
        return size

    @property
    def rows(self) -> tuple[tuple[str, float, str], ...]:
        """(what, bytes, note) of each part, largest first."""
        whole = self.total or 0.0
        parts = [
            ("activations", self.activations, "and anything else that the job keeps on the GPU"),
            ("parameters", self.parameters, ""),
            ("frozen weights", self.frozen, ""),
            ("gradients", *_made(self._gradients_held, self.gradients, "the backward pass")),
            ("optimizer state", *_made(self._state_held, self.state, "the first step")),
            ("reserved by torch, not used", self.unallocated, "in pieces" if self.fragmented else ""),
            ("other processes", self.others, "on the same GPU" if self.crowded else ""),
        ]
        known = [(what, value, note) for what, value, note in parts if value]
        if self.activations is None and self.allocated:
            known.append(("tensors", self.allocated, "of which kinds was not seen"))
        known.sort(key=lambda part: -part[1])
        return tuple(
            (what, value, ", ".join(filter(None, (f"{share(value / whole)} of the GPU" if whole else "", note))))
            for what, value, note in known
        )

    @property
    def arithmetic(self) -> str:
        """The computation of `fits` in words; empty if `fits` is None."""
        if self.fits is None:
            return ""
        unfinished = " so far, so at most" if self.phase != "backward" else ":"
        return (
            f"{bytes_(self.fixed)} whatever the batch, {bytes_(self._a_sample)} a sample{unfinished} "
            f"{self.fits} samples fit beside them, {self.batch:.0f} were in it"
        )

    @property
    def advice(self) -> str:
        """The first thing to change."""
        return next(self._advices())

    def _advices(self) -> Iterator[str]:
        """All advice that applies, most certain first."""
        if self.grew:
            yield (
                f"find what keeps tensors: they grew from {bytes_(self.grew_from)} to {bytes_(self.grew_to)} at the end of steps "
                "(a loss summed with its graph, lists of outputs: .item() or .detach()); a smaller batch only delays the end"
            )
        if self.limited:
            yield f"the job allows itself {bytes_(self.allowed)} of this GPU, which had more: a larger set_per_process_memory_fraction"
        if self.crowded:
            yield f"another process holds {bytes_(self.others)} of this GPU: end it, or use another GPU"
        if self.fragmented and self.segments:
            yield (f"torch held {bytes_(self.unallocated)} in pieces, more than was asked for: {self.segments}")
        if self.total and self.fixed >= self.total:
            yield f"weights, gradients and optimizer state alone take {bytes_(self.fixed)}: no batch fits beside them; {_LESS}"
        if self.steps >= _FITTED_STEPS:
            yield (
                f"it had fitted for {self.steps} steps: look for what was larger this time (a longer sample, evaluation with "
                "gradients on, a last layer's workspace), or leave more room"
            )
        if self.phase in _UPDATING:
            yield f"memory ran out after the backward pass, whatever the batch: fused=True or foreach=False for fewer copies; {_LESS}"
        if self.advised_batch is not None:
            yield f"a micro-batch of {self.advised_batch} with accumulation; AMP or activation checkpointing for a larger one"
        yield "a smaller batch with accumulation, AMP, activation checkpointing"


def _made(held: float, whole: float | None, where: str) -> tuple[float | None, str]:
    """The size of a part and its note: the actual size or, if the part did not exist yet, the expected size."""
    if not whole or held >= whole:
        return held or whole, ""
    return (held, f"of {bytes_(whole)} that {where} makes") if held else (whole, f"to be made in {where}")


_LESS = "use an optimizer that keeps less state, or shard it over several GPUs (ZeRO, FSDP)"
_FITTED_STEPS = 10
