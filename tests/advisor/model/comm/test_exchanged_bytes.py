"""Words on the bytes that ranks exchange in a step, and what each link carries of them."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.comm.exchanged_bytes import TimedCollective, exchange_facts
from rn50_advisor.advisor.model.measures.measured import Measured


def test_buckets_and_micro_batches_of_ddp_are_described() -> None:
    values = {("comm.megabytes", "job"): 46.8, ("comm.buckets", "job"): 3.0, ("comm.largest_bucket", "job"): 0.62}
    exchange = exchange_facts(Measured({**values, ("comm.exchanges", "job"): 4.0, ("comm.hidden_s", 0): 0.06}))[
        "exchange"
    ]
    assert (
        exchange["each step"]
        == "46.8 MB of gradients, in 3 buckets, the largest with 62 % of the bytes, exchanged 4 times"
    )
    assert exchange["beside backward"] == "60.0 ms"


def test_one_rank_exchanges_nothing() -> None:
    assert exchange_facts(Measured({("comm.late_share", 0): 1.0, ("comm.kept_waiting_s", 0): 0.1})) == {}


@pytest.mark.parametrize(
    ("kind", "ranks", "carried"),
    [
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 3.0),
        ("reduce_scatter", 4, 0.75),
        ("broadcast", 4, 1.0),
        ("all_reduce", 1, None),
        ("all_reduce", 0, None),
    ],
)
def test_what_each_link_of_a_ring_carries(kind: str, ranks: int, carried: float | None) -> None:
    assert TimedCollective(kind, 1_000_000_000, ranks, 1.0).bus_gb_per_s == (
        None if carried is None else pytest.approx(carried)
    )
