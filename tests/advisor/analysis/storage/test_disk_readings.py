"""Activity of the training data's disk during the steps: its rates, limits and how even it was."""

from __future__ import annotations

import numpy as np
import pytest

from recordings import (
    FIRST_STEP_NS,
    SECOND,
    series,
    steady_counter,
)
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.recording import Series
from rn50_advisor.advisor.model.wording.fact_rows import rows
from storage_recordings import DISK, disk, job


def test_a_disk_is_described_by_its_rates_sizes_and_times() -> None:
    found = job(disk(), DISK)
    wanted = {"read_mb_s": 50, "reads_s": 400, "request_kb": 125, "busy_share": 0.5, "queue": 1.5, "read_s": 0.002}
    assert {name: found.get(f"storage.{name}") for name in wanted} == pytest.approx(wanted)
    assert found.storage == DataMount("/data", "ext4", "/dev/dm-0", False, "dm-0", ("sda",))
    assert found.storage.words == "/data (ext4 on dm-0 over sda)"
    storage = rows(found.facts, "storage")
    assert ("location", "/data (ext4 on dm-0 over sda)") in storage
    assert ("reads", "50 MB/s, 400 reads/s, 125 KB each, in 2.00 ms") in storage


def test_limits_and_what_the_provider_held_back_belong_to_the_datas_disk() -> None:
    samples = {
        ("disk.limit_read_bytes_s", "disk:dm-0"): series((0, 25e6)),
        ("disk.limit_reads_s", "disk:sdb"): series((0, 10)),
        ("disk.volume_exceeded_s", "disk:dm-0"): steady_counter(0.3),
    }
    found = job({**disk(), **samples}, DISK)
    assert found.get("storage.limit_mb_s") == 25.0 and found.get("storage.limit_reads_s") is None
    assert found.get("storage.volume_exceeded_share") == pytest.approx(0.3)


def test_the_median_second_is_not_that_of_the_ends() -> None:
    times = np.arange(11) * SECOND + FIRST_STEP_NS
    found = job({**disk(), ("disk.read_bytes", "disk:dm-0"): Series(times, np.cumsum([0, 9e6, *[40e6] * 8, 0]))}, DISK)
    assert found.get("storage.usual_mb_s") == pytest.approx(40)
    assert found.get("storage.mb_spread") == pytest.approx(0)


def test_an_even_rate_has_no_spread_and_a_ragged_one_has() -> None:
    ragged = np.cumsum([0, 0, *[30e6, 50e6, 70e6] * 3])
    times = np.arange(11) * SECOND + FIRST_STEP_NS
    found = job({**disk(), ("disk.read_bytes", "disk:dm-0"): Series(times, ragged)}, DISK)
    assert found.get("storage.mb_spread") == pytest.approx(20 / 50)
    assert found.get("storage.reads_spread") == pytest.approx(0.0)
