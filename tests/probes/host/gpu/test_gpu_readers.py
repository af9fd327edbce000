"""What is asked of a GPU, and what the answers are called."""

from __future__ import annotations

import pytest

from gpu_playing import CODES, Refused, driver
from rn50_advisor.advisor.model.metrics import SAMPLES
from rn50_advisor.probes.host.gpu.gpu_readers import every_metric, link_sum


def test_every_metric_is_in_the_catalogue() -> None:
    assert {m for m in SAMPLES if m.startswith("gpu.")} == set(every_metric())


def test_counters_of_links_are_a_sum_of_all_the_links_there_are() -> None:
    absent: dict[object, int] = {(208, link): CODES["NVML_ERROR_NOT_SUPPORTED"] for link in range(12, 18)}
    assert link_sum(driver(absent), object(), 208) == (84.0,)
    with pytest.raises(Refused) as refused:
        link_sum(driver({**absent, (208, 3): CODES["NVML_ERROR_TIMEOUT"]}), object(), 208)
    assert refused.value.value == CODES["NVML_ERROR_TIMEOUT"]
    with pytest.raises(Refused) as refused:
        link_sum(driver({(208, link): CODES["NVML_ERROR_NOT_SUPPORTED"] for link in range(18)}), object(), 208)
    assert refused.value.value == CODES["NVML_ERROR_NOT_SUPPORTED"]
