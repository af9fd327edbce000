"""Loads the NVIDIA driver and translates its errors. No other module does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import ProbeGap

# pynvml has no types: the module and its handles are Any, only here and in the GPU probes.
ERRORS: dict[str, tuple[str, str]] = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": (
        "libnvidia-ml.so.1 not found",
        "install the NVIDIA driver; in a container start it with --gpus all",
    ),
    "NVML_ERROR_DRIVER_NOT_LOADED": ("the NVIDIA kernel driver is not loaded", "modprobe nvidia; see dmesg"),
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "driver library and kernel module have different versions",
        "the driver was updated while loaded: reboot, or reload the nvidia modules",
    ),
    "NVML_ERROR_NOT_SUPPORTED": ("this GPU or its driver does not report it", "usual for GeForce, vGPU and MIG"),
    "NVML_ERROR_FUNCTION_NOT_FOUND": ("the driver is too old to report it", "update the NVIDIA driver"),
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": (
        "the driver does not know this version of the query",
        "update the NVIDIA driver",
    ),
    "NVML_ERROR_NO_PERMISSION": ("not permitted", "run as root, or ask the operator to allow it"),
    "NVML_ERROR_GPU_IS_LOST": (
        "the GPU has fallen off the bus",
        "see dmesg for Xid 79; reset the GPU (nvidia-smi --gpu-reset), or replace the node",
    ),
    "NVML_ERROR_RESET_REQUIRED": (
        "the GPU must be reset",
        "see dmesg for Xid errors; nvidia-smi --gpu-reset, or replace the node",
    ),
    "NVML_ERROR_IRQ_ISSUE": ("the GPU's interrupts do not arrive", "see dmesg; reboot"),
    "NVML_ERROR_INSUFFICIENT_POWER": ("the GPU's power cables are not connected", "check the power supply"),
    "NVML_ERROR_OPERATING_SYSTEM": (
        "the operating system blocked access",
        "check /dev/nvidia* and the container's device rules",
    ),
    "NVML_ERROR_UNINITIALIZED": ("the driver connection was lost", ""),
    "NVML_ERROR_TIMEOUT": ("the driver did not answer in time", "see dmesg"),
    "NVML_ERROR_UNKNOWN": ("the driver reports an unknown error", "see dmesg"),
}
# These errors last for the whole run: repeating the query is useless.
LASTING = frozenset(
    {"NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND", "NVML_ERROR_ARGUMENT_VERSION_MISMATCH"}
)
GPU_GONE = frozenset({"NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED"})
# An older driver's answer for a newer field value (DCGM interprets it the same way).
_UNKNOWN_FIELD = "NVML_ERROR_INVALID_ARGUMENT"
ALL_LINKS = 0xFFFFFFFF  # scope of a field value: all NVLinks together
# The newest names that the bindings must have. If an old package `pynvml` is installed, too, it hides those of nvidia-ml-py.
_NEWEST = ("nvmlMemory_v2", "nvmlGpmSampleAlloc", "nvmlEventSetWait_v2", "nvmlDeviceGetCurrentClocksEventReasons")
Field = int | tuple[int, int]  # number of a field value, or number and scope
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t


def field_values(nvml: Any, handle: Any, fields: Iterable[Field]) -> dict[Field, float | str] | None:
    """Each field's value, or the name of the driver's error for it. None if the driver refuses the whole query."""
    try:
        return ask_fields(nvml, handle, fields)
    except nvml.NVMLError:
        return None


def ask_fields(nvml: Any, handle: Any, fields: Iterable[Field]) -> dict[Field, float | str]:
    """Like `field_values`, but raises NVMLError if the driver refuses the query."""
    asked = tuple(fields)
    answers = nvml.nvmlDeviceGetFieldValues(handle, asked)
    found: dict[Field, float | str] = {}
    for field, answer in zip(asked, answers, strict=True):
        if answer.nvmlReturn != 0 or answer.valueType >= len(_MEMBERS):
            name = code_name(nvml, answer.nvmlReturn or nvml.NVML_ERROR_UNKNOWN)
            found[field] = "NVML_ERROR_FUNCTION_NOT_FOUND" if name == _UNKNOWN_FIELD else name
        else:
            found[field] = float(getattr(answer.value, _MEMBERS[answer.valueType]))
    return found


def error_name(nvml: Any, error: Exception) -> str:
    """The driver's name of an error (NVML_ERROR_…)."""
    return code_name(nvml, getattr(error, "value", None))


def code_name(nvml: Any, code: int | None) -> str:
    names = (name for name in dir(nvml) if name.startswith("NVML_ERROR_") and getattr(nvml, name) == code)
    return next(names, f"NVML_ERROR_{code}")


def gap_of(name: str, metric: str, scope: str) -> ProbeGap:
    reason, hint = ERRORS.get(name, (f"the driver answered {name}", "see dmesg"))
    return ProbeGap(metric, scope, reason, hint)


def open_driver(root: Path = Path("/")) -> Any:
    """The initialised pynvml module, or a ProbeGap for `gpu.*`. For the agent's process only: NVML does not survive a fork."""
    try:
        import pynvml as nvml  # noqa: PLC0415 - 15 ms that a machine without a driver need not spend before its first tick
    except ImportError as e:
        return ProbeGap("gpu.*", "host", f"pynvml: {e}", "pip install nvidia-ml-py")
    lacking = next((name for name in _NEWEST if not hasattr(nvml, name)), None)
    if lacking is not None:
        reason = f"the bindings in {nvml.__file__} are too old: no {lacking}"
        return ProbeGap("gpu.*", "host", reason, "pip uninstall pynvml; pip install -U --force-reinstall nvidia-ml-py")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as e:
        gap = gap_of(error_name(nvml, e), "gpu.*", "host")
        if not (root / "proc/driver/nvidia").exists() and not (root / "dev/nvidiactl").exists():
            return ProbeGap(gap.metric, gap.scope, f"no NVIDIA driver on this machine ({gap.reason})", gap.hint)
        return gap
    return nvml
