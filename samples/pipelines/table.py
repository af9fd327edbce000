"""Results as Markdown, and as JSON that a later call continues."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.findings import RUNS_DIFFER
from samples.faults.results import days, grid, several
from samples.pipelines.measure import Row

_HEAD = ("pipeline", "what is fed", "verdict", "workers", "samples/s", "predicted", "measured", "ratio", "inside")


def markdown(rows: Sequence[Row], machine: Mapping[str, Any]) -> str:
    known = ", ".join(
        (
            f"{days(row.date for row in rows)}: {machine['cores']} cores",
            f"{machine['memory_gib']} GiB",
            f"Python {machine['python']}",
            f"torch {machine['torch']}",
            f"Linux {machine['kernel']}",
        )
    )
    lines = [
        "# Forecasts over worker counts, and what those counts gave",
        "",
        "Made by `python -m samples.pipelines --markdown`; run it again instead of editing this.",
        "",
        f"{known}. Advisor: {several(row.advisor or 'unknown state' for row in rows)}.",
        "",
        *headline(rows),
        "",
        "Each pipeline runs once under the advisor; its forecast for the advised number of workers (the knee of the curve) is then held",
        "against a run with that number. Where the knee is where the job was already, another point of the curve is tried, marked (curve).",
        "Ratio: the middle of the prediction over what was measured.",
        "",
        grid(_HEAD, [cells(row) for row in rows]),
    ]
    skipped = [f"- {row.pipeline}: {row.skipped}" for row in rows if row.skipped]
    if skipped:
        lines += ["", "Not run:", "", *skipped]
    return "\n".join(lines) + "\n"


def headline(rows: Sequence[Row]) -> list[str]:
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if not ratios:
        return ["Nothing was measured."]
    off = [abs(ratio - 1) for ratio in ratios]
    inside, held = sum(bool(row.inside) for row in rows), sum(bool(row.held) for row in rows)
    return [
        f"{len(ratios)} pipelines: the prediction is off by {statistics.median(off):.0%} in the median, {max(off):.0%} at most; "
        f"{inside} of {len(ratios)} measurements inside the predicted interval, {held} give or take {RUNS_DIFFER:.0%}."
    ]


def cells(row: Row) -> tuple[str, ...]:
    if row.ratio is None or row.predicted is None:
        return (row.pipeline, row.what, row.verdict, str(row.before), "", "", "", "", "")
    return (
        row.pipeline,
        row.what,
        row.verdict,
        f"{row.before} → {row.then}" + ("" if row.advised else " (curve)"),
        f"{row.rate_before:.0f}",
        f"{row.predicted[0]:.0f}–{row.predicted[1]:.0f}",
        f"{row.measured:.0f}" + (" (disturbed)" if row.disturbed else ""),
        f"{row.ratio:.2f}",
        "yes" if row.inside else f"within {RUNS_DIFFER:.0%}" if row.held else "no",
    )


def write_json(file: Path, rows: Sequence[Row]) -> None:
    file.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def read_json(file: Path) -> list[Row]:
    found = json.loads(file.read_text()) if file.exists() else []
    return [Row(**{**row, "predicted": tuple(row["predicted"]) if row["predicted"] else None}) for row in found]
