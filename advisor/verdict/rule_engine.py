"""Runs the rules over an analysis, separates causes from symptoms, sorts the remaining findings by cost, and picks the verdict."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import SEVERITIES, Clear, Crashed, Finding, Fix, NotMeasured, Outcome
from rn50_advisor.advisor.model.measures.step_measures import STEP_STEADY, STEP_TIME_S
from rn50_advisor.advisor.model.report import EPOCH_START, INPUT_OR_FORWARD, PHASE_TITLES, OutcomeRow, Verdict
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.model.wording import evidence_words
from rn50_advisor.advisor.model.wording.check_words import COMM_PREFIXES, GPU_PREFIXES
from rn50_advisor.advisor.model.wording.gain_words import speedup
from rn50_advisor.advisor.model.wording.quantities import counted, duration, rule_ids, share
from rn50_advisor.advisor.verdict.hidden_waits import SLEEPS, asleep, unknown_waits
from rn50_advisor.advisor.verdict.likely_gain import errors_of, expected
from rn50_advisor.advisor.verdict.unobserved_input import (
    input_is_unknown,
    speaks_for,
    unobserved_input,
    unobserved_training,
)
from rn50_advisor.rules.causes import is_cause
from rn50_advisor.rules.rule import Rule

# Below this share of the step, forward, backward and optimizer do not dominate, and the job is not called healthy.
_COMPUTE_SHARE = 0.5
_COMPUTED_SHARE_MIN = 0.1  # of a job's time: from there on a function of the user's is named that computes it
# From this share of the step, input wait or time between steps may hide the bottleneck if no rule fired. Healthy jobs waited up to 0.14 for
# batches to be handed over.
_UNEXPLAINED_SHARE = 0.15
_UNEXPLAINED_PHASES = (
    "input_wait",
    EPOCH_START,
    "gap",
    "unattributed",
)  # exchanges are judged below; other phases are known
_WORTH_FIXING = SEVERITIES[:3]
_STEPS_MIN = 5  # fewer say nothing about a job that the advisor watched
TRACED_STEPS_MIN = 1  # a profiler's trace shows in each step what takes its time
_NO_TRACED_STEP = (
    "no whole training step was found in the trace: it needs two fetches of a DataLoader, two optimizer steps, or the marks of "
    "profiler.step() in the loop. Kernels by class, if it has any, are those of the whole trace"
)
_NO_COMMON_STEP = "no step is in the traces of all ranks: they may be of different runs, or of different times"
_RULES_NAMED_MAX = 3  # ids say little to most readers; the full report lists all of them with what they need
WATCHED_RUN = "a run under rn50-advisor, not a trace"
# Minimum cost of a cause as a share of its consequence's cost. For some causes the estimate is rough.
_CAUSE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    findings: tuple[Finding, ...]
    outcomes: tuple[OutcomeRow, ...]


def judge(analysis: Analysis, rules: Iterable[Rule], config: Config) -> Judgement:
    """Runs the rules and picks the verdict. Does not raise: a rule that crashes is an outcome of its own."""
    chosen = [rule for rule in rules if rule.id not in config.disabled]
    outcomes = [run_rule(rule, analysis, config) for rule in chosen]
    found = [_with_likely_gain(o) for o in outcomes if isinstance(o, Finding)]
    declared = {rule.id: rule.explains for rule in chosen}

    def explains(cause: Finding, consequence: Finding) -> bool:
        declared_so = consequence.rule in (*declared.get(cause.rule, ()), *cause.explains)
        return declared_so or is_cause(analysis, cause, consequence)

    findings = link(found, explains)
    if unobserved_training(analysis) is not None:  # a fix may gain less for the run than for the observed steps
        findings = tuple(replace(finding, saving=None) for finding in findings)
    return Judgement(verdict(analysis, findings, outcomes), findings, tuple(_row(o) for o in outcomes))


def run_rule(rule: Rule, analysis: Analysis, config: Config) -> Outcome:
    """Returns one rule's outcome; without the measurements that it needs, this is "not measured", never "clear"."""
    missing: list[str] = [name for name in rule.needs if not analysis.has(name)]
    enough = min(rule.steady_steps, TRACED_STEPS_MIN) if analysis.meta.traced else rule.steady_steps
    if rule.steady_steps and analysis.step_time.steady_steps < enough and STEP_STEADY not in missing:
        missing.insert(0, STEP_STEADY)
    if analysis.meta.traced and not rule.traced and not missing:
        missing.append(WATCHED_RUN)
    if missing:
        return NotMeasured(rule.id, tuple(missing))
    given = config.thresholds.get(rule.id, {})
    thresholds = {name: given.get(name, threshold.value) for name, threshold in rule.thresholds.items()}
    try:
        return rule.check(analysis, thresholds)
    except Exception as error:  # noqa: BLE001 - one broken rule must not take the others with it
        return Crashed(rule.id, f"{type(error).__name__}: {error}")


