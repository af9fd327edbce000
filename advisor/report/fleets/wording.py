"""Wording of a fleet's machines and their deviations, the same in every output."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.ranked_fleet import Deviation, Fleet, FleetMachine
from rn50_advisor.advisor.model.wording import quantities as fmt

MACHINE_COLUMNS = ("machine", "kind", "score", "results", "worst component", "value", "baseline", "deviation")
DEVIATION_COLUMNS = ("component", "value", "baseline", "deviation", "score")
_SHOWN = 3  # components of one machine, where all would be too many


def title(fleet: Fleet) -> str:
    """`200 machines, 3 outliers`."""
    outliers = len(fleet.outliers)
    return f"{fmt.counted(len(fleet.machines), 'machine')}, {fmt.counted(outliers, 'outlier') if outliers else 'no outlier'}"


def outlier(machine: FleetMachine) -> str:
    """`node17 (8 × A100-SXM): memory.copy_gb_per_s 12 GB/s, 38 % worse than 19.4 GB/s; …`."""
    reasons = [*machine.flaws, *(deviating(one) for one in machine.deviations if one.outlier)]
    more = f"; {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
    differs = [f"{d.name} is {d.value}, {d.usual} on the others" for d in machine.differences[:_SHOWN]]
    return (
        f"{machine.name} ({machine.group}): " + "; ".join(reasons[:_SHOWN]) + more + "".join(f"; {d}" for d in differs)
    )


def deviating(one: Deviation) -> str:
    """`disk.sync_ms 9, 4.5 times 2`, `memory.copy_gb_per_s 12 GB/s, 40 % worse than 20 GB/s`."""
    value, baseline = _amounts(one)
    if one.deviation is None or one.unit in ("share", "cores"):  # times as much, or per cent of per cent, would mislead
        return f"{one.component} {value}, of the others {baseline}"
    if one.deviation <= -1 and one.baseline > 0:
        return f"{one.component} {value}, {one.value / one.baseline:.1f} times {baseline}"
    return f"{one.component} {value}, {fmt.share(abs(one.deviation))} worse than {baseline}"


def signed(one: Deviation) -> str:
    """`−38 %`: negative is worse, whichever way the number goes."""
    if one.deviation is None:
        return fmt.DASH
    percent = round(100 * one.deviation)
    return f"{percent:+d} %".replace("-", "−") if percent else "0 %"


def results(machine: FleetMachine) -> str:
    """`triage keep, bench`."""
    return ", ".join(dict.fromkeys(f"{one.kind} {one.state}".strip() for one in machine.results))


def score(value: float) -> str:
    return f"{value:.1f}".replace("-", "−") if abs(value) >= 0.05 else "0"


def machine_row(machine: FleetMachine) -> list[str]:
    worst = next((one for one in machine.deviations if one.component == machine.worst), None)
    head = [
        f"▼ {machine.name}" if machine.outlier else machine.name,
        machine.group,
        score(machine.score),
        results(machine),
    ]
    if worst is None:
        return [*head, "", fmt.DASH, fmt.DASH, fmt.DASH]
    return [*head, worst.component, *_amounts(worst), signed(worst)]


def deviation_row(one: Deviation) -> list[str]:
    return [one.component, *_amounts(one), signed(one), score(one.score) + (" outlier" if one.outlier else "")]


def _amounts(one: Deviation) -> tuple[str, str]:
    return fmt.amount(one.value, one.unit, one.component), fmt.amount(one.baseline, one.unit, one.component)
