"""Reads the NVIDIA driver once a second while the GPUs have work, and puts the readings where the analysis of a run finds its own."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import psutil

from rn50_advisor.advisor.model.metrics import ProbeGap, Reading
from rn50_advisor.advisor.model.recording import Meta, Process, Recording, Series
from rn50_advisor.probes.documents.machine_documents import GpuDeviceFacts, GpuPathFacts, MachineFacts
from rn50_advisor.probes.host.gpu.gpu_devices import GpuConnection, GpuDevice
from rn50_advisor.probes.host.gpu.gpu_probe import GpuProbe
from rn50_advisor.probes.host.target import Target
from rn50_advisor.probes.host.topology import host_facts

PERIOD_S = 1.0
ENDS_S = 5.0  # a reading takes milliseconds, of eight busy GPUs some hundreds of them
LEAST_S = 6.0  # slow values are read every five seconds, and growth needs two readings
_NCCL = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")


class DriverReader:
    """Reads the driver in its own thread, from `begin` to `end`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._probe = GpuProbe(root)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._began_s = 0.0
        self._readings: list[tuple[int, Reading]] = []
        self.devices: tuple[GpuDevice, ...] = ()
        self.paths: tuple[GpuConnection, ...] = ()
        self.serials: Mapping[int, str] = {}

    def meet(self) -> tuple[GpuDevice, ...]:
        """Reads everything that is needed only once. Later parts can do without the driver."""
        self.devices = self._probe.devices()
        self.paths = self._probe.paths() if self.devices else ()
        self.serials = self._probe.serials() if self.devices else {}
        return self.devices

    def versions(self) -> tuple[str | None, str | None]:
        """Versions of the driver and of the newest CUDA that it supports."""
        return self._probe.driver_version, self._probe.cuda_version

    def gaps(self) -> tuple[ProbeGap, ...]:
        """Requests that the driver has refused so far."""
        if not self._readings and not self._thread.is_alive():
            return self._probe.sample(time.monotonic_ns(), ()).gaps
        return tuple(gap for _, reading in tuple(self._readings) for gap in reading.gaps)

    def begin(self) -> None:
        self._began_s = time.monotonic()
        self._thread.start()

    def end(self, *, at_once: bool = False) -> bool:
        """Waits until enough has been read; whether the last reading came back from the driver, which may hang. What was read stays."""
        if not at_once:
            time.sleep(max(0.0, self._began_s + LEAST_S - time.monotonic()))
        self._over.set()
        self._thread.join(ENDS_S)
        return not self._thread.is_alive()

    def recording(self) -> Recording:
        """Returns the readings as the recording of a job with one rank per GPU."""
        readings = tuple(self._readings)
        return recording_of(self.devices, self.paths, readings, self.gaps(), _environment(self._root))

    def _read(self) -> None:
        due_s = time.monotonic()
        while True:
            now_ns = time.monotonic_ns()
            self._readings.append((now_ns, self._probe.sample(now_ns, _own_processes())))
            due_s = max(due_s + PERIOD_S, time.monotonic())
            if self._over.wait(max(0.0, due_s - time.monotonic())):
                return


def _own_processes() -> list[Target]:
    """Returns our own measuring processes; any other process on a GPU is a stranger."""
    try:
        return [Target(process.pid, "other") for process in psutil.Process().children(recursive=True)]
    except psutil.Error:
        return []  # one of them has just ended; the next reading will do


def recording_of(
    devices: Sequence[GpuDevice],
    paths: Sequence[GpuConnection],
    readings: Sequence[tuple[int, Reading]],
    gaps: Sequence[ProbeGap],
    environment: MachineFacts,
) -> Recording:
    columns: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for t_ns, reading in readings:
        for sample in reading.samples:
            columns.setdefault((sample.metric, sample.scope), []).append((t_ns, sample.value))
    first, last = (readings[0][0], readings[-1][0]) if readings else (0, 0)
    machine: MachineFacts = {
        **environment,
        "gpus": [cast(GpuDeviceFacts, dataclasses.asdict(device)) for device in devices],
        "gpu_paths": [cast(GpuPathFacts, dataclasses.asdict(path)) for path in paths],
    }
    return Recording(
        Meta("triage", (), "", "", 0.0, first, last, environment=machine),
        # what the analysis asks of a rank is which GPU it is on; no process has these numbers
        tuple(Process(-1 - d.index, "rank", d.index, d.index, None, 0, "", first) for d in devices),
        {-1 - device.index: {"cuda": {"uuid": device.uuid}} for device in devices},
        samples={key: _series(column) for key, column in columns.items()},
        gaps=tuple(gaps),
    )


def _series(column: list[tuple[int, float]]) -> Series:
    times, values = zip(*column, strict=True)
    return Series(np.array(times, dtype=np.int64), np.array(values, dtype=np.float64))


def _environment(root: Path) -> MachineFacts:
    variables = {name: os.environ[name] for name in _NCCL if name in os.environ}
    return {"numa_nodes": host_facts(root)["numa_nodes"], "variables": variables}
