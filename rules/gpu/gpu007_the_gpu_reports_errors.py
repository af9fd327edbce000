"""The GPU reports errors.

What it does: finds GPUs of the job that reported a hardware Xid, an uncorrectable memory error, a memory row that waits for its
replacement or could not get one, that the driver wants to be reset, or that it has lost.

Why it matters: results may be wrong, and the job may end at any moment or hang in a collective. A GPU with such errors slows down and
stops again and again until it is reset or replaced.

Evidence: the driver's own reports while the job ran: what it counted meanwhile, and in which state it found the GPU.

Fix: drain the GPU and reset it (`nvidia-smi --gpu-reset -i N` with nothing running on it), reboot the machine, or hand it back; a row
that could not be remapped and errors that come back mean another board.

Estimate: none: it is no matter of speed.

False alarms: Xids 13, 31, 43 and 45 come from programs that went wrong or were stopped; they are nobody's hardware. Memory errors and
Xids from before the run are not counted; a row that waits or could not be replaced, and what the driver asks for, are told from whenever
they are, because they still hold. Where Xids, or memory errors of a board that counts them, could not be read, a GPU is not called sound.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Severity
from rn50_advisor.advisor.model.gpu.gpu_facts import PROGRAMS_XIDS, Gpu
from rn50_advisor.rules.gpu.gpu_names_and_cost import (
    clear_if_seen,
    listed,
    named,
    of_gpu,
    on_each_host,
    placed,
    ranks_on,
    unseen,
)
from rn50_advisor.rules.rule import Thresholds, rule

# From NVIDIA's catalogue of Xids, those most often met.
_XIDS = {
    48: "double-bit memory error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "a memory row was marked for replacement",
    64: "a memory row could not be replaced",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timed out",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor reports an error",
    140: "unrecovered memory error",
    154: "recovery action asked for",
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
_MENDS_ITSELF = {63}  # at the next reset


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    told = {gpu: said for gpu in a.gpu_view.used if (said := _said(a, gpu))}
    if not told:
        used = a.gpu_view.used
        counting = [gpu for gpu in used if gpu.ecc is not False]
        of_all = unseen(a, used, "gpu.errors_watched", "gpu.hardware_xids")
        return clear_if_seen(RULE.id, *of_all, *unseen(a, counting, "gpu.uncorrected_errors"))
    gpus = list(told)
    grave = [gpu for gpu in gpus if _grave(a, gpu)]
    lost = [gpu for gpu in gpus if of_gpu(a, "gpu.lost", gpu)]
    ended = bool(a.deaths or a.stalls) and not a.stopped_from_outside and bool(grave)
    level: Severity = "critical" if lost or ended else "high" if grave else "medium"
    return Finding(
        rule=RULE.id,
        title=_title(gpus, lost),
        severity=level,
        confidence=0.95,
        seconds_per_step=0.0,
        scope=Affected(ranks=ranks_on(a, gpus), gpus=tuple(gpu.index for gpu in gpus)),
        evidence=tuple(e for said in told.values() for e in said)[:6],
        fixes=(_fix(gpus, lost),),
        explains=("RUN001", "RUN002") if ended else (),
        fatal=ended,
        urgent=bool(lost),
    )


def _title(gpus: list[Gpu], lost: list[Gpu]) -> str:
    if lost:
        return f"{listed(lost)} {'is' if len(lost) == 1 else 'are'} lost"
    return f"{listed(gpus)} report{'s' if len(gpus) == 1 else ''} errors"


def _grave(a: Analysis, gpu: Gpu) -> bool:
    """More than a row that the next reset replaces."""
    hardware = any(xid.code not in PROGRAMS_XIDS | _MENDS_ITSELF for xid in gpu.xids)
    names = ("uncorrected_errors", "row_remap_failed", "recovery_action", "lost")
    return hardware or any(of_gpu(a, f"gpu.{name}", gpu) for name in names)


def _said(a: Analysis, gpu: Gpu) -> list[Evidence]:
    name, found = named(gpu), []
    for xid in [xid for xid in gpu.xids if xid.code not in PROGRAMS_XIDS][:2]:
        meaning = _XIDS.get(xid.code, "see NVIDIA's catalogue")
        note = f"{name}: Xid {xid.code} ({meaning}) {xid.t_s:.0f} s after the start"
        found.append(Evidence("gpu.xid", float(xid.code), "", None, note))
    errors = of_gpu(a, "gpu.uncorrected_errors", gpu)
    if errors:
        found.append(Evidence("gpu.uncorrected_errors", errors, "errors", 0.0, f"{name}: memory errors in the run"))
    if of_gpu(a, "gpu.row_remap_failed", gpu):
        found.append(Evidence("gpu.row_remap_failed", 1.0, "", 0.0, f"{name}: a memory row could not be replaced"))
    elif of_gpu(a, "gpu.row_remap_pending", gpu):
        found.append(Evidence("gpu.row_remap_pending", 1.0, "", 0.0, f"{name}: a memory row waits for a reset"))
    action = of_gpu(a, "gpu.recovery_action", gpu)
    if action:
        note = f"{name}: the driver asks to {_ACTIONS.get(round(action), 'recover it')}"
        found.append(Evidence("gpu.recovery_action", action, "", 0.0, note))
    if of_gpu(a, "gpu.lost", gpu):
        found.append(Evidence("gpu.lost", 1.0, "", 0.0, f"{name} does not answer the driver any more"))
    return found


def _fix(gpus: list[Gpu], lost: list[Gpu]) -> Fix:
    if lost:
        return Fix(f"reboot the machine or hand it back: {placed(lost)} cannot be used", "", None, "outside the code")
    change = on_each_host(gpus, "nvidia-smi --gpu-reset -i {}", "with nothing running on it")
    return Fix(f"drain and reset {placed(gpus)}; hand it back if it happens again", change, None, "outside the code")


RULE = rule(
    __name__,
    "the GPU reports errors",
    check,
    needs=("gpu.errors_watched",),
    steady_steps=0,
)
