"""A data set of columns of numbers, or of equally long lists of them, with or without an indices mapping. Items are tensors."""

from __future__ import annotations

import random
from typing import Any

import torch

from .table import LIST_NS, Columns, Table, spent


class Dataset:
    def __init__(self, columns: dict[str, torch.Tensor], indices: Table | None = None) -> None:
        self._columns, self._indices, self._format_type = columns, indices, "torch"
        self._data, self._format_columns = Columns(columns), None

    @classmethod
    def from_dict(cls, columns: dict[str, Any]) -> Dataset:
        return cls({name: torch.as_tensor(values) for name, values in columns.items()})

    def with_format(self, _name: str) -> Dataset:
        return self

    def shuffle(self, seed: int) -> Dataset:
        numbers = list(range(len(self)))
        random.Random(seed).shuffle(numbers)
        return Dataset(self._columns, Table(numbers))

    def flatten_indices(self) -> Dataset:
        rows = self._rows(list(range(len(self))))
        return Dataset({name: values[rows] for name, values in self._columns.items()})

    def __len__(self) -> int:
        return self._indices.num_rows if self._indices else len(next(iter(self._columns.values())))

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return self.__getitems__([at])[0]

    def __getitems__(self, at: list[int]) -> list[dict[str, torch.Tensor]]:
        rows = self._rows(at)
        found = {name: self._decoded(values[rows]) for name, values in self._columns.items()}
        return [{name: values[n] for name, values in found.items()} for n in range(len(at))]

    def _decoded(self, rows: torch.Tensor) -> Any:
        """Lists in lists are made tensors one by one, and stacked."""
        return [torch.stack([spent(inner, LIST_NS) for inner in row]) for row in rows] if rows.dim() > 2 else rows

    def _rows(self, at: list[int]) -> list[int]:
        if self._indices is None:
            return at
        return [self._indices.fast_slice(number, 1).column(0)[0].as_py() for number in at]
