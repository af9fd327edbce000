"""Made-up histories for the reports of `report_samples`. Not a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rn50_advisor.advisor.model.history import Curve, GpuHistory, History, compared
from rn50_advisor.advisor.model.report import Report

SLICES = 240


def level(value: float, *changes: tuple[int, float]) -> Curve:
    """A level curve; from the slice of each change on, it has another value."""
    values = []
    for at in range(SLICES):
        value = next((new for first, new in changes if first == at), value)
        values.append(value)
    return tuple(values)


def with_history(
    report: Report, *, slow: Mapping[int, Curve] | None = None, gpus: tuple[GpuHistory, ...] = ()
) -> Report:
    """The report with its budget's phases over its time, input wait growing to twice as much; `slow`: lateness of ranks, in seconds."""
    ranks = sorted(report.budget.per_rank)
    budget = report.budget.critical
    phases = {name: level(seconds) for name, seconds in budget.items()}
    phases["input_wait"] = level(budget["input_wait"], (SLICES // 2, 2 * budget["input_wait"]))
    step = tuple(map(sum, zip(*phases.values(), strict=True)))
    late = {rank: (slow or {}).get(rank, level(0.0)) for rank in ranks} if len(ranks) > 1 else {}
    slice_s = report.job.duration_s / SLICES
    made = History(
        start_s=0.0,
        slice_s=slice_s,
        phases=phases,
        steps={rank: tuple(slice_s / s for s in step) for rank in ranks},
        step_s=dict.fromkeys(ranks, step),
        late_s=late,
        gpus=gpus,
    )
    return replace(report, history=compared(made))


def eight_gpus(hot: int | None = None) -> tuple[GpuHistory, ...]:
    """GPUs at work; one of them gets hot half-way and lowers its clock."""
    usual = [GpuHistory(i, level(97.0), level(1755.0), level(60.0 + i), level(6.1e10)) for i in range(8)]
    if hot is not None:
        half = SLICES // 2
        heated = replace(usual[hot], sm_clock_mhz=level(1755.0, (half, 900.0)), temp_c=level(63.0, (half, 91.0)))
        usual[hot] = heated
    return tuple(usual)
