"""Wording of the stages between storage and optimizer step: titles, marks, and the rate of those that run one after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.report import Capacity, Report

Mark = Literal["bottleneck", "caps the gain", "slowest stage"]

TITLE = "Stage throughput limits"
SERIAL_TITLE = "one after the other"
# glyph and word always go together
MARK_WORDS: dict[Mark, str] = {
    "bottleneck": "◀ bottleneck",
    "caps the gain": "◁ caps the gain",
    "slowest stage": "○ slowest stage",
}
STAGE_TITLES = {
    "storage": "storage",
    "preprocessing": "preprocessing",
    "loader": "worker-to-loop transfer",
    "copy": "host-to-device copy",
    "compute": "compute",
    "communication": "communication",
}
# The stage that a rule is about, by its family, and by its id where it differs. An empty name: none of them, but for example one rank,
# an epoch start or the whole machine. Families that are not listed (CPU, LOP, MEM, RUN) are about none.
_STAGE_OF_FAMILY = {"DSK": "storage", "DAT": "preprocessing", "H2D": "copy", "CMP": "compute", "COM": "communication"}
STAGE_OF_RULE = {
    "COM002": "",
    "COM005": "",
    "CPU008": "preprocessing",
    "DAT002": "storage",
    "DAT006": "",
    "DAT007": "loader",
    "DAT008": "",
    "DAT010": "storage",
    "DAT012": "loader",
    "DAT014": "",
    "DAT015": "",
    "DAT021": "",
    "CMP007": "",
    "GPU001": "compute",
    "GPU002": "compute",
    "GPU005": "compute",
    "GPU006": "copy",
    "GPU008": "communication",
    "GPU009": "compute",
}
_LOOP_STAGES = (
    "storage",
    "preprocessing",
    "copy",
    "compute",
    "communication",
)  # in series where the loop makes its batches
_REACHED_SHARE = (
    0.9  # of a stage's rate: as near as two runs of one job and the stage's own error let a prediction come
)


def stage_title(stage: str) -> str:
    return STAGE_TITLES.get(stage, stage)


def stage_of(rule: str | None) -> str:
    """The stage that a rule's finding is about; empty if it is about none."""
    return STAGE_OF_RULE.get(rule, _STAGE_OF_FAMILY.get(rule[:3], "")) if rule else ""


def stage_marks(report: Report) -> dict[str, Mark]:
    """Marks by stage: the stage of the verdict and the one that its predicted gain reaches, or a healthy job's slowest stage.

    Empty for a verdict that is about none of the stages, and for one that names no bottleneck.
    """
    rates = _rates(report)
    if report.verdict.state == "healthy":
        return {min(rates, key=lambda stage: rates[stage]): "slowest stage"} if len(rates) > 1 else {}
    stage = stage_of(report.verdict.rule) if report.verdict.state == "bottleneck" else ""
    if stage not in rates:
        return {}
    marks: dict[str, Mark] = {stage: "bottleneck"}
    reached = _best_rate(report)
    others = {other: rate for other, rate in rates.items() if other != stage and rate * _REACHED_SHARE <= reached}
    if others:
        marks[min(others, key=lambda other: others[other])] = "caps the gain"
    return marks


def rows(report: Report) -> tuple[Capacity, ...]:
    """The report's capacities, and below them the limit of those that run one after the other."""
    together = serial_limit(report)
    return report.capacities if together is None else (*report.capacities, together)


def _rates(report: Report) -> dict[str, float]:
    return {
        c.stage: c.samples_per_s
        for c in report.capacities
        if c.samples_per_s is not None and 0 < c.samples_per_s < math.inf
    }


def _best_rate(report: Report) -> float:
    """The job's samples/s in the best case of the verdict's prediction; 0 without one."""
    finding: Finding | None = next((f for f in report.findings if f.rule == report.verdict.rule), None)
    if finding is None or finding.saving is None:
        return 0.0
    return (report.throughput.samples_per_s or 0.0) * max((finding.saving.bounds or finding.saving.speedup)[1], 0.0)


def serial_limit(report: Report) -> Capacity | None:
    """The rate of the measured stages that the training process runs one after the other, if it makes its batches itself; else None."""
    rates = {stage: rate for stage, rate in _rates(report).items() if stage in _LOOP_STAGES}
    if len(rates) < 2 or not _loads_in_the_loop(report):
        return None
    names = [stage_title(stage) for stage in rates]
    rate = 1.0 / sum(1.0 / rate for rate in rates.values())
    basis = f"{', '.join(names[:-1])} and {names[-1]} share the training process (num_workers=0): their times add up"
    return Capacity(SERIAL_TITLE, rate, None, None, basis)


def _loads_in_the_loop(report: Report) -> bool:
    workers = [loader.get("num_workers") for facts in report.facts.values() for loader in _training_loaders(facts)]
    if workers:
        return all(number == 0 for number in workers)
    return report.worker_curve is not None and report.worker_curve.measured == 0


def _training_loaders(facts: Any) -> list[Mapping[str, Any]]:
    loaders = facts.get("loaders") if isinstance(facts, Mapping) else None
    found = loaders if isinstance(loaders, (list, tuple)) else ()
    return [loader for loader in found if isinstance(loader, Mapping) and loader.get("training") is True]
