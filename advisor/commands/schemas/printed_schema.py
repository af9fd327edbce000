"""`schema`: prints the JSON Schema of a document that another command makes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.wording.near_names import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_document(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from rn50_advisor.advisor.commands.schemas.json_documents import DOCUMENTS

    return [
        CompletionItem(name, help=f"What {known.made_by} makes")
        for name, known in DOCUMENTS.items()
        if name.startswith(incomplete)
    ]


@click.command
@click.argument("document", required=False, shell_complete=complete_document)
def schema(document: str | None) -> None:
    """Print the JSON Schema (draft 2020-12) of a DOCUMENT that another command makes for programs. Without DOCUMENT: list them.

    Fields are only ever added to a document; one that changes its meaning gets another number at the end of its name.

    \b
    rn50-advisor schema
    rn50-advisor schema report > report.schema.json
    """
    from rn50_advisor.advisor.commands.schemas.json_documents import DOCUMENTS, schema_of
    from rn50_advisor.advisor.report.styled_lines import paint

    if document is None:
        width = max(map(len, DOCUMENTS))
        rows = [(f"{name:<{width}}  ", f"rn50-advisor {known.made_by}") for name, known in DOCUMENTS.items()]
        paint([[(name, "title"), (made_by, "")] for name, made_by in rows], sys.stdout)
        return
    if document not in DOCUMENTS:
        hint = did_you_mean(document, DOCUMENTS) or f"documents: {', '.join(DOCUMENTS)}"
        raise UsageError(f"no document {document!r}", hint)
    click.echo(json.dumps(schema_of(document), indent=2))
