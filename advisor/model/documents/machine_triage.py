"""The state of a machine before anything trains on it: the contract `rn50-advisor/triage/1`, keys always in the same order.

```
verdict   {state: "keep"|"fix"|"hand-back", reasons: []}
checks[]  {name, value: number|string|null, unit, expected: {lo, hi, source}, state: "ok"|"low"|"bad"|"unknown", hint}
gaps[]    {name, reason, hint}      checks that could not run
```
`lo` and `hi` are null if nothing is expected; the check then only states a fact. A `low` value lies outside of its band, a `bad` one far
outside. An `unknown` value proves nothing, and the hint says why. Bands come from published measurements or from rules, never from the
machine itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rn50_advisor.advisor.model.errors import NotATriage
from rn50_advisor.advisor.model.report import plain_values

SCHEMA = "rn50-advisor/triage/1"
HOSTNAME, BOOT_ID, MADE_AT = "machine.hostname", "machine.boot_id", "machine.made_at"
DATA_PLACE = "disk.data"  # the storage that the disk's numbers describe, in words
UNIX_SECONDS = "s since 1970"

CheckState = Literal["ok", "low", "bad", "unknown"]
TriageState = Literal["keep", "fix", "hand-back"]


@dataclass(frozen=True, slots=True)
class Band:
    """The range of values of a sound machine, and its source."""

    lo: float | None = None
    hi: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    value: float | str | None
    unit: str
    expected: Band
    state: CheckState
    hint: str = ""


@dataclass(frozen=True, slots=True)
class TriageGap:
    name: str
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class TriageVerdict:
    state: TriageState
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Triage:
    verdict: TriageVerdict
    checks: tuple[Check, ...] = ()
    gaps: tuple[TriageGap, ...] = ()

    def get(self, name: str) -> Check | None:
        return next((check for check in self.checks if check.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values; NaN and infinities become null."""
        return {"schema": SCHEMA, **plain_values(self)}


def parse_triage(text: str) -> Triage:
    """Parses the JSON document of a triage. Raises NotATriage for anything else."""
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise NotATriage(f"not a triage of this version: {document['schema']!r}")
        verdict = document["verdict"]
        return Triage(
            TriageVerdict(verdict["state"], tuple(verdict["reasons"])),
            tuple(_check(entry) for entry in document["checks"]),
            tuple(TriageGap(**entry) for entry in document["gaps"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotATriage(f"not the result of a triage: {type(error).__name__}: {error}") from error


def _check(entry: Mapping[str, Any]) -> Check:
    return Check(**{**entry, "expected": Band(**entry["expected"])})
