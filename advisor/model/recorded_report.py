"""Reads a report back from its JSON; see `rn50_advisor.advisor.model.report` for the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.model.findings import Affected, Evidence, Finding, Fix, Saving, Where
from rn50_advisor.advisor.model.forecast.worker_curve import WorkerCurve, WorkerPoint
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.report import (
    Budget,
    Capacity,
    GpuProcessRow,
    GpuStrip,
    HostStrip,
    Job,
    NodeStrip,
    OutcomeRow,
    Overhead,
    RankStrip,
    Report,
    Segment,
    StepTime,
    Throughput,
    TimelinePoint,
    Verdict,
)


def from_json(document: Mapping[str, Any]) -> Report:
    """The inverse of `Report.as_json`, for recorded reports and tests. Raises KeyError or TypeError on anything else."""
    d = dict(document)
    d.pop("schema", None)

    def finding(f: Mapping[str, Any]) -> Finding:
        f = dict(f)
        scope: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in f.pop("scope").items()}
        fixes = tuple(Fix(**{**x, "where": Where(**x["where"]) if x["where"] else None}) for x in f.pop("fixes"))
        saving = f.pop("saving")
        evidence = tuple(Evidence(**x) for x in f.pop("evidence"))
        f["explains"] = tuple(f["explains"])
        return Finding(
            **f,
            scope=Affected(**scope),
            fixes=fixes,
            saving=recorded_saving(saving) if saving else None,
            evidence=evidence,
        )

    budget = d["budget"]
    job = {**d["job"], "argv": tuple(d["job"]["argv"])}
    return Report(
        verdict=Verdict(**d["verdict"]),
        job=Job(**job),
        throughput=Throughput(**d["throughput"]),
        step_time=StepTime(**d["step_time"]),
        findings=tuple(finding(f) for f in d["findings"]),
        outcomes=tuple(OutcomeRow(**{**o, "missing": tuple(o["missing"])}) for o in d["outcomes"]),
        budget=Budget(budget["critical"], {int(rank): phases for rank, phases in budget["per_rank"].items()}),
        capacities=tuple(Capacity(**c) for c in d["capacities"]),
        segments=tuple(Segment(**s) for s in d["segments"]),
        timeline=tuple(TimelinePoint(**t) for t in d["timeline"]),
        environment=d["environment"],
        facts=d["facts"],
        gaps=tuple(ProbeGap(**g) for g in d["gaps"]),
        overhead=Overhead(**{**d["overhead"], "shed": tuple(d["overhead"]["shed"])}),
        ranks=tuple(RankStrip(**r) for r in d["ranks"]),
        host=HostStrip(**d["host"]) if d["host"] else None,
        gpus=tuple(_gpu(g) for g in d["gpus"]),
        worker_curve=_curve(d["worker_curve"]) if d.get("worker_curve") else None,
        nodes=tuple(_node(n) for n in d.get("nodes") or ()),
    )


def _gpu(strip: Mapping[str, Any]) -> GpuStrip:
    processes = tuple(GpuProcessRow(**process) for process in strip.get("processes") or ())
    return GpuStrip(**{**strip, "processes": processes})


def recorded_saving(saving: Mapping[str, Any]) -> Saving:
    ranges = {name: tuple(saving[name]) for name in ("seconds_per_step", "speedup")}
    bounds = saving.get("bounds")
    return Saving(**{**saving, **ranges, "bounds": tuple(bounds) if bounds else None})


def _node(n: Mapping[str, Any]) -> NodeStrip:
    strip = HostStrip(**n["strip"]) if n["strip"] else None
    return NodeStrip(**{**n, "ranks": tuple(n["ranks"]), "strip": strip})


def _curve(c: Mapping[str, Any]) -> WorkerCurve:
    points = tuple(WorkerPoint(p["workers"], (p["samples_per_s"][0], p["samples_per_s"][1])) for p in c["points"])
    return WorkerCurve(c["measured"], c["knee"], points)
