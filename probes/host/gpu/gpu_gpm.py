"""Utilisation of a GPU's units from its own counters (GPM, Hopper and later), as differences of two samples."""

from __future__ import annotations

from typing import Any

from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice
from rn50_advisor.probes.host.gpu.gpu_readers import GPM_METRICS, THROUGHPUT

ALL = "gpu.*_active_pct"
_SAMPLE_DISTANCE_MIN_NS = 100_000_000  # nvml.h: minimum distance of two samples


class Gpm:
    """GPM sampling of one GPU. It reuses two sample buffers and allocates nothing else while the job runs."""

    def __init__(self, nvml: Any, device: GpuDevice, handle: Any) -> None:
        self._nvml = nvml
        self._device = device
        self._handle = handle
        self._before: Any = None
        self._spare: Any = None
        self._before_ns = 0
        self.off = device.gpm is False  # if support is unknown, the first sample shows it
        self.counts_traffic = bool(device.gpm)  # PCIe traffic; if False, the probe must measure it by other means

    def why_not(self) -> ProbeGap | None:
        """The gap of a GPU without GPM; None if GPM is not off."""
        if not self.off:
            return None
        reason = f"{self._device.name} has no such counters: GPUs before Hopper lack them"
        return ProbeGap(ALL, f"gpu:{self._device.index}", reason, "power and clocks show how hard it works")

    def read(self, now_ns: int) -> list[Sample]:
        """Activity since the last reading. Raises NVMLError."""
        if self.off or (self._before is not None and now_ns - self._before_ns < _SAMPLE_DISTANCE_MIN_NS):
            return []
        nvml = self._nvml
        self._spare = self._spare or nvml.nvmlGpmSampleAlloc()  # kept for the next reading if this one fails
        nvml.nvmlGpmSampleGet(self._handle, self._spare)
        before, self._before, self._spare = self._before, self._spare, self._before
        self._before_ns = now_ns
        if before is None:
            return []
        found = self._between(before, self._before)
        self.counts_traffic = any(sample.metric in THROUGHPUT.metrics for sample in found)
        return found

    def _between(self, before: Any, after: Any) -> list[Sample]:
        nvml = self._nvml
        query = nvml.c_nvmlGpmMetricsGet_t()
        query.version = nvml.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(GPM_METRICS)
        query.sample1, query.sample2 = before, after
        for place, number in enumerate(GPM_METRICS):
            query.metrics[place].metricId = number
        nvml.nvmlGpmMetricsGet(query)
        scope = f"gpu:{self._device.index}"
        answers = (query.metrics[place] for place in range(len(GPM_METRICS)))
        return [
            Sample(metric, scope, answer.value * unit)
            for (metric, unit), answer in zip(GPM_METRICS.values(), answers, strict=True)
            if answer.nvmlReturn == 0
        ]
