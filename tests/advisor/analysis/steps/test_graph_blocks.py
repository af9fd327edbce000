"""From the order of autograd's nodes to the blocks that a loop has made."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.analysis.steps.graph_blocks import TIMES_MIN, RepeatedBlock, repeated_blocks


def timed(order: str, **us: float) -> Any:
    """A pass with these nodes, a letter each; `us`: microseconds of a node of that class."""
    names = [f"{letter}Backward0" for letter in sorted(set(order))]
    letters = {name[0]: chr(ord("A") + n) for n, name in enumerate(names)}
    classes = [
        {"name": f"{name}Backward0", "count": 4, "ns": int(12000 * each), "median_ns": int(1000 * each)}
        for name, each in us.items()
    ]
    return {"order": "".join(map(letters.__getitem__, order)), "names": names, "classes": classes}


def blocks(order: str, **us: float) -> list[tuple[str, int]]:
    return [("".join(name[0] for name in block.nodes), block.times) for block in repeated_blocks(timed(order, **us))]


def test_a_loop_is_a_block_that_repeats_between_other_nodes() -> None:
    assert blocks("CRL" + 9 * "SMA" + "DT") == [("AMS", 9)]


def test_a_loop_of_one_operation_is_a_block_of_one_node() -> None:
    assert blocks("CR" + 12 * "M" + "T") == [("M", 12)]


@pytest.mark.parametrize(("times", "found"), [(TIMES_MIN, True), (TIMES_MIN - 1, False)])
def test_few_repetitions_are_no_block(times: int, found: bool) -> None:
    assert bool(blocks("CRL" + times * "SMA" + "DT")) is found


def test_two_loops_are_two_blocks_the_longer_one_first() -> None:
    assert blocks(10 * "SMA" + "CR" + 20 * "XY") == [("XY", 20), ("AMS", 10)]


def test_an_operation_twice_in_an_iteration_does_not_halve_it() -> None:
    assert blocks("C" + 10 * "SMSA") == [("AMSS", 10)]


def test_a_loop_in_an_iteration_belongs_to_the_outer_one() -> None:
    assert blocks(8 * ("C" + 3 * "SM")) == [("CMMMSSS", 8)]


def test_its_time_is_that_of_its_nodes() -> None:
    (block,) = repeated_blocks(timed("C" + 10 * "SM" + "T", S=4.0, M=6.0, C=1000.0))
    assert block == RepeatedBlock(("MBackward0", "SBackward0"), 10, pytest.approx(100e-6), pytest.approx(300e-6)), (
        "three times as long by the mean"
    )


def test_without_an_order_there_are_none() -> None:
    assert repeated_blocks({"passes": 3, "ns": 10, "classes": []}) == ()
