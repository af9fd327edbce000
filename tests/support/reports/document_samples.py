"""A document with every kind of block, and a small table. Not a test."""

from __future__ import annotations

from rn50_advisor.advisor.report import document_html, document_markdown, document_text
from rn50_advisor.advisor.report.document import (
    Bar,
    Bars,
    Block,
    CodeLines,
    Document,
    Items,
    Opening,
    Pairs,
    Paragraph,
    Plot,
    Section,
    Table,
    TableRow,
)


def every_block(text: str = "text") -> Document:
    """A document with `text` wherever it can have a string."""
    rows = [TableRow((text, "1", text), "bad", [(text, text)]), TableRow((text, "2", text))]
    table = Table((text, "rate", text), rows, (0, 2), names=0)
    plot = Plot(text, (1.0, 3.0, 2.0), (text, text, text), str, ("a", text, "c"), text, marked=1)
    opening = (
        Paragraph(text, text, "lead"),
        Items((text, text), label=text),
        Pairs(((text, text), (text, text))),
        Paragraph(text, text),
    )
    drawn = (Bars((Bar(text, text, text, 2.0, 1.0, 3.0, slow=True), Bar(text, text, text)), text), plot, table)
    return Document(
        kind="sample",
        title=text,
        about=text,
        blocks=(
            Opening(text, opening, "bad", text, (text, text)),
            Section(text, drawn, aside=text),
            Section(
                text,
                [Section(text, [Table((text, "rate", text), rows, folded=text, lines=[(text, text)])])],
                sentence=True,
            ),
            CodeLines(text),
            CodeLines(text, "diff"),
            Paragraph(text, kind="small"),
        ),
        schema="sample/1",
        embedded=lambda: {"schema": "sample/1", "text": text},
    )


TABLE = Table(("name", "rate", "note"), [TableRow(("a", "1", "")), TableRow(("b", "–", "–"))], (0, 2), names=0)


def shown_in_all(*blocks: Block) -> dict[str, str]:
    """Renders these blocks in each format."""
    made = Document("sample", "title", "host", (Opening("heading"), *blocks), "sample/1", dict)
    formats = {"text": document_text, "md": document_markdown, "html": document_html}
    return {name: module.render(made) for name, module in formats.items()}
