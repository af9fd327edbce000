"""Utilisation of the parts of a GPU, from two samples of its counters."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice
from rn50_advisor.probes.host.gpu.gpu_gpm import Gpm


def test_a_sample_that_cannot_be_filled_is_kept_for_the_next_one() -> None:
    """The driver holds what was allocated, once a second for as long as the job runs."""
    made: list[object] = []

    def alloc() -> object:
        made.append(object())
        return made[-1]

    def refuse(handle: object, sample: object) -> None:
        raise RuntimeError

    nvml = SimpleNamespace(nvmlGpmSampleAlloc=alloc, nvmlGpmSampleGet=refuse)
    counted = Gpm(nvml, GpuDevice(0, "H100", "", "", None, gpm=True), object())
    for second in range(5):
        with pytest.raises(RuntimeError):
            counted.read(second * 10**9)
    assert len(made) == 1
