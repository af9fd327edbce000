"""COM006, SyncBatchNorm costs a round trip per layer: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comm_rule_cases import com006
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks

TABLE = Table(
    "COM006",
    com006,
    lines={
        "calls": ({"calls": 2.0}, {"calls": 1.99}),
        "batch": ({"batch": 32.0}, {"batch": 31.9}),
        "share": ({"spent": 0.05}, {"spent": 0.0499}),
    },
    false_alarms={
        "detection with two pictures a GPU": {"batch": 2.0},
        "a large batch accumulated from small ones": {"batch": 8.0, "batches": 8.0},
        "plain batch norm": {"calls": 0.0, "spent": 0.0},
        "loading sets the pace": {"loads": 1.0},
    },
    severities=(({"spent": 0.30}, "critical"), ({"spent": 0.15}, "high"), ({"spent": 0.05}, "medium")),
    best=({"spent": 0.2}, warm(1 / 0.8)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_on_gpus_batch_norm_is_noted_without_a_number() -> None:
    finding = found("COM006", com006(spent=None))
    assert finding.severity == "low" and finding.saving is None and finding.seconds_per_step == 0.0


@pytest.mark.parametrize(("waits", "after_s"), [((0.0, 0.0), 0.5), ((0.05, 0.2), 0.45), ((0.2, 0.3), 0.425)])
def test_without_synchronised_batch_norm_computing_waits_less_for_cores(
    waits: tuple[float, float], after_s: float
) -> None:
    given = com006(spent=0.5)
    delays = {("step.run_delay_s", number): delay for number, delay in enumerate(waits)}
    saving = found("COM006", replace(given, values={**given.values, **delays})).saving
    assert given.model is not None and saving is not None
    assert saving.speedup == pytest.approx((1.5, 1 / given.model.at_best(after_s)))


def test_a_step_gets_no_shorter_than_loading_needs() -> None:
    finding = found("COM006", com006(spent=0.3, loads=1.25))
    assert finding.seconds_per_step == pytest.approx(0.2)
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1.25, 1.25), rel=0.04)
