"""What sets the pace of a rank on a GPU, and with what it computes: calls that wait for the device, copies to it, precision, layout."""

from __future__ import annotations

from dataclasses import dataclass

from rn50_advisor.advisor.model.findings import Where

# As rn50_advisor.advisor.model.values.VALUES; of a rank, those of a reference of the job.
PACE_VALUES: dict[str, tuple[str, str]] = {
    "gpu.idle_input_s": ("s", "the GPU had nothing to do while the loop waited for its batch, in a step"),
    "gpu.idle_gap_s": ("s", "the GPU had nothing to do between the optimizer and the next fetch at most, in a step"),
    "gpu.host_paced_s": ("s", "forward, backward and optimizer with nothing queued: the GPU went at the pace of the host's launches"),
    "sync.looks": ("steps", "steps in which calls that wait for the GPU were looked for"),
    "sync.calls": ("calls", "calls in a step that wait for the GPU, at places that do so in most steps"),
    "sync.blocked_s": ("s", "the host's time in these calls, in a step"),
    "copy.mb": ("MB", "copied to the GPU by the training thread, in a step"),
    "copy.pageable_mb": ("MB", "of it, from memory that is not pinned"),
    "copy.pageable_s": ("s", "the host's time in these copies at the least, in a step"),
    "copy.blocking_mb": ("MB", "of it, from pinned memory by calls that wait for the end of the copy"),
    "copy.blocking_s": ("s", "the host's time in these copies, in a step"),
    "step.asleep_s": ("s", "of forward, backward and optimizer: neither computing nor waiting for a core or another rank"),
    "step.preparing_s": ("s", "of the forward pass: computing in lines of the user's own code between the batch and the model"),
    "step.measuring_s": ("s", "of the forward pass: computing in libraries for the user's own lines between model and backward pass"),
    "step.waiting_s": ("s", "of these phases: asleep in lines of the user's own code, which wait for something"),
    "interpreter.looks": ("looks", "at the training thread in its steps: whether it waits for Python's interpreter"),
    "interpreter.waiting_share": ("", "of these looks, those that found it waiting while another thread had the interpreter"),
    "interpreter.error": ("", "standard error of that share"),
    "interpreter.lost_s": ("s", "of a step, by that share: the training thread waits for the interpreter"),
    "precision.half": ("", "1: layers compute in half precision, by autocast or by their weights"),
    "precision.tf32": ("", "1: what this model mostly computes, convolutions or matrix products, may use TF32"),
    "precision.capability": ("", "compute capability of the GPU"),
    "layout.channels_first": ("", "1: input and weights of the first convolution lie channels-first; 0: one of them does not"),
    "batch.samples": ("samples", "in the batches that most steps have"),
    "batch.benchmarked": ("", "1: told by a benchmark of the machine, not by batches of other sizes"),
    "batch.fixed_share": ("", "of the compute of a step, what does not depend on the size of its batch"),
    "batch.sizes": ("sizes", "sizes of batches whose compute could be compared"),
    "batch.usual_share": ("", "share of the steps whose batch has that size"),
    "parallel.devices": ("GPUs", "GPUs among which DataParallel splits each batch"),
    "reference.images_per_s": ("images/s", "what typical PyTorch programs reach with this model, precision and GPUs, the least source"),
    "reference.tuned_images_per_s": ("images/s", "the ceiling that a vendor's own kernels reach"),
    "reference.observed_images_per_s": ("images/s", "images of this job, over the time of its steps without stalls"),
}  # fmt: skip


# Backward passes compute gradients by the inputs and by the weights, twice the products of the forward pass (Kaplan et al., "Scaling
# Laws for Neural Language Models", 2020, section 2.1).
_FORWARD_OF_BACKWARD = 0.5


def long_forward(forward: float, backward: float) -> float:
    """What a forward pass takes beyond what such a backward pass lets expect; the user's own code may be in there."""
    return max(0.0, forward - _FORWARD_OF_BACKWARD * backward)


@dataclass(frozen=True, slots=True)
class Wait:
    """A place of the user's code that waits for the GPU; numbers are of one step."""

    rank: int
    call: str  # item, cpu, __bool__ …
    file: str
    line: int
    function: str
    through: str  # module of a library or of torch that stands between; empty: none
    phase: str
    calls: float
    steps_share: float  # of the steps looked at
    blocked_s: float

    @property
    def words(self) -> str:
        """`loss.item()` as one would write it."""
        return WORDS.get(self.call, f".{self.call}()")


WORDS = {
    "__bool__": "a comparison or `if`",
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "an index",
    "__repr__": "printing a tensor",
    "synchronize": "synchronize()",
}


@dataclass(frozen=True, slots=True)
class HostCopy:
    """A place that copies to the GPU; numbers are of one step. `aside`: on a stream of its own."""

    rank: int
    call: str
    file: str
    line: int
    mb: float
    pinned: bool
    non_blocking: bool
    aside: bool
    phase: str
    blocked_s: float
    least_s: float


@dataclass(frozen=True, slots=True)
class Holder:
    """The thread of a rank that had the interpreter most often when the training thread waited for it, and its line of the user's."""

    rank: int
    thread: str  # its name
    function: str
    where: Where | None  # None: it runs a library's code
    times: int
    looks: int  # at all threads at such a moment


@dataclass(frozen=True, slots=True)
class Habits:
    """What ranks do in most steps, the costliest places first."""

    waits: tuple[Wait, ...] = ()
    copies: tuple[HostCopy, ...] = ()
