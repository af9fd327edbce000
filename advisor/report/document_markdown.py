"""A result as GitHub Markdown, for tickets, pull requests and job summaries: no string of a job or machine can break a table or a page."""

from __future__ import annotations

from rn50_advisor.advisor.report import inert_text
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
    shown,
)

TEXT_LIMIT = 1000
_text = inert_text.markdown


def render(document: Document) -> str:
    parts = [part for block in shown(document.blocks, "md") for part in _parts(block, 2)]
    return "\n\n".join("\n".join(part) for part in parts)


def _parts(block: Block, level: int) -> list[list[str]]:
    """Paragraphs, each a list of lines."""
    match block:
        case Opening() | Section():
            deeper = level if isinstance(block, Opening) else level + 1
            return [*_title(block, level), *(part for each in block.blocks for part in _parts(each, deeper))]
        case Paragraph():
            text = _text(block.text, TEXT_LIMIT)
            text = f"**{_text(block.label).capitalize()}:** {text}" if block.label and block.kind != "lead" else text
            return [[f"<sub>{text}</sub>" if block.kind == "small" else text]]
        case Items():
            hidden = len(block.texts) - block.most
            shown = [f"- {_text(text, TEXT_LIMIT)}" for text in block.texts[: block.most]]
            return [shown + ([f"- {block.more.format(hidden)}"] if hidden > 0 else [])]
        case Pairs():
            return [[f"<sub>{_text('; '.join(f'{name}: {value}' for name, value in block.pairs), TEXT_LIMIT)}</sub>"]]
        case Table():
            hidden = len(block.rows) - block.most
            return [_table(block), *([[f"{block.more.format(hidden)}."]] if hidden > 0 else [])]
    return [[_code(block)]] if isinstance(block, CodeLines) else []  # what is drawn stands in a table too


def _code(block: CodeLines) -> str:
    return (inert_text.markdown_diff if block.name == "diff" else inert_text.markdown_block)(block.text)


def _title(block: Opening | Section, level: int) -> list[list[str]]:
    if isinstance(block, Opening):
        return [[f"# {_text(f'{block.label} {block.title}')}"]]
    title = f"{block.title}: {block.aside}" if block.aside else block.title
    return [[f"{'#' * level} {_text(title)}"]] if "md" in block.titled else []


def _table(table: Table) -> list[str]:
    rows = [[_text(cell, table.cell_most) for cell in row.cells] for row in table.rows[: table.most]]
    return inert_text.markdown_table(
        [*map(_text, table.head)], rows, right=set(range(len(table.head))) - set(table.left)
    )
