"""From timed backward passes and a profile to linear operations in an expensive order, and the lines that compute them."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import MODULE, SCRIPT, looks, profiled
from rn50_advisor.advisor.analysis.stacks.avoidable import expensive_orders
from rn50_advisor.advisor.model.analysis import Analysis

LINEAR = ("Linear.forward", "/env/torch/nn/modules/linear.py", 134)
SOURCE = """\
class Net:
    def forward(self, x):
        weights = torch.bmm(self.q(x), self.k(x).transpose(1, 2))
        mixed = weights @ self.v
        votes = self.vote(mixed)
        return torch.relu(votes.mean(1))

def train():
    for x, y in loader:
        loss = net(x).sum()
        loss.backward()
"""


def order(kind: str, layer: str = "", ns: int = 250) -> dict[str, Any]:
    return {"kind": kind, "layer": layer, "ns": ns}


def seen(*orders: dict[str, Any], known: bool = True, source: str = SOURCE) -> Analysis:
    def stacks(count: int, line: int, *inside: Any) -> Any:
        return looks(count, ("train", SCRIPT, 10), MODULE, ("Net.forward", SCRIPT, line), *inside)

    rows = (stacks(30, 4), stacks(20, 3), stacks(40, 3, MODULE, LINEAR), stacks(25, 5, MODULE, LINEAR), stacks(50, 6))
    timed: dict[str, Any] = {"passes": 3, "ns": 1000, "classes": []}
    timed |= {"orders": list(orders)} if known else {}
    return profiled(*rows, source=source, model=10, backward=11, facts={100: {"backward_nodes": timed}})


def lines(a: Analysis) -> list[tuple[int, int]]:
    assert a.reordered is not None
    return [(line.line, line.samples) for line in a.reordered.lines]


def test_what_other_orders_spare_is_a_share_of_the_pass() -> None:
    a = seen(order("products"), order("pooled", "vote.weight", 100))
    assert a.value("step.orders_s", 0) == pytest.approx(0.35 * a.model.own[0]["backward"])


def test_an_order_that_would_take_longer_spares_nothing() -> None:
    assert seen(order("pooled", "vote.weight", -10)).value("step.orders_s", 0) == 0


def test_products_are_at_the_line_that_multiplies_another_product_itself_and_not_in_a_layer() -> None:
    assert lines(seen(order("products"))) == [(4, 30)]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("mixed = weights @ self.v", [(4, 30)]),
        ("mixed = torch.einsum('bnm,bmd->bnd', weights, self.v)", [(4, 30)]),
        ("mixed = torch.bmm(x @ self.k, self.v)", [(4, 30)]),
        ("mixed = x @ self.v", [(4, 30), (3, 20)]),
        ("mixed = self.mix(weights)", [(3, 20)]),
    ],
)
def test_without_a_line_where_both_meet_each_product_is_told(second: str, found: list[tuple[int, int]]) -> None:
    source = SOURCE.replace("mixed = weights @ self.v", second)
    assert lines(seen(order("products"), source=source)) == found


def test_a_layer_is_at_the_line_that_calls_it_by_its_name() -> None:
    a = seen(order("products", ns=100), order("pooled", "vote.weight"))
    assert a.reordered is not None and (a.reordered.kind, a.reordered.layer) == ("pooled", "vote")
    assert lines(a) == [(5, 25)]


def test_a_layer_inside_a_part_of_the_model_is_where_the_part_is_called() -> None:
    assert lines(seen(order("enlarged", "vote.2.weight"))) == [(5, 25)]


def test_a_layer_with_a_number_alone_has_no_line() -> None:
    assert lines(seen(order("pooled", "0.weight"))) == []


def test_without_any_there_is_nothing_to_tell() -> None:
    assert seen().reordered is None and seen().value("step.orders_s", 0) == 0


def test_an_older_recorder_did_not_look_for_them() -> None:
    a = seen(known=False)
    assert not a.has("step.orders_s") and a.reordered is None


def test_lines_are_parsed_once() -> None:
    expensive_orders._products.cache_clear()
    lines(seen(order("products")))
    misses = expensive_orders._products.cache_info().misses
    lines(seen(order("products")))
    assert expensive_orders._products.cache_info().misses == misses