def _with_likely_gain(finding: Finding) -> Finding:
    saving = finding.saving
    return finding if saving is None else replace(finding, saving=expected(saving, errors_of(finding.rule)))


def link(findings: list[Finding], explains: Callable[[Finding, Finding], bool]) -> tuple[Finding, ...]:
    """Sorts findings: fatal and urgent roots first, then roots by seconds lost, each followed by the findings it explains.

    A root of unknown cost has that of the costliest finding it explains.
    """
    cause: dict[str, str] = {}
    # cheapest first, so that in a cycle of rules that explain each other the most expensive one remains as the root
    for finding in sorted(findings, key=_cost):
        causes = [
            f
            for f in findings
            if _overlap(f, finding)
            and _weighs(f, finding)
            and finding.rule not in _ancestry(f.rule, cause)
            and explains(f, finding)
        ]
        if causes:
            cause[finding.rule] = max(causes, key=_cost).rule
    roots = {finding.rule: _ancestry(finding.rule, cause)[-1] for finding in findings}
    linked = [
        replace(
            finding,
            explained_by=None if roots[finding.rule] == finding.rule else roots[finding.rule],
            explains=tuple(
                sorted(rule for rule, root in roots.items() if root == finding.rule and rule != finding.rule)
            ),
        )
        for finding in findings
    ]
    by_rule = {finding.rule: finding for finding in linked}
    costs: dict[str, float] = {}
    for finding in linked:
        costs[roots[finding.rule]] = max(costs.get(roots[finding.rule], 0.0), finding.seconds_per_step)

    def place(finding: Finding) -> tuple[bool, bool, float, str, bool, float]:
        root = by_rule[roots[finding.rule]]
        return (
            not root.fatal,
            not root.urgent,
            -(root.seconds_per_step or costs[root.rule]),
            root.rule,
            finding is not root,
            -finding.seconds_per_step,
        )

    return tuple(sorted(linked, key=place))


def _cost(finding: Finding) -> tuple[bool, float]:
    return finding.fatal, finding.seconds_per_step


def _ancestry(rule: str, cause: Mapping[str, str]) -> list[str]:
    """Returns the rule, its cause, the cause of that, and so on up to the root."""
    line = [rule]
    while line[-1] in cause:
        line.append(cause[line[-1]])
    return line


def _weighs(cause: Finding, consequence: Finding) -> bool:
    """True if a cause is large enough to explain a consequence: it costs a large part of it, and is worth fixing if the consequence is.

    A finding of unknown cost may explain any other.
    """
    if cause.fatal or (cause.seconds_per_step == 0.0 and cause.severity in _WORTH_FIXING):
        return True
    enough = cause.seconds_per_step >= _CAUSE_SHARE * consequence.seconds_per_step
    return enough and (cause.severity in _WORTH_FIXING or consequence.severity not in _WORTH_FIXING)


def _overlap(cause: Finding, consequence: Finding) -> bool:
    """True if two findings concern a common rank; a finding about all ranks overlaps with every other."""
    return (
        not cause.scope.ranks
        or not consequence.scope.ranks
        or bool(set(cause.scope.ranks) & set(consequence.scope.ranks))
    )


def verdict(analysis: Analysis, findings: tuple[Finding, ...], outcomes: list[Outcome]) -> Verdict:
    found = _verdict(analysis, findings, outcomes)
    steps = analysis.step_time.steady_steps
    if not analysis.meta.traced or not steps:
        return found
    few = f"Judged by {counted(steps, 'step')} of a profiler's trace, in which the host is slower than usual."
    return replace(found, summary=f"{found.summary} {few}".strip())


