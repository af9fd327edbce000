"""COM012, DDP sends its buffers before every forward pass: its table and its advice, and what is left of the gradients' exchange."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from comm_rule_cases import wrapped
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Where
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, rank
from rule_runs import RULES, found
from rule_table import Table, warm
from table_checks import Check, checks


def com012(
    held: float | None = 0.2, *, wire: float | None = None, error: float = 0.0, steady: int = 200, **options: Any
) -> Analysis:
    """Two ranks whose model has tables of 70 MB. `wire`: all exposed exchanges, those too; `options` are DDP's."""
    wire = (held or 0.0) if wire is None else wire
    own = {n: rank(1.0 - wire, backward=0.6 * (1.0 - wire)) for n in (0, 1)}
    values: dict[str, Any] = {"comm.wire_s": wire, "comm.wire_error": error, "steady": steady}
    if held is not None:
        values["collectives.buffers_s"] = held
    made = wrapped(own, values=values, **{"synced_buffers": 12, "buffer_bytes": 70_000_000, **options})
    called = {"file": SCRIPT, "line": 7, "library": "DistributedDataParallel", "kind": "broadcast", "ns": 9}
    facts = {name: {**of_rank, "collectives": [called]} for name, of_rank in made.facts.items()}
    return replace(made, facts=facts)


TABLE = Table(
    "COM012",
    com012,
    lines={"held": ({"held": 0.05}, {"held": 0.0499})},
    false_alarms={
        "no buffers": {"held": None, "wire": 0.2, "synced_buffers": 0},
        "few steps that differ much": {"held": 0.06, "error": 0.5},
    },
    severities=(({"held": 0.30}, "critical"), ({"held": 0.15}, "high"), ({"held": 0.05}, "medium")),
    where=Where(SCRIPT, 7),
    best=({"held": 0.2}, warm(1 / 0.8)),
    not_measured={"a GPU's broadcasts": ({"held": None, "wire": 0.2}, ("collectives.buffers_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_constant_tables_are_alike_anyway() -> None:
    finding = found("COM012", com012())
    assert "identical on all ranks" in finding.fixes[0].title and "batch norm" not in finding.title
    assert (finding.evidence[1].value, finding.evidence[1].note) == (70.0, "in 12 buffers")


def test_where_torch_can_the_buffers_are_still_sent_once_at_the_start() -> None:
    earlier, later = (found("COM012", com012(has_forward_sync=there)).fixes[0] for there in (False, True))
    assert "broadcast_buffers=False)  # nor does it send them at the start" in earlier.change
    assert "forward_sync_buffers=False)" in later.change and "start" not in later.change
    assert later.call == CallChange(
        "DistributedDataParallel", (("forward_sync_buffers", False),), without=("broadcast_buffers",)
    )


@pytest.mark.parametrize(("norms", "title"), [(69_000_000, "batch norm statistics"), (1_000_000, "buffer broadcast")])
def test_statistics_of_batch_norm_would_differ(norms: int, title: str) -> None:
    finding = found("COM012", com012(norm_buffers=3, norm_buffer_bytes=norms))
    assert title in finding.title and "own batch norm statistics" in finding.fixes[0].title
    assert "batch norm's statistics" in finding.evidence[1].note and "evaluation" in finding.fixes[0].change


def test_buffers_are_no_gradients() -> None:
    """Of 0.3 s exposed, 0.25 s are broadcasts of buffers: the gradients' exchange is hidden well enough."""
    assert isinstance(run_rule(RULES["COM001"], com012(0.25, wire=0.3), Config()), Clear)
    much = run_rule(RULES["COM001"], com012(0.1, wire=0.3), Config())
    assert isinstance(much, Finding) and much.evidence[0].value == pytest.approx(0.2)
    assert isinstance(run_rule(RULES["COM011"], com012(), Config()), Clear)
