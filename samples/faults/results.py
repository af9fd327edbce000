"""Results: a table on the screen, JSON, and the Markdown that is kept beside the scenarios."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from rich.table import Table

from rn50_advisor.advisor.model.findings import RUNS_DIFFER
from samples.faults.score import PROMPT_S, PROMPT_STEPS, Result, Summary, summarise
from samples.faults.turns import TURN_S

SCHEMA = "rn50-advisor/faults/1"
RECORDED = "recorded through the fake driver"
HEADINGS = (
    "scenario",
    "strength",
    "truth",
    "verdict",
    "right",
    "false alarms",
    "first verdict",
    "predicted",
    "measured",
    "advisor",
)


def machine() -> dict[str, Any]:
    """Properties of the machine that the numbers depend on, without host or user names."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "none"
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "torch": torch,
        "kernel": platform.release(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def advisor_state() -> str:
    """The advisor's commit, marked `-dirty` if files differ from it; outside a clone, its version."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    with contextlib.suppress(PackageNotFoundError):  # not installed either
        return version("rn50-advisor")
    return "unknown"


def machine_words(where: Mapping[str, Any]) -> str:
    return (
        f"{where['cores']} cores, {where['memory_gib']} GiB, Python {where['python']}, torch {where['torch']}, "
        f"Linux {where['kernel']}"
    )


def write_json(path: Path, results: Sequence[Result], where: Mapping[str, Any]) -> None:
    document = {
        "schema": SCHEMA,
        "machine": where,
        "summary": asdict(summarise(results)),
        "results": [asdict(result) for result in results],
    }
    partial = path.with_suffix(".part")  # so that an interrupt leaves a complete file, old or new
    text = (json.dumps(document, indent=1) + "\n").encode()
    partial.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    partial.replace(path)


def read_json(path: Path) -> list[Result]:
    """Reads results that `write_json` wrote, gzipped if the name ends in .gz. Raises ValueError on anything else."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        document = json.loads(file.read())
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"{path} holds no results of this program")
    return [
        Result(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})
        for row in document["results"]
    ]


def merged(parts: Sequence[Sequence[Result]]) -> list[Result]:
    """Merges the results of several files into repetitions of the same scenarios, by day, and within a day in the order of the files.

    A result in two files counts once.
    """
    counts: Counter[str] = Counter()
    found: dict[Result, None] = {}
    for result in sorted((r for part in parts for r in part), key=lambda r: r.date):
        found.setdefault(result)
    numbered = []
    for result in found:
        numbered.append(replace(result, repetition=counts[result.scenario]))
        counts[result.scenario] += 1
    return numbered


def cells(r: Result, *, flips: bool = False) -> tuple[str, ...]:
    """Cells of one row. `flips`: other repetitions of the scenario have other verdicts."""
    if r.skipped:
        return r.scenario, r.strength, r.truth, "not run", "–", "", "", "", r.skipped, _run(r)
    verdict = r.verdict + (f" rank {', '.join(map(str, r.ranks))}" if r.ranks else "") + (" (flips)" if flips else "")
    marks = ("disturbed" if r.disturbed else "", "broken" if r.broken else "", _place(r))
    right = " ".join(["yes" if r.right else "NO", *(f"({mark})" for mark in marks if mark)])
    first = "" if r.first_s is None else f"{r.first_s:.0f} s, {r.first_steps} steps"
    predicted = "–".join(f"{end:.2f}" for end in r.predicted) + "×" if r.predicted else ""
    predicted = f"{r.likely:.2f}× ({predicted})" if r.likely else predicted
    by_the_clock = f"({r.timed:.2f}× by the clock)" if r.timed is not None and r.timed != r.measured else ""
    notes = (
        "missed" if r.held is False else "",
        by_the_clock,
        "(shared)" if r.shared else "",
        "(in turns)" if r.turns else "",
    )
    measured = " ".join([f"{r.measured:.2f}×", *filter(None, notes)]) if r.measured else ""
    measured = measured or RECORDED * r.recorded
    alarms = ", ".join(r.false_alarms)
    return r.scenario, r.strength, r.truth, verdict, right, alarms, first, predicted, measured, _run(r)


def _run(r: Result) -> str:
    """The version of the advisor that judged, and the repetition."""
    return r.advisor + (f" #{r.repetition + 1}" if r.repetition else "")


def _place(r: Result) -> str:
    return "wrong place" if r.right_place is False else ""


def table(results: Sequence[Result]) -> Table:
    shown, flipped = Table(*HEADINGS), summarise(results).flipped
    for result in results:
        row = cells(result, flips=result.scenario in flipped)
        shown.add_row(*row, style="" if result.right else "dim" if result.skipped else "bold red")
    return shown


