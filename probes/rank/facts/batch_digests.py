"""Check sums of the first batches of a training loader and of one that evaluates: by them ranks, or the workers of one loader, are seen
to get the same samples.

Batches are only read, and nothing here draws random numbers.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Any

from ..signal_exceptions import reraise_signal_exception
from ..steps.step_account import TRAINING
from .batch_contents import leaves_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...documents.loader_documents import DescribedLoader
    from ...documents.rank_documents import FirstBatches
    from .process_facts import Facts

BATCHES = 16
EVALUATED = 4
STREAM = "_InfiniteConstantSampler"  # torch's sampler for an IterableDataset
_ROUNDS = 4  # of a stream: one batch from each worker
_BATCHES_MAX = 48
_STEPS_MORE = 16  # than batches are wanted: the loop has another loader by then, or none
_TENSORS = 4  # the largest of a batch: they hold its data
_NUMBERS = 64  # read of each
_SPREAD = 2_654_435_761  # multiples of it, modulo the size, lie all over a tensor


class BatchDigests:
    """The check sums of one process, of consecutive batches. `open`: more are wanted.

    `described`: the settings of loaders by number.
    """

    def __init__(self, facts: Facts, described: Mapping[int, DescribedLoader]) -> None:
        self.open = True
        self._facts = facts
        self._described = described
        self._loader = -1
        self._digests: list[int] = []
        self._wanted = BATCHES

    def batch(self, loader: int, batch: Any, training: bool, kinds: Mapping[int, int]) -> None:
        """Called with each batch of a loader while `open`. `training`: it may train; `kinds`: what loaders do, as far as known."""
        if loader != self._loader:
            if not training or kinds.get(self._loader) == TRAINING:
                return
            self._begin(loader)
        digest = _checked(self._facts, batch) if training else None
        if digest is None:
            self.end()
            return
        self._digests.append(digest)
        found: FirstBatches = {"loader": loader, "digests": self._digests}
        self._facts.values["first_batches"] = found  # written with the other facts
        self.open = len(self._digests) < self._wanted

    def _begin(self, loader: int) -> None:
        """Forgets a loader of which a batch was only looked at, or that evaluates."""
        self._loader, self._digests = loader, []
        known = self._described.get(loader, {})
        workers = known.get("num_workers") if known.get("sampler") == STREAM else None
        self._wanted = min(max(BATCHES, _ROUNDS * (workers or 0)), _BATCHES_MAX)

    def counts(self, step: int) -> bool:
        """True if each batch of this step must be seen, by marks that are not only noted."""
        if self.open and self._digests and step >= self._wanted + _STEPS_MORE:
            self.end()
        return self.open and bool(self._digests)

    def end(self) -> None:
        """Called before a batch may be missed: those after it would not follow the ones before."""
        self.open = False


class EvaluatedDigests:
    """The same of the first loader that evaluates. `open`: more are wanted."""

    def __init__(self, facts: Facts) -> None:
        self.open = True
        self._facts = facts
        self._found: FirstBatches | None = None

    def batch(self, loader: int, batch: Any) -> None:
        """Called with each batch that is fetched for an evaluation while `open`."""
        if self._found is None:
            self._found = {"loader": loader, "digests": []}
        digest = _checked(self._facts, batch) if loader == self._found["loader"] else None
        if digest is None:
            self.open = False
            return
        self._found["digests"].append(digest)
        self._facts.values["first_evaluated"] = self._found
        self.open = len(self._found["digests"]) < EVALUATED


def _checked(facts: Facts, batch: Any) -> int | None:
    try:
        return _digest(sys.modules["torch"], batch)
    except Exception as error:  # a class of tensors that cannot be read in this way
        reraise_signal_exception()
        facts.miss("batch digests: %s" % type(error).__name__)
        return None


def _digest(torch: Any, batch: Any) -> int | None:
    """The check sum of some numbers of a batch; None if it has no data on the CPU that can be read unseen."""
    modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
    if torch.autograd._profiler_enabled() or (modes is not None and modes()):
        return None  # they would see what is done here
    with torch._C.DisableTorchFunction():
        tensors = [leaf for leaf in leaves_of(batch) if type(leaf) is torch.Tensor and _is_plain(torch, leaf)]
        tensors.sort(key=lambda tensor: -tensor.numel())
        whole = [tensor for tensor in tensors if not (tensor.is_floating_point() or tensor.dim() > 1)]
        if len(tensors) == len(whole) < 2:
            return None  # one number for each sample: perhaps its index, of which the job makes the rank's own samples
        return zlib.crc32(repr([_numbers(torch, tensor) for tensor in tensors[:_TENSORS]]).encode())


def _is_plain(torch: Any, tensor: Any) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.dim() > 0 and tensor.numel() > 0


def _numbers(torch: Any, tensor: Any) -> list[Any]:
    """Numbers from all over a tensor."""
    size = tensor.numel()
    places = [_SPREAD * n % size for n in range(min(_NUMBERS, size))]
    found: list[Any] = tensor.detach().take(torch.tensor(places, dtype=torch.int64, device="cpu")).tolist()
    return found
