"""Wording shared by all reports: states, scopes, evidence, savings, and which finding is listed under which."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable
from datetime import datetime, timezone

from rn50_advisor.advisor.model.efficiency import Efficiency
from rn50_advisor.advisor.model.findings import Affected, Evidence, Finding, Fix, Saving
from rn50_advisor.advisor.model.opportunities import Opportunity, gpus_used, split, time_lost
from rn50_advisor.advisor.model.report import (
    EPOCH_START,
    PHASE_TITLES,
    PHASES,
    Budget,
    Capacity,
    Job,
    OutcomeRow,
    Report,
    State,
)
from rn50_advisor.advisor.model.wording import (
    check_words,
    evidence_words,
    gain_words,
    rank_words,
    stage_words,
    trial_words,
)
from rn50_advisor.advisor.model.wording import quantities as fmt

# glyph and word always go together: neither colour nor a font may be needed to understand a report
STATE_WORDS: dict[State, tuple[str, str]] = {
    "bottleneck": ("▲", "Bottleneck"),
    "healthy": ("✓", "Healthy"),
    "inconclusive": ("?", "Inconclusive"),
    "failed": ("✗", "Failed"),
}
FINDINGS_SHOWN = 40
RANKS_SHOWN = 16
BAR_CELLS = 12  # of the longest bar
_EIGHTHS = "▏▎▍▌▋▊▉"
_LATEST_UNIX_S = 253_402_300_800  # the year 10000, where datetime ends


def root_findings(report: Report) -> list[Finding]:
    """Findings that no other finding explains, in the report's order; one whose cause is absent counts as a root."""
    present = {finding.rule for finding in report.findings}
    return [f for f in report.findings if f.explained_by is None or f.explained_by not in present]


def explained_findings(report: Report, root: Finding) -> list[Finding]:
    """Findings that stand under `root`, directly or through another."""
    found: list[Finding] = []
    causes = {root.rule}
    while True:
        more = [f for f in report.findings if f.explained_by in causes and f is not root and f not in found]
        if not more:
            return [f for f in report.findings if f in found]
        found += more
        causes |= {f.rule for f in more}


def verdict_finding(report: Report) -> Finding | None:
    return next((f for f in report.findings if f.rule == report.verdict.rule), None)


def shown_state(report: Report) -> State:
    """The verdict's state, as its colour: few steps without a finding are no healthy job yet."""
    return "inconclusive" if check_words.is_preliminary(report) else report.verdict.state


def state_words(report: Report) -> tuple[str, str]:
    """Glyph and words of the state."""
    if check_words.is_preliminary(report):
        return "○", check_words.preliminary_words(report)
    return STATE_WORDS[report.verdict.state]


def verdict_word(report: Report) -> str:
    return " ".join(state_words(report))


def checks(report: Report) -> str:
    """`48 of 55 checks made`, beside a verdict that says nothing was found; else empty."""
    return check_words.coverage(report) if report.verdict.state == "healthy" else ""


def scope(affected: Affected) -> str:
    """`rank 1, GPU 0, since step 400`; empty when a finding speaks of the whole job."""
    parts = [_some("rank", affected.ranks), _some("GPU", affected.gpus)]
    if affected.hosts:
        parts.append(("host " if len(affected.hosts) == 1 else "hosts ") + ", ".join(affected.hosts[:8]))
    if affected.since_step is not None:
        parts.append(f"since step {affected.since_step:,}")
    return ", ".join(part for part in parts if part)


def metric(name: str) -> str:
    """`step.input_wait_s` as one would say it: `input wait`; the value beside it carries the unit."""
    return fmt.metric_words(name)


def amount(item: Evidence, value: float | str | None) -> str:
    """A value or threshold of this evidence with its unit, unless the metric's name ends with that word."""
    return evidence_words.amount(item, value)


def note(item: Evidence) -> str:
    return evidence_words.grammatical(item.note)


def evidence(item: Evidence) -> str:
    """`input wait: 412 ms (threshold 30 ms), note`."""
    return evidence_words.in_full(item)


def gain(saving: Saving | None, room: int | None = None) -> str:
    """Empty where nothing is predicted. `room`: columns; parts that do not fit are left out."""
    return gain_words.gain(saving, room) if saving else ""


def speedup(saving: Saving) -> tuple[str, str]:
    """Returns the likely speed-up and its range, in words; without a likely value (range, "")."""
    likely, spread = gain_words.likely(saving), fmt.speedup_range(saving.speedup)
    return (likely, spread) if likely else (spread, "")


def cost(finding: Finding) -> str:
    return f"costs {fmt.duration(finding.seconds_per_step)} per step" if finding.seconds_per_step > 0 else ""


def efficiency(found: Efficiency) -> str:
    """`24 of 100`, or that it is not known."""
    return "not known" if found.score is None else f"{found.score} of 100"


