"""Adds the machine's triage to the findings of a run on it: measured and expected performance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from rn50_advisor.advisor.model.findings import Evidence, Finding
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.probes.documents.machine_documents import KnownCheck, KnownTriage, MachineFacts
from rn50_advisor.rules.rule import Rule, TriageChecks

_CITED_MAX = 3  # checks per finding, so that its own evidence dominates
_WORST_FIRST = ("bad", "low", "ok")


def with_machine(
    findings: tuple[Finding, ...],
    environment: MachineFacts,
    rules: Iterable[Rule],
    *,
    host: str = "",
    gpus: Sequence[int] = (),
) -> tuple[Finding, ...]:
    """Adds results of the machine's triage to the findings, if there is a triage.

    Each finding cites the checks that its rule names. `host`: the triaged machine, for a job on several hosts; `gpus`: the job's GPUs.
    """
    known = environment.get("triage", KnownTriage())
    checks = known.get("checks", {})
    when = _when(known.get("made_at"))
    named = {rule.id: rule.triage_checks for rule in rules}
    return tuple(
        replace(
            finding, evidence=(*finding.evidence, *_cited(finding, named.get(finding.rule, ()), checks, gpus, when))
        )
        if not finding.scope.hosts or finding.scope.hosts == (host,)
        else finding
        for finding in findings
    )


def without_triage(environment: MachineFacts) -> dict[str, Any]:
    """Returns the environment with only the verdict of the triage and the model of the benchmark; the rest is shown elsewhere."""
    shown: dict[str, Any] = dict(environment)
    if "bench" in environment:
        shown["bench"] = environment["bench"].get("model")
    if "triage" in environment:
        shown["triage"] = environment["triage"].get("verdict")
    return shown


def _when(made_at: object) -> str:
    """Returns the time of the triage: settings may have been fixed since, so a reader must know how old this evidence is."""
    if not isinstance(made_at, (int, float)):
        return ""
    try:
        return f" of {datetime.fromtimestamp(made_at, timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return ""  # the file was edited


def _cited(
    finding: Finding, named: TriageChecks, checks: Mapping[str, KnownCheck], gpus: Sequence[int], when: str
) -> list[Evidence]:
    cited: list[Evidence] = []
    for check in named:
        patterns = (check,) if isinstance(check, str) else check
        of = (finding.scope.gpus or gpus) if "{gpu}" in patterns[0] else (0,)
        names = [name for gpu in of if (name := _first(checks, patterns, gpu))]
        if not finding.scope.gpus:  # keeps the worst check: by state, then the lowest rate
            names = sorted(names, key=lambda name: (_WORST_FIRST.index(checks[name]["state"]), checks[name]["value"]))[
                :1
            ]
        cited += [_evidence(name, checks[name], when) for name in names]
    return cited[:_CITED_MAX]


def _first(checks: Mapping[str, KnownCheck], patterns: tuple[str, ...], gpu: int) -> str:
    names = (pattern.format(gpu=gpu) for pattern in patterns)
    return next((name for name in names if _is_usable(checks.get(name))), "")


def _is_usable(check: KnownCheck | None) -> bool:
    return check is not None and check.get("state") in _WORST_FIRST and "value" in check


def _evidence(name: str, check: KnownCheck, when: str) -> Evidence:
    lo, hi, unit = check.get("lo"), check.get("hi"), check.get("unit", "")
    usual = f"at least {fmt.quantity(lo, unit)}" if lo is not None else f"at most {fmt.quantity(hi, unit)}"
    expected = f", {usual} expected ({check.get('source')})" if lo is not None or hi is not None else ""
    where = f", {check['place']}" if check.get("place") else ""
    hint = f"; {check['hint']}" if check.get("hint") else ""
    note = f"triage of this machine{when}{where}: {check['state']}{expected}{hint}"
    return Evidence(name, check.get("value"), unit, lo if lo is not None else hi, note)
