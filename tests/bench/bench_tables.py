"""Formats the results of `overhead.py`: tables for the terminal, and the Markdown that is kept."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench_results import Footprint, Paired, Results, StartUp, StepCost, SwitchedCost
from rich.table import Table

NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table, independent of its output format."""

    title: str
    note: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]


def sheets(results: Results) -> list[Sheet]:
    """Returns the tables that have rows."""
    makers = (step_sheet, switched_sheet, marks_sheet, start_sheet, footprint_sheet)
    return [sheet for make in makers if (sheet := make(results)).rows]


def step_sheet(results: Results) -> Sheet:
    headings = ("job", "step", "more per step", "share (95 %)", "recorder says")
    if results.traceml:
        headings += ("TraceML: more per step", "share (95 %)")
    return Sheet(
        "Each step, by pairs of runs",
        f"The same job with and without the tool in turns, {results.pairs} times: medians of the differences and of the "
        "ratios of the runs' median steps, and an interval by bootstrap over the pairs. glibc keeps its heap in all of "
        "them (`MALLOC_TRIM_THRESHOLD_`): processes that give it back, each at other moments, differ by more than what "
        'is measured here. "Recorder says" is what the report gives as the cost of a step: the time inside the marks.',
        headings,
        [_step_row(cost, results.traceml) for cost in results.steps],
    )


def _step_row(cost: StepCost, traceml: str) -> tuple[str, ...]:
    if cost.step_s is None or cost.advisor is None:
        return (cost.title, "not run", cost.skipped, *[NOTHING] * (4 if traceml else 2))
    said = NOTHING if cost.recorder_us is None else f"{cost.recorder_us:.1f} µs"
    cells = (cost.title, _milliseconds(cost.step_s), *_paired_cells(cost.advisor), said)
    if not traceml:
        return cells
    return cells + (_paired_cells(cost.traceml) if cost.traceml else (traceml, NOTHING))


def _paired_cells(paired: Paired) -> tuple[str, str]:
    share, low, high = (100 * (ratio - 1) for ratio in (paired.ratio, paired.ratio_low, paired.ratio_high))
    more = f"{paired.more_us:+.0f} µs" if abs(paired.more_us) < 1e4 else f"{paired.more_us / 1e3:+.1f} ms"
    return more, f"{share:+.1f} % ({low:+.1f} … {high:+.1f})"


def switched_sheet(results: Results) -> Sheet:
    return Sheet(
        "Each step, by switching the recorder in one process",
        "Blocks of steps with and without the recorder, in turns, in a job under the advisor: medians of what neighbouring "
        "blocks differ by, with their standard error. The mean step has all that the recorder does; the median step has "
        "less noise, and not what is done in one step of many. This sees microseconds that pairs of processes cannot, and "
        "not what the agent beside the job takes. GPU events are taken over a double of `torch.cuda`: all that Python does for them is in "
        "it, and not what CUDA takes to record one.",
        ("job", "step without", "more in the mean", "share", "more in the median step", "blocks"),
        [_switched_row(cost) for cost in results.switched],
    )


def _switched_row(cost: SwitchedCost) -> tuple[str, ...]:
    return (
        cost.title,
        _milliseconds(cost.off_us / 1e6),
        f"{cost.more_us:+.1f} ± {cost.error_us:.1f} µs",
        f"{cost.more_us / cost.off_us:+.2%}".replace("%", " %"),
        f"{cost.median_step_more_us:+.1f} ± {cost.median_step_error_us:.1f} µs",
        f"{cost.pairs} × 2 of {cost.block_steps} steps",
    )


def marks_sheet(results: Results) -> Sheet:
    return Sheet(
        "Each step, mark by mark",
        "The same jobs, timed only from where they call into torch to where torch's own code begins, and on the way back: all that the "
        "recorder does in the thread that trains lies there, and little that varies. What it displaces in the caches of the job does not.",
        (
            "job",
            "step without",
            "more in the mean",
            "share",
            "more in the median step",
            "blocks",
            "of the mean, by mark",
        ),
        [
            (*_switched_row(cost), ", ".join(f"{name} {us:.1f}" for name, us in cost.marks_us.items()))
            for cost in results.marks
        ],
    )


