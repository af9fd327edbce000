"""The table of the tools that read, and those about several runs, rules and the machine. They start no job and change no run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from rn50_advisor.advisor.commands.agents.tool_calls import Arguments, Tool, ToolAnswer, failure, paragraph
from rn50_advisor.advisor.commands.agents.verdict_tools import (
    ReadFinding,
    ReadVerdict,
    RunName,
    Shelf,
    finding_tool,
    verdict_tool,
)
from rn50_advisor.advisor.model.wording import quantities as fmt

RULE_SCHEMA = "rn50-advisor/agent-rule/1"
MACHINE_SCHEMA = "rn50-advisor/agent-doctor/1"

RuleName = Annotated[str, msgspec.Meta(description="Id of a rule, such as DAT003.")]


class ListRuns(Arguments, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="How many, the newest first.")] = 20


class ExplainRule(Arguments, frozen=True):
    rule: RuleName


class CompareRuns(Arguments, frozen=True):
    runs: Annotated[
        list[RunName],
        msgspec.Meta(min_length=2, max_length=10, description="Runs of one job; each is compared with the first."),
    ]
    max_regression: (
        Annotated[
            float,
            msgspec.Meta(ge=0, le=100, description="Also say whether one is slower than the first by more per cent."),
        ]
        | None
    ) = None


class LookAtMachine(Arguments, frozen=True):
    pass


def read_tools(shelf: Shelf) -> list[Tool]:
    def of(work: Callable[[Shelf, Any], ToolAnswer]) -> Callable[[Any, object], ToolAnswer]:
        return lambda taken, _: work(shelf, taken)

    return [
        Tool(
            "list_runs",
            "List recorded runs",
            "Lists the recorded training runs with verdict, likely gain and speed. Use it to find the name of a run.",
            ListRuns,
            of(list_runs_tool),
            gives="runs",
        ),
        Tool(
            "verdict",
            "What limits this run",
            "Says what limits a training run, with the time of each part of a step, the findings and their predicted "
            "gains. Use it first, also while the run is still going on.",
            ReadVerdict,
            of(verdict_tool),
        ),
        Tool(
            "finding",
            "Evidence and fix of a finding",
            "Gives one finding of a run: its evidence, the file and line, the fix (as a diff where there is one), the "
            "predicted gain and when the finding may be wrong. Use it before you change code.",
            ReadFinding,
            of(finding_tool),
        ),
        Tool(
            "explain",
            "Explain a rule",
            "Explains a rule: what it looks for, why that is slow, how to fix it, when it is wrong. Use it when a "
            "finding is not clear.",
            ExplainRule,
            of(explain_tool),
        ),
        Tool(
            "compare",
            "Compare runs",
            "Compares runs of one job: faster, slower or the same, with an interval, and why. Use it after a change "
            "instead of comparing numbers yourself: runs of the same code differ.",
            CompareRuns,
            of(compare_tool),
            gives="compare",
        ),
        Tool(
            "doctor",
            "What can be measured here",
            "Checks what can be measured on this machine. Use it when a run has no verdict or many gaps.",
            LookAtMachine,
            of(doctor_tool),
        ),
    ]


def list_runs_tool(shelf: Shelf, taken: ListRuns) -> ToolAnswer:
    from rn50_advisor.advisor.commands.runs import SCHEMA
    from rn50_advisor.advisor.store.run_folders import list_runs
    from rn50_advisor.advisor.store.run_rows import as_json, row_of

    folders = list_runs(shelf.run_dir)
    rows = [row_of(folder) for folder in folders[: taken.limit]]
    document = {"schema": SCHEMA, "runs": [as_json(row) for row in rows]}
    if not rows:
        text = paragraph(f"No runs in {shelf.run_dir}", "Record one: rn50-advisor run -- python train.py")
        return ToolAnswer(text, document)
    newest = rows[0]
    about = " ".join(part for part in (newest.state, newest.rule or "", newest.title) if part)
    shown = "" if len(rows) == len(folders) else f", the newest {len(rows)} shown"
    count = fmt.counted(len(folders), "run")
    return ToolAnswer(paragraph(f"{count}{shown}", f"The latest is {newest.name}: {about}"), document)


def explain_tool(shelf: Shelf, taken: ExplainRule) -> ToolAnswer:
    from rn50_advisor.advisor.commands.explain import rule_named
    from rn50_advisor.rules.registry import all_rules
    from rn50_advisor.rules.rule import sections

    rule = rule_named(taken.rule, all_rules())
    parts = [{"heading": heading, "text": " ".join(text.split())} for heading, text in sections(rule.doc)]
    document = {
        "schema": RULE_SCHEMA,
        "id": rule.id,
        "name": rule.name,
        "severities": list(rule.severities),
        "sections": parts,
        "thresholds": {name: {"value": each.value, "why": each.why} for name, each in rule.thresholds.items()},
        "needs": sorted(map(str, rule.needs)),
    }
    told = [f"{part['heading']}: {part['text']}" for part in parts if part["heading"]]
    return ToolAnswer(paragraph(f"{rule.id} {rule.name}", *told), document)


def compare_tool(shelf: Shelf, taken: CompareRuns) -> ToolAnswer:
    from rn50_advisor.advisor.commands.compare import side_by_side
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.report.compared import wording

    made = side_by_side(taken.runs, shelf.run_dir, load_config(shelf.config), max_regression=taken.max_regression)
    told = [
        words
        for pair in made.pairs
        for words in (
            f"{wording.CHANGE_WORDS[pair.change][1].capitalize()}: {wording.headline(made, pair)}",
            f"Why: {pair.why}" if pair.why else "",
            *(f"Note: {note}" for note in pair.notes),
        )
    ]
    document = made.as_json()
    if all(pair.change == "unknown" for pair in made.pairs):
        return failure(
            paragraph(*told).rstrip("."), "let the runs last longer, or compare runs of the same job", document
        )
    return ToolAnswer(paragraph(*told, wording.gate(made) if made.gate is not None else ""), document)


def doctor_tool(shelf: Shelf, taken: LookAtMachine) -> ToolAnswer:
    from rn50_advisor.advisor.commands.machine_checks import job_python, run_checks

    checks = run_checks(job_python(None))
    rows = [{"name": each.name, "state": each.state, "found": each.found, "hint": each.hint} for each in checks]
    wanting = [f"{each.name}: {each.found}" for each in checks if each.state != "ok"]
    good = sum(each.state == "ok" for each in checks)
    return ToolAnswer(
        paragraph(f"{good} of {len(checks)} checks are good", *wanting), {"schema": MACHINE_SCHEMA, "checks": rows}
    )
