"""Threads for what may be slow to answer: host probes, the GPU driver, the process tree; mounts and files. Rings never wait for them."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, happened
from rn50_advisor.advisor.run.sidefiles.job_sources import SourceNews, read_source
from rn50_advisor.probes.documents.event_documents import DataMounted, GpuProcesses
from rn50_advisor.probes.documents.machine_documents import GpuDeviceFacts, GpuPathFacts, MachineFacts
from rn50_advisor.probes.documents.rank_documents import MountFacts
from rn50_advisor.probes.host.gpu.gpu_probe import GpuProbe
from rn50_advisor.probes.host.process.process_tree import Member, ProcessTree, TreeChange
from rn50_advisor.probes.host.sampler import Sampler, Tick, host_probes
from rn50_advisor.probes.host.storage.data_files import DataFilesProbe
from rn50_advisor.probes.host.storage.disk_probe import mount_of
from rn50_advisor.probes.host.target import Target
from rn50_advisor.probes.host.topology import host_facts, slow_denormals


@dataclass(frozen=True, slots=True)
class HostNews:
    """The samples of one tick and the processes of the job at that time."""

    tick: Tick
    change: TreeChange
    members: tuple[Member, ...]


def without_samples(news: HostNews) -> HostNews:
    """The events of a tick, which must not be lost, and a gap in place of its samples."""
    gap = ProbeGap("host.*", "host", "samples were dropped: the disk of the run folder did not answer for minutes")
    return dataclasses.replace(news, tick=dataclasses.replace(news.tick, samples=(), gaps=(*news.tick.gaps, gap)))


@dataclass(frozen=True, slots=True)
class MountNews:
    root: str
    mount: MountFacts | None


@dataclass(frozen=True, slots=True)
class MachineNews:
    """Properties of the host. The driver is asked about GPUs, which may take seconds."""

    facts: MachineFacts


News = HostNews | MountNews | MachineNews | SourceNews | AnyEvent | ProbeGap


class HostWatch:
    """`post` is called in the thread. Targets and what to shed are set from outside and take effect at the next tick."""

    def __init__(self, job_pid: int, *, period_s: float, probes: bool, post: Callable[[News], None]) -> None:
        self._tree = ProcessTree(job_pid)
        found = host_probes(tree=self._tree, job_pid=job_pid) if probes else ()
        self._gpu = next((probe for probe in found if isinstance(probe, GpuProbe)), None)
        self._data_files = next((probe for probe in found if isinstance(probe, DataFilesProbe)), None)
        self._sampler = Sampler(found, period_s)
        self._post = post
        self._stop = threading.Event()
        self._wanted: deque[Callable[[], object]] = deque()
        self._questions: queue.SimpleQueue[Callable[[], News] | None] = queue.SimpleQueue()
        self.targets: tuple[Target, ...] = (Target(job_pid, "other"),)
        self._thread = threading.Thread(target=self._run, name="rn50-host", daemon=True)
        # a server that does not answer holds this one, and not the probes
        self._files = threading.Thread(target=self._answer, name="rn50-files", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._files.start()

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the probes that still run."""
        return self._sampler.active

    def shed(self, probe: str) -> bool:
        """False where there is nothing to shed."""
        if probe not in self._sampler.active or (probe == "gpu" and self._gpu and not self._gpu.devices()):
            return False
        self._wanted.append(lambda: self._sampler.drop(probe))
        return True

    def want_mount(self, root: str) -> None:
        self._questions.put(lambda: MountNews(root, _mount(root)))

    def want_source(self, path: str, known_at_unix_s: float) -> None:
        self._questions.put(lambda: read_source(path, known_at_unix_s))

    def finish(self, within_s: float) -> bool:
        """Ends the threads after a last tick. Returns False if one still hangs in a driver or a mount after `within_s`."""
        self._stop.set()
        self._questions.put(None)
        deadline_s = time.monotonic() + within_s
        for thread in (self._thread, self._files):
            if thread.ident is not None:
                thread.join(max(0.0, deadline_s - time.monotonic()))
        return not self._thread.is_alive() and not self._files.is_alive()

    def _run(self) -> None:
        try:
            self._tick(self._sampler.poll(self.targets))
            self._describe_machine()
            while not self._stop.wait(self._sampler.wait_s()):
                self._tick(self._sampler.poll(self.targets))
                while self._wanted:
                    self._wanted.popleft()()
            self._tick(self._sampler.sample_now(self.targets))
        except Exception as error:  # noqa: BLE001 - the wall of this thread; single probes have their own
            reason = f"host probes stopped: {type(error).__name__}: {error}"
            self._post(ProbeGap("host.*", "host", reason, "please report this"))

    def _answer(self) -> None:
        while (question := self._questions.get()) is not None:
            try:
                self._post(question())
            except Exception as error:  # noqa: BLE001 - one odd name must not silence the others
                self._post(ProbeGap("mounts", "job", f"{type(error).__name__}: {error}", "please report this"))

    def _tick(self, tick: Tick | None) -> None:
        if tick is not None:
            # with the tick's own time the tree answers what the probe has just found
            change = self._tree.update(tick.t_ns)
            self._post(HostNews(tick, change, self._tree.members()))
            for mount in self._data_files.take_mounts() if self._data_files is not None else ():
                self._post(happened(DataMounted, cast(DataMounted, dataclasses.asdict(mount)), t_ns=tick.t_ns))
            for listing in self._gpu.take_listings() if self._gpu is not None else ():
                self._post(happened(GpuProcesses, listing, t_ns=tick.t_ns))

    def _describe_machine(self) -> None:
        facts = host_facts()
        facts["slow_denormals"] = slow_denormals()
        if self._gpu is not None:
            facts["gpus"] = [cast(GpuDeviceFacts, dataclasses.asdict(device)) for device in self._gpu.devices()]
            facts["gpu_paths"] = [cast(GpuPathFacts, dataclasses.asdict(path)) for path in self._gpu.paths()]
            facts["driver"] = self._gpu.driver_version
            facts["driver_cuda"] = self._gpu.cuda_version
        self._post(MachineNews(facts))


def _mount(root: str) -> MountFacts | None:
    try:
        mount = mount_of(root)
    except OSError:
        return None
    return cast(MountFacts, dataclasses.asdict(mount)) if mount else None
