"""What came out: a table on the screen, JSON, and the Markdown that is kept beside the scenarios."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table

from samples.faults.score import NOISE, Result, Summary, summarise

SCHEMA = "rn50-advisor/faults/1"
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
)


def machine() -> dict[str, Any]:
    """What the numbers depend on; no name of a host or a user."""
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
    """The commit that judges, marked where files differ from it; outside of a clone the version."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return version("rn50-advisor")


def write_json(path: Path, results: Sequence[Result], where: Mapping[str, Any]) -> None:
    document = {
        "schema": SCHEMA,
        "machine": where,
        "summary": asdict(summarise(results)),
        "results": [asdict(result) for result in results],
    }
    partial = path.with_suffix(".part")  # an interrupt leaves the old file or the new one
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(path)


def read_json(path: Path) -> list[Result]:
    """The results that `write_json` wrote. Raises ValueError on anything else."""
    document = json.loads(path.read_text())
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"{path} holds no results of this program")
    return [_result(row) for row in document["results"]]


def _result(row: dict[str, Any]) -> Result:
    lists = {name: tuple(row[name]) for name in ("ranks", "false_alarms")}
    predicted = tuple(row["predicted"]) if row["predicted"] else None
    return Result(**{**row, **lists, "predicted": predicted})


def cells(r: Result) -> tuple[str, ...]:
    if r.skipped:
        return r.scenario, r.strength, r.truth, "not run", "–", "", "", "", r.skipped
    said = r.verdict + (f" rank {', '.join(map(str, r.ranks))}" if r.ranks else "")
    marks = ("disturbed" if r.disturbed else "", "broken" if r.broken else "", _place(r))
    right = " ".join(["yes" if r.right else "NO", *(f"({mark})" for mark in marks if mark)])
    first = "" if r.first_s is None else f"{r.first_s:.0f} s, {r.first_steps} steps"
    predicted = "–".join(f"{end:.2f}" for end in r.predicted) + "×" if r.predicted else ""
    measured = f"{r.measured:.2f}×{'' if r.held is not False else ' missed'}" if r.measured else ""
    return r.scenario, r.strength, r.truth, said, right, ", ".join(r.false_alarms), first, predicted, measured


def _place(r: Result) -> str:
    return "wrong place" if r.right_place is False else ""


def table(results: Sequence[Result]) -> Table:
    shown = Table(*HEADINGS)
    for result in results:
        shown.add_row(*cells(result), style="" if result.right else "dim" if result.skipped else "bold red")
    return shown


def headline(s: Summary) -> list[str]:
    """The summary in sentences."""
    lines = [
        f"{s.right} of {s.runs} verdicts right ({_percent(s.right, s.runs)}) over {s.scenarios} scenarios; "
        f"{s.false_alarms} false alarms; {s.skipped} not run; {s.disturbed} disturbed by others."
    ]
    if s.predictions:
        lines.append(
            f"{s.inside} of {s.predictions} measured speed-ups inside the predicted interval, give or take {NOISE:.0%} "
            f"({s.strictly_inside} strictly); the median interval is {s.median_width or 0:.0%} wide."
        )
    if s.runs > s.scenarios:
        flips = f": {', '.join(s.flipped)}" if s.flipped else ""
        lines.append(f"{len(s.flipped)} of {s.scenarios} verdicts changed between repetitions{flips}.")
    return lines


def markdown(results: Sequence[Result], where: Mapping[str, Any]) -> str:
    s = summarise(results)
    parts = [
        "# Seeded faults: what the advisor says about them",
        "Made by `python -m samples.faults --markdown`; run it again instead of editing this.",
        f"{where['date']}: {where['cores']} cores, {where['memory_gib']} GiB, Python {where['python']}, "
        f"torch {where['torch']}, Linux {where['kernel']}.",
        f"Advisor: {_states(results)}.",
        *headline(s),
        "## Scenarios",
        "First verdict: from the job's start, or the fault's where that came later, until the right verdict was there. "
        "Measured: samples/s with the advised fix over samples/s without; both jobs run with a heap that malloc leaves alone "
        "(`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`), for its chance moves a step by more than many a fault.",
        _grid(HEADINGS, [cells(r) for r in results]),
        "## Rules",
        "Recall: scenarios with this truth that got the right verdict. Precision: of the times that the rule stood as a "
        "root of medium severity or above.",
        _grid(("rule", "recall", "precision"), _rule_rows(s)),
    ]
    wrong = [r for r in results if not r.skipped and (not r.right or r.broken)]
    if wrong:
        parts += ["## What went wrong", "\n".join(f"- {r.scenario}: {_why(r)}" for r in wrong)]
    return "\n\n".join(parts) + "\n"


def _states(results: Sequence[Result]) -> str:
    """A table that was continued has rows of several states of the advisor, and says so."""
    counts = Counter(r.advisor or "unknown state" for r in results)
    if len(counts) < 2:
        return "".join(counts)
    return "several states: " + ", ".join(f"{state} ({count} runs)" for state, count in counts.most_common())


def _why(r: Result) -> str:
    return "; ".join(part for part in (r.why_not, " ".join(r.broken.split())[:300]) if part)


def _rule_rows(s: Summary) -> list[tuple[str, ...]]:
    return [
        (
            score.rule,
            f"{score.hits} of {score.cases}" if score.cases else "–",
            f"{score.said - score.false} of {score.said}" if score.said else "–",
        )
        for score in s.rules
    ]


def _grid(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"
