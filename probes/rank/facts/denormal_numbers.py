"""Counts denormal numbers among the weights, gradients and optimizer state on the CPU, and checks whether the training thread flushes them.

A CPU needs a hundred cycles and more for each instruction that meets a denormal number, 0 < |x| < 1.2e-38 in single precision. This
reads the bits of some hundred numbers of a few tensors: arithmetic would take them for zeros where they are flushed. Tensors are never
written.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Any

from ..layout import DENORMAL_FIELDS
from ..signal_exceptions import reraise_signal_exception
from .occasional_observations import OccasionalObservations

if TYPE_CHECKING:
    from .process_facts import Facts

PLACES = 4  # parameters per observation
NUMBERS = 64  # read per tensor
ROWS_MAX = 64
_STATES_MAX = 5  # entries of optimizer state per parameter: Adam has a count and two tensors, three with amsgrad
_MAGNITUDE, _NORMAL = 0x7FFFFFFF, 0x00800000  # bits of |x| in single precision; the smallest normal number
_LEAST = 5e-324  # a global name, since the compiler would multiply constants
_STEP, _OBSERVATIONS, _COUNTS = (DENORMAL_FIELDS.index(name) for name in ("step", "looks", "weights"))


class Denormals(OccasionalObservations):
    """The observations of one process, as rows of DENORMAL_FIELDS, each for equally many successive ones."""

    NAME = "denormals"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._rows: list[list[int]] = []
        self._observations_per_row = 1
        self._random = Random(0)  # the job's own generators stay as they are
        self._with_denormals = 0

    def _read(self, torch: Any, optimizer: Any, step: int) -> bool:
        counts = self._counted(torch, optimizer)
        if any(counts):
            self._add([step, 1, int(_LEAST * 1.0 == 0.0), *counts])
        return any(counts)

    def _counted(self, torch: Any, optimizer: Any) -> list[int]:
        """Numbers read and the denormal ones among them: of weights, gradients, optimizer state."""
        counts = [0, 0, 0, 0, 0, 0]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        ends = list(accumulate(p.numel() for p in parameters))
        for _ in range(PLACES if ends and ends[-1] else 0):
            # the larger a parameter, the more often it is read
            at = bisect_right(ends, self._random.randrange(ends[-1]))
            parameter, size = parameters[at], ends[at] - (ends[at - 1] if at else 0)
            places = torch.tensor(self._random.choices(range(size), k=NUMBERS), dtype=torch.int64, device="cpu")
            kept = optimizer.state.get(parameter)
            state = list(kept.values())[:_STATES_MAX] if type(kept) is dict else []
            for kind, tensor in [(0, parameter), (2, parameter.grad), *((4, t) for t in state)]:
                bits = _bits(torch, tensor, size, places)
                counts[kind] += len(bits)
                counts[kind + 1] += sum(0 < (each & _MAGNITUDE) < _NORMAL for each in bits)
        return counts

    def _add(self, row: list[int]) -> None:
        rows = self._rows
        if rows and (rows[-1][_STEP] == row[_STEP] or rows[-1][_OBSERVATIONS] < self._observations_per_row):
            rows[-1] = _merged([rows[-1], row])
        else:
            rows.append(row)
        if len(rows) > ROWS_MAX:
            rows[:] = [_merged(rows[n : n + 2]) for n in range(0, len(rows), 2)]
            self._observations_per_row *= 2
        self._facts.values["denormals"] = rows  # written with the other facts
        if any(row[_COUNTS + 1 :: 2]):
            self._with_denormals += 1
            if self._with_denormals & (self._with_denormals - 1) == 0:  # at growing intervals
                self._facts.write()


def _bits(torch: Any, tensor: Any, size: int, places: Any) -> list[int]:
    """The bits of the numbers at these places in a dense float32 tensor of this size on the CPU; of any other tensor none."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.dtype is not torch.float32:
        return []
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.numel() != size:
        return []
    if not tensor.is_contiguous() and not (
        tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    ):
        return []
    try:
        flat = tensor.detach().as_strided((size,), (1,), tensor.storage_offset())
        return flat.view(torch.int32).index_select(0, places).tolist()  # type: ignore[no-any-return]
    except RuntimeError:  # its memory was released, or a transform of functorch wraps it
        reraise_signal_exception()
        return []


def _merged(rows: list[list[int]]) -> list[int]:
    """One row for several, from the first one's step on."""
    return [rows[0][_STEP], *(sum(row[field] for row in rows) for field in range(_OBSERVATIONS, len(DENORMAL_FIELDS)))]
