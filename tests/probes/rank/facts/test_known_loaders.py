"""Loaders by number: one for each place and data, however often it is made anew."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.facts.known_loaders import LOADERS_MAX, KnownLoaders, Numbers
from rn50_advisor.probes.rank.steps.step_account import EVALUATING, TRAINING


class Data:
    def __len__(self) -> int:
        return 100


class DataLoader:
    def __init__(self, dataset: Any, batch_size: int | None = 32, **more: Any) -> None:
        self.dataset, self.batch_size, self.num_workers = dataset, batch_size, 4
        self.__dict__.update(more)

    __eq__ = None  # type: ignore[assignment] - the job's objects may define anything
    __hash__ = None  # type: ignore[assignment]


def account(kinds: dict[int, int], *evaluated: int) -> Any:
    return SimpleNamespace(loaders=kinds, evaluated=set(evaluated))


def test_a_number_lasts_as_long_as_its_object() -> None:
    numbers = Numbers()
    loader = DataLoader(Data())
    assert numbers.get(loader) == -1
    numbers.put(loader, 3)
    assert (numbers.get(loader), numbers.get(DataLoader(Data()))) == (3, -1)
    numbers.put(loader, 4)
    assert numbers.get(loader) == 4
    del loader
    gc.collect()
    assert not numbers._known


def test_what_cannot_be_referred_to_weakly_has_no_number() -> None:
    numbers, items = Numbers(), [1, 2]
    numbers.put(items, 3)
    assert numbers.get(items) == -1


def test_a_loader_made_again_at_its_line_for_the_same_data_keeps_its_number() -> None:
    known, data = KnownLoaders(), Data()
    made = []
    for _ in range(3):
        made.append(DataLoader(data))
        known.add(made[-1])
    other = DataLoader(data, batch_size=8)
    known.add(other)
    assert [known.numbers.get(loader) for loader in (*made, other)] == [0, 0, 0, 1]
    first, second = known.facts(account({}))
    assert (first["made"], second["made"]) == (3, 1)
    assert (first["id"], first["class"], first["batch_size"], second["batch_size"]) == (0, "DataLoader", 32, 8)
    assert first["file"] == __file__ and first["line"] > 0


@pytest.mark.parametrize(
    ("kinds", "evaluated", "training"),
    [
        ({}, (), None),
        ({0: TRAINING}, (), True),
        ({0: EVALUATING}, (), False),
        ({}, (0,), False),
        ({0: TRAINING}, (0,), True),
    ],
)
def test_the_use_of_a_loader_is_reported_once_it_is_known(
    kinds: dict[int, int], evaluated: tuple[int, ...], training: bool | None
) -> None:
    known = KnownLoaders()
    known.add(DataLoader(Data()))
    assert known.facts(account(kinds, *evaluated))[0]["training"] is training


def test_the_size_of_a_batch_is_the_loaders_or_its_samplers() -> None:
    known = KnownLoaders()
    known.add(DataLoader(Data()))
    known.add(DataLoader(Data(), batch_size=None, batch_sampler=SimpleNamespace(batch_size=16)))
    known.add(DataLoader(Data(), batch_size=None))
    assert [known.batch_size(number) for number in range(4)] == [32, 16, None, None]


def test_the_first_batch_is_weighed_and_no_other() -> None:
    np = pytest.importorskip("numpy")
    known = KnownLoaders()
    known.add(DataLoader(Data()))
    assert known.facts(account({}))[0]["batch_bytes"] is None
    known.weigh(7, np.zeros(8))
    known.weigh(0, [np.zeros(10, np.float32), {"label": np.zeros(10, np.int64)}])
    known.weigh(0, np.zeros(1000))
    assert known.facts(account({}))[0]["batch_bytes"] == 120


def test_loaders_are_described_up_to_a_bound() -> None:
    known = KnownLoaders()
    loaders = [DataLoader(Data(), batch_size=size) for size in range(1, LOADERS_MAX + 10)]
    for loader in loaders:
        known.add(loader)
    assert len(known.facts(account({}))) == LOADERS_MAX
    assert known.numbers.get(loaders[-1]) >= 0


def remade(known: KnownLoaders, given: DataLoader, **more: Any) -> DataLoader:
    """Adds what a library makes of this loader."""
    code = compile(
        "def again(known, loader):\n    known.add(loader)\n", "/env/site-packages/accelerate/data_loader.py", "exec"
    )
    scope: dict[str, Any] = {"__name__": "accelerate.data_loader"}
    exec(code, scope)
    loader = DataLoader(given.dataset, **more)
    scope["again"](known, loader)
    return loader


@pytest.mark.parametrize(
    ("kinds", "reported"), [({}, [1]), ({0: TRAINING}, [0, 1]), ({0: EVALUATING, 1: TRAINING}, [0, 1])]
)
def test_a_loader_that_a_library_replaced_is_reported_only_if_it_was_used_itself(
    kinds: dict[int, int], reported: list[int]
) -> None:
    known, given = KnownLoaders(), DataLoader(Data())
    known.add(given)
    remade(known, given, batch_size=None)
    assert [loader["id"] for loader in known.facts(account(kinds))] == reported


def test_a_loader_that_a_library_made_again_as_it_was_stays() -> None:
    known, given = KnownLoaders(), DataLoader(Data())
    known.add(given)
    remade(known, given)
    assert [(loader["id"], loader["made"]) for loader in known.facts(account({}))] == [(0, 2)]
