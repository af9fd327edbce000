"""The end of a rank whose GPU had no memory left: what held it, in words and bytes, and which batch would fit."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.core.format import bytes_, share

# torch keeps what it reserved but does not use for later; beyond this share of the GPU it is in pieces that fit nothing.
_FRAGMENTED_SHARE = 0.05
_OTHERS_SHARE = 0.05
_SAFE = 0.9  # of what the arithmetic allows: libraries' workspaces and the allocator's rounding come on top


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Bytes of one GPU when an allocation failed; None: the message or the recorder did not tell."""

    rank: int | None
    asked: float | None = None
    total: float | None = None
    free: float | None = None
    allocated: float | None = None  # by tensors
    unallocated: float | None = None  # reserved by torch, held by no tensor
    others: float | None = None  # held by other processes, CUDA's own context left out
    parameters: float | None = None
    gradients: float | None = None
    state: float | None = None  # of the optimizer
    state_made: bool = True  # False: it had not been made yet when memory ran out
    phase: str = ""
    batch: float | None = None  # samples of one micro-batch
    steps: int = 0  # made before
    grew_from: float | None = (
        None  # tensors at the end of the first step seen, and of the last, where they grew steadily
    )
    grew_to: float | None = None

    @property
    def activations(self) -> float | None:
        """What tensors held beyond parameters, gradients and the optimizer's state: activations and the job's own."""
        if self.allocated is None or self.parameters is None:
            return None
        return max(0.0, self.allocated - self._held)

    @property
    def _held(self) -> float:
        """Of the parts that do not grow with the batch, those that existed: gradients are freed between steps."""
        gradients = self.gradients if self.phase in ("clip", "optimizer") else 0.0
        return (self.parameters or 0.0) + (gradients or 0.0) + ((self.state or 0.0) if self.state_made else 0.0)

    @property
    def grew(self) -> bool:
        return self.grew_from is not None and self.grew_to is not None

    @property
    def fragmented(self) -> bool:
        """What was asked for would have fitted into what torch held unused."""
        if self.unallocated is None or self.asked is None or not self.total:
            return False
        return self.unallocated >= self.asked and self.unallocated >= _FRAGMENTED_SHARE * self.total

    @property
    def crowded(self) -> bool:
        return bool(self.others and self.total and self.others >= _OTHERS_SHARE * self.total)

    @property
    def fits(self) -> int | None:
        """Samples of a micro-batch that would have had room, at most: what a sample took so far, and all that does not depend on it."""
        known = (self.allocated, self.asked, self.free, self.unallocated)
        if any(value is None for value in known) or not self.batch or self.grew:
            return None
        allocated, asked, free, unallocated = (float(value or 0.0) for value in known)
        a_sample = (allocated + asked - self._held) / self.batch
        fixed = sum(part or 0.0 for part in (self.parameters, self.gradients, self.state))
        room = allocated + free + unallocated - fixed
        if a_sample <= 0 or room <= 0:
            return None
        return min(int(room / a_sample), int(self.batch))

    @property
    def advised_batch(self) -> int | None:
        """A power of two with some room to spare, below the batch that failed."""
        if self.fits is None or self.batch is None:
            return None
        most = _SAFE * self.fits
        if most < 1:
            return None
        size = 1 << (int(most).bit_length() - 1)
        return size if size < self.batch else None

    @property
    def rows(self) -> tuple[tuple[str, float, str], ...]:
        """(what, bytes, note), the largest of the parts first."""
        whole = self.total or 0.0
        state = "" if self.state_made else "to be made in the first step"
        parts = [
            ("activations", self.activations, "and whatever else the job keeps on the GPU"),
            ("parameters", self.parameters, ""),
            ("gradients", self.gradients, ""),
            ("optimizer state", self.state, state),
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
        """How the batch was come by; empty where nothing can be said."""
        if self.fits is None or self.batch is None or self.allocated is None or self.asked is None:
            return ""
        a_sample = (self.allocated + self.asked - self._held) / self.batch
        fixed = sum(part or 0.0 for part in (self.parameters, self.gradients, self.state))
        unfinished = " so far, so at most" if self.phase not in ("backward", "clip", "optimizer") else ":"
        return (
            f"{bytes_(fixed)} whatever the batch, {bytes_(a_sample)} a sample{unfinished} "
            f"{self.fits} samples fit beside them, {self.batch:.0f} were in it"
        )

    @property
    def advice(self) -> str:
        """What to change first."""
        if self.grew:
            return (
                f"find what keeps tensors: they grew from {bytes_(self.grew_from)} to {bytes_(self.grew_to)} at the end of steps "
                "(a loss summed with its graph, lists of outputs: .item() or .detach()); a smaller batch only delays the end"
            )
        if self.crowded:
            return f"another process holds {bytes_(self.others)} of this GPU: end it, or use another GPU"
        if self.fragmented:
            return (
                f"torch held {bytes_(self.unallocated)} in pieces, more than was asked for: "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            )
        if self.steps >= _FITTED_STEPS:
            return (
                f"it had fitted for {self.steps} steps: look for what was larger this time (a longer sample, evaluation with "
                "gradients on, a last layer's workspace), or leave more room"
            )
        if self.advised_batch is not None:
            return f"a micro-batch of {self.advised_batch} with accumulation; AMP or activation checkpointing for a larger one"
        return "a smaller batch with accumulation, AMP, activation checkpointing"


_FITTED_STEPS = 10
