"""Options of loaders are compared as torch would use them, and iterators that failed at their creation end without a word."""

from __future__ import annotations

import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402
from torch.utils.data import dataloader as dataloader_module  # noqa: E402

from rn50_advisor.probes.rank.trials.loader_relay import LoaderOptions, LoaderParts, close, made  # noqa: E402

FORK = torch.multiprocessing.get_context("fork")
NONE, TWO = LoaderOptions(0, None, False, None), LoaderOptions(2, 4, True, FORK)
CHANGED: list[tuple[LoaderOptions, dict[str, Any], LoaderOptions]] = [
    (NONE, {}, NONE),
    (NONE, {"num_workers": 1}, LoaderOptions(1, 2, False, None)),
    (NONE, {"num_workers": 1, "prefetch_factor": 3}, LoaderOptions(1, 3, False, None)),
    (NONE, {"multiprocessing_context": "fork"}, NONE),
    (TWO, {}, TWO),
    (TWO, {"num_workers": 0}, LoaderOptions(0, None, True, None)),
    (TWO, {"num_workers": None, "pin_memory": None}, NONE),
    (TWO, {"multiprocessing_context": "fork", "prefetch_factor": 4}, TWO),
    (TWO, {"multiprocessing_context": None, "prefetch_factor": None}, LoaderOptions(2, 2, True, None)),
]


@pytest.mark.parametrize("options,changes,expected", CHANGED)
def test_changed_options(options: LoaderOptions, changes: dict[str, Any], expected: LoaderOptions) -> None:
    assert options.changed(changes) == expected


def test_facts_are_plain_values() -> None:
    assert TWO.facts() == {"num_workers": 2, "prefetch_factor": 4, "pin_memory": True, "context": "fork"}
    assert NONE.facts()["context"] is None


def test_parts_outlive_their_loader_and_have_what_torch_reads() -> None:
    parts = LoaderParts(DataLoader(range(8), 2, timeout=0))
    assert parts.options() == NONE
    iterator = made(parts.with_options(LoaderOptions(0, None, False, None)), 7, begins=False)
    assert list(iterator) == [] and iterator._rn50_loader == 7
    with pytest.raises(AttributeError, match="torch's iterators read unheard_of of a loader"):
        parts.unheard_of  # noqa: B018


def test_the_seed_is_drawn_from_a_copy() -> None:
    generator = torch.Generator().manual_seed(3)
    parts = LoaderParts(DataLoader(range(8), 2, generator=generator))
    before = generator.get_state()
    seed = made(parts.with_options(NONE), 0, begins=False)._base_seed
    assert torch.equal(generator.get_state(), before)
    parts.draw()
    generator.set_state(before)
    assert seed == torch.empty((), dtype=torch.int64).random_(generator=generator).item()


def test_the_seed_is_drawn_where_torch_would_draw_it() -> None:
    torch.set_default_device("meta")
    try:
        with pytest.raises((RuntimeError, NotImplementedError)):  # as torch's own iterator: there is no such generator
            made(LoaderParts(DataLoader(range(8), 2)).with_options(NONE), 0, begins=False)
    finally:
        torch.set_default_device(None)


def test_an_iterator_that_failed_before_its_first_worker_is_closed() -> None:
    kind = dataloader_module._MultiProcessingDataLoaderIter
    iterator = kind.__new__(kind)
    close(iterator)
    assert iterator._shutdown
    close(types.SimpleNamespace())  # one without workers
