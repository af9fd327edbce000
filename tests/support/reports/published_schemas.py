"""Holds JSON documents against the schemas that `rn50-advisor schema` prints. Not a test."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

from rn50_advisor.advisor.commands.schemas.json_documents import DOCUMENTS, schema_of


@functools.cache
def _validator(name: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(closed(schema_of(name)))


@functools.cache
def by_contract() -> dict[str, str]:
    """The name of each document whose field `schema` says what it is."""
    return {schema_of(name)["$id"]: name for name in DOCUMENTS if "$id" in schema_of(name)}


def closed(schema: Any) -> Any:
    """The same schema without room for fields that it does not name: ours are all named."""
    found = copy.deepcopy(schema)
    for part in _objects(found):
        if "properties" in part:
            part["additionalProperties"] = False
    return found


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict):
        yield schema
    for each in inner:
        yield from _objects(each)


def misfits(text: str, name: str = "") -> list[str]:
    """What does not fit, each with its place. `name`: of the document; empty if its field `schema` says it."""
    document = json.loads(text)
    name = name or by_contract()[document["schema"]]
    return [f"{error.json_path}: {error.message[:200]}" for error in _validator(name).iter_errors(document)]
