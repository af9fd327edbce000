"""One call of a tool: arguments are checked, answers are bounded, and nothing that goes wrong escapes."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from rn50_advisor.advisor.commands.agents.tool_calls import (
    DOCUMENT_CHARS,
    TEXT_CHARS,
    Arguments,
    Tool,
    ToolAnswer,
    UnknownTool,
    bounded,
    call,
    found,
    paragraph,
)
from rn50_advisor.advisor.model.errors import NotARun


class Count(Arguments, frozen=True):
    upto: int
    name: str = "none"


def tool(work: Callable[[Any, Event], ToolAnswer]) -> Tool:
    return Tool("count", "Count", "Counts.", Count, work)


def answered(arguments: dict[str, Any], work: Callable[[Any, Event], ToolAnswer] | None = None) -> ToolAnswer:
    return call(tool(work or (lambda taken, _: ToolAnswer(f"{taken.name} {taken.upto}"))), arguments, Event())


def raising(error: Exception) -> Callable[[Any, Event], ToolAnswer]:
    def work(taken: Any, stop: Event) -> ToolAnswer:
        raise error

    return work


def test_the_schema_names_each_argument_and_no_other_is_taken() -> None:
    schema = tool(lambda taken, _: ToolAnswer("")).schema()
    assert schema["type"] == "object" and schema["required"] == ["upto"]
    assert set(schema["properties"]) == {"upto", "name"} and schema["additionalProperties"] is False
    assert "$ref" not in json.dumps(schema)


def test_an_argument_that_is_null_counts_as_left_out() -> None:
    assert answered({"upto": 3, "name": None}).text == "none 3"


@pytest.mark.parametrize("arguments", [{}, {"upto": "3"}, {"upto": 3, "more": 1}])
def test_wrong_arguments_are_an_answer_that_says_what_is_taken(arguments: dict[str, Any]) -> None:
    answer = answered(arguments)
    assert answer.failed and answer.text.startswith("wrong arguments: ") and answer.text.endswith("upto, name")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotARun("no such run", "there is another"), "no such run. What to do: there is another"),
        (FileNotFoundError(2, "No such file", "x.txt"), "x.txt: No such file"),
        (KeyError("key"), "KeyError: 'key'. What to do: this is a bug in rn50-advisor"),
    ],
)
def test_an_error_is_an_answer_with_what_to_do(error: Exception, words: str) -> None:
    assert answered({"upto": 1}, raising(error)) == ToolAnswer(words, failed=True)


def test_an_unknown_tool_is_named_with_the_one_it_may_mean() -> None:
    tools = {"count": tool(lambda taken, _: ToolAnswer(""))}
    assert found(tools, "count").name == "count"
    with pytest.raises(UnknownTool) as caught:
        found(tools, "cuont")
    assert caught.value.hint == "did you mean count?"


def test_a_document_that_fits_is_left_as_it_is() -> None:
    document = {"list": list(range(1000)), "text": "x" * 5000}
    assert bounded(document) == document


@pytest.mark.parametrize(
    "document",
    [
        {"list": ["x" * 100] * 10_000},
        {"text": "x" * 1_000_000, "kept": 1},
        {"deep": [{"inner": ["y" * 500] * 300}] * 300},
        {"ranks": {str(number): {"forward": 0.1, "words": "z" * 200} for number in range(1000)}},
        {str(number): {str(inner): "z" * 200 for inner in range(1000)} for number in range(1000)},
    ],
    ids=["list", "text", "deep", "mapping", "mappings"],
)
def test_a_long_document_is_cut_and_says_so(document: dict[str, Any]) -> None:
    cut = bounded(document)
    assert cut["shortened"] and len(json.dumps(cut)) <= DOCUMENT_CHARS


def test_what_is_left_has_the_types_it_had_and_the_length_it_had_is_told() -> None:
    diff = "+line\n" * 3_000
    cut = bounded({"diff": diff, "pairs": [{"facts": ["x" * 90] * 1_000, "speed": 1.5}]})
    assert cut["diff"] == diff, "a diff of usual length is never cut in its middle"
    assert cut["shortened"] == {"pairs.0.facts": 1_000}
    assert cut["pairs"] == [{"facts": ["x" * 90] * 200, "speed": 1.5}]


def test_an_answer_holds_no_hidden_text_and_can_be_encoded_whatever_the_job_had() -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    document = {"argv": ["\udcff", f"name{hidden}", "\x1b[31mred"], "diff": "-\told\r\n+\tnew\r\n"}
    answer = answered({"upto": 1}, lambda taken, _: ToolAnswer("a", document))
    assert answer.document == {"argv": ["\ufffd", "name", "red"], "diff": "-\told\r\n+\tnew\r\n"}
    assert json.dumps(answer.document, ensure_ascii=False).encode()


def test_a_paragraph_is_one_line_of_sentences() -> None:
    assert paragraph("One.", "", "two\nlines\x1b[31m") == "One. two lines."
    assert len(paragraph("x" * 10_000, "y")) <= TEXT_CHARS
