"""What a triage of the machine adds to the findings of a run on it: what the box was measured to do, beside what such boxes do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from rn50_advisor.advisor.model.findings import Evidence, Finding
from rn50_advisor.advisor.model.wording import quantities as fmt

# By rule, the checks that speak of the same thing; `{gpu}` stands for each of the finding's GPUs, or where it names none for the job's
# worst one. Of several with a bar between them the first that there is: GPUs before Ampere have no units for bf16.
CITED: Mapping[str, tuple[str, ...]] = {
    "CPU001": ("cpu.cores_allowed", "cpu.throttled_share"),
    "CPU002": ("cpu.steal_share",),
    "CPU003": ("cpu.others_cores", "decode.images_per_core_s"),
    "CPU004": ("numa.nodes",),
    "CPU005": ("cpu.cores_allowed", "cpu.threads_per_core"),
    "DAT001": ("decode.images_per_core_s", "decode.images_all_cores_s"),
    "MEM001": ("memory.limit_bytes", "memory.available_bytes", "psi.memory_share"),
    "DSK001": ("disk.sequential_mb_per_s", "disk.small_reads_per_s"),
    "DSK002": ("disk.limit_mb_per_s", "disk.limit_reads_per_s", "disk.sequential_mb_per_s", "disk.small_reads_per_s"),
    "GPU001": ("gpu.{gpu}.throttled_share", "gpu.{gpu}.sustained_share", "gpu.{gpu}.sustained_clock_mhz"),
    "GPU006": ("gpu.{gpu}.pcie_link_gb_per_s", "gpu.{gpu}.h2d_pinned_gb_per_s"),
    "GPU007": ("gpu.{gpu}.errors", "gpu.{gpu}.ecc_uncorrected"),
    "GPU008": ("gpu.{gpu}.nvlinks_active", "gpu.allreduce_1024_mib_gb_per_s"),
    "CMP008": (
        "gpu.{gpu}.hbm_gb_per_s",
        "gpu.{gpu}.matmul_bf16_tflop_per_s|gpu.{gpu}.matmul_fp16_tflop_per_s",
        "gpu.{gpu}.sustained_clock_mhz",
    ),
}
_MOST = 3  # of one finding: it is its own evidence first
_WORST_FIRST = ("bad", "low", "ok")


def with_machine(
    findings: tuple[Finding, ...], environment: Mapping[str, Any], *, host: str = "", gpus: Sequence[int] = ()
) -> tuple[Finding, ...]:
    """The findings with what the triage of the run's machine says, where there is one.

    `host`: that machine, of a job on several; `gpus`: those of the job.
    """
    known = environment.get("triage")
    if not isinstance(known, Mapping) or not isinstance(checks := known.get("checks"), Mapping):
        return findings
    when = _when(known.get("made_at"))
    return tuple(
        replace(finding, evidence=(*finding.evidence, *list(_cited(finding, checks, gpus, when))[:_MOST]))
        if not finding.scope.hosts or finding.scope.hosts == (host,)
        else finding
        for finding in findings
    )


def without_triage(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The environment with the verdict, and the benchmarked model, alone: the rest is told where it belongs."""
    told = dict(environment)
    if isinstance(told.get("bench"), Mapping):
        told["bench"] = told["bench"].get("model")
    known = told.get("triage")
    if isinstance(known, Mapping):
        told["triage"] = known.get("verdict")
    return told


def _when(made_at: object) -> str:
    """A setting may have been mended since: who reads a finding must know how old its witness is."""
    if not isinstance(made_at, (int, float)):
        return ""
    try:
        return f" of {datetime.fromtimestamp(made_at, timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return ""  # somebody has edited the file


def _cited(finding: Finding, checks: Mapping[str, Any], gpus: Sequence[int], when: str) -> Iterator[Evidence]:
    for patterns in CITED.get(finding.rule, ()):
        of = (finding.scope.gpus or gpus) if "{gpu}" in patterns else (0,)
        names = [name for gpu in of if (name := _first(checks, patterns, gpu))]
        if not finding.scope.gpus:  # of rates, the larger the better
            names = sorted(names, key=lambda name: (_WORST_FIRST.index(checks[name]["state"]), checks[name]["value"]))[
                :1
            ]
        for name in names:
            yield _evidence(name, checks[name], when)


def _first(checks: Mapping[str, Any], patterns: str, gpu: int) -> str:
    names = (pattern.format(gpu=gpu) for pattern in patterns.split("|"))
    return next((name for name in names if _stands(checks.get(name))), "")


def _stands(check: object) -> bool:
    return (
        isinstance(check, Mapping)
        and check.get("state") in _WORST_FIRST
        and isinstance(check.get("value"), (int, float))
    )


def _evidence(name: str, check: Mapping[str, Any], when: str) -> Evidence:
    lo, hi, unit = check.get("lo"), check.get("hi"), str(check.get("unit") or "")
    usual = f"at least {fmt.quantity(lo, unit)}" if lo is not None else f"at most {fmt.quantity(hi, unit)}"
    expected = f", {usual} expected ({check.get('source')})" if lo is not None or hi is not None else ""
    where = f", {check['place']}" if check.get("place") else ""
    said = f"; {check['hint']}" if check.get("hint") else ""
    note = f"triage of this machine{when}{where}: {check['state']}{expected}{said}"
    return Evidence(name, check.get("value"), unit, lo if lo is not None else hi, note)
