"""The benchmark as GitHub Markdown, for pull requests and job summaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rn50_advisor.advisor.model.documents.benchmark import Benchmark
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.benched import wording

_text = inert_text.markdown


def render(benchmark: Benchmark) -> str:
    parts = [[f"# {_text(wording.title(benchmark))}"], [f"- {_text(said, 600)}" for said in benchmark.sentences]]
    rows = [wording.cell_row(cell) for cell in benchmark.cells]
    parts.append(["## Settings", "", *_table(wording.CELL_COLUMNS, rows, left=(0, 6))])
    for sweep in benchmark.sweeps:
        head = f"## Batches: {_text(wording.sweep_title(sweep))}"
        parts.append([head, "", *_table(wording.SWEEP_COLUMNS, wording.sweep_rows(sweep), left=(3,))])
    for line in benchmark.scaling:
        head = f"## Scaling: {_text(wording.scaling_title(line))}"
        parts.append([head, "", *_table(wording.SCALING_COLUMNS, wording.scaling_rows(line))])
    if references := wording.references(benchmark):
        columns = ("setting", "tier", "images/s", "source")
        parts.append(["## Measured elsewhere", "", *_table(columns, references, left=(0, 1, 3))])
    if (found := benchmark.against) is not None:
        rows = [wording.against_row(benchmark, change) for change in found.cells]
        table = ["", *_table(wording.AGAINST_COLUMNS, rows, left=(0, 5))] if rows else []
        parts.append([f"## {_text(wording.against_summary(found))}", *table])
        parts.append([f"- {_text(note, 600)}" for note in found.notes])
    about = "; ".join(f"{name}: {value}" for name, value in wording.circumstances(benchmark))
    parts.append([f"<sub>{_text(about, 600)}</sub>"])
    return "\n\n".join("\n".join(part) for part in parts if part)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: tuple[int, ...] = ()) -> list[str]:
    rule = ["---" if place in left else "---:" for place in range(len(head))]
    body = [[_text(cell) for cell in row] for row in rows]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *body)]
