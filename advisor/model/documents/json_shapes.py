"""Derives JSON Schema from the types that a document is written from, so that the types stay the only description.

Dataclasses as `plain_values` writes them: every field is present, internal fields are not, and a float that is not finite is null. Typed
dictionaries: keys that may be absent are not required.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from rn50_advisor.advisor.model.report import INTERNAL

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Shapes:
    """Schemas of types. Those of dataclasses and typed dictionaries are kept by name in `named`, to be referred to."""

    finite: bool = False  # True: numbers are never written as null
    named: dict[str, Schema] = dataclasses.field(default_factory=dict)

    def of(self, kind: Any) -> Schema:
        """Raises TypeError for a type that no document is made of."""
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if kind is float:
            return {"type": "number"} if self.finite else {"type": ["number", "null"]}
        if dataclasses.is_dataclass(kind) or is_typeddict(kind):
            return self._reference(kind)
        origin, inner = get_origin(kind), get_args(kind)
        makers: Mapping[Any, Callable[[tuple[Any, ...]], Schema]] = {
            Annotated: lambda inner: self.of(inner[0]),
            Literal: lambda inner: {"enum": list(inner)},
            Union: self._any_of,
            types.UnionType: self._any_of,
            tuple: self._tuple,
        }
        if origin in makers:
            return makers[origin](inner)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(inner[1])}
        if isinstance(origin, type) and issubclass(origin, Sequence):
            return {"type": "array", "items": self.of(inner[0])}
        raise TypeError(f"no document is made of {kind}")

    def object_of(self, kind: Any, without: Sequence[str] = ()) -> Schema:
        """The schema of a dataclass or typed dictionary itself, not a reference to it."""
        hints, left_out = get_type_hints(kind, include_extras=True), {*INTERNAL.get(kind, ()), *without}
        if is_typeddict(kind):
            names, required = list(hints), [name for name in hints if name in kind.__required_keys__]
        else:
            required = names = [field.name for field in dataclasses.fields(kind) if field.name not in left_out]
        schema: Schema = {"type": "object"}
        if about := described(kind, left_out):
            schema["description"] = about
        schema["properties"] = {name: self.of(hints[name]) for name in names}
        schema["required"] = required
        return schema

    def _reference(self, kind: Any) -> Schema:
        name = kind.__name__.lstrip("_")
        if name not in self.named:
            self.named[name] = {}  # a type may hold itself
            self.named[name] = self.object_of(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _any_of(self, inner: tuple[Any, ...]) -> Schema:
        """Of plain types, `{"type": ["number", "null"]}`."""
        schemas = [self.of(one) for one in inner]
        if any(schema.keys() != {"type"} for schema in schemas):
            return {"anyOf": schemas}
        kinds = [
            each
            for schema in schemas
            for each in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]])
        ]
        return {"type": list(dict.fromkeys(kinds))}

    def _tuple(self, inner: tuple[Any, ...]) -> Schema:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return {"type": "array", "items": self.of(inner[0])}
        size = len(inner)
        return {"type": "array", "prefixItems": [self.of(one) for one in inner], "minItems": size, "maxItems": size}


def described(kind: Any, left_out: Collection[str] = ()) -> str:
    """The type's docstring on one line, without sentences about fields that are left out; empty for what Python writes itself."""
    words = " ".join((inspect.getdoc(kind) or "").split()) if kind.__dict__.get("__doc__") else ""
    if words.startswith((f"{kind.__name__}(", "dict(")):
        return ""
    sentences = re.split(r"(?<=[.;]) ", words)
    kept = [one for one in sentences if not any(f"`{name}`" in one for name in left_out)]
    return re.sub(r";$", ".", " ".join(kept))


def document(name: str, whole: Schema, shapes: Shapes) -> Schema:
    """The schema of a document that names its contract in the field `schema`, which comes first."""
    properties = {"schema": {"const": name}, **{key: of for key, of in whole["properties"].items() if key != "schema"}}
    found = {**whole, "properties": properties, "required": list(dict.fromkeys(["schema", *whole["required"]]))}
    return {"$schema": DIALECT, "$id": name, **found, "$defs": dict(sorted(shapes.named.items()))}
