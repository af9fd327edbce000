"""A result as text for terminals, pipes and log files."""

from __future__ import annotations

from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.document import (
    Block,
    CodeLines,
    Document,
    Items,
    Opening,
    Pairs,
    Paragraph,
    Section,
    Table,
    Tone,
    shown,
)
from rn50_advisor.advisor.report.styled_lines import Line, Style

_NAME_MIN = 12
_WORD = 7  # columns of a word before a sentence, so that sentences stand below one another
_LABEL_MAX = 60
_CODE_INDENT = 4
_BELOW = 13  # columns that lines under a row are set in
_STYLE: dict[Tone, Style] = {"": "", "good": "good", "warn": "warn", "bad": "bad", "unclear": "warn", "dim": "dim"}


def render(document: Document) -> str:
    return styled_lines.plain(lines(document))


def lines(document: Document) -> list[Line]:
    return [line for block in shown(document.blocks, "text") for line in _lines(block, document.text_width)]


def _lines(block: Block, width: int) -> list[Line]:
    match block:
        case Opening() | Section():
            inner = [line for each in block.blocks for line in _lines(each, width)]
            return [*(_verdict(block, width) if isinstance(block, Opening) else _title(block, width)), *inner]
        case Paragraph():
            return _paragraph(block, width)
        case Items():
            return _items(block, width)
        case Table():
            return _table(block, width)
        case Pairs():
            pairs = (styled_lines.wrapped(f"{name}  ", value, "dim", width=width) for name, value in block.pairs)
            return [[], *(line for each in pairs for line in each)]
    return _code(block) if isinstance(block, CodeLines) else []  # what is drawn stands in a table too


def _code(block: CodeLines) -> list[Line]:
    return (styled_lines.diff if block.name == "diff" else styled_lines.code)(block.text, _CODE_INDENT)


def _paragraph(block: Paragraph, width: int) -> list[Line]:
    style = _STYLE[block.tone] if block.tone else "" if block.kind == "lead" else "dim"
    label = f"{block.label}  ".ljust(_WORD) if block.label else ""
    lines = styled_lines.wrapped(label, block.text, style, indent=0 if block.tone else 2, width=width)
    return [[], *lines] if block.kind == "small" else lines


def _verdict(opening: Opening, width: int) -> list[Line]:
    label = f"{opening.label} " if opening.label else ""
    return styled_lines.wrapped(label, opening.title, "title", indent=0, label_style=_STYLE[opening.tone], width=width)


def _title(section: Section, width: int) -> list[Line]:
    if "text" not in section.titled:
        return [[]]
    if section.sentence:
        return [[], *styled_lines.wrapped("", section.title, "title", indent=0, width=width)]
    aside: Line = [(f"  {inert_text.one_line(section.aside)}", "dim")] if section.aside else []
    return [[], [(inert_text.one_line(section.title).upper(), "title"), *aside]]


def _items(items: Items, width: int) -> list[Line]:
    label = f"{items.label}  ".ljust(_WORD) if items.label else items.bullet
    out = []
    for text in items.texts[: items.text_most]:
        out += styled_lines.wrapped(label, text, label_style=_STYLE[items.tone], width=width)
    hidden = len(items.texts) - items.text_most
    return out + (styled_lines.wrapped("", items.more.format(hidden), "dim") if hidden > 0 else [])


def _table(table: Table, width: int) -> list[Line]:
    if table.lines:
        lines = [
            line
            for label, text in table.lines[: table.text_most]
            for line in styled_lines.wrapped(
                inert_text.one_line(label, _LABEL_MAX).ljust(min(len(label), _LABEL_MAX)), text, width=width
            )
        ]
        return lines + _more(table, len(table.lines))
    rows = table.rows[: table.text_most]
    cells = [
        [inert_text.one_line(cell, table.text_cell) for cell in row[: table.text_columns]]
        for row in (table.head, *(row.cells for row in rows))
    ]
    if table.text_fits:
        others = sum(max(map(len, column)) + 2 for column in list(zip(*cells, strict=True))[1:])
        name_width = max(_NAME_MIN, width - 2 - others)
        # names begin with a time and mostly differ at their end
        cells = [[fmt.shorten_path(name, name_width), *rest] for name, *rest in cells]
    head, *body = styled_lines.table(cells[0], cells[1:], left=table.left)
    out = [head]
    for row, line in zip(rows, body, strict=True):
        out.append([(text, _STYLE[row.tone] or style) for text, style in line])
        for label, text in row.below:
            out += styled_lines.wrapped(label, text, "dim", indent=_BELOW, width=width)
    return out + _more(table, len(table.rows))


def _more(table: Table, rows: int) -> list[Line]:
    return styled_lines.wrapped("", table.more.format(rows - table.text_most), "dim") if rows > table.text_most else []
