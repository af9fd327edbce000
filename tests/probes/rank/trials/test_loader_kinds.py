"""A loader of any kind gives the batches and random numbers that it would have given, however often its options are exchanged."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from numbered_samples import BATCH, FORKED, SAMPLES, Data, told  # noqa: E402
from rn50_advisor.probes.rank.trials.loader_swap import LoaderSwap  # noqa: E402

pytestmark = pytest.mark.torch

IN_PROCESS = {"num_workers": 0}
EPOCHS, SWAPS = 2, 20


class Eager(Sampler):
    """Draws its order when it is asked for an iterator, from the job's own generator, and counts how often that was."""

    def __init__(self) -> None:
        self.asked = 0

    def __iter__(self) -> Iterator[int]:
        self.asked += 1
        return iter([(each + self.asked) % SAMPLES for each in torch.randperm(SAMPLES).tolist()])

    def __len__(self) -> int:
        return SAMPLES


class Endless(DataLoader):
    """As in timm and ultralytics: one iterator for all epochs, which the loader itself holds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeating(self.batch_sampler))
        self.batches = super().__iter__()

    def __len__(self) -> int:
        return SAMPLES // BATCH

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield next(self.batches)


class Repeating:
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        while True:
            yield from iter(self.sampler)


class Nested(Data):
    """Reads a loader of its own for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = DataLoader(list(range(4)), batch_size=2, generator=seeded())

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index + 100 * int(sum(part.sum() for part in self.inner)), os.getpid()])


def seeded() -> Any:
    return torch.Generator().manual_seed(11)


def with_distributed(**options: Any) -> Any:
    return DataLoader(Data(), BATCH, sampler=DistributedSampler(Data(), 2, 1), **options)


def with_closure(**options: Any) -> Any:
    seen: list[int] = []

    def collate(samples: list[Any]) -> Any:
        seen.append(len(samples))
        return torch.stack(samples)

    return DataLoader(Data(), BATCH, shuffle=True, collate_fn=collate, **options)


def with_two_draws(**options: Any) -> Any:
    return DataLoader(Data(), BATCH, sampler=RandomSampler(Data(), replacement=True, generator=seeded()), **options)


def prepared(**options: Any) -> Any:
    accelerate = pytest.importorskip("accelerate.data_loader")
    # accelerate makes the loader anew: at this line
    return accelerate.prepare_data_loader(
        DataLoader(Data(), BATCH, shuffle=True, **options), num_processes=1, process_index=0, put_on_device=False
    )


def in_seconds(num_workers: int = 0, **options: Any) -> Any:
    return DataLoader(Data(), BATCH, num_workers=num_workers, timeout=60 if num_workers else 0, **options)


KINDS: dict[str, Callable[..., Any]] = {
    "shuffled": lambda **options: DataLoader(Data(), BATCH, shuffle=True, **options),
    "its own generator": lambda **options: DataLoader(Data(), BATCH, shuffle=True, generator=seeded(), **options),
    "the last dropped": lambda **options: DataLoader(Data(), 5, shuffle=True, drop_last=True, **options),
    "a batch sampler": lambda **options: DataLoader(
        Data(), batch_sampler=BatchSampler(SubsetRandomSampler(range(SAMPLES)), 3, False), **options
    ),
    "a sampler that draws at once and has a state": lambda **options: DataLoader(
        Data(), BATCH, sampler=Eager(), **options
    ),
    "drawn with replacement": with_two_draws,
    "weighted": lambda **options: DataLoader(
        Data(), BATCH, sampler=WeightedRandomSampler(torch.ones(SAMPLES), SAMPLES), **options
    ),
    "no batches": lambda **options: DataLoader(Data(), batch_size=None, shuffle=True, **options),
    "distributed": with_distributed,
    "a collate function that is a closure": with_closure,
    "a timeout": in_seconds,
    "one iterator for all epochs": lambda **options: Endless(
        Data(), BATCH, shuffle=True, generator=seeded(), **options
    ),
    "by accelerate": prepared,
    "a loader in the data set": lambda **options: DataLoader(Nested(), BATCH, shuffle=True, **options),
}


def states() -> list[Any]:
    return [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()]


def read(loader: Any, at_step: Callable[[int], object] = lambda step: None) -> tuple[list[Any], list[Any]]:
    """The batches of all epochs, and what the loop itself draws between them."""
    batches, drawn, step = [], [], 0
    for epoch in range(EPOCHS):
        set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        iterator = iter(loader)
        while True:
            at_step(step)
            step += 1
            try:
                batch = next(iterator)
            except StopIteration:
                assert next(iterator, None) is None
                break
            batches.append(told(batch))
            drawn.append((torch.rand(1).item(), random.random(), np.random.rand()))
        batches.append("end")
    return batches, drawn


def reset() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_swaps_keep_the_order_and_all_random_numbers(kind: str, workers: int, swap: LoaderSwap) -> None:
    made_so = FORKED if workers else IN_PROCESS
    other = {"num_workers": 1, "prefetch_factor": 3} if workers else FORKED
    reset()
    alone = *read(KINDS[kind](**made_so)), states()

    def at_step(step: int) -> None:
        if 3 <= step < 3 + SWAPS:
            said = swap.use(other if step % 2 else None)
            assert said == [], said

    reset()
    loader = KINDS[kind](**made_so)
    swapped = *read(loader, at_step), states()
    assert swapped == alone
    assert swap.facts()["swaps"] == SWAPS
    assert swap.facts()["refused"] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_that_begin_with_other_options_keep_them_too(kind: str, workers: int, swap: LoaderSwap) -> None:
    made_so = FORKED if workers else IN_PROCESS
    reset()
    alone = *read(KINDS[kind](**made_so)), states()

    reset()
    loader = KINDS[kind](**made_so)

    def at_step(step: int) -> None:
        if step == 2:
            assert swap.use(IN_PROCESS if workers else FORKED) == []
        if step == len(loader) + 4:
            assert swap.use(None) == []

    assert (*read(loader, at_step), states()) == alone
    facts = swap.facts()
    assert facts["swaps"] >= 1 and facts["active"] == []
