"""The pace of a rank on a GPU: calls that wait for the device, copies to it, precision and memory layout."""

from __future__ import annotations

from dataclasses import dataclass

from rn50_advisor.advisor.model.findings import Where

# A backward pass computes gradients of the inputs and of the weights: twice the products of the forward pass (Kaplan et al., "Scaling
# Laws for Neural Language Models", 2020, section 2.1).
_FORWARD_OF_BACKWARD = 0.5
# On two cores a perceptron's forward pass took 0.48 of its backward pass; 0.42 with half of its layers checkpointed, 0.36 with all.
_FORWARD_OF_BACKWARD_MIN = 0.48


def long_forward(forward: float, backward: float) -> float:
    """Forward time beyond the time expected from the backward pass; it may contain the user's own code."""
    return max(0.0, forward - _FORWARD_OF_BACKWARD * backward)


def long_backward(forward: float, backward: float) -> float:
    """Backward time beyond the time expected from the forward pass; it may contain recomputed forward passes."""
    return max(0.0, backward - forward / _FORWARD_OF_BACKWARD_MIN)


@dataclass(frozen=True, slots=True)
class Wait:
    """A place in the user's code that waits for the GPU. Numbers are per step."""

    rank: int
    call: str  # item, cpu, __bool__ …
    file: str
    line: int
    function: str
    through: str  # module of a library or of torch that makes the call; empty: none
    phase: str
    calls: float
    steps_share: float  # of the inspected steps
    blocked_s: float

    @property
    def words(self) -> str:
        """The call as users write it: `.item()`, `float()`."""
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
    """A place that copies to the GPU. Numbers are per step. `aside`: on a separate stream."""

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
    """The thread that most often ran while its rank's training thread waited for the interpreter, and its line in the user's code."""

    rank: int
    thread: str  # its name
    function: str
    where: Where | None  # None: it runs a library's code
    times: int
    samples: int  # stack samples of all threads during such waits


@dataclass(frozen=True, slots=True)
class CallSites:
    """Call sites that ranks reach in most steps, costliest first."""

    waits: tuple[Wait, ...] = ()
    copies: tuple[HostCopy, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedSpeed:
    """The published result that a job is compared with. `scaled`: it is one GPU's, multiplied for the job's number of GPUs.

    `samples`: images, or sequences. `channels_last`: None for a model without convolutions.
    """

    model: str
    samples: str
    samples_per_s: float
    gpus: int
    gpu: str
    precision: str
    channels_last: bool | None
    batch_per_gpu: int
    source: str
    scaled: bool = False

    @property
    def words(self) -> str:
        """`resnet50: 2470 images/s on 1 × A100-SXM, amp, channels-last, 256 images per GPU (NVIDIA …)`."""
        layout = {True: "channels-last, ", False: "channels-first, ", None: ""}[self.channels_last]
        words = (
            f"{self.model}: {self.samples_per_s:.0f} {self.samples}/s on {self.gpus} × {self.gpu}, {self.precision}, "
        )
        words += f"{layout}{self.batch_per_gpu} {self.samples} per GPU ({self.source})"
        return f"{words}, multiplied for the job's GPUs" if self.scaled else words
