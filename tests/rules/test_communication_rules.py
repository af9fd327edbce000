"""Rules on communication together: which one is the root."""

from __future__ import annotations

from comm_rule_cases import (
    causes,
    com001_beside_norms,
    com003,
    com006,
    com007,
    com009,
    com010,
    in_buckets,
    wrapped,
)
from rn50_advisor.advisor.model.findings import Clear
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules.registry import all_rules
from rule_cases import rank
from rule_runs import RULES


def test_buckets_in_the_wrong_order_are_the_root_of_the_wire() -> None:
    judgement = judge(in_buckets(find_unused_parameters=True), all_rules(), Config())
    by = {f.rule: f.explained_by for f in judgement.findings if f.rule in ("COM001", "COM003")}
    assert by == {"COM003": None, "COM001": "COM003"}


def test_one_bucket_of_the_users_own_making_is_the_root() -> None:
    assert causes(com003(wire=0.3)) == {"COM003": None, "COM001": "COM003"}


def test_a_model_that_fits_into_ddps_own_bucket_leaves_the_wire_as_the_root() -> None:
    assert causes(com003(wire=0.3, cap=25 << 20)) == {"COM001": None, "COM003": "COM001"}
    assert causes(com003(wire=0.2, cap=25 << 20)) == {"COM001": None, "COM003": "COM001"}


def test_a_slow_wire_is_the_root_of_an_exchange_longer_than_computing() -> None:
    assert causes(com010(wire=0.6, carried=0.12)) == {"COM001": None, "COM010": "COM001"}


def test_on_a_sound_path_the_batch_is_too_small() -> None:
    assert causes(com010(wire=0.6, carried=1.2)) == {"COM010": None, "COM001": "COM010"}


def test_where_the_bytes_are_not_known_the_wire_stays_the_root() -> None:
    assert causes(com010(wire=0.6, carried=None)) == {"COM001": None, "COM010": "COM001"}


def test_gloo_under_gpus_and_sockets_between_nodes_explain_the_wire() -> None:
    assert causes(com007(wire=0.4)) == {"COM007": None, "COM001": "COM007"}
    assert causes(com009(wire=0.4)) == {"COM009": None, "COM001": "COM009"}


def test_round_trips_of_batch_norm_explain_the_wire() -> None:
    assert causes(com006(spent=0.3)) == {"COM006": None, "COM001": "COM006"}


def test_batch_norms_collectives_are_no_gradients_sent_late_or_too_often() -> None:
    analysis = com001_beside_norms(wire=0.6, norms=0.55)
    silent = {rule: run_rule(RULES[rule], analysis, Config()) for rule in ("COM003", "COM010")}
    assert silent == {rule: Clear(rule) for rule in silent}
    assert causes(com001_beside_norms(wire=0.6, norms=0.0)).keys() == {"COM001", "COM010"}


def test_one_that_exchanges_after_each_batch_gets_that_fix_first() -> None:
    own = {n: rank(0.4, backward=0.2) for n in (0, 1)}
    values = {"comm.wire_s": 0.6, "comm.buckets": 2.0, "comm.bus_gb_per_s": 1.2, "comm.megabytes": 400.0}
    assert causes(wrapped(own, values=dict(values))) == {"COM010": None, "COM001": "COM010"}
    assert causes(wrapped(own, values={**values, "comm.exchanges": 4.0})) == {"COM001": None, "COM010": "COM001"}
