"""The NVIDIA GPUs of this host through NVML: properties, utilisation, memory, temperature, clocks and errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rn50_advisor.advisor.model.metrics import ProbeGap, Reading, Sample
from rn50_advisor.probes.documents.event_documents import GpuProcess, GpuProcesses
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.gpu.gpu_devices import DriverQueries, GpuConnection, GpuDevice, describe, paths
from rn50_advisor.probes.host.gpu.gpu_gpm import ALL as GPM
from rn50_advisor.probes.host.gpu.gpu_gpm import Gpm
from rn50_advisor.probes.host.gpu.gpu_neighbours import Neighbours, foreign_sm, neighbours
from rn50_advisor.probes.host.gpu.gpu_readers import (
    FOREIGN_SM,
    PROBE_COST,
    SLOW_NS,
    THROUGHPUT,
    DriverCall,
    FieldMetric,
    calls_for,
    fields_for,
    mig_samples,
)
from rn50_advisor.probes.host.gpu.gpu_xid import XidWatch
from rn50_advisor.probes.host.gpu.nvml import GPU_GONE, LASTING, ask_fields, error_name, gap_of, open_driver
from rn50_advisor.probes.host.process.process_tree import Member
from rn50_advisor.probes.host.target import Target

NEVER = object()
_MOVED_BYTES = 1 << 28  # of a process's memory, until its GPU's list is noted again
_NEIGHBOURS = ("gpu.foreign_processes", "gpu.foreign_mem_bytes")


class Tree(Protocol):
    """The processes of the job."""

    def members(self) -> tuple[Member, ...]: ...


class Gone(Exception):
    """The driver reports that this GPU is unusable. The message is NVML's name of the error."""


class WatchedGpu:
    """One GPU and its remaining queries. Unsupported queries are removed."""

    def __init__(self, nvml: Any, device: GpuDevice, handle: Any) -> None:
        self.device = device
        self.handle = handle
        self.scope = f"gpu:{device.index}"
        self.calls: list[DriverCall] = list(calls_for(device))
        self.fields: list[FieldMetric] = list(fields_for(device))
        self.gpm = Gpm(nvml, device, handle)
        self.xids = 0
        self.listed = self.sm_listed = True
        self.sm_since_us = 0
        self.noted: tuple[GpuProcess, ...] = ()  # the processes as last noted

    def replace(self, field: FieldMetric) -> bool:
        """Replaces a field that this GPU does not support by another query. False if there is no replacement."""
        gone = [f for f in self.fields if f.metric == field.metric] if field.instead else [field]
        self.fields = [f for f in self.fields if f not in gone]
        if field.instead is None:
            return False
        if field.instead not in self.calls:
            self.calls.append(field.instead)
        return True


