"""COM011, ranks exchange metrics in every step: its table and its advice, and what is left of the gradients' exchange."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from comm_rule_cases import wrapped
from rn50_advisor.advisor.model.analysis import JOB, Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, rank
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks


def com011(
    held: float = 0.2, *, wire: float | None = None, ddp: bool = True, steady: int = 200, **site: Any
) -> Analysis:
    """Two ranks with DDP whose loop also calls a collective after each update. `wire`: all exposed exchanges, those too."""
    wire = held if wire is None else wire
    own = {n: rank(1.0 - wire, backward=0.6 * (1.0 - wire)) for n in (0, 1)}
    values = {"comm.wire_s": wire, "collectives.metrics_s": held, "collectives.calls": {0: 1.0, 1: 1.0}}
    made = wrapped(own, values={**values, "steady": steady})
    called = {"file": SCRIPT, "line": 14, "library": "", "kind": "all_gather", "calls": 1, "bytes": 8, **site}
    called = {"held_ns": [0, 0, 0, 9, 0], "in_module": False, **called}
    facts = {
        name: {
            **(of_rank if ddp else {}),
            "collectives": [called, {"library": "SyncBatchNorm", "held_ns": [99, 0, 0, 99, 0]}],
        }
        for name, of_rank in made.facts.items()
    }
    return replace(made, facts=facts)


TABLE = Table(
    "COM011",
    com011,
    lines={"held": ({"held": 0.05}, {"held": 0.0499})},
    false_alarms={
        "no such collective": {"held": 0.0, "wire": 0.2},
        "weights averaged after the update, and nothing else": {"ddp": False},
    },
    severities=(({"held": 0.30}, "critical"), ({"held": 0.15}, "high"), ({"held": 0.05}, "medium")),
    where=Where(SCRIPT, 14),
    best=({"held": 0.2}, 1 / (0.8 * (0.8 + 0.2 / 50))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("site", "advice"),
    [({"kind": "barrier"}, "remove the barrier"), ({"kind": "all_reduce"}, "exchange every N steps")],
)
def test_a_barrier_can_be_left_out(site: dict[str, Any], advice: str) -> None:
    finding = found("COM011", com011(**site))
    assert finding.fixes[0].title.startswith(advice) and site["kind"] in finding.title


def test_a_library_in_between_is_named() -> None:
    assert (
        "from Python in a step, through torchmetrics"
        in found("COM011", com011(library="torchmetrics")).evidence[1].note
    )


@pytest.mark.parametrize("before", [{"held_ns": [9, 0, 0, 0, 0]}, {"held_ns": [0, 0, 9, 0, 0]}])
def test_a_line_before_the_update_is_named_where_it_exchanges_numbers(before: dict[str, Any]) -> None:
    assert found("COM011", com011(**before)).fixes[0].where == Where(SCRIPT, 14)
    through = com011(**before, in_module=True, library="lightning", for_metrics=True)
    assert found("COM011", through).fixes[0].where == Where(SCRIPT, 14)
    for needed in ({"bytes": 4000}, {"in_module": True}, {"library": "FSDP"}):
        assert found("COM011", com011(**before, **needed)).fixes[0].where is None, "gradients or activations"


def test_a_line_that_averages_gradients_by_hand_is_not_named_for_the_one_after_the_update() -> None:
    """Between backward and optimizer gradients of a small model are as few numbers as a metric."""
    made = com011(held_ns=[0, 0, 0, 9, 0])
    averaging = {"file": SCRIPT, "line": 10, "library": "", "calls": 9, "bytes": 72, "in_module": False}
    sites = [{**averaging, "held_ns": [0, 0, 99, 0, 0]}]
    facts = {
        name: {"collectives": [*of_rank["collectives"], *sites], "ddp": []} for name, of_rank in made.facts.items()
    }
    values = {**made.values, ("collectives.by_hand_s", JOB): 0.1}
    assert found("COM011", replace(made, facts=facts, values=values)).fixes[0].where == Where(SCRIPT, 14)


def test_no_line_is_named_in_a_recording_without_the_places_of_calls() -> None:
    assert found("COM011", com011(held_ns=None)).fixes[0].where is None


def test_calls_of_batch_norm_are_not_counted() -> None:
    made = com011()
    calls = {("collectives.calls", n): 107.0 for n in (0, 1)} | {("collectives.norm_calls", n): 106.0 for n in (0, 1)}
    assert found("COM011", replace(made, values={**made.values, **calls})).evidence[1].value == 1.0


def test_metrics_are_no_gradients() -> None:
    """Of 0.3 s exposed, 0.25 s are collectives after the update: the gradients' exchange is hidden well enough."""
    beside = com011(0.25, wire=0.3)
    assert isinstance(run_rule(RULES["COM001"], beside, Config()), Clear)
    much = run_rule(RULES["COM001"], com011(0.1, wire=0.3), Config())
    assert isinstance(much, Finding) and much.evidence[0].value == pytest.approx(0.2)
    assert much.saving is not None and much.saving.speedup[1] < 1 / 0.8
