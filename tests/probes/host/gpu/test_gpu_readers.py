"""What is asked of a GPU, and what the answers are called."""

from __future__ import annotations

import pytest

from gpu_playing import CODES, Refused, driver
from rn50_advisor.advisor.model.metrics import SAMPLES
from rn50_advisor.probes.host.gpu import gpu_readers as readers
from rn50_advisor.probes.host.gpu.gpu_readers import link_sum


def test_every_metric_is_in_the_catalogue() -> None:
    every = (*readers._EVERY_GPU, *readers._SOUNDNESS, *readers._WITH_ECC, *readers._WITH_LINKS)
    calls = (*readers.CALLS, readers.THERMAL, readers.CAP, readers.THROUGHPUT)
    names = {field.metric for field in every} | {metric for call in calls for metric in call.metrics}
    names |= {metric for metric, _ in readers.GPM_METRICS.values()} | {*readers.WATCHED}
    names |= {readers.FOREIGN_SM, readers.PROBE_COST, "gpu.nvlinks_active"}
    assert {m for m in SAMPLES if m.startswith("gpu.")} == names


def test_counters_of_links_are_a_sum_of_all_the_links_there_are() -> None:
    absent: dict[object, int] = {(208, link): CODES["NVML_ERROR_NOT_SUPPORTED"] for link in range(12, 18)}
    assert link_sum(driver(absent), object(), 208) == (84.0,)
    with pytest.raises(Refused) as refused:
        link_sum(driver({**absent, (208, 3): CODES["NVML_ERROR_TIMEOUT"]}), object(), 208)
    assert refused.value.value == CODES["NVML_ERROR_TIMEOUT"]
    with pytest.raises(Refused) as refused:
        link_sum(driver({(208, link): CODES["NVML_ERROR_NOT_SUPPORTED"] for link in range(18)}), object(), 208)
    assert refused.value.value == CODES["NVML_ERROR_NOT_SUPPORTED"]