def headline(s: Summary) -> list[str]:
    """The summary in sentences."""
    lines = [
        f"{s.right} of {s.runs} verdicts right ({_percent(s.right, s.runs)}) over {s.scenarios} scenarios, {s.clean} of them with no "
        f"false alarm beside ({s.false_alarms} in all); {s.skipped} not run; {s.disturbed} disturbed by others.",
        f"{s.found} of {s.faulty} faults found ({_percent(s.found, s.faulty)}), those clearly and those just above what is worth a word.",
    ]
    if s.recorded:
        lines.append(f"{s.recorded} of these runs are no jobs: made-up steps on machines with GPUs, {RECORDED}.")
    if s.timed:
        late = f"; later: {', '.join(s.late)}" if s.late else ""
        lines.append(
            f"{s.prompt} of {s.timed} first right verdicts within {PROMPT_STEPS} steps or {PROMPT_S:.0f} s{late}."
        )
    if s.predictions:
        allowed = (
            f" {s.allowed} of them are of states whose intervals did not hold what two runs differ by: here they are given it, "
            f"{RUNS_DIFFER:.0%}."
        )
        near = f" {s.near} of {s.likely} likely values within 15 % of what came." if s.likely else ""
        lines.append(
            f"{s.inside} of {s.predictions} measured speed-ups inside the predicted interval ({s.inside_by_the_clock} by the clock alone); "
            f"the median interval is {s.median_width or 0:.0%} wide.{near}{allowed if s.allowed else ''}"
        )
    if s.took_s:
        lines.append(f"{s.took_s / 60:.0f} minutes in all, {s.took_s / s.runs:.0f} s a run with that of its fix.")
    if s.repeated:
        flips = f": {', '.join(s.flipped)}" if s.flipped else ""
        lines.append(f"{len(s.flipped)} of {s.repeated} verdicts changed between repetitions{flips}.")
    return lines


def markdown(results: Sequence[Result], why_late: Mapping[str, str] = MappingProxyType({})) -> str:
    """`why_late`: by scenario, the reason why its right verdict can only come late."""
    s = summarise(results)
    parts = [
        "# Seeded faults: what the advisor says about them",
        "Made by `python -m samples.faults --markdown`; run it again instead of editing this.",
        f"{days(r.date for r in results)}: {several(r.machine or 'unknown machine' for r in results)}.",
        f"Advisor: {several(r.advisor or 'unknown state' for r in results)}.",
        *headline(s),
        "## Scenarios",
        "First verdict: from the job's start, or the fault's where that came later, until the right verdict was there. "
        "Measured: samples/s with the advised fix over samples/s without. In turns: both jobs were started again and computed in turns of "
        f"{TURN_S:g} s, each stopped while the other computed. Both jobs run with a heap that malloc leaves alone "
        "(`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`), for its chance moves a step by more than many a fault. "
        "Of a fault that comes late both count from its step on, otherwise after the first fifth. "
        "Where runs come one after the other and a fix leaves forward or backward as they are, they are compared at the same pace of the "
        "machine: times what these phases took with the fix over what they took without; what the clock alone says stands beside it. "
        "Shared: the run with the fix is that of another scenario, as listed below. Flips: another repetition says something else.",
        grid(HEADINGS, [cells(r, flips=r.scenario in s.flipped) for r in results]),
        *_shared_runs(results),
        "## Rules",
        "Recall: scenarios with this truth that got the right verdict, or in which the rule, true beside the root, was told of. "
        "Precision: of the times that the rule stood as a root of medium severity or above.",
        grid(("rule", "recall", "precision"), _rule_rows(s)),
    ]
    if s.flipped:
        parts += [
            "## Verdicts that changed between repetitions",
            "\n".join(_flips(name, results) for name in s.flipped),
        ]
    wrong = [r for r in results if not r.skipped and (not r.right or r.broken)]
    if wrong:
        parts += ["## What went wrong", "\n".join(f"- {r.scenario}: {_why(r)}" for r in wrong)]
    missed = [line for line in (_missed(r, why_late.get(r.scenario, "")) for r in results) if line]
    if missed:
        parts += ["## Speed-ups outside their intervals, and late verdicts", "\n".join(missed)]
    return "\n\n".join(parts) + "\n"


def several(found: Iterable[str]) -> str:
    """The value of all rows, or each value with its number of runs, since merged and continued tables have several."""
    counts = Counter(found)
    if len(counts) < 2:
        return "".join(counts)
    return "several: " + ", ".join(f"{each} ({count} runs)" for each, count in counts.most_common())


def days(found: Iterable[str]) -> str:
    dates = sorted(date for date in set(found) if date)
    return " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "unknown date"


def _shared_runs(results: Sequence[Result]) -> list[str]:
    """Lists scenarios that share a run: the same fixed job under the same circumstances is measured once for all of them."""
    pairs = dict.fromkeys((r.scenario, r.shared) for r in results if r.shared)
    lines = [f"- {name}: the run with the fix of {other}, the same job minutes apart" for name, other in pairs]
    return ["Shared runs:", "\n".join(lines)] if lines else []


def _flips(name: str, results: Sequence[Result]) -> str:
    verdicts = [f"{cells(r)[3]} ({_run(r)})" for r in results if r.scenario == name and not r.skipped]
    return f"- {name}: {', '.join(verdicts)}"


def _why(r: Result) -> str:
    return "; ".join(part for part in (r.why_not, " ".join(r.broken.split())[:300]) if part)


def _missed(r: Result, why_late: str) -> str:
    """The error of a prediction, or the delay of a first right verdict; empty if both are as required."""
    parts = []
    if r.held is False and r.interval and r.measured:
        low, high = r.interval
        off, side = (r.measured / high - 1, "above") if r.measured > high else (1 - r.measured / low, "below")
        parts.append(f"{off:.0%} {side} what {r.verdict} promised")
    if r.prompt is False:
        parts.append(
            f"first right after {r.first_s:.0f} s and {r.first_steps} steps{f' ({why_late})' if why_late else ''}"
        )
    return f"- {r.scenario}: {', '.join(parts)}" if parts else ""


def _rule_rows(s: Summary) -> list[tuple[str, ...]]:
    return [
        (
            score.rule,
            f"{score.hits} of {score.cases}" if score.cases else "–",
            f"{score.said - score.false} of {score.said}" if score.said else "–",
        )
        for score in s.rules
    ]


def grid(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"
