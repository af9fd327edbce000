"""From looks at a rank's numbers to shares of denormal ones, and to the steps without and with them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.probes.rank.layout import DENORMAL_FIELDS

SHARES = ("denormal.weights", "denormal.gradients", "denormal.state")
GROWTH = ("denormal.since", "denormal.before_s", "denormal.expected_s", "denormal.after_s", "denormal.step_s")
Row = list[int]


def look(step: int, share: float = 0.0, *, looks: int = 1, flushed: int = 0, of: int = 1000) -> Row:
    """A look at so many numbers of each kind; this share of the optimizer's state is denormal."""
    return [step, looks, flushed * looks, looks * of, 0, looks * of, 0, looks * of, round(looks * of * share)]


def _swapped(row: Row, kind: str) -> Row:
    """The same look with the denormal numbers in weights or gradients."""
    of = dict(zip(DENORMAL_FIELDS, row, strict=True))
    of[f"denormal_{kind}"], of["denormal_state"] = of["denormal_state"], 0
    return [of[name] for name in DENORMAL_FIELDS]


def seen(*rows: Row, slow_from: int = 100, ranks: Sequence[int] = (0,), **slow: float) -> Analysis:
    """Two hundred steps of 100 ms, from one on of 140, with these looks on each of the ranks."""
    steps = [*plan(slow_from), *plan(200 - slow_from, **{"optimizer": 50, **slow})]
    facts = {100 + rank: {"denormals": list(rows)} for rank in ranks}
    return analyse(recording(dict.fromkeys(ranks, steps), facts=facts))


def every(first: int, last: int, share: float = 0.0) -> list[Row]:
    return [look(step, share) for step in range(first, last, 10)]


def test_shares_are_those_of_the_latest_looks() -> None:
    found = seen(*every(0, 100), *every(100, 200, 0.25))
    assert [found.get(name, 0) for name in SHARES] == [0.0, 0.0, 0.25]
    assert found.get("denormal.flushed", 0) == 0.0


def test_steps_before_the_first_denormal_numbers_are_compared_with_those_since() -> None:
    found = seen(*every(0, 100), *every(100, 200, 0.25))
    assert [found.get(name, 0) for name in GROWTH] == pytest.approx([100, 0.01, 0.01, 0.05, 0.14])


@pytest.mark.parametrize(("forward", "expected_ms"), [(50, 12.5), (10, 7.5), (300, 15)])
def test_layers_that_meet_none_show_the_speed_of_the_machine(forward: float, expected_ms: float) -> None:
    found = seen(*every(0, 100), *every(100, 200, 0.25), forward=forward)
    assert found.get("denormal.before_s", 0) == pytest.approx(0.01)
    assert found.get("denormal.expected_s", 0) == pytest.approx(expected_ms / 1000)


@pytest.mark.parametrize("kind", ["weights", "gradients"])
def test_layers_that_meet_denormal_numbers_are_compared_themselves(kind: str) -> None:
    swapped = [_swapped(row, kind) for row in every(100, 200, 0.25)]
    found = seen(*every(0, 100), *swapped, forward=50)
    assert found.get(f"denormal.{kind}", 0) == 0.25 and found.get("denormal.state", 0) == 0.0
    assert [found.get(name, 0) for name in GROWTH] == pytest.approx([100, 0.09, 0.09, 0.15, 0.16])


def test_steps_while_they_become_more_are_on_neither_side() -> None:
    found = seen(*every(0, 60), *every(60, 120, 0.05), *every(120, 200, 0.25), slow_from=120)
    assert [found.get(name, 0) for name in GROWTH] == pytest.approx([60, 0.01, 0.01, 0.05, 0.14])


@pytest.mark.parametrize(
    "rows",
    [every(0, 200, 0.25), every(0, 200), [*every(0, 20), *every(20, 200, 0.25)], [*every(0, 190), look(190, 0.25)]],
    ids=["from the start", "never", "soon", "lately"],
)
def test_without_enough_steps_on_either_side_nothing_is_compared(rows: list[Row]) -> None:
    found = seen(*rows)
    assert found.get("denormal.state", 0) is not None
    assert [found.get(name, 0) for name in GROWTH] == [None] * 5


def test_a_stray_number_is_no_beginning() -> None:
    found = seen(*every(0, 50), look(50, 0.02), *every(60, 100), *every(100, 200, 0.25))
    assert found.get("denormal.since", 0) == 100


def test_rows_of_several_looks_count_as_often() -> None:
    found = seen(
        look(0, looks=10), look(50, looks=10), look(100, 0.25, looks=4), look(140, 0.5, looks=4), look(180, 0.5)
    )
    assert found.get("denormal.state", 0) == pytest.approx((4 * 0.25 + 4 * 0.5 + 0.5) / 9)


def test_flushing_is_a_share_of_the_latest_looks() -> None:
    found = seen(*every(0, 100), *(look(step, 0.25, flushed=1) for step in range(100, 200, 10)))
    assert found.get("denormal.flushed", 0) == 1.0


@pytest.mark.parametrize("rows", [[], every(0, 20), [[1, 2, 3]] * 5], ids=["none", "two looks", "of another version"])
def test_a_few_looks_are_no_measurement(rows: list[Row]) -> None:
    found = seen(*rows)
    assert not found.by_rank("denormal.weights") and "too few looks" in found.missing["denormal.weights"]


def test_each_rank_has_its_own() -> None:
    found = seen(*every(0, 100), *every(100, 200, 0.25), ranks=(0, 1))
    assert found.by_rank("denormal.state") == {0: 0.25, 1: 0.25} and len(found.by_rank("denormal.after_s")) == 2
