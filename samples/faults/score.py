"""Judges one report against one truth, and sums up many results. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.findings import RUNS_DIFFER
from samples.faults.scenario import Recorded, Scenario, Truth

WORTH = ("critical", "high", "medium")
PROMPT_STEPS, PROMPT_S = 30, 20.0  # a first right verdict within either limit is prompt
FAULTY = ("clear", "just above")
UNJUDGED = ("inconclusive", "failed")  # states without a rule's verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: str  # the root rule, or the state if there is none
    ranks: tuple[int, ...]
    right: bool
    why_not: str
    false_alarms: tuple[str, ...]
    right_place: bool | None  # None: the truth names no place


def judge(truth: Truth, report: Mapping[str, Any]) -> Judgement:
    verdict = report["verdict"]["rule"] or report["verdict"]["state"]
    findings = {finding["rule"]: finding for finding in report["findings"]}
    root = findings.get(verdict)
    ranks = tuple(root["scope"]["ranks"]) if root else ()
    severe = [rule for rule, f in findings.items() if f["explained_by"] is None and f["severity"] in WORTH]
    alarms = tuple(sorted(rule for rule in severe if is_false_alarm(truth, rule)))
    missing, needless = set(truth.noted) - set(findings), set(truth.silent) & set(findings)
    crashed = sorted(outcome["rule"] for outcome in report["outcomes"] if outcome["state"] == "crashed")
    why = _why_wrong(truth, verdict, ranks, alarms)
    why = why or (f"{', '.join(sorted(missing))} not reported" if missing else "")
    why = why or (f"{', '.join(sorted(needless))} should not be reported" if needless else "")
    why = why or (f"{', '.join(crashed)} crashed" if crashed else "")
    place = names_place(truth, root) if root and not why and (truth.lines or truth.says) else None
    return Judgement(verdict, ranks, not why, why, alarms, place)


def is_false_alarm(truth: Truth, rule: str) -> bool:
    return rule not in (*truth.roots, *truth.also)


def _why_wrong(truth: Truth, verdict: str, ranks: tuple[int, ...], alarms: tuple[str, ...]) -> str:
    if truth.roots:
        if verdict not in truth.roots:
            return f"{verdict} instead of {truth.label}"
        if truth.ranks is not None and ranks != truth.ranks:
            return f"ranks {list(ranks)} instead of {list(truth.ranks)}"
        return ""
    if truth.never:
        wrong = [rule for rule in alarms if rule in truth.never]
        if wrong:
            return f"{', '.join(wrong)} is no root here"
        return f"{verdict}: without a verdict it proves nothing that a rule stays silent" if verdict in UNJUDGED else ""
    return "" if verdict == "healthy" else f"{verdict} instead of healthy"


def names_place(truth: Truth, finding: Mapping[str, Any]) -> bool:
    """True if the first fix points at a true line, and the finding's words contain `truth.says`."""
    if truth.lines:
        where = finding["fixes"][0]["where"] if finding["fixes"] else None
        source = _source_line(Path(where["file"]), where["line"]) if where else ""
        if not any(line in source for line in truth.lines):
            return False
    words = [finding["title"], *(str(e["note"]) + str(e["value"]) for e in finding["evidence"])]
    return truth.says in " ".join(words + [fix["title"] for fix in finding["fixes"]])


def attributed_share(report: Mapping[str, Any]) -> float | None:
    """Share of the step on the critical path that has an owner."""
    critical = report["budget"]["critical"]
    total = sum(critical.values())
    return 1 - critical.get("unattributed", 0.0) / total if total else None