class GpuProbe:
    """Opens the driver at its first use. For the agent's process only."""

    name = "gpu"

    def __init__(self, root: Path = Path("/"), *, tree: Tree | None = None) -> None:
        self._root = root
        self._tree = tree
        self._nvml: Any = None
        self._watched: dict[int, WatchedGpu] = {}
        self._devices: tuple[GpuDevice, ...] = ()
        self._xids: XidWatch | None = None
        self._opened = False
        self._gaps = GapsOnce()
        self._slow_ns: int | None = None
        self._turn = 0  # the GPU whose PCIe traffic is read in this slow round
        self._spent_s = 0.0
        self._listings: list[GpuProcesses] = []
        self._own: set[int] = set()  # includes ended processes: the driver still reports their use
        self.driver_version: str | None = None
        self.cuda_version: str | None = None  # the newest CUDA that the driver supports, not the one in use

    def devices(self) -> tuple[GpuDevice, ...]:
        """Constant properties of the GPUs. Empty without a driver; a gap then gives the reason."""
        self._open()
        return self._devices

    def paths(self) -> tuple[GpuConnection, ...]:
        self._open()
        handles = {index: watched.handle for index, watched in self._watched.items()}
        return paths(self._nvml, self._devices, handles) if handles else ()

    def serials(self) -> dict[int, str]:
        """Serial numbers printed on the boards, by GPU, for a technician; only those the driver knows. They are never recorded."""
        self._open()
        ask = DriverQueries(self._nvml)
        serials = {index: ask("nvmlDeviceGetSerial", watched.handle) for index, watched in self._watched.items()}
        return {index: str(serial) for index, serial in serials.items() if serial}

    def read_all(self) -> None:
        """Makes the next sample include the slow queries: when a job ends, its GPUs' last errors matter."""
        self._slow_ns = None

    def take_listings(self) -> tuple[GpuProcesses, ...]:
        """Lists of GPUs whose processes have changed, each once."""
        new, self._listings = tuple(self._listings), []
        return new

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        began_ns = time.monotonic_ns()
        self._open()
        slow = self._slow_ns is None or now_ns - self._slow_ns >= SLOW_NS
        if slow:
            self._slow_ns = now_ns
            self._turn += 1
        own = self._own_pids(targets) if slow else frozenset()
        samples = self._xid_samples()
        for index, watched in list(self._watched.items()):
            try:
                samples += self._sample_gpu(watched, now_ns, slow)
                if slow:
                    samples += self._slow_samples(watched, own)
            except Gone as gone:
                samples.append(Sample("gpu.lost", watched.scope, 1.0))
                self._give_up(index, str(gone))
        if self._devices:
            self._spent_s += (time.monotonic_ns() - began_ns) / 1e9
            samples.append(Sample(PROBE_COST, "host", self._spent_s))
        return Reading(tuple(samples), self._gaps.take())

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        nvml = open_driver(self._root)
        if isinstance(nvml, ProbeGap):
            self._report(nvml)
            return
        self._nvml = nvml
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as e:
            self._report(gap_of(error_name(nvml, e), "gpu.*", "host"))
            return
        if count == 0:
            self._report(
                ProbeGap("gpu.*", "host", "the NVIDIA driver sees no GPU", "in a container start it with --gpus all")
            )
        ask = DriverQueries(nvml)
        self.driver_version = ask("nvmlSystemGetDriverVersion")
        cuda = ask("nvmlSystemGetCudaDriverVersion_v2")
        self.cuda_version = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None
        for index in range(count):
            self._add_gpu(index)
        self._devices = tuple(watched.device for watched in self._watched.values())
        handles = {index: watched.handle for index, watched in self._watched.items()}
        self._xids = XidWatch(nvml, self._devices, handles, self._gaps, self._root) if handles else None

    def _add_gpu(self, index: int) -> None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as e:
            self._give_up(index, error_name(nvml, e))
            return
        watched = WatchedGpu(nvml, describe(nvml, index, handle, self._root), handle)
        self._watched[index] = watched
        if (gap := watched.gpm.why_not()) is not None:
            # one gap for all GPUs of a model
            self._gaps.add(gap.metric, gap.scope, gap.reason, gap.hint, key=watched.device.name)

    def _own_pids(self, targets: Sequence[Target]) -> frozenset[int]:
        members = self._tree.members() if self._tree is not None else ()
        self._own.update(target.pid for target in targets)
        self._own.update(member.pid for member in members)
        return frozenset(self._own)

    def _xid_samples(self) -> list[Sample]:
        """The new Xids, and each GPU's number of Xids since the start."""
        if self._xids is None:
            return []
        samples = []
        for index, xid in self._xids.take():
            samples.append(Sample("gpu.xid", f"gpu:{index}", float(xid)))
            if index in self._watched:
                self._watched[index].xids += 1
        seen = (self._watched[index] for index in sorted(self._xids.watched) if index in self._watched)
        return [*samples, *(Sample("gpu.xids", watched.scope, float(watched.xids)) for watched in seen)]

    def _sample_gpu(self, watched: WatchedGpu, now_ns: int, slow: bool) -> list[Sample]:
        samples = self._field_samples(watched, slow)
        counted = self._asked(watched, (GPM,), lambda nvml, h: watched.gpm.read(now_ns))
        watched.gpm.off = watched.gpm.off or counted is NEVER
        watched.gpm.counts_traffic = watched.gpm.counts_traffic and isinstance(counted, list)
        samples += _list(counted)
        for call in list(watched.calls):
            if (call.slow and not slow) or (call is THROUGHPUT and not self._traffic_due(watched)):
                continue
            values = self._asked(watched, call.metrics, call.read)
            if values is NEVER:
                watched.calls.remove(call)
            elif values is not None:
                samples += [Sample(m, watched.scope, v) for m, v in zip(call.metrics, values, strict=True)]
        return samples

    def _traffic_due(self, watched: WatchedGpu) -> bool:
        """True if it is this GPU's turn and GPM does not count its PCIe traffic, which is better than a sample of 20 ms."""
        turn = self._turn % len(self._devices) == watched.device.index % len(self._devices)
        return turn and not watched.gpm.counts_traffic

    def _field_samples(self, watched: WatchedGpu, slow: bool) -> list[Sample]:
        asked = [field for field in watched.fields if slow or not field.slow]
        if not asked:
            return []
        names = tuple(dict.fromkeys(field.metric for field in asked))
        answers = self._asked(
            watched, names, lambda nvml, h: ask_fields(nvml, h, [f.field for f in asked]), lasting=False
        )
        if answers is None:
            return []
        sums: dict[str, float] = {}
        partial: set[str] = set()  # a sum that lacks a part would fall, and its recovery would look like growth
        for field in asked:
            answer = "NVML_ERROR_FUNCTION_NOT_FOUND" if answers is NEVER else answers[field.field]
            if isinstance(answer, float):
                sums[field.metric] = sums.get(field.metric, 0.0) + answer * field.unit
            elif answer in GPU_GONE:
                raise Gone(answer)
            else:
                partial.add(field.metric)
                self._refused(watched, field, answer)
        known = {field.metric for field in watched.fields} - partial
        return [Sample(metric, watched.scope, value) for metric, value in sums.items() if metric in known]

    def _refused(self, watched: WatchedGpu, field: FieldMetric, name: str) -> None:
        if name not in LASTING or not (watched.replace(field) or field.silent):
            self._add_gap(watched, name, field.metric)

    def _slow_samples(self, watched: WatchedGpu, own: frozenset[int]) -> list[Sample]:
        samples = [Sample("gpu.lost", watched.scope, 0.0)]
        index = watched.device.index
        if watched.device.mig:
            samples += _list(self._asked(watched, (), lambda nvml, h: mig_samples(nvml, index, h)))
        if not watched.listed:
            return samples
        found = self._asked(watched, _NEIGHBOURS, lambda nvml, h: neighbours(nvml, index, h, own, self._root))
        watched.listed = found is not NEVER
        if not isinstance(found, Neighbours):
            return samples
        self._note(watched, found.processes)
        if not found.samples:
            return samples
        return [*samples, *found.samples, *self._foreign_sm(watched, own)]

    def _note(self, watched: WatchedGpu, processes: tuple[GpuProcess, ...]) -> None:
        if _differ(watched.noted, processes):
            watched.noted = processes
            self._listings.append(GpuProcesses(gpu=watched.device.index, processes=processes))

    def _foreign_sm(self, watched: WatchedGpu, own: frozenset[int]) -> list[Sample]:
        if not watched.sm_listed or watched.device.mig:  # with MIG it would cover all instances
            return []
        index, since_us = watched.device.index, watched.sm_since_us
        found = self._asked(watched, (FOREIGN_SM,), lambda nvml, h: foreign_sm(nvml, index, h, own, since_us))
        watched.sm_listed = found is not NEVER
        if found is None or found is NEVER:
            return []
        samples, watched.sm_since_us = found
        return list(samples)

    def _asked(self, watched: WatchedGpu, metrics: Sequence[str], read: Any, *, lasting: bool = True) -> Any:
        """The answer; None if it failed this time, NEVER if it always will. Raises Gone.

        `lasting`: report a permanent refusal as a gap, too.
        """
        try:
            return read(self._nvml, watched.handle)
        except self._nvml.NVMLError as e:
            name = error_name(self._nvml, e)
        if name in GPU_GONE:
            raise Gone(name)
        if lasting or name not in LASTING:
            for metric in metrics:
                self._add_gap(watched, name, metric)
        return NEVER if name in LASTING else None

    def _give_up(self, index: int, name: str) -> None:
        self._watched.pop(index, None)
        gap = gap_of(name, "gpu.*", f"gpu:{index}")
        # Its own key: a GPU that is lost in mid-run is reported even if it had another gap before.
        self._gaps.add(gap.metric, gap.scope, gap.reason, gap.hint, key=(gap.scope, name))

    def _add_gap(self, watched: WatchedGpu, name: str, metric: str) -> None:
        """Adds a gap; one for all GPUs of a model if the model or our permissions are the reason: else eight GPUs would repeat it."""
        gap = gap_of(name, metric, watched.scope)
        alike = name in LASTING or name == "NVML_ERROR_NO_PERMISSION"
        self._gaps.add(gap.metric, gap.scope, gap.reason, gap.hint, key=(watched.device.name, name) if alike else None)

    def _report(self, gap: ProbeGap) -> None:
        self._gaps.add(gap.metric, gap.scope, gap.reason, gap.hint)


def _list(answer: Any) -> list[Sample]:
    return [] if answer is None or answer is NEVER else answer


def _differ(noted: Sequence[GpuProcess], now: Sequence[GpuProcess]) -> bool:
    before = {process["pid"]: process["mem_bytes"] or 0 for process in noted}
    after = {process["pid"]: process["mem_bytes"] or 0 for process in now}
    return before.keys() != after.keys() or any(abs(after[pid] - before[pid]) > _MOVED_BYTES for pid in after)