def efficiency_basis(found: Efficiency) -> str:
    """The times that make the score, or the reason why there is none."""
    if found.score is None:
        return f"not known: {found.unknown}"
    return f"{fmt.duration(found.useful_s)} of a {fmt.duration(found.step_s)} step are useful compute"


def score_band(found: Efficiency) -> str:
    """`good` from 90, `fair` from 50, else `poor`: the bands of Lighthouse's scores. Empty without a score."""
    if found.score is None:
        return ""
    return "good" if found.score >= 90 else "fair" if found.score >= 50 else "poor"


def saved_in_run(one: Opportunity, gpus: int) -> str:
    """`saves 2m 13s – 2m 43s of this run, 0.29–0.36 GPU-hours on 8 GPUs`."""
    low_s, high_s = one.run_s
    seconds = fmt.seconds_range(one.run_s) if low_s > 0 else f"up to {fmt.duration(high_s)}"
    text = f"saves {seconds} of this run"
    if one.gpu_hours is None:
        return text
    low, high = (fmt.number(hours) for hours in one.gpu_hours)
    hours = f"up to {high}" if low_s <= 0 else low if low == high else f"{low}–{high}"
    return f"{text}, {hours} GPU-hours on {fmt.counted(gpus, 'GPU')}"


def by_try(report: Report, finding: Finding) -> str:
    """What `try` has measured of the finding's fix on this job; empty if it was not tried."""
    return trial_words.of_finding(report.tried, finding)


def saved(report: Report, finding: Finding) -> str:
    """What the fix saves of the run so far; empty if no gain is predicted."""
    found, _ = split(report, [finding])
    return saved_in_run(found[0], gpus_used(report)) if found else ""


def lost(report: Report) -> str:
    """`2m 30s of 4m 12s (0.33 GPU-hours) to DAT003 (predicted)`; empty if no gain is predicted."""
    found = time_lost(report)
    if found.lost_s is None:
        return ""
    hours = f" ({fmt.number(found.gpu_hours)} GPU-hours)" if found.gpu_hours is not None else ""
    return f"{fmt.duration(found.lost_s)} of {fmt.duration(found.run_s)}{hours} to {found.rule} (predicted)"


def fix_code(fix: Fix) -> tuple[str, str]:
    """The change without its line `pass --workers 6`, and that line as a sentence, where the option is shown by itself."""
    lines = fix.change.split("\n")
    told = [line for line in lines if line.startswith(("pass ", "set "))] if fix.typed else []
    words = told[0][:1].upper() + told[0][1:] if len(told) == 1 else ""
    return "\n".join(line for line in lines if line not in told), words


def place(fix: Fix) -> str:
    """`train.py:142`, or nothing."""
    return f"{fix.where.file}:{fix.where.line}" if fix.where else ""


def from_its_folder(report: Report, text: str) -> str:
    """The text with paths below the job's folder as one types them there: `src/train.py:142`."""
    folder = str(report.environment.get("cwd") or "").rstrip("/")
    return re.sub(rf"(?<![\w./-]){re.escape(folder)}/", "", text) if folder else text


def option(fix: Fix) -> str:
    """`: pass --workers 6`, where an option of the job's own does it."""
    return f": {', '.join(fix.options)}" if fix.options else ""


def ending(job: Job) -> str:
    """The state of the job: running, its exit code, or the signal that ended it."""
    if job.traced:
        return f"{fmt.duration(job.duration_s)} of a profiler's trace"
    if job.running:
        return f"still running after {fmt.duration(job.duration_s)}"
    if job.exit_signal:
        return f"killed by {job.exit_signal} after {fmt.duration(job.duration_s)}"
    if job.exit_code is None:
        return f"end not observed; recorded for {fmt.duration(job.duration_s)}"
    if job.exit_code < 0:
        return f"killed by {_signal_name(-job.exit_code)} after {fmt.duration(job.duration_s)}"
    return f"exit code {job.exit_code} after {fmt.duration(job.duration_s)}"


def started(report: Report) -> str:
    """Returns the job's start as `2025-01-31 12:00:00 UTC`, since readers may be in other time zones; empty if unknown."""
    moment = report.environment.get("started")
    if not isinstance(moment, (int, float)) or not 0 < moment < _LATEST_UNIX_S:
        return ""
    return f"{datetime.fromtimestamp(moment, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def speed(report: Report) -> list[tuple[str, str]]:
    """Label and value of what was measured of the job's speed, unknown ones left out."""
    rate, step = report.throughput, report.step_time
    pairs = [
        ("throughput", fmt.rate(rate.samples_per_s, "samples/s") if rate.samples_per_s is not None else ""),
        ("energy", energy(report)),
        ("steps", fmt.rate(rate.steps_per_s, "steps/s") if rate.steps_per_s is not None else ""),
        ("step, median", fmt.duration(step.median_s) if step.median_s is not None else ""),
        ("step, 95th percentile", fmt.duration(step.p95_s) if step.p95_s is not None else ""),
        ("steps observed", f"{step.steps:,}, {step.steady_steps:,} of them steady"),
        ("batch per rank", f"{fmt.number(rate.batch_size)} samples" if rate.batch_size is not None else ""),
        (rank_words.plural(report), f"{report.job.ranks:,}" if report.job.ranks else "none seen"),
        ("time lost", lost(report)),
    ]
    return [(label, value) for label, value in pairs if value]