def _source_line(file: Path, line: int) -> str:
    lines = file.read_text().splitlines() if file.exists() else []
    return lines[line - 1] if 0 < line <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Result:
    """One repetition of one scenario. `skipped`: why it could not run; the result then holds nothing else."""

    scenario: str
    truth: str
    primary: str  # the root rule of a right verdict, "healthy" if there is none
    strength: str
    repetition: int = 0
    skipped: str = ""
    broken: str = ""  # why the job itself failed: counted as wrong
    verdict: str = ""
    ranks: tuple[int, ...] = ()
    right: bool = False
    why_not: str = ""
    false_alarms: tuple[str, ...] = ()
    right_place: bool | None = None
    noted: tuple[str, ...] = ()  # findings that must also be reported, at any severity
    told: tuple[str, ...] = ()  # the part of `noted` that was reported
    first_s: float | None = None
    first_steps: int | None = None
    predicted: tuple[float, float] | None = None
    likely: float | None = None
    bounds: tuple[float, float] | None = None  # the rule's worst and best case, which the prediction was made from
    measured: float | None = None  # corrected to the machine's speed in the run without the fix, where known
    timed: float | None = None  # by the clock alone
    allowance: float = 0.0  # in rows of older versions, whose interval does not include what two runs differ by
    disturbed: bool = False
    attempts: int = 1
    attributed: float | None = None  # share of the step that has an owner
    steps: int = 0
    step_s: float | None = None
    wall_s: float = 0.0
    took_s: float = 0.0  # set-up, attempts and the run with the fix
    shared: str = ""  # the scenario whose run with the fix is reused: same job and circumstances, minutes apart
    turns: bool = False  # both jobs were measured in turns, not one after the other
    recorded: bool = False  # made-up steps and the fake driver's answers, no job
    advisor: str = ""  # version of the advisor that judged
    machine: str = ""  # where it ran
    date: str = ""

    @property
    def prompt(self) -> bool | None:
        """True if the right verdict came early; None where time does not matter."""
        if self.first_s is None or self.first_steps is None:
            return None
        return self.first_s <= PROMPT_S or self.first_steps <= PROMPT_STEPS

    @property
    def held(self) -> bool | None:
        """True if the measured speed-up lies in the predicted interval."""
        return self._holds(self.measured)

    @property
    def held_by_the_clock(self) -> bool | None:
        """The same by the clock alone, without the correction for the machine's speed."""
        return self._holds(self.measured if self.timed is None else self.timed)

    def _holds(self, measured: float | None) -> bool | None:
        if self.interval is None or measured is None:
            return None
        low, high = self.interval
        return low <= measured <= high

    @property
    def cases(self) -> tuple[float, float] | None:
        """The rule's worst and best case. In rows without them: the prediction, less RUNS_DIFFER if it includes that."""
        if self.bounds is not None or self.predicted is None or self.allowance:
            return self.bounds or self.predicted
        low, high = self.predicted
        return max(1.0, low / (1.0 - RUNS_DIFFER)), high / (1.0 + RUNS_DIFFER)

    @property
    def near(self) -> bool | None:
        """True if the likely speed-up is within 15 % of the measured one."""
        if self.likely is None or self.measured is None:
            return None
        return abs(math.log(self.measured / self.likely)) <= math.log(1.15)

    @property
    def interval(self) -> tuple[float, float] | None:
        if self.predicted is None:
            return None
        low, high = self.predicted
        return low * (1 - self.allowance), high * (1 + self.allowance)


def blank(scenario: Scenario, repetition: int = 0) -> Result:
    """The result of a run before it starts."""
    truth = scenario.truth
    primary = truth.roots[0] if truth.roots else "healthy"
    recorded = isinstance(scenario.job, Recorded)
    about = scenario.name, truth.label, primary, scenario.strength, repetition
    return Result(*about, noted=truth.noted, recorded=recorded)


def unfinished(scenario: Scenario, repetition: int, what: str) -> Result:
    return replace(blank(scenario, repetition), broken=what, why_not="the run went wrong", verdict="none")


@dataclass(frozen=True, slots=True)
class RuleScore:
    """`hits` of `cases` with this truth were recognised; the rule was a root `said` times, `false` of them wrongly.

    A rule that is true besides the root is recognised if it was reported at all.
    """

    rule: str
    cases: int
    hits: int
    said: int
    false: int


