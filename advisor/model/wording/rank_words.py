"""Wording of the processes that train: how many there are, and where each of them is."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.report import Report

# Where a rank can be right now, in words; rings name more places than a budget has phases.
PLACES = {
    "start": "starting up",
    "input_wait": "waiting for input",
    "clip": "before the update",
    "gap": "between steps",
    "evaluation": "evaluating",
    "checkpoint": "checkpointing",
    "ended": "ended",
}


def ranks(report: Report) -> str:
    """`1 rank`, `2 ranks`, or `2 processes` that train beside each other without a group and without a launcher of ranks."""
    n = report.job.ranks
    return f"{n:,} rank" if n == 1 else f"{n:,} {plural(report)}"


def plural(report: Report) -> str:
    facts = [own for name, own in report.facts.items() if name.isdigit() and isinstance(own, Mapping)]
    known = len(facts) > 1 and all("world_size" in own for own in facts)
    return "processes" if known and not any(_is_joined(own) for own in facts) else "ranks"


def place(phase: str) -> str:
    return PLACES.get(phase, phase or "not known")


def in_phase(phase: str) -> str:
    """`in backward`, `between steps`."""
    return PLACES.get(phase) or f"in {phase or 'an unknown phase'}"


def _is_joined(facts: Mapping[str, object]) -> bool:
    """True if the process joined a group, or a launcher told it that there are others."""
    sizes = (facts.get("group_size"), facts.get("world_size"))
    return bool(facts.get("ddp")) or any(isinstance(size, (int, float)) and size > 1 for size in sizes)
