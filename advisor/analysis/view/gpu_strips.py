"""Shows each GPU over the last recorded seconds on the screen: its readings and, in a few words, its worst problem."""

from __future__ import annotations

from rn50_advisor.advisor.analysis.gpu.gpu_ranks import gpus_of
from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.model.gpu.gpu_facts import PROGRAMS_XIDS, Gpu
from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.advisor.model.report import GpuProcessRow, GpuStrip
from rn50_advisor.advisor.model.wording.quantities import bytes_
from rn50_advisor.probes.documents.event_documents import GpuProcesses

_RECENT_NS = 5_000_000_000
_HELD_SHARE = 0.02  # as GPU001
_FIELDS = (
    "util_pct",
    "mem_used_bytes",
    "mem_total_bytes",
    "power_w",
    "power_limit_w",
    "sm_clock_mhz",
    "sm_clock_max_mhz",
    "temp_c",
    "pcie_gen",
    "pcie_width",
    "sm_active_pct",
    "tensor_active_pct",
)


def gpu_strips(recording: Recording) -> tuple[GpuStrip, ...]:
    """Strips of GPUs that the agent listed, and of GPUs that have readings without being listed."""
    end = recording.meta.last_ns
    now = Window(recording, end - _RECENT_NS, end)
    known = {gpu.index: gpu for gpu in gpus_of(recording)}
    read = {scope[4:] for metric, scope in recording.samples if metric.startswith("gpu.") and scope.startswith("gpu:")}
    for index in {int(number) for number in read if number.isdigit()} - set(known):
        known[index] = Gpu(index, "")
    listed = _listed(recording)
    return tuple(_strip(now, known[index], listed.get(index, ())) for index in sorted(known))


def _listed(recording: Recording) -> dict[int, tuple[GpuProcessRow, ...]]:
    """The processes on each GPU as last listed. Of several hosts none: their lists name GPUs by the numbers of their own host."""
    listed: dict[int, tuple[GpuProcessRow, ...]] = {}
    for event in events_of(recording.events, GpuProcesses) if not recording.nodes else ():
        listed[event.data.get("gpu", -1)] = tuple(
            GpuProcessRow(
                process.get("pid", 0),
                process.get("user", ""),
                process.get("name", ""),
                process.get("mem_bytes"),
                process.get("own", False),
            )
            for process in event.data.get("processes", ())
        )
    return listed


def _strip(now: Window, gpu: Gpu, processes: tuple[GpuProcessRow, ...]) -> GpuStrip:
    scope = f"gpu:{gpu.index}"
    held = [now.rate(f"gpu.{name}_s", scope) for name in ("sw_thermal", "hw_thermal", "power_brake", "thermal")]
    throttled = max((share for share in held if share is not None), default=None)
    return GpuStrip(
        index=gpu.index,
        name=gpu.name,
        ranks=", ".join(map(str, gpu.ranks)),
        throttled_pct=None if throttled is None else min(100.0, 100 * throttled),
        trouble=_trouble(now, gpu, throttled),
        place="",
        host="",
        instances=_instances(now, gpu),
        processes=processes,
        **{name: now.level(f"gpu.{name}", scope) for name in _FIELDS},
    )


def _instances(now: Window, gpu: Gpu) -> str:
    """Memory of each MIG instance of a GPU: `3g.20gb 10 GB of 20 GB, 1g.5gb 2.5 GB of 5 GB`."""
    numbers = [
        scope.rpartition("/")[2] for scope in now.scopes("gpu.mem_used_bytes") if scope.startswith(f"mig:{gpu.index}/")
    ]
    instances = []
    for number in sorted(map(int, filter(str.isdigit, numbers))):
        used, total = (now.level(f"gpu.mem_{what}_bytes", f"mig:{gpu.index}/{number}") for what in ("used", "total"))
        name = gpu.instances[number] if number < len(gpu.instances) else ""
        instances.append(f"{name or f'instance {number}'} {bytes_(used)} of {bytes_(total)}")
    return ", ".join(instances)


def _trouble(now: Window, gpu: Gpu, throttled: float | None) -> str:
    """The GPU's worst known problem; empty if it has none."""
    scope = f"gpu:{gpu.index}"
    lost = now.recording.samples.get(("gpu.lost", scope))
    if lost is not None and lost.value.size and lost.value[-1] > 0:
        return "lost"
    xids = [xid.code for xid in gpu.xids if xid.code not in PROGRAMS_XIDS]
    if xids:
        return f"Xid {xids[-1]}"
    for name, words in (("row_remap_failed", "memory row could not be replaced"), ("recovery_action", "needs a reset")):
        if (now.level(f"gpu.{name}", scope) or 0.0) > 0:
            return words
    if throttled is not None and throttled >= _HELD_SHARE:
        return f"throttled {min(100.0, 100 * throttled):.0f} %"
    width = now.level("gpu.pcie_width", scope)
    if width is not None and gpu.pcie_width_due and 0 < width < gpu.pcie_width_due:
        return f"PCIe x{width:.0f} of x{gpu.pcie_width_due}"
    return ""
