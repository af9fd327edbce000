"""A data set whose samples are their numbers and the process that made them, and what its batches tell. Not a test."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils.data import Dataset

SAMPLES, BATCH = 64, 2
FORKED = {"num_workers": 2, "multiprocessing_context": "fork"}


class Data(Dataset):
    def __init__(self, broken: int = -1) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        if index == self.broken:
            raise ValueError("a broken sample")
        return torch.tensor([index, os.getpid()])


def told(batch: Any) -> list[int]:
    return batch[..., 0].reshape(-1).tolist()


def rest(batches: Any) -> list[int]:
    return [sample for batch in batches for sample in told(batch)]


def makers(batch: Any) -> set[int]:
    return set(batch[..., 1].reshape(-1).tolist())
