"""The benchmark as one HTML file in the report's dress, with plots: no network, no script that runs."""

from __future__ import annotations

from markupsafe import Markup

import advisor
from advisor.core.benchmark import SCHEMA, Benchmark
from advisor.report import inert
from advisor.report.benched import charts, wording
from advisor.report.html import templates

CELLS_EMBEDDED = 300  # of 400 bytes each: the page stays below 400 KB


def render(benchmark: Benchmark) -> str:
    document = benchmark.as_json()
    document["cells"] = document["cells"][:CELLS_EMBEDDED]
    best = max((cell.rate for cell in benchmark.cells), default=0.0)
    return (
        templates()
        .get_template("benchmark.html.j2")
        .render(
            benchmark=benchmark,
            wording=wording,
            table=[wording.cell_row(cell) for cell in benchmark.cells],
            against=[wording.against_row(benchmark, c) for c in benchmark.against.cells] if benchmark.against else [],
            rates=[charts.rate_bar(cell, best) for cell in benchmark.cells],
            sweeps=[(sweep, charts.sweep_plot(sweep)) for sweep in benchmark.sweeps],
            scaling=[(line, charts.scaling_plot(line)) for line in benchmark.scaling],
            version=advisor.__version__,
            schema=SCHEMA,
            data=Markup(inert.script_json(document)),
        )
    )
