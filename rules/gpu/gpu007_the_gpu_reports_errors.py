"""GPU hardware errors.

What it does: finds GPUs of the job that reported a hardware Xid, an uncorrectable memory error, or a memory row that
waits for its replacement or could not be replaced; GPUs that the driver wants to be reset; and GPUs that the driver has
lost.

Fires when: Xid, uncorrectable memory errors, pending or failed row remaps.

Why it matters: results may be wrong, and the job may end at any time or hang in a collective. A GPU with such errors
slows down and stops repeatedly until it is reset or replaced.

Evidence: the driver's own reports while the job ran: the errors it counted, and the state of the GPU.

Fix: drain the GPU and reset it (`nvidia-smi --gpu-reset -i N` with no process on it), reboot the machine, or
replace it; a row that could not be remapped, or errors that come back, mean another board.

Estimate: none: this is not about speed.

False alarms: Xids 13, 31, 43 and 45 come from programs that failed or were stopped, not from hardware. Memory errors
and Xids from before the run are not counted. A row that waits or could not be replaced, and an action that the driver
asks for, are reported whatever their age, because they still hold. If Xids, or the memory errors of a board that counts
them, could not be read, the GPU is not reported as sound.
"""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Severity
from rn50_advisor.advisor.model.gpu.gpu_facts import PROGRAMS_XIDS, Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_ERRORS_WATCHED,
    GPU_HARDWARE_XIDS,
    GPU_LOST,
    GPU_RECOVERY_ACTION,
    GPU_ROW_REMAP_FAILED,
    GPU_ROW_REMAP_PENDING,
    GPU_UNCORRECTED_ERRORS,
)
from rn50_advisor.rules.gpu.gpu_names_and_cost import (
    clear_if_measured,
    listed,
    named,
    of_gpu,
    on_each_host,
    placed,
    ranks_on,
    unmeasured,
)
from rn50_advisor.rules.rule import Thresholds, rule

# The most frequent Xids of NVIDIA's catalogue.
_XIDS = {
    48: "double-bit memory error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "a memory row remap is pending",
    64: "a memory row remap failed",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timed out",
    119: "the GPU System Processor (GSP) does not respond",
    120: "the GPU System Processor (GSP) reports an error",
    140: "unrecovered memory error",
    154: "recovery action requested",
}
_ACTIONS = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain and reset the GPU",
    5: "recover its NVLink domain",
    6: "reset its bus",
    7: "reboot the system",
}
_FIXED_BY_RESET = {63}  # at the next reset


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    reports = {gpu: rows for gpu in a.gpu_view.used if (rows := _reports(a, gpu))}
    if not reports:
        used = a.gpu_view.used
        counting = [gpu for gpu in used if gpu.ecc is not False]
        of_all = unmeasured(a, used, GPU_ERRORS_WATCHED, GPU_HARDWARE_XIDS)
        return clear_if_measured(RULE.id, *of_all, *unmeasured(a, counting, GPU_UNCORRECTED_ERRORS))
    gpus = list(reports)
    serious = [gpu for gpu in gpus if _serious(a, gpu)]
    lost = [gpu for gpu in gpus if of_gpu(a, GPU_LOST, gpu)]
    ended = bool(a.deaths or a.stalls) and not a.stopped_from_outside and bool(serious)
    level: Severity = "critical" if lost or ended else "high" if serious else "medium"
    return Finding(
        rule=RULE.id,
        title=_title(gpus, lost),
        severity=level,
        confidence=0.95,
        seconds_per_step=0.0,
        scope=Affected(ranks=ranks_on(a, gpus), gpus=tuple(gpu.index for gpu in gpus)),
        evidence=tuple(e for rows in reports.values() for e in rows)[:6],
        fixes=(_fix(gpus, lost),),
        fatal=ended,
        urgent=bool(lost),
    )


def _title(gpus: list[Gpu], lost: list[Gpu]) -> str:
    if lost:
        return f"Lost by the driver: {listed(lost)}"
    return f"Hardware errors: {listed(gpus)}"


def _serious(a: Analysis, gpu: Gpu) -> bool:
    """True if there is more than a memory row that the next reset replaces."""
    hardware = any(xid.code not in PROGRAMS_XIDS | _FIXED_BY_RESET for xid in gpu.xids)
    serious = (GPU_UNCORRECTED_ERRORS, GPU_ROW_REMAP_FAILED, GPU_RECOVERY_ACTION, GPU_LOST)
    return hardware or any(of_gpu(a, measure, gpu) for measure in serious)


def _reports(a: Analysis, gpu: Gpu) -> list[Evidence]:
    name, found = named(gpu), []
    for xid in [xid for xid in gpu.xids if xid.code not in PROGRAMS_XIDS][:2]:
        meaning = _XIDS.get(xid.code, "see NVIDIA's catalogue")
        note = f"{name}: Xid {xid.code} ({meaning}) {xid.t_s:.0f} s after the start"
        found.append(Evidence("gpu.xid", float(xid.code), "", None, note))
    errors = of_gpu(a, GPU_UNCORRECTED_ERRORS, gpu)
    if errors:
        found.append(Evidence.of(GPU_UNCORRECTED_ERRORS, errors, 0.0, f"{name}: memory errors in the run"))
    if of_gpu(a, GPU_ROW_REMAP_FAILED, gpu):
        found.append(Evidence.of(GPU_ROW_REMAP_FAILED, 1.0, 0.0, f"{name}: a memory row remap failed"))
    elif of_gpu(a, GPU_ROW_REMAP_PENDING, gpu):
        found.append(
            Evidence.of(GPU_ROW_REMAP_PENDING, 1.0, 0.0, f"{name}: a memory row remap is pending until a reset")
        )
    action = of_gpu(a, GPU_RECOVERY_ACTION, gpu)
    if action:
        note = f"{name}: the driver requests to {_ACTIONS.get(round(action), 'recover it')}"
        found.append(Evidence.of(GPU_RECOVERY_ACTION, action, 0.0, note))
    if of_gpu(a, GPU_LOST, gpu):
        found.append(Evidence.of(GPU_LOST, 1.0, 0.0, f"{name} no longer responds to the driver"))
    return [replace(evidence, gpu=gpu.index) for evidence in found]


def _fix(gpus: list[Gpu], lost: list[Gpu]) -> Fix:
    if lost:
        return Fix(f"reboot or replace the node: {placed(lost)} cannot be used", "", None, "outside the code")
    change = on_each_host(gpus, "nvidia-smi --gpu-reset -i {}", "with no process on it")
    return Fix(
        f"drain and reset {placed(gpus)}; replace the node if it happens again", change, None, "outside the code"
    )


RULE = rule(
    __name__,
    "GPU hardware errors",
    check,
    severities=("critical", "high", "medium"),
    needs=(GPU_ERRORS_WATCHED,),
    steady_steps=0,
    triage_checks=("gpu.{gpu}.errors", "gpu.{gpu}.ecc_uncorrected"),
)