def _verdict(analysis: Analysis, findings: tuple[Finding, ...], outcomes: list[Outcome]) -> Verdict:
    root = next((f for f in findings if f.explained_by is None and (f.fatal or f.severity in _WORTH_FIXING)), None)
    if root is not None and root.fatal:
        return Verdict("failed", root.rule, root.title, _summary(root))
    failed = _failed_job(analysis)
    if failed is not None:
        return failed
    unobserved = unobserved_training(analysis)
    if unobserved is not None:
        return unobserved
    if root is not None:
        summary = _summary(root) + input_is_unknown(analysis) + speaks_for(analysis)
        return Verdict("bottleneck", root.rule, root.title, summary)
    return _no_bottleneck(analysis, outcomes)


def _summary(finding: Finding) -> str:
    notes = "; ".join(evidence_words.sentence(e) for e in finding.evidence[:2] if e.note)
    parts = [evidence_words.begun(notes)] if notes else []
    if finding.fixes:
        parts.append(fix_sentence(finding.fixes[0]))
    if finding.saving is not None and not finding.fatal:
        parts.append(f"Predicted: {speedup(finding.saving)}")
    return ". ".join(parts) + "." if parts else ""


def fix_sentence(fix: Fix) -> str:
    """For example `Fix: num_workers=4 (train.py:42)`."""
    return f"Fix: {fix.title}" + (f" ({fix.where.file}:{fix.where.line})" if fix.where else "")


def _failed_job(analysis: Analysis) -> Verdict | None:
    meta = analysis.meta
    if meta.launch_error:
        return Verdict("failed", None, "The job could not be started", meta.launch_error)
    when = f"after {analysis.step_time.steps} steps" if analysis.step_time.steps else "before its first step"
    if meta.exit_signal is not None and not analysis.stopped_from_outside:
        return Verdict("failed", None, f"The job was killed by {_signal_name(meta.exit_signal)}", f"It ended {when}.")
    if meta.exit_code and not analysis.stopped_from_outside:
        return Verdict("failed", None, f"The job ended with exit code {meta.exit_code}", f"It ended {when}.")
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _no_bottleneck(analysis: Analysis, outcomes: list[Outcome]) -> Verdict:
    enough = TRACED_STEPS_MIN if analysis.meta.traced else _STEPS_MIN
    if analysis.model is None or analysis.step_time.steady_steps < enough:
        return _too_few_steps(analysis)
    step = analysis.model.step_s
    unobserved = unobserved_input(analysis)
    if unobserved is not None:
        return unobserved
    critical = analysis.budget.critical
    computing = ("forward", INPUT_OR_FORWARD, "backward", "optimizer")
    computed = sum(critical.get(phase, 0.0) for phase in computing) / step
    unchecked = _unchecked(analysis, outcomes)
    unexplained = _unexplained(analysis)
    if computed < _COMPUTE_SHARE or unexplained:
        text = (
            f"only {100 * computed:.0f} % of the step is compute, and no rule that could be checked explains the rest"
        )
        unknown = unknown_waits(analysis, text) if analysis.meta.traced and not unexplained else None
        title, text = unknown or ("No cause was found", f"{text}{unexplained}; {unchecked}.")
        return Verdict("inconclusive", None, title, text)
    parts = ", ".join(
        f"{phase.replace('_', ' ')} {100 * critical[phase] / step:.0f} %" for phase in computing if critical.get(phase)
    )
    text = f"{100 * computed:.0f} % of a {duration(step)} step is compute ({parts}); nothing worth fixing was found"
    return _of_trace(analysis, text) if analysis.meta.traced else _of_run(analysis, text, unchecked)


def _of_run(analysis: Analysis, text: str, unchecked: str) -> Verdict:
    """The verdict on a recorded run whose step is compute without anything worth fixing."""
    view = analysis.gpu_view
    if view.unmonitored:
        who = f"rank{'s' if len(view.unmonitored) > 1 else ''} {', '.join(map(str, view.unmonitored[:8]))}"
        why = f"it is not known whether the GPU of {who} is healthy: {view.why_unmonitored}"
        return Verdict("inconclusive", None, "GPUs not observed", f"{text}; {why}.")
    slept, beside = asleep(analysis)
    unknown = (SLEEPS, f"{text}.{beside}") if slept else unknown_waits(analysis, text)
    if unknown:
        return Verdict("inconclusive", None, *unknown)
    return Verdict(
        "healthy",
        None,
        "Compute-bound",
        f"{text}{_computed_by(analysis)}; {unchecked}.{beside}{input_is_unknown(analysis)}{speaks_for(analysis)}",
    )


