"""The clock of one node in terms of another's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodes import APART_NS, WALL_APART_S, four_ranks, two_nodes
from rn50_advisor.advisor.merge.merging import merge
from rn50_advisor.advisor.merge.node_clocks import clock_of


def test_the_clock_of_another_host_is_found_by_the_exchanges_that_both_left_together() -> None:
    first, second = two_nodes(four_ranks())
    clock = clock_of(second, first)
    assert clock.basis == "collectives"
    assert abs(clock.offset_ns - APART_NS) <= clock.uncertainty_ns
    assert clock.uncertainty_ns < 5_000_000  # the exchange takes 2 ms, the noise 0.3 ms


def test_the_uncertainty_of_a_clock_grows_with_the_exchange_and_with_the_noise() -> None:
    quick, slow = (clock_of(b, a).uncertainty_ns for a, b in (two_nodes(four_ranks(), wire_ms=w) for w in (1, 80)))
    calm, noisy = (clock_of(b, a).uncertainty_ns for a, b in (two_nodes(four_ranks(), jitter_us=j) for j in (0, 9000)))
    assert slow - quick == pytest.approx(79e6, rel=0.01)
    assert noisy > calm + 2_000_000


def test_hosts_that_exchanged_nothing_are_aligned_by_wall_clocks_and_that_is_said() -> None:
    first, second = two_nodes(four_ranks())
    second = replace(second, comm={})
    clock = clock_of(second, first)
    assert clock.basis == "wall clock"
    assert clock.offset_ns == pytest.approx(APART_NS + WALL_APART_S * 1e9, abs=1000)  # wall clocks are floats
    assert any(gap.metric == "node.clock" and gap.scope == "b" for gap in merge([first, second]).gaps)