def start_sheet(results: Results) -> Sheet:
    headings = ("start and end", "without", "more")
    if results.traceml:
        headings += ("TraceML: more",)
    seen = [cost for cost in results.steps if cost.advisor]
    rows = [_moment_row(moment, seen, ranks, results.traceml) for ranks in (1, 2) for moment in MOMENTS]
    rows += [_command_row(start, bool(results.traceml)) for start in results.start_up]
    return Sheet(
        "Start and end",
        "Medians over the jobs above. The end is with the advisor's summary and report, or TraceML's summary; TraceML "
        "starts torchrun around a single process too.",
        headings,
        [row for row in rows if row],
    )


@dataclass(frozen=True, slots=True)
class Moment:
    title: str
    without_s: Callable[[StepCost], float | None]
    more_s: Callable[[Paired], float]


MOMENTS = (
    Moment("from the command to the end of the first step", lambda cost: cost.start_s, lambda p: p.start_more_s),
    Moment("from the end of the last step to the command's", lambda cost: cost.end_s, lambda p: p.end_more_s),
)


def _moment_row(moment: Moment, costs: Sequence[StepCost], ranks: int, traceml: str) -> tuple[str, ...]:
    costs = [cost for cost in costs if cost.ranks == ranks]
    if not costs:
        return ()
    without = statistics.median(moment.without_s(cost) or 0.0 for cost in costs)
    more = [moment.more_s(cost.advisor) for cost in costs if cost.advisor]
    cells = (f"{moment.title}, {ranks} rank{'s' * (ranks > 1)}", _milliseconds(without), _more(statistics.median(more)))
    if not traceml:
        return cells
    other = [moment.more_s(cost.traceml) for cost in costs if cost.traceml]
    return (*cells, _more(statistics.median(other)) if other else traceml)


def _command_row(start: StartUp, traceml: bool) -> tuple[str, ...]:
    cells = (f"`{start.command}`, {start.under}", _milliseconds(start.without_s), _more(start.more_s))
    return (*cells, NOTHING) if traceml else cells


def footprint_sheet(results: Results) -> Sheet:
    return Sheet(
        "Beside the job",
        "What a long run takes more than a short one, so that start and end do not count. Old steps are folded into "
        "seconds later on: a run folder does not go on growing like this.",
        ("job", "agent, of one core", "run folder per 1000 steps", "of a short run", "records lost", "given up"),
        [_footprint_row(cost) for cost in results.footprints],
    )


def _footprint_row(cost: Footprint) -> tuple[str, ...]:
    return (
        f"{cost.title}, {cost.seconds:.0f} s",
        f"{100 * cost.agent_cpu_share:.2f} %",
        f"{cost.bytes_per_1000_steps / 1e3:,.0f} kB",
        f"{cost.folder_bytes / 1e3:,.0f} kB",
        str(cost.lost_records),
        ", ".join(cost.shed) or "nothing",
    )


def table(sheet: Sheet) -> Table:
    shown = Table(*sheet.headings, title=sheet.title, title_justify="left")
    for row in sheet.rows:
        shown.add_row(*(cell.replace("`", "") for cell in row))
    return shown


def markdown(results: Results, where: Mapping[str, Any]) -> str:
    parts = [
        "# What the advisor costs a training job",
        "Made by `python tests/bench/overhead.py --markdown`; run it again instead of editing this.",
        f"{where['date']}: {where['cores']} cores, {where['memory_gib']} GiB, Python {where['python']}, "
        f"torch {where['torch']}, Linux {where['kernel']}."
        + (f" TraceML: {results.traceml}." if results.traceml else ""),
    ]
    if results.quick:
        parts.append("**A quick run: it shows that the bench works, not what the advisor costs.**")
    for sheet in sheets(results):
        parts += [f"## {sheet.title}", sheet.note, grid(sheet.headings, sheet.rows)]
    return "\n\n".join(parts) + "\n"


def grid(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def _more(seconds: float) -> str:
    return f"{1e3 * seconds:+.0f} ms" if abs(seconds) < 1 else f"{seconds:+.2f} s"
