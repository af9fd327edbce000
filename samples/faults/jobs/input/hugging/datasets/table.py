"""The table of row numbers that `shuffle` leaves, and that of the rows. Look-ups and lists take as long as in datasets 5.2 on two cores."""

from __future__ import annotations

import time

import torch

LOOKUP_NS = 11_000
LIST_NS = 8_000


def spent(values: torch.Tensor, ns: int) -> torch.Tensor:
    """A copy of these values, after so much CPU time of this thread."""
    end_ns = time.thread_time_ns() + ns
    copy = values.clone()
    while time.thread_time_ns() < end_ns:
        pass
    return copy


class Columns:
    """Rows of numbers as Arrow shows them."""

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        self._columns = columns
        self.column_names = list(columns)
        self.num_rows = len(next(iter(columns.values())))

    def fast_slice(self, offset: int, length: int) -> Columns:
        return Columns({name: values[offset : offset + length] for name, values in self._columns.items()})

    def column(self, name: str) -> Chunks:
        return Chunks(self._columns[name])


class Chunks:
    def __init__(self, values: torch.Tensor) -> None:
        self._values = values

    def chunk(self, _number: int) -> ListArray | FloatArray:
        return array_of(self._values)


class FloatArray:
    def __init__(self, values: torch.Tensor) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)


class ListArray(FloatArray):
    def flatten(self) -> ListArray | FloatArray:
        return array_of(self._values.flatten(0, 1))


def array_of(values: torch.Tensor) -> ListArray | FloatArray:
    return ListArray(values) if values.dim() > 1 else FloatArray(values)


class Table:
    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers
        self.num_rows = len(numbers)

    def fast_slice(self, offset: int, length: int) -> Table:
        end_ns = time.thread_time_ns() + LOOKUP_NS
        while time.thread_time_ns() < end_ns:
            pass
        return Table(self._numbers[offset : offset + length])

    def column(self, _number: int) -> list[Number]:
        return [Number(number) for number in self._numbers]


class Number:
    def __init__(self, value: int) -> None:
        self._value = value

    def as_py(self) -> int:
        return self._value
