"""Every JSON document that a command prints or writes, and its schema, derived from the types that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rn50_advisor.advisor.commands.explain import RuleListing
from rn50_advisor.advisor.commands.machine_checks import DoctorCheck
from rn50_advisor.advisor.commands.runs import SCHEMA as RUNS
from rn50_advisor.advisor.fleet import baseline
from rn50_advisor.advisor.model import report, trials
from rn50_advisor.advisor.model.documents import benchmark, comparison, machine_triage, ranked_fleet
from rn50_advisor.advisor.model.documents.json_shapes import DIALECT, Schema, Shapes, document
from rn50_advisor.advisor.report import BesideReport
from rn50_advisor.advisor.store.kept_trials import TriedDocument
from rn50_advisor.advisor.store.run_rows import RunRowDocument


@dataclass(frozen=True, slots=True)
class Published:
    """One kind of document. `made_by`: the command that makes it."""

    made_by: str
    schema: Callable[[], Schema]


def _of(name: str, kind: type, *, finite: bool = False) -> Schema:
    shapes = Shapes(finite)
    return document(name, shapes.object_of(kind), shapes)


def _report() -> Schema:
    """The report's own fields, and what is computed beside them for programs."""
    shapes = Shapes()
    whole, beside = shapes.object_of(report.Report), shapes.object_of(BesideReport)
    whole["properties"] |= beside["properties"]
    whole["required"] += beside["required"]
    return document(report.SCHEMA, whole, shapes)


def _bench() -> Schema:
    """The fields of a cell's setting are fields of the cell."""
    shapes = Shapes()
    whole = shapes.object_of(benchmark.Benchmark)
    setting, cell = shapes.object_of(benchmark.Setting), shapes.object_of(benchmark.Cell, without=("setting",))
    cell["properties"] = setting["properties"] | cell["properties"]
    cell["required"] = [*setting["required"], *cell["required"]]
    shapes.named.pop("Setting", None)
    shapes.named["Cell"] = cell
    return document(benchmark.SCHEMA, whole, shapes)


def _listed(name: str, field: str, row: Any, *, finite: bool = False) -> Schema:
    """A document with one list."""
    shapes = Shapes(finite)
    whole = {"type": "object", "properties": {field: {"type": "array", "items": shapes.of(row)}}, "required": [field]}
    return document(name, whole, shapes)


def _rows(row: Any) -> Schema:
    """A list without a name around it."""
    shapes = Shapes(finite=True)
    items = shapes.of(row)
    return {"$schema": DIALECT, "type": "array", "items": items, "$defs": shapes.named}


DOCUMENTS: Mapping[str, Published] = {
    "report": Published("report --format json", _report),
    "compare": Published("compare --format json", lambda: _of(comparison.SCHEMA, comparison.Comparison)),
    "try": Published("try --format json", lambda: _of(trials.SCHEMA, TriedDocument, finite=True)),
    "triage": Published("triage --format json", lambda: _of(machine_triage.SCHEMA, machine_triage.Triage)),
    "bench": Published("bench --format json", _bench),
    "fleet": Published("fleet --format json", lambda: _of(ranked_fleet.SCHEMA, ranked_fleet.Fleet)),
    "baseline": Published(
        "fleet --save-baseline", lambda: _listed(baseline.SCHEMA, "baselines", ranked_fleet.Baseline)
    ),
    "runs": Published("runs --json", lambda: _listed(RUNS, "runs", RunRowDocument, finite=True)),
    "rules": Published("rules --json", lambda: _rows(RuleListing)),
    "calibration": Published("rules --calibration --json", lambda: _rows(trials.RuleRecordDocument)),
    "doctor": Published("doctor --json", lambda: _rows(DoctorCheck)),
}


def schema_of(name: str) -> Schema:
    """The JSON Schema of a kind of document; keys always in the same order. Raises KeyError."""
    return DOCUMENTS[name].schema()
