"""The command `schema`: lists documents, prints one, and says what it does not know."""

from __future__ import annotations

import json

from click.testing import CliRunner

from rn50_advisor.advisor import cli
from rn50_advisor.advisor.commands.schemas.json_documents import DOCUMENTS, schema_of
from rn50_advisor.advisor.commands.schemas.printed_schema import schema
from rn50_advisor.advisor.model.errors import UsageError


def test_documents_are_listed_with_the_command_that_makes_them() -> None:
    listed = CliRunner().invoke(schema).stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(DOCUMENTS)
    for line, known in zip(listed, DOCUMENTS.values(), strict=True):
        assert line.endswith(f"rn50-advisor {known.made_by}")
        assert known.made_by.split()[0] in cli.COMMANDS


def test_a_schema_is_printed_as_json_with_keys_in_the_same_order() -> None:
    printed = [CliRunner().invoke(schema, ["report"]).stdout for _ in range(2)]
    assert printed[0] == printed[1]
    assert json.loads(printed[0]) == schema_of("report")


def test_an_unknown_document_gets_a_suggestion() -> None:
    error = CliRunner().invoke(schema, ["reprot"]).exception
    assert isinstance(error, UsageError) and "report" in error.hint