def _computed_by(analysis: Analysis) -> str:
    """Names the user's function that computes most by itself, if that is worth a look: only its author knows whether it has to."""
    most = next(iter(analysis.computing_functions), None)
    if most is None or most.share < _COMPUTED_SHARE_MIN:
        return ""
    name = "the script" if most.function == "<module>" else most.function
    return f"; {share(most.share)} of the time is {name}'s own operations, mostly at {most.file}:{most.line}"


def _too_few_steps(analysis: Analysis) -> Verdict:
    if analysis.meta.traced:
        why = _NO_COMMON_STEP if analysis.step_time.steps else _NO_TRACED_STEP
    elif analysis.step_time.steps:
        why = f"{analysis.step_time.steps} steps observed, {analysis.step_time.steady_steps} of them steady: too few to judge"
    elif analysis.running:
        why = "the job has not completed a step yet"
    else:
        why = analysis.recorder_error or "the job ran no backward pass that could be observed"
        why = f"no training step was observed: {why}"
    return Verdict("inconclusive", None, "Too few steps yet" if analysis.running else "Too few steps", why + ".")


def _of_trace(analysis: Analysis, text: str) -> Verdict:
    """The verdict on a trace without findings. A trace cannot tell whether the GPU itself is slowed down."""
    if unknown := unknown_waits(analysis, text):
        return Verdict("inconclusive", None, *unknown)
    unseen = "clocks, power and errors of the GPU are" if analysis.on_gpu else "the machine's own state is"
    title = "Compute-bound, as far as a trace shows"
    return Verdict("inconclusive", None, title, f"{text}; {unseen} not in a trace.")


def _unchecked(a: Analysis, outcomes: list[Outcome]) -> str:
    """Names up to three rules without a result, or their number; of those about what the job has none of, only the number."""
    unresolved = [o for o in outcomes if isinstance(o, (NotMeasured, Crashed))]
    absent = {
        "GPUs": () if a.on_gpu or a.gpu_view.devices else GPU_PREFIXES,
        "several ranks": COMM_PREFIXES if a.world_size == 1 else (),
    }
    about = {
        o.rule: what
        for what, values in absent.items()
        for o in unresolved
        if isinstance(o, NotMeasured) and o.missing[0].startswith(values)
    }
    groups = " or ".join(what for what in absent if what in about.values())
    left_out = f"{counted(len(about), 'check')} on {groups} left out" if about else ""
    return _checked([o.rule for o in unresolved if o.rule not in about], left_out)


def _checked(unresolved: list[str], left_out: str) -> str:
    if not unresolved:
        return f"{left_out}, all others made" if left_out else "all checks were made"
    if len(unresolved) <= _RULES_NAMED_MAX:
        text = f"not measured: {rule_ids(unresolved)}"
    else:
        text = f"{len(unresolved)} checks could not be made (`rn50-advisor report --full` lists the reasons)"
    return f"{text}; {left_out}" if left_out else text


def _unexplained(a: Analysis) -> str:
    """Lists, in brackets, the phases in _UNEXPLAINED_PHASES that take much of the step; empty if none does."""
    critical, step = a.budget.critical, a.value(STEP_TIME_S)
    large = [phase for phase in _UNEXPLAINED_PHASES if critical.get(phase, 0.0) >= _UNEXPLAINED_SHARE * step]
    return f" ({', '.join(f'{PHASE_TITLES[p]} {100 * critical[p] / step:.0f} %' for p in large)})" if large else ""


def _row(outcome: Outcome) -> OutcomeRow:
    if isinstance(outcome, Finding):
        return OutcomeRow(outcome.rule, "fired")
    if isinstance(outcome, Clear):
        return OutcomeRow(outcome.rule, "clear")
    if isinstance(outcome, NotMeasured):
        return OutcomeRow(outcome.rule, "not_measured", tuple(map(str, outcome.missing)))
    return OutcomeRow(outcome.rule, "crashed", (outcome.error,))
