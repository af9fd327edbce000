"""Coverage of the run: outcomes of all rules, gaps with hints, the advisor's own cost, the run's facts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from textual.content import Content

from rn50_advisor.advisor.model.input.sample_cost import sample_table, without_samples
from rn50_advisor.advisor.model.report import OutcomeRow, Report
from rn50_advisor.advisor.model.wording.fact_rows import rows as tabulated_rows
from rn50_advisor.advisor.model.wording.fact_rows import without_tabulated
from rn50_advisor.advisor.model.wording.loader_words import without_loaders
from rn50_advisor.advisor.model.wording.pace_words import with_pace_in_words
from rn50_advisor.advisor.model.wording.quantities import (
    DASH,
    bytes_,
    duration,
    metric_list,
    metric_words,
    number,
    share,
)
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import fit, labelled, line, muted, prose
from rn50_advisor.advisor.tui.styles.severity_styles import OUTCOME

_ORDER = ("fired", "crashed", "not_measured", "clear")
_OF_GPUS = ("gpu.", "copy.", "kernel.", "precision.capability", "precision.tf32")
_FACTS_OF = 8  # ranks; they rarely differ
_WORDS = {"not_measured": "not measured"}


def outcome_lines(report: Report, width: int) -> list[Content]:
    if not report.outcomes or report.step_time.steps == 0:
        return [line(muted("rules are evaluated after the first steps"))]
    counts = {state: sum(o.state == state for o in report.outcomes) for state in _ORDER}
    summary = " · ".join(f"{n} {_WORDS.get(state, state)}" for state, n in counts.items() if n)
    lines = [line((fit(summary, width), "bold"))]
    for state in ("fired", "crashed"):
        for outcome in (o for o in report.outcomes if o.state == state):
            glyph, colour = OUTCOME[state]
            why = ", ".join(outcome.missing)  # of a crash: its error
            head = f"{glyph} {outcome.rule:<8}{_WORDS.get(state, state):<14}"
            first, *more = prose(why, width - len(head)) or [""]
            lines.append(line((head, colour), muted(first)))
            lines += [line(muted(" " * len(head) + text)) for text in more]
    glyph, colour = OUTCOME["clear"]
    clear = [o.rule for o in report.outcomes if o.state == "clear"]
    summary = f"{glyph} clear: {' '.join(clear)}" if clear else ""
    lines += [line((text, colour)) for text in prose(summary, width, 0, "  ")]
    glyph, _ = OUTCOME["not_measured"]
    rules_by_reason: dict[str, list[str]] = {}
    reasons = {gap.metric: gap.reason for gap in report.gaps}
    for outcome in (o for o in report.outcomes if o.state == "not_measured"):
        rules_by_reason.setdefault(_why_not_measured(outcome, reasons, gpus=bool(report.gpus)), []).append(outcome.rule)
    for why, rules in rules_by_reason.items():
        lines += [line(muted(text)) for text in prose(f"{glyph} {' '.join(rules)}: {why}", width, 0, "  ")]
    return lines


def _why_not_measured(outcome: OutcomeRow, reasons: Mapping[str, str], *, gpus: bool) -> str:
    """Returns why a rule could not be checked: the recorded reason, else the names of the missing metrics."""
    known = next((reasons[metric] for metric in outcome.missing if reasons.get(metric)), "")
    if not known and not gpus and outcome.missing and all(metric.startswith(_OF_GPUS) for metric in outcome.missing):
        known = "no GPU seen"
    return known or f"needs {metric_list(outcome.missing) or 'missing data'}"


class OutcomesPanel(Panel):
    TITLE = "Rules"

    def draw(self, report: Report, width: int) -> list[Content]:
        return outcome_lines(report, width)


class GapsPanel(Panel):
    TITLE = "Not measured"

    def draw(self, report: Report, width: int) -> list[Content]:
        if not report.gaps:
            return [line(("✔ all probes delivered data", "$text-success"))]
        lines = []
        for gap in report.gaps:
            where = f" ({gap.scope})" if gap.scope else ""
            lines.append(
                line(
                    ("– ", "bold"), (fit(f"{metric_words(gap.metric) or 'unnamed'}{where}", width - 2).rstrip(), "bold")
                )
            )
            lines += [Content(f"  {text}") for text in prose(gap.reason or "no reason recorded", width - 2)]
            lines += [
                line(muted(f"  → {text}" if i == 0 else f"    {text}"))
                for i, text in enumerate(prose(gap.hint, width - 4))
            ]
        return lines


class OverheadPanel(Panel):
    TITLE = "Advisor overhead"

    def draw(self, report: Report, width: int) -> list[Content]:
        cost = report.overhead
        rows = [
            ("in a rank, per step", duration(None if cost.us_per_step is None else cost.us_per_step * 1e-6)),
            ("share of the step", share(cost.step_share)),
            ("at start-up", duration(cost.startup_s)),
            ("agent, share of a core", share(cost.agent_cpu_share)),
        ]
        if cost.worker_share is not None:
            rows.append(("share of workers' time", share(cost.worker_share)))
        if cost.driver_share is not None:
            rows.append(("GPU driver queries", share(cost.driver_share)))
        lines = [line(muted(fit(name, 24)), (fit(value, 12, True), "bold")) for name, value in rows]
        shed = f"disabled to stay within budget: {', '.join(cost.shed)}" if cost.shed else ""
        return [*lines, *(line((text, "$text-warning")) for text in prose(shed, width))]


class RunPanel(Panel):
    TITLE = "Run"

    def draw(self, report: Report, width: int) -> list[Content]:
        ranks = with_pace_in_words(without_tabulated(without_samples(without_loaders(report.facts))))
        storage = [(f"data: {label}", text) for label, text in tabulated_rows(report.facts, "storage")]
        lines = [(f"line: {label}", text) for label, text in tabulated_rows(report.facts, "lines")]
        rows = [
            ("command", shlex.join(report.job.argv)),
            *lines,
            *storage,
            *_sample(report),
            *_flat(report.environment),
        ]
        rows += _flat(dict(list(ranks.items())[:_FACTS_OF]))
        if len(ranks) > _FACTS_OF:
            rows.append(("…", f"and the facts of {len(ranks) - _FACTS_OF} more, in the saved report"))
        return labelled(rows, width)


def _sample(report: Report) -> list[tuple[str, str]]:
    """The cost of a sample, part by part."""
    found = sample_table(report.facts)
    if found is None:
        return []
    parts = [(f"sample: {name}", f"{cost} ({part})  {place}".rstrip()) for name, cost, part, place in found.rows[:6]]
    return [("sample", found.notes), *parts]


def _flat(values: Mapping[str, Any], prefix: str = "", depth: int = 3) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and depth > 1:
            rows += _flat(value, f"{name}.", depth - 1)
        else:
            rows.append((name, _value(key, value)))
    return rows


def _moment(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    except (OverflowError, ValueError, OSError):  # of a clock that was never set, or of a damaged file
        return DASH


def _value(key: str, value: Any) -> str:
    """A fact in words; facts hold whatever the job's process reported about itself."""
    if value is None or value in ((), []):
        text = DASH
    elif isinstance(value, list | tuple):
        text = ", ".join(_value(key, item) for item in value)
    elif isinstance(value, Mapping):
        text = "; ".join(f"{name} {_value(name, item)}" for name, item in value.items())
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int | float) and key.endswith("_bytes"):
        text = bytes_(value)
    elif isinstance(value, float) and key == "started":
        text = _moment(value)
    else:
        text = number(value) if isinstance(value, float) else str(value)
    return text
