"""COM003, communication does not overlap: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comm_rule_cases import causes, com003, in_buckets, on_full_cores
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks

WRAPPED = Where(SCRIPT, 7)


TABLE = Table(
    "COM003",
    com003,
    lines={
        "wire": ({"wire": 0.15}, {"wire": 0.1499}),
        "room": ({"wire": 0.4, "backward": 0.4}, {"wire": 0.4, "backward": 0.399}),
        "hidden": ({"wire": 0.375, "span": 0.5, "backward": 0.5}, {"wire": 0.37, "span": 0.5, "backward": 0.5}),
        "bucket": ({"largest": 0.8}, {"largest": 0.799}),
        "by_hand": ({"hand": 0.8}, {"hand": 0.799}),
    },
    false_alarms={
        "an exchange that no backward pass could hide": {"wire": 0.6, "backward": 0.2},
        "buckets that leave one by one": {"largest": 0.3, "span": 0.35},
        "a wire that costs next to nothing": {"wire": 0.05},
        "barriers elsewhere": {"hand": 0.1},
        "few steps that scatter": {"wire": 0.2, "error": 0.3},
    },
    severities=(({"wire": 0.30}, "critical"), ({"wire": 0.15}, "high")),
    where=WRAPPED,
    best=({"wire": 0.3}, 1 / 0.75),
    also_fires={"gradients averaged by hand": {"hand": 1.0}, "a bucket of DDP's own size": {"cap": 25 << 20}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_buckets_that_wait_for_each_other_get_the_fix_for_what_delays_them() -> None:
    searching = found("COM003", in_buckets(find_unused_parameters=True))
    assert searching.fixes[0].change == "DistributedDataParallel(..., find_unused_parameters=False)"
    assert searching.fixes[0].where == Where(SCRIPT, 7)
    assert searching.saving is not None
    assert searching.saving.speedup == pytest.approx((1 / (0.7 + 0.65 * 0.3), 1 / (0.7 + 0.31 / 4)))
    used = in_buckets(find_unused_parameters=True, values={"ddp.with_unused": {0: 3.0, 1: 0.0}})
    assert found("COM003", used).fixes[0].change == "DistributedDataParallel(..., static_graph=True)"
    assert searching.confidence == 0.7, "a model with large first layers looks the same"
    assert isinstance(
        run_rule(RULES["COM003"], in_buckets(find_unused_parameters=True, bucket_cap_bytes=1 << 20), Config()), Finding
    )


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(in_buckets(), id="no visible reason: large first layers"),
        pytest.param(in_buckets(find_unused_parameters=True, static_graph=True), id="sorted anew"),
        pytest.param(in_buckets(find_unused_parameters=True, values={"comm.span_s": 0.41}), id="it would not fit"),
        pytest.param(
            in_buckets(find_unused_parameters=True, values={"comm.span_s": 0.4, "comm.wire_s": 0.29}), id="they overlap"
        ),
        pytest.param(in_buckets(bucket_bytes=[5_000_000, 95_000_000]), id="one parameter that no limit splits"),
    ],
)
def test_buckets_that_are_late_for_no_visible_reason_are_left_to_the_wire_rule(given: Analysis) -> None:
    assert run_rule(RULES["COM003"], given, Config()) == Clear("COM003")


def test_one_large_bucket_keeps_its_fix_under_a_search() -> None:
    assert "bucket_cap_mb" in found("COM003", com003(wire=0.3)).fixes[0].change


def test_averaging_by_hand_is_the_root_where_ddp_could_hide_it() -> None:
    analysis = com003(wire=0.3, hand=1.0)
    assert causes(analysis) == {"COM003": None, "COM001": "COM003"}
    assert "DistributedDataParallel" in found("COM003", analysis).fixes[0].title


def called_by(library: str) -> Analysis:
    site = {"file": "train.py", "line": 30, "library": library, "ns": 1000}
    small = {"file": "log.py", "line": 3, "library": "", "ns": 10}
    return replace(com003(wire=0.3, hand=1.0), facts={"0": {"collectives": [small, site]}})


def test_the_line_that_averages_by_hand_is_named_unless_a_library_does_it() -> None:
    assert found("COM003", called_by("")).fixes[0].where == Where("train.py", 30)
    assert run_rule(RULES["COM003"], called_by("DeepSpeed"), Config()) == Clear("COM003")


def test_the_edit_for_buckets_points_to_the_line_that_wraps() -> None:
    fix = found("COM003", com003(wire=0.3)).fixes[0]
    assert fix.change == "DistributedDataParallel(..., bucket_cap_mb=16)" and fix.where == Where(SCRIPT, 7)


def test_buckets_of_unknown_size_are_not_measured() -> None:
    assert run_rule(RULES["COM003"], com003(largest=None), Config()) == NotMeasured("COM003", ("comm.largest_bucket",))


def test_where_cores_are_short_an_exchange_during_the_backward_pass_slows_it() -> None:
    plain = com003(wire=0.3)
    spared, short = (found("COM003", made).saving for made in (plain, on_full_cores(plain, burns_s=0.15)))
    assert spared is not None and spared.speedup[1] == pytest.approx(1 / 0.75)
    # half of the exchange is CPU work: 0.105 s are hidden at worst, so backward takes 0.0525 s longer; at best it was only polling
    assert short is not None and short.speedup == pytest.approx((1 / 0.9475, 1 / 0.75))
    assert run_rule(RULES["COM003"], on_full_cores(plain, burns_s=0.3), Config()) == Clear("COM003")
