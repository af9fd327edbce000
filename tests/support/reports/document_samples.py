"""A document with every kind of block, and a small table. Not a test."""

from __future__ import annotations

from rn50_advisor.advisor.report import document_html, document_markdown, document_text
from rn50_advisor.advisor.report.document import (
    Bar,
    Bars,
    Block,
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


def every_block(said: str = "said") -> Document:
    """A document with `said` wherever it can have a string."""
    rows = [TableRow((said, "1", said), "bad", [(said, said)]), TableRow((said, "2", said))]
    table = Table((said, "rate", said), rows, (0, 2), names=0)
    plot = Plot(said, (1.0, 3.0, 2.0), (said, said, said), str, ("a", said, "c"), said, marked=1)
    told = (
        Paragraph(said, said, "lead"),
        Items((said, said), label=said),
        Pairs(((said, said), (said, said))),
        Paragraph(said, said),
    )
    drawn = (Bars((Bar(said, said, said, 2.0, 1.0, 3.0, slow=True), Bar(said, said, said)), said), plot, table)
    return Document(
        kind="sample",
        title=said,
        about=said,
        blocks=(
            Opening(said, told, "bad", said, (said, said)),
            Section(said, drawn, aside=said),
            Section(
                said,
                [Section(said, [Table((said, "rate", said), rows, folded=said, lines=[(said, said)])])],
                sentence=True,
            ),
            Paragraph(said, kind="small"),
        ),
        schema="sample/1",
        embedded=lambda: {"schema": "sample/1", "said": said},
    )


TABLE = Table(("name", "rate", "note"), [TableRow(("a", "1", "")), TableRow(("b", "–", "–"))], (0, 2), names=0)


def shown_in_all(*blocks: Block) -> dict[str, str]:
    """Renders these blocks in each format."""
    made = Document("sample", "title", "host", (Opening("heading"), *blocks), "sample/1", dict)
    formats = {"text": document_text, "md": document_markdown, "html": document_html}
    return {name: module.render(made) for name, module in formats.items()}
