"""Checks documents against their types: analysis assumes that a `line` is a number and that `frames` is a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

import msgspec

from rn50_advisor.probes.documents.event_documents import KINDS

DOCUMENTS = {kind: document for document, kind in KINDS.items()}
_DEPTH_MAX = 40  # a document of ours has seven levels
_Document = TypeVar("_Document")


def misfit(document: Mapping[str, Any], shape: type[Any]) -> str:
    """Describes the first value of the wrong type, `loaders[0].line: expected int, got str`; empty if all values fit.

    Names that the type does not have come from a newer advisor and may hold anything.
    """
    if _is_deeper(document, _DEPTH_MAX):
        return f"{next(iter(document)):.60} is nested too deeply"
    try:
        msgspec.convert(document, shape)
    except (msgspec.ValidationError, UnicodeError) as error:
        what, _, place = str(error).replace("`", "").partition(" - at ")
        return f"{place.partition('$.')[2]}: {what}".removeprefix(": ")[:200]
    return ""


def fitting(document: Mapping[str, Any], shape: type[_Document]) -> tuple[_Document, list[str]]:
    """Returns the document without its invalid entries, and a description of each."""
    wrong: Iterator[tuple[str, str]] = iter(())
    if misfit(document, shape):
        wrong = ((name, misfit({name: value}, shape)) for name, value in document.items())
    found = {name: words for name, words in wrong if words}
    return cast(_Document, {name: value for name, value in document.items() if name not in found}), [*found.values()]


def _is_deeper(value: object, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(each, levels - 1) for each in inner if isinstance(each, (dict, list)))