def energy(report: Report) -> str:
    """`0.55 J per sample, 1,378 W on its GPUs`; empty where nobody measured it of all of them."""
    rate = report.throughput
    if rate.joules_per_sample is None or rate.watts is None:
        return ""
    return f"{fmt.quantity(rate.joules_per_sample, 'J')} per sample, {fmt.number(round(rate.watts))} W on its GPUs"


def phase(name: str) -> str:
    return PHASE_TITLES.get(name, name)


def segment_word(kind: str) -> str:
    """The kind of a part of the run, as the phase that it belongs to is called."""
    return PHASE_TITLES[EPOCH_START] if kind == "epoch start" else kind


def phases_present(budget: Budget) -> list[str]:
    """Phases that take time anywhere, in the order they are shown; unknown names last, `unattributed` always."""
    rows = [budget.critical, *budget.per_rank.values()]
    names = dict.fromkeys([*PHASES, *(name for row in rows for name in row)])
    return [name for name in names if name == "unattributed" or any(row.get(name, 0) > 0 for row in rows)]


def ranks_shown(report: Report, limit: int = RANKS_SHOWN) -> list[int]:
    """All ranks, or of many: those that findings name, then the slowest; in rank order."""
    ranks = list(report.budget.per_rank)
    named = {rank for finding in report.findings for rank in finding.scope.ranks}
    totals = {rank: sum(row.values()) for rank, row in report.budget.per_rank.items()}
    ranks.sort(key=lambda rank: (rank not in named, -totals[rank], rank))
    return sorted(ranks[:limit])


def rank_word(report: Report, rank: int) -> str:
    """`rank 3`, with its host where there are several."""
    host = next((node.host for node in report.nodes if rank in node.ranks), "")
    return f"rank {rank} on {host}" if host else f"rank {rank}"


def capacity_range(capacity: Capacity) -> str:
    if capacity.lo is None or capacity.hi is None:
        return ""
    return f"{fmt.number(capacity.lo)}–{fmt.number(capacity.hi)}"


def capacity_bar(report: Report, capacity: Capacity) -> str:
    """Block characters, the longest bar for the fastest stage; empty where nothing was measured."""
    rates = [
        c.samples_per_s for c in report.capacities if c.samples_per_s is not None and 0 < c.samples_per_s < math.inf
    ]
    rate = capacity.samples_per_s
    if not rates or rate is None or not rate > 0:
        return ""
    whole, rest = divmod(max(1, round(8 * BAR_CELLS * min(rate / max(rates), 1.0))), 8)
    return "█" * whole + _EIGHTHS[:rest][-1:]


def stage(capacity: Capacity) -> str:
    return stage_words.stage_title(capacity.stage)


def unmeasured(report: Report) -> list[OutcomeRow]:
    return [row for row in report.outcomes if row.state == "not_measured"]


def crashed(report: Report) -> list[OutcomeRow]:
    return [row for row in report.outcomes if row.state == "crashed"]


def overhead(report: Report) -> list[tuple[str, str]]:
    """Label and value of what the advisor itself cost; unknown ones say so."""
    own = report.overhead
    step = fmt.duration(own.us_per_step * 1e-6) if own.us_per_step is not None else "not measured"
    pairs = [
        ("in each step", f"{step} ({fmt.share(own.step_share)} of it)" if own.step_share is not None else step),
        ("at start-up", fmt.duration(own.startup_s) if own.startup_s is not None else "not measured"),
        (
            "agent",
            f"{fmt.share(own.agent_cpu_share)} of one core" if own.agent_cpu_share is not None else "not measured",
        ),
    ]
    if own.worker_share is not None:
        pairs.append(("in loader workers", f"{fmt.share(own.worker_share)} of their time"))
    if own.driver_share is not None:
        pairs.append(("GPU driver queries", f"{fmt.share(own.driver_share)} of the time, in the agent"))
    if own.shed:
        pairs.append(("disabled to stay within budget", ", ".join(own.shed)))
    return pairs


def _some(noun: str, numbers: Iterable[int]) -> str:
    """`rank 1`, `ranks 0–2, 5`."""
    ordered = sorted(set(numbers))
    if not ordered:
        return ""
    return f"{noun if len(ordered) == 1 else noun + 's'} {fmt.numbers(ordered)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
