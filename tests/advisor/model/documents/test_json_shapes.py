"""JSON Schema from types: what is written is what the schema allows."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import pytest

from rn50_advisor.advisor.model.documents.json_shapes import DIALECT, Shapes, described, document
from rn50_advisor.advisor.model.findings import Fix


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf. Its
    second line."""

    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Tree:
    leaf: Leaf
    names: tuple[str, ...] = ()
    by_rank: Mapping[int, Leaf] = field(default_factory=dict)
    inner: Tree | None = None


class _Always(TypedDict):
    n: int


class Sometimes(_Always, total=False):
    more: Annotated[str, "whatever"]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": ["number", "null"]}),
        (float | str | None, {"type": ["number", "null", "string"]}),
        (Any, {}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (list[bool], {"type": "array", "items": {"type": "boolean"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Leaf | None, {"anyOf": [{"$ref": "#/$defs/Leaf"}, {"type": "null"}]}),
    ],
)
def test_a_type_has_its_schema(kind: Any, schema: object) -> None:
    assert Shapes().of(kind) == schema


def test_a_number_that_is_always_finite_is_never_null() -> None:
    assert Shapes(finite=True).of(float) == {"type": "number"}
    assert Shapes(finite=True).of(float | None) == {"type": ["number", "null"]}


def test_fields_with_defaults_are_written_too_and_types_may_hold_themselves() -> None:
    shapes = Shapes()
    tree = shapes.object_of(Tree)
    assert tree["required"] == list(tree["properties"]) == ["leaf", "names", "by_rank", "inner"]
    assert shapes.named["Leaf"]["description"] == "A leaf. Its second line."
    assert shapes.named["Tree"] == tree


def test_keys_that_may_be_absent_are_not_required() -> None:
    schema = Shapes().object_of(Sometimes)
    assert (list(schema["properties"]), schema["required"]) == (["n", "more"], ["n"])


def test_internal_fields_are_left_out_with_what_is_said_of_them() -> None:
    schema = Shapes().object_of(Fix)
    assert "call" not in schema["properties"] and "where" in schema["properties"]
    assert "`call`" not in schema["description"] and schema["description"].startswith("A proposed change.")
    assert described(Tree) == ""


def test_a_document_names_its_contract_first() -> None:
    shapes = Shapes()
    made = document("x/1", shapes.object_of(Tree), shapes)
    assert (made["$schema"], made["$id"]) == (DIALECT, "x/1")
    assert next(iter(made["properties"])) == "schema" and made["properties"]["schema"] == {"const": "x/1"}
    assert made["required"][0] == "schema"


def test_a_type_that_no_document_is_made_of_is_an_error() -> None:
    with pytest.raises(TypeError, match="no document"):
        Shapes().of(enum.Enum)