@dataclass(frozen=True, slots=True)
class Summary:
    scenarios: int
    runs: int
    right: int
    clean: int  # of those, runs whose verdict came without a false alarm
    faulty: int  # runs with something to find
    found: int  # of those, runs with the right root on the right rank
    timed: int
    prompt: int  # of those, runs with a prompt first right verdict
    late: tuple[str, ...]  # scenarios of the remaining runs
    skipped: int
    recorded: int  # runs of recorded stories instead of jobs
    disturbed: int
    false_alarms: int
    repeated: int  # scenarios that ran more than once
    flipped: tuple[str, ...]  # of those, scenarios with differing verdicts
    predictions: int
    likely: int  # of them, those with a likely value beside the interval
    near: int  # of these, within 15 % of what was measured
    allowed: int  # of them, those whose interval is widened by the variation between two runs
    inside: int
    inside_by_the_clock: int  # inside without correcting for the machine's speed
    median_width: float | None  # median width of the predicted intervals, relative to their middle
    took_s: float  # 0 if unknown
    rules: tuple[RuleScore, ...]


def summarise(results: Sequence[Result]) -> Summary:
    run = [r for r in results if not r.skipped]
    held = [(r, r.interval) for r in run if r.interval is not None and r.measured is not None]
    verdicts: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for r in run:
        verdicts.setdefault(r.scenario, []).append((r.verdict, r.ranks))
    faulty = [r for r in run if r.strength in FAULTY]
    widths = [2 * (high - low) / (high + low) for _, (low, high) in held]
    return Summary(
        scenarios=len(verdicts),
        runs=len(run),
        right=sum(r.right for r in run),
        clean=sum(r.right and not r.false_alarms for r in run),
        faulty=len(faulty),
        found=sum(r.right for r in faulty),
        timed=sum(r.prompt is not None for r in run),
        prompt=sum(bool(r.prompt) for r in run),
        late=tuple(sorted({r.scenario for r in run if r.prompt is False})),
        skipped=len(results) - len(run),
        recorded=sum(r.recorded for r in run),
        disturbed=sum(r.disturbed for r in run),
        false_alarms=sum(len(r.false_alarms) for r in run),
        repeated=sum(len(each) > 1 for each in verdicts.values()),
        flipped=tuple(sorted(name for name, each in verdicts.items() if len(set(each)) > 1)),
        predictions=len(held),
        likely=sum(r.near is not None for r, _ in held),
        near=sum(bool(r.near) for r, _ in held),
        allowed=sum(r.allowance > 0 for r, _ in held),
        inside=sum(bool(r.held) for r, _ in held),
        inside_by_the_clock=sum(bool(r.held_by_the_clock) for r, _ in held),
        median_width=statistics.median(widths) if widths else None,
        took_s=sum(r.took_s for r in run),
        rules=_rule_scores(run),
    )


def _rule_scores(run: Sequence[Result]) -> tuple[RuleScore, ...]:
    rules = {r.primary for r in run} | {rule for r in run for rule in (*r.false_alarms, *r.noted)}
    scores = []
    for rule in sorted(rules - {"healthy"}):
        cases = [r.right for r in run if r.primary == rule]
        cases += [rule in r.told for r in run if rule in r.noted and r.primary != rule]
        false = sum(rule in r.false_alarms for r in run)
        # right although this rule was wrongly a root: the truth named another rule
        true = sum(r.right and r.verdict == rule and rule not in r.false_alarms for r in run)
        scores.append(RuleScore(rule, len(cases), sum(cases), true + false, false))
    healthy = [r for r in run if r.primary == "healthy"]
    if healthy:
        called = [r for r in run if r.verdict == "healthy"]
        false = sum(not r.right for r in called)
        scores.append(RuleScore("healthy", len(healthy), sum(r.right for r in healthy), len(called), false))
    return tuple(scores)
