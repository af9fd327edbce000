"""Checks that CUDA can use the GPUs that the driver shows: a GPU on which nothing runs is useless, however healthy it looks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rn50_advisor.advisor.model.documents.machine_triage import Band, Check, TriageGap
from rn50_advisor.advisor.triage.found_checks import Found, Item, Remedy, fact, judged
from rn50_advisor.advisor.triage.gpu.gpu_speed import MARKS, REDUCED, MeasuredGpus, Result
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice

NAME = "gpu.usable"
# The program that measures says nothing for so long only where a GPU does not answer; what the longest measurement takes comes on top.
SILENT_S = 30.0
FIRST_REDUCED_S = 20.0  # NCCL joins eight GPUs in five to ten seconds; the first sum, of one MiB, takes none
# Memory that is full, and what a GPU is too old for, are no faults of it.
_CUDA_ERRORS = re.compile(r"CUDA error|Cuda failure|NCCL error", re.IGNORECASE)
_HARMLESS_ERRORS = re.compile(r"out of memory|alloc.failed|not.supported|arch.mismatch", re.IGNORECASE)
_HARDWARE_ERRORS = re.compile(r"uncorrectable|fallen off the bus|gpu is lost", re.IGNORECASE)
_NO_DEVICE_ERRORS = re.compile(r"no CUDA(-capable)? (GPU|device)", re.IGNORECASE)
_FABRIC_ERRORS = re.compile(r"system not yet initialized|\b802\b")
_RESET_HINT = "reset the GPUs or reboot (see dmesg for NVRM: Xid), and replace the node if it persists"


def usable(
    done: MeasuredGpus, devices: Sequence[GpuDevice], visible: int | None, *, longest_s: float
) -> Iterator[Item]:
    """`visible`: number of GPUs that CUDA_VISIBLE_DEVICES leaves; None if unknown. `longest_s`: duration of the longest measurement."""
    begun, listed = done.first("cuda"), done.first("devices")
    count = len(listed["value"]) if listed else 0
    if begun is None or begun["value"] is None:
        yield _gap(done.why or "this torch was built without CUDA")
        return
    if visible == 0 or (visible is None and listed and _NO_DEVICE_ERRORS.search(str(listed.get("reason")))):
        yield _gap("CUDA_VISIBLE_DEVICES, or MIG without instances, leaves this shell no GPU")
        return
    failed = _failed(done)
    fault = _not_begun(done, longest_s) or _in_work(done, failed, longest_s)
    if not fault and visible is not None and count < visible and not done.why:
        fault = f"CUDA sees {count} of {visible} GPUs"
    if fault:
        yield _unusable(count - len(failed), len(devices) if visible is None else visible, fault)
    elif done.why:
        yield _gap(done.why)
    elif visible is None:
        yield fact(NAME, float(count), "GPUs", hint="CUDA devices; with MIG a process sees one at a time")
    else:
        yield judged(NAME, float(count), "GPUs", _band(visible))


def wedged(seconds: float) -> Found:
    why = f"the NVIDIA driver has not answered for {seconds:.0f} s: {_RESET_HINT}"
    return Found(Check("gpu.driver_answers", "no", "", Band(source="a responding driver"), "bad", why), "fix", why=why)


def _not_begun(done: MeasuredGpus, longest_s: float) -> str:
    """Returns the reason why CUDA shows no devices; empty if it shows some, or if only the time was too short."""
    listed = done.first("devices")
    if listed is not None:
        return "" if listed["value"] else f"CUDA does not start: {listed.get('reason') or 'no GPU is visible'}"
    if done.silent_s:
        return f"CUDA has not started within {done.silent_s:.0f} s" if _hangs(done, longest_s) else ""
    return f"CUDA does not start: {done.why or 'it says nothing'}"


def _in_work(done: MeasuredGpus, failed: Sequence[Result], longest_s: float) -> str:
    if failed:
        return f"device {failed[0]['gpu']} of CUDA fails: {failed[0]['reason']}"
    together = next((result for result in done.results if result.get("name") == REDUCED and _broken(result)), None)
    if together is not None:
        return f"the GPUs fail in collective operations: {together['reason']}"
    if _hangs(done, longest_s):
        what = "an all-reduce over all GPUs" if done.first("joined") else "what was measured"
        return f"{what} has hung for {done.silent_s:.0f} s"
    return ""


def _hangs(done: MeasuredGpus, longest_s: float) -> bool:
    first = done.first("joined") and not done.first(REDUCED)
    return done.silent_s >= (FIRST_REDUCED_S if first else SILENT_S + longest_s)


def _failed(done: MeasuredGpus) -> list[Result]:
    """Returns the first failure of each device whose last result failed too. An unsupported precision is no failure."""
    own = [result for result in done.results if result.get("name") not in (None, REDUCED, *MARKS)]
    last = {result["gpu"]: result for result in own}
    return [next(r for r in own if r["gpu"] == gpu and _broken(r)) for gpu, end in last.items() if _broken(end)]


def _broken(result: Result) -> bool:
    reason = str(result.get("reason") or "")
    return bool(_CUDA_ERRORS.search(reason)) and not _HARMLESS_ERRORS.search(reason)


def _unusable(count: int, due: int, fault: str) -> Found:
    remedy: Remedy = "hand-back" if _HARDWARE_ERRORS.search(fault) else "fix"
    hint = _RESET_HINT
    if _FABRIC_ERRORS.search(fault):
        hint = "start nvidia-fabricmanager in exactly the driver's version, or have the machine's owner do it"
    why = f"{fault}: {hint}"
    return Found(Check(NAME, float(max(count, 0)), "GPUs", _band(due), "bad", why), remedy, why=why)


def _band(due: int) -> Band:
    return Band(float(due), None, "the GPUs that the driver and CUDA_VISIBLE_DEVICES leave to this shell")


def _gap(reason: str) -> TriageGap:
    hint = "name the interpreter that trains with --python; it needs a torch that was built for CUDA"
    return TriageGap("gpu.speed", reason, hint)
