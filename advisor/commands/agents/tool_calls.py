"""What a tool for agents is, and one call of one: arguments in, a bounded answer out. Knows no protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import msgspec

from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.model.visible_text import in_lines
from rn50_advisor.advisor.model.wording.near_names import did_you_mean
from rn50_advisor.advisor.model.wording.quantities import shorten
from rn50_advisor.advisor.report.inert_text import one_line

# Characters of JSON, about 10,000 tokens: some clients cut, or warn of, longer results.
DOCUMENT_CHARS = 40_000
TEXT_CHARS = 2_000
# Longest string and list that are left whole, the mildest first. A diff of `DIFF_LIMIT` passes the first.
_CUTS = ((20_000, 200), (4_000, 50), (1_000, 20), (300, 8), (100, 3))
_FIELDS_MAX = 40
_NAMED_MAX = 20


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """`text`: a paragraph for people and models. `document`: the same and more as JSON. `failed`: an error to act on."""

    text: str
    document: dict[str, Any] | None = None
    failed: bool = False


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tool takes."""


@dataclass(frozen=True, slots=True)
class Tool:
    """`work` gets the arguments, and an event that is set when nobody waits for the answer any more.

    `gives`: the document of its answers, where `schema` publishes that; empty for those that only agents read.
    """

    name: str
    title: str
    about: str
    takes: type[Arguments]
    work: Callable[[Any, Event], ToolAnswer]
    runs_jobs: bool = False
    gives: str = ""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, without references."""
        _, components = msgspec.json.schema_components([self.takes])
        found: dict[str, Any] = components[self.takes.__name__]
        return {key: value for key, value in found.items() if key != "title"}


class UnknownTool(UsageError):
    """No tool has this name."""


def found(tools: Mapping[str, Tool], name: str) -> Tool:
    """Raises UnknownTool."""
    if name not in tools:
        raise UnknownTool(f"unknown tool: {one_line(name, 100)}", did_you_mean(name, tools))
    return tools[name]


def call(tool: Tool, arguments: Mapping[str, Any], stop: Event) -> ToolAnswer:
    """The tool's answer; whatever goes wrong in it is an answer, too."""
    try:
        given = {key: value for key, value in arguments.items() if value is not None}
        answer = tool.work(msgspec.convert(given, tool.takes), stop)
    except msgspec.ValidationError as error:
        taken = ", ".join(tool.takes.__struct_fields__)
        answer = failure(f"wrong arguments: {error}", f"{tool.name} takes {taken or 'no arguments'}")
    except AdvisorError as error:
        answer = failure(error.message, error.hint)
    except OSError as error:
        answer = failure(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
    except Exception as error:  # noqa: BLE001 - the wall: the server outlives a call that fails
        answer = failure(f"{type(error).__name__}: {error}", "this is a bug in rn50-advisor")
    return answer if answer.document is None else replace(answer, document=bounded(_readable(answer.document)))


def failure(message: str, hint: str = "", document: dict[str, Any] | None = None) -> ToolAnswer:
    text = one_line(message, TEXT_CHARS)
    return ToolAnswer(f"{text}. What to do: {one_line(hint, TEXT_CHARS)}" if hint else text, document, failed=True)


def paragraph(*sentences: str) -> str:
    """Joins what is not empty to one paragraph of harmless text, each part ended by a full stop."""
    parts = (one_line(sentence, TEXT_CHARS).rstrip(".") for sentence in sentences if sentence)
    return shorten(" ".join(f"{part}." for part in parts), TEXT_CHARS)


def bounded(document: dict[str, Any], limit: int = DOCUMENT_CHARS) -> dict[str, Any]:
    """The document; where it is too long, without the ends of its longest texts and lists, and `shortened` has their lengths by name.

    What is left has the types that it had.
    """
    if _size(document) <= limit:
        return document
    for characters, items in _CUTS:
        lengths: dict[str, int] = {}
        cut = {**_cut(document, characters, items, "", lengths), "shortened": dict(list(lengths.items())[:_NAMED_MAX])}
        if _size(cut) <= limit:
            return cut
    return {"shortened": {key: _size({key: value}) for key, value in list(document.items())[:_NAMED_MAX]}}


def _readable(value: Any) -> Any:
    """Without escape sequences, hidden characters and bytes that are no UTF-8; a diff still applies to a file of either line ending."""
    if isinstance(value, str):
        return "\r\n".join(map(in_lines, value.split("\r\n")))
    if isinstance(value, dict):
        return {_readable(key): _readable(item) for key, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, (list, tuple)) else value


def _cut(value: Any, characters: int, items: int, name: str, lengths: dict[str, int]) -> Any:
    """`name` is the value's, as `pairs.0.facts`. Of a mapping, too, only the first entries stay, but more than an object has fields."""
    if isinstance(value, str) and len(value) > characters:
        lengths[name] = len(value)
        return shorten(value, characters)
    if isinstance(value, (dict, list)):
        named = list(value.items() if isinstance(value, dict) else enumerate(value))
        most = max(items, _FIELDS_MAX) if isinstance(value, dict) else items
        if len(named) > most:
            lengths[name] = len(named)
        kept = {key: _cut(each, characters, items, f"{name}.{key}".lstrip("."), lengths) for key, each in named[:most]}
        return kept if isinstance(value, dict) else list(kept.values())
    return value


def _size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, ensure_ascii=False))
