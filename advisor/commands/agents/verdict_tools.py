"""The tools about one run: what limits it, and the evidence and fix of each of its findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from rn50_advisor.advisor.commands.agents.tool_calls import Arguments, ToolAnswer, paragraph
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.wording.trial_words import BY_TRY

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.findings import Finding
    from rn50_advisor.advisor.model.report import Report
    from rn50_advisor.rules.rule import Rule

VERDICT_SCHEMA = "rn50-advisor/agent-verdict/1"
FINDING_SCHEMA = "rn50-advisor/agent-finding/1"
# Keys of the report that a verdict has as they are, and those of a finding that only `finding` has.
_SUMMED_UP = (
    "verdict",
    "job",
    "throughput",
    "step_time",
    "efficiency",
    "time_lost",
    "opportunities",
    "budget",
    "capacities",
    "worker_curve",
    "overhead",
)
_DETAILS = ("evidence", "fixes")
_FALSE_ALARMS = "False alarms"
_ALSO_NAMED = 4

RunName = Annotated[
    str,
    msgspec.Meta(
        description="Name of a run, or its beginning, with or without the time in front; or the path of a run's folder, "
        "a bundle, or a trace of torch.profiler. Left out: the latest run."
    ),
]


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the runs lie, and by which thresholds they are judged."""

    run_dir: Path
    config: Path | None = None


class ReadVerdict(Arguments, frozen=True):
    run: RunName = "latest"
    full: Annotated[
        bool,
        msgspec.Meta(description="All of the report: also the timeline, facts about the job, the machine, and gaps."),
    ] = False


class ReadFinding(Arguments, frozen=True):
    run: RunName = "latest"
    rule: Annotated[
        str, msgspec.Meta(description="Id of the rule, such as DAT003. Left out: the one that the verdict names.")
    ] = ""


def verdict_tool(shelf: Shelf, taken: ReadVerdict) -> ToolAnswer:
    path, report = judged(shelf, taken.run)
    return ToolAnswer(verdict_words(report), verdict_document(report, path, full=taken.full))


def judged(shelf: Shelf, run: str) -> tuple[Path, Report]:
    """Finds the run as `report` does, and judges it. Raises AdvisorError."""
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.merge.job_reading import read_job, resolve_job
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    path = resolve_job(run, shelf.run_dir)
    return path, diagnose(read_job(path), load_config(shelf.config))


def verdict_document(report: Report, path: Path, *, full: bool = False) -> dict[str, Any]:
    """The report without what fills pages; `left_out` names it."""
    from rn50_advisor.advisor.report import as_json, phrases

    whole = as_json(report)
    if full:
        return {**whole, "run": _place(path)}
    outcomes = whole["outcomes"]
    made: dict[str, Any] = {"schema": VERDICT_SCHEMA, "run": _place(path), **{key: whole[key] for key in _SUMMED_UP}}
    shown = {str(rank) for rank in phrases.ranks_shown(report)}
    ranks = {rank: row for rank, row in whole["budget"]["per_rank"].items() if rank in shown}
    made["budget"] = {**whole["budget"], "per_rank": ranks}
    made["findings"] = [
        {key: value for key, value in each.items() if key not in _DETAILS} for each in whole["findings"]
    ]
    made["checks"] = {
        state: [row["rule"] for row in outcomes if row["state"] == state] for state in ("not_measured", "crashed")
    }
    made["left_out"] = sorted(set(whole) - set(made))
    return made


def verdict_words(report: Report) -> str:
    """State, title, reason, fix with its place and gain, other findings and speed, in one paragraph."""
    from rn50_advisor.advisor.report import phrases, text

    verdict, finding = report.verdict, phrases.verdict_finding(report)
    rule = f" ({verdict.rule})" if verdict.rule else ""
    also = [
        f"{found.title} ({found.rule})"
        for found in phrases.root_findings(report)
        if found is not finding and found.severity != "info"
    ]
    options = finding.fixes[0].options if finding is not None and finding.fixes else ()
    tried = phrases.by_try(report, finding) if finding is not None else ""
    return paragraph(
        f"{phrases.state_words(report)[1]}: {verdict.title}{rule}",
        verdict.summary,
        f"On its command line: {', '.join(options)}" if options else "",
        f"{BY_TRY.capitalize()}: {tried}" if tried else "",
        f"Also: {'; '.join(also[:_ALSO_NAMED])}" if also else "",
        f"Speed: {text.speed_line(report)}",
        phrases.checks(report),
    )


