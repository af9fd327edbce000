"""Shows one `Benchmark` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rn50_advisor.advisor.model.documents.benchmark import SCHEMA, Against, Benchmark, Cell, Scaling, Sweep
from rn50_advisor.advisor.model.documents.comparison import Change
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import rendered
from rn50_advisor.advisor.report.benched import wording
from rn50_advisor.advisor.report.document import (
    Bar,
    Bars,
    Document,
    Items,
    Opening,
    Pairs,
    Paragraph,
    Plot,
    Section,
    Table,
    TableRow,
    Tone,
)

CELLS_EMBEDDED = 300  # of 400 bytes each: the page stays below 400 KB
_TONES: dict[Change, Tone] = {"improved": "good", "regressed": "bad", "same": "", "unknown": "unclear"}
_BARS = (
    "The bar is images/s of all devices together, the whisker its 95 % interval; a setting that is not limited by compute "
    "is drawn in another colour."
)


def render(benchmark: Benchmark, format: str) -> str:
    """The whole benchmark in one of the report's formats; ends with one newline."""
    return rendered(benchmark, format, document)


def document(benchmark: Benchmark) -> Document:
    title, about = wording.title(benchmark), wording.circumstances(benchmark)
    cells = _table(wording.CELL_COLUMNS, map(wording.cell_row, benchmark.cells), left=(0, 6), folded="As a table")
    bars = Bars([_bar(cell) for cell in benchmark.cells], "images/s")
    elsewhere = wording.references(benchmark)
    return Document(
        kind="benchmark",
        title=title,
        about=benchmark.machine.host,
        blocks=(
            Opening(title, (Items(benchmark.sentences, bullet="• "), Pairs(about, only=("html",)))),
            Section("Settings", (Paragraph(_BARS, only=("html",)), bars, cells), titled=("md", "html")),
            *(_sweep(sweep) for sweep in benchmark.sweeps),
            *(_scaling(line) for line in benchmark.scaling),
            Section(
                "Measured elsewhere",
                [
                    _table(
                        ("setting", "tier", "images/s", "source"),
                        elsewhere,
                        left=(0, 1, 3),
                        lines=[
                            (f"{where}, {tier}  ", f"{span} images/s: {source}")
                            for where, tier, span, source in elsewhere
                        ],
                    )
                ],
            ),
            *([_against(benchmark, benchmark.against)] if benchmark.against else []),
            Pairs(about, only=("text", "md")),
        ),
        schema=SCHEMA,
        embedded=lambda: _embedded(benchmark),
    )


def _embedded(benchmark: Benchmark) -> dict[str, Any]:
    document = benchmark.as_json()
    return {**document, "cells": document["cells"][:CELLS_EMBEDDED]}


def _table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: tuple[int, ...],
    folded: str = "",
    lines: Sequence[tuple[str, str]] = (),
) -> Table:
    return Table(
        head,
        [TableRow(row) for row in rows],
        left,
        most=CELLS_EMBEDDED,
        text_most=CELLS_EMBEDDED,
        folded=folded,
        lines=lines,
    )


def _bar(cell: Cell) -> Bar:
    measured = cell.images_per_s
    typical = wording.reference(cell)
    basis = wording.outcome(cell) + (f" · typical {typical}" if typical != fmt.DASH else "")
    if measured is None:
        return Bar(cell.setting.words, wording.state(cell), basis)
    slow = cell.verdict is not None and cell.verdict.state == "bottleneck"
    value_text = wording.rate(measured.value)
    return Bar(cell.setting.words, value_text, basis, measured.value, measured.lo, measured.hi, slow=slow)


def _sweep(sweep: Sweep) -> Section:
    pairs = zip(sweep.batches, sweep.images_per_s, strict=True)
    title = wording.sweep_title(sweep)
    plot = Plot(
        f"Images/s by batch, {title}",
        sweep.images_per_s,
        [f"batch {batch}: {wording.rate(rate)} images/s" for batch, rate in pairs],
        wording.rate,
        [str(batch) for batch in sweep.batches],
        "batch of a device",
        sweep.batches.index(sweep.knee) if sweep.knee in sweep.batches else None,
    )
    knee = Paragraph(
        "The dashed line is the point of diminishing returns: larger batches gain less than 5 %.", only=("html",)
    )
    table = _table(wording.SWEEP_COLUMNS, wording.sweep_rows(sweep), left=(0, 3))
    return Section("Batches", (knee, plot, table), aside=title)


def _scaling(line: Scaling) -> Section:
    title, values = wording.scaling_title(line), [estimate.value for estimate in line.efficiency]
    plot = Plot(
        f"Efficiency by devices, {title}",
        values,
        [f"{devices} devices: {fmt.share(value)}" for devices, value in zip(line.devices, values, strict=True)],
        fmt.share,
        [str(devices) for devices in line.devices],
        "devices",
    )
    note = Paragraph("Images/s of a device over those of one device alone at the same batch.", only=("html",))
    return Section(
        "Scaling", (note, plot, _table(wording.SCALING_COLUMNS, wording.scaling_rows(line), left=(0,))), aside=title
    )


def _against(benchmark: Benchmark, found: Against) -> Section:
    rows = [TableRow(wording.against_row(benchmark, change), _TONES[change.change]) for change in found.cells]
    table = Table(wording.AGAINST_COLUMNS, rows, (0, 5), most=CELLS_EMBEDDED, text_most=CELLS_EMBEDDED)
    return Section(wording.against_summary(found), (table, Items(found.notes, label="note")), sentence=True)
