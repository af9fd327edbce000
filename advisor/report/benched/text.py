"""The benchmark as text for terminals, pipes and log files."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.benchmark import Benchmark
from rn50_advisor.advisor.model.documents.comparison import Change
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.benched import wording
from rn50_advisor.advisor.report.styled_lines import Line, Style

_STYLE: dict[Change, Style] = {"improved": "good", "regressed": "bad", "same": "", "unknown": "warn"}
_NARROW = 44  # of a title that ends a line


def render(benchmark: Benchmark) -> str:
    return styled_lines.plain(document(benchmark))


def document(benchmark: Benchmark) -> list[Line]:
    out: list[Line] = [*styled_lines.wrapped("", wording.title(benchmark), "title", indent=0)]
    for sentence in benchmark.sentences:
        out += styled_lines.wrapped("• ", sentence)
    out += [[], *_cells(benchmark)]
    for sweep in benchmark.sweeps:
        out += [[], [("BATCHES  ", "title"), (wording.sweep_title(sweep), "dim")]]
        out += styled_lines.table(list(wording.SWEEP_COLUMNS), wording.sweep_rows(sweep))
    for line in benchmark.scaling:
        out += [[], [("SCALING  ", "title"), (wording.scaling_title(line), "dim")]]
        out += styled_lines.table(list(wording.SCALING_COLUMNS), wording.scaling_rows(line))
    out += _references(benchmark) + _against(benchmark)
    out.append([])
    for name, value in wording.circumstances(benchmark):
        out += styled_lines.wrapped(f"{name}  ", value, "dim")
    return out


def _cells(benchmark: Benchmark) -> list[Line]:
    """What a cell says is cut, for it stands in full in the other formats; so is a column that nobody filled."""
    rows = [[inert_text.one_line(text, _NARROW) for text in wording.cell_row(cell)] for cell in benchmark.cells]
    filled = [i for i in range(len(wording.CELL_COLUMNS)) if any(row[i] not in ("", "–") for row in rows)]
    *numbers, last = filled or [0]
    table = styled_lines.table([wording.CELL_COLUMNS[i] for i in numbers], [[row[i] for i in numbers] for row in rows])
    head, body = table[0], table[1:]
    says: list[Line] = [[(f"  {row[last]}", "")] for row in rows]
    return [
        [*head, (f"  {wording.CELL_COLUMNS[last]}", "dim")],
        *([*line, *said] for line, said in zip(body, says, strict=True)),
    ]


def _references(benchmark: Benchmark) -> list[Line]:
    rows = wording.references(benchmark)
    if not rows:
        return []
    out: list[Line] = [[], [("MEASURED ELSEWHERE", "title")]]
    for where, tier, span, source in rows:
        out += styled_lines.wrapped(f"{where}, {tier}  ", f"{span} images/s: {source}")
    return out


def _against(benchmark: Benchmark) -> list[Line]:
    found = benchmark.against
    if found is None:
        return []
    out: list[Line] = [[], *styled_lines.wrapped("", wording.against_summary(found), "title", indent=0)]
    if found.cells:
        table = styled_lines.table(
            list(wording.AGAINST_COLUMNS), [wording.against_row(benchmark, change) for change in found.cells]
        )
        styles = [_STYLE[change.change] for change in found.cells]
        out += [
            table[0],
            *([(text, style or old) for text, old in line] for line, style in zip(table[1:], styles, strict=True)),
        ]
    for note in found.notes:
        out += styled_lines.wrapped("note  ", note, "dim")
    return out
