"""The benchmark as one HTML file in the report's dress, with plots: no network, no script that runs."""

from __future__ import annotations

from markupsafe import Markup

from rn50_advisor import advisor
from rn50_advisor.advisor.model.documents.benchmark import SCHEMA, Benchmark
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.benched import bench_charts, wording
from rn50_advisor.advisor.report.html import templates

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
            rates=[bench_charts.rate_bar(cell, best) for cell in benchmark.cells],
            sweeps=[(sweep, bench_charts.sweep_plot(sweep)) for sweep in benchmark.sweeps],
            scaling=[(line, bench_charts.scaling_plot(line)) for line in benchmark.scaling],
            version=advisor.__version__,
            schema=SCHEMA,
            data=Markup(inert_text.script_json(document)),
        )
    )
