"""The table of row numbers that `shuffle` leaves. A look-up takes as long as one of datasets 5.2 on two cores."""

from __future__ import annotations

import time

LOOKUP_NS = 11_000


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
