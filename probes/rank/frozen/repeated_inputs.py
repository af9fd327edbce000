"""Marks of a network's inputs, one for each row, and which of them were seen before. Keeps no tensor."""

from __future__ import annotations

from collections import deque
from typing import Any

from ..facts.batch_contents import leaves_of

ROWS_MAX = 48  # read of a call: this takes 50 to 90 us, with the tensors that say where to read
NUMBERS = 12  # of each row and tensor
KNOWN_MAX = 4096
RECENT = 8  # calls, or as many more as have
ROWS_MIN = 32  # rows
SEEN_SHARE_MIN = 0.95  # the first epoch is not looked at in every call, so a few rows come later
_SPREAD = 2_654_435_761  # multiples of it, modulo the size, lie all over a row
_PLAIN = (type(None), bool, int, float, str)


class RepeatedInputs:
    """The rows of one network's calls. When there are too many, it goes on with those whose marks end in a zero bit, then in two."""

    def __init__(self) -> None:
        self.calls = 0
        self._known: set[int] = set()
        self._zeros = 0  # bits
        self._rows = self._alike = 0
        self._recent: deque[tuple[int, int]] = deque()  # rows of a call, and those of them that were known

    def add(self, marks: list[int]) -> None:
        """Adds the rows of a call."""
        self.calls += 1
        rows = self._filtered(marks)
        new = set(rows)
        self._rows += len(rows)
        self._alike += len(rows) - len(new)
        self._recent.append((len(rows), sum(mark in self._known for mark in rows)))
        while len(self._recent) > RECENT and self.rows - self._recent[0][0] >= ROWS_MIN:
            self._recent.popleft()
        self._known |= new
        while len(self._known) > KNOWN_MAX:
            self._zeros += 1
            self._known = set(self._filtered(self._known))

    @property
    def rows(self) -> int:
        """Rows of the latest calls."""
        return sum(rows for rows, _ in self._recent)

    @property
    def seen(self) -> int:
        """Those of them that an earlier call had as well."""
        return sum(seen for _, seen in self._recent)

    @property
    def different(self) -> int:
        """Rows that differ, so far."""
        return len(self._known) << self._zeros

    @property
    def alike(self) -> float:
        """The share of the rows whose call had the same row twice: constant ones, or too few numbers to tell rows apart."""
        return self._alike / max(1, self._rows)

    def repeat(self) -> bool:
        return len(self._recent) >= RECENT and self.rows >= ROWS_MIN and self.seen >= SEEN_SHARE_MIN * self.rows

    def _filtered(self, marks: Any) -> list[int]:
        ends = (1 << self._zeros) - 1
        return [mark for mark in marks if not mark & ends]


def row_marks(torch: Any, given: Any) -> list[int] | None:
    """A mark for each row of a call's arguments: equal rows have equal marks. None if something in them cannot be read, or learns."""
    leaves = leaves_of(given)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors or not all(_is_plain(torch, tensor) for tensor in tensors):
        return None
    if not all(type(leaf) in _PLAIN for leaf in leaves if not isinstance(leaf, torch.Tensor)):
        return None
    size = int(tensors[0].shape[0]) if tensors[0].dim() else 0
    if size == 0:
        return None
    common = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    by_row: list[list[Any]] = []
    for tensor in tensors:
        if tensor.dim() and tensor.shape[0] == size:
            by_row.append(_numbers(torch, tensor))
        else:
            common.append(_numbers(torch, tensor.unsqueeze(0)))
    same = hash(repr(common))
    return [hash((same, *(tuple(part[n]) for part in by_row))) for n in range(len(by_row[0]))]


def _is_plain(torch: Any, tensor: Any) -> bool:
    kind = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return kind and tensor.device.type == "cpu" and tensor.numel() > 0 and not tensor.requires_grad


def _numbers(torch: Any, tensor: Any) -> list[list[Any]]:
    """Numbers from all over each of the first rows."""
    shape = [int(n) for n in tensor.shape[1:]]
    size = 1
    for n in shape:
        size *= n
    places = sorted({_SPREAD * n % size for n in range(min(NUMBERS, size))})
    indices = []
    for n in reversed(shape):  # any strides: a view would need a dense tensor
        indices.append(torch.tensor([place % n for place in places], dtype=torch.int64, device="cpu"))
        places = [place // n for place in places]
    rows = tensor.detach()[:ROWS_MAX]
    where = (slice(None), *reversed(indices))
    found: list[Any] = (rows[where] if indices else rows.unsqueeze(1)).tolist()
    return found
