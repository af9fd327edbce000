"""Keeps what the advisor said of seeded faults, as small documents, so that a test reads each of them off the screen's first view."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.model.report import Report

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("verdicts.json.gz")
CLONE = "/home/ada/rn50-advisor"  # in place of where the jobs ran
_BESIDE_THE_CONTRACT = ("fatal", "typed", "form", "gpu")  # internal fields that decide about words on the screen


def document(report: Report) -> dict[str, Any]:
    """The verdict, its finding, and what else the screen's first lines show."""
    finding = next(f for f in report.findings if f.rule == report.verdict.rule)
    finding = replace(finding, fixes=tuple(replace(fix, diff=None, call=None) for fix in finding.fixes[:1]))
    nodes = tuple(replace(node, strip=None) for node in report.nodes)
    folder = {"cwd": report.environment["cwd"]} if "cwd" in report.environment else {}
    told = Report(
        report.verdict, report.job, report.throughput, report.step_time, (finding,), environment=folder, nodes=nodes
    )
    kept = told.as_json()
    for written, value in (
        (kept["findings"][0], finding),
        *zip(kept["findings"][0]["fixes"], finding.fixes, strict=True),
    ):
        _add_internal(written, value)
    for written, value in zip(kept["findings"][0]["evidence"], finding.evidence, strict=True):
        _add_internal(written, value)
    clean: dict[str, Any] = json.loads(json.dumps(kept).replace(str(ROOT), CLONE))
    return clean


def _add_internal(written: dict[str, Any], value: object) -> None:
    written.update({name: getattr(value, name) for name in _BESIDE_THE_CONTRACT if hasattr(value, name)})


def read(file: Path = FILE) -> dict[str, dict[str, Any]]:
    """Documents by scenario; none if there is no such file yet."""
    if not file.exists():
        return {}
    kept: dict[str, dict[str, Any]] = json.loads(gzip.decompress(file.read_bytes()))
    return kept


def write(documents: Mapping[str, Mapping[str, Any]], file: Path = FILE) -> None:
    """One scenario a line before compression; the same documents give the same bytes."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(documents[name])}" for name in sorted(documents))
    file.write_bytes(gzip.compress(f"{{{lines}}}\n".encode(), mtime=0))


def reports(file: Path = FILE) -> dict[str, Report]:
    return {name: from_json(kept) for name, kept in read(file).items()}