def finding_tool(shelf: Shelf, taken: ReadFinding) -> ToolAnswer:
    from rn50_advisor.advisor.commands.explain import rule_named
    from rn50_advisor.advisor.report import as_json, phrases
    from rn50_advisor.rules.registry import all_rules

    path, report = judged(shelf, taken.run)
    present = list(dict.fromkeys(found.rule for found in report.findings))
    if not taken.rule and not report.verdict.rule:
        hint = f"this run has findings of {', '.join(present)}" if present else "this run has no findings: see verdict"
        raise UsageError("the verdict names no rule, so which finding?", hint)
    rule = rule_named(taken.rule or str(report.verdict.rule), all_rules())
    whole = as_json(report)
    found = [each for each in whole["findings"] if each["rule"] == rule.id]
    outcome = next((row for row in whole["outcomes"] if row["rule"] == rule.id), None)
    document: dict[str, Any] = {
        "schema": FINDING_SCHEMA,
        "run": _place(path),
        "rule": rule.id,
        "findings": found,
        "limits": {"false_alarms": _section(rule, _FALSE_ALARMS), "steps": whole["step_time"]["steady_steps"]},
        "opportunities": [each for each in whole["opportunities"] if each["rule"] == rule.id],
        "outcome": outcome,
    }
    if not found:
        return ToolAnswer(_not_found(rule, outcome, present), document)
    measured = [each for each in report.findings if each.rule == rule.id]
    document["measured_by_try"] = phrases.by_try(report, measured[0]) or None
    return ToolAnswer(paragraph(*(words for each in measured[:3] for words in _finding_words(report, each))), document)


def _finding_words(report: Report, finding: Finding) -> list[str]:
    from rn50_advisor.advisor.report import phrases

    about = (finding.severity, phrases.scope(finding.scope), phrases.cost(finding))
    evidence = "; ".join(phrases.evidence(item) for item in finding.evidence)
    gain, tried = phrases.gain(finding.saving), phrases.by_try(report, finding)
    fixes = [
        f"Fix: {phrases.place(fix) + ': ' if fix.where else ''}{fix.title}{phrases.option(fix)}"
        for fix in finding.fixes[:1]
    ]
    return [
        f"{finding.rule} {finding.title} ({', '.join(part for part in about if part)})",
        f"Evidence: {evidence}" if evidence else "",
        *fixes,
        f"Gain: {gain}" if gain else "No gain is predicted",
        f"{BY_TRY.capitalize()}: {tried}" if tried else "",
        f"Explained by {finding.explained_by}: fix that first" if finding.explained_by else "",
    ]


def _not_found(rule: Rule, outcome: dict[str, Any] | None, present: list[str]) -> str:
    state = outcome["state"] if outcome else "disabled"
    words = {
        "clear": "looked and found nothing",
        "not_measured": f"could not look: {', '.join(outcome['missing']) if outcome else ''} not measured",
        "crashed": "failed itself",
        "disabled": "is disabled by the configuration",
    }
    others = f"This run has findings of {', '.join(present)}" if present else "This run has no findings"
    return paragraph(f"{rule.id} ({rule.name}) {words.get(state, state)}", others)


def _section(rule: Rule, wanted: str) -> str:
    from rn50_advisor.rules.rule import sections

    return next((" ".join(text.split()) for heading, text in sections(rule.doc) if heading == wanted), "")


def _place(path: Path) -> dict[str, str]:
    from rn50_advisor.advisor.store.schema import FILE_NAME

    folder = path.absolute()
    folder = folder.parent if folder.name == FILE_NAME else folder
    return {"name": folder.name, "path": str(folder)}
