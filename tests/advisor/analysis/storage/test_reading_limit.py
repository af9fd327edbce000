"""The most that storage gives: what a control group allows, or what a saturated disk has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rn50_advisor.advisor.analysis.input.loading import Loading
from rn50_advisor.advisor.analysis.storage.reading_limit import storage_ceiling
from rn50_advisor.advisor.model.measures.measured import Measured

MADE = Loading(2, 100, 8.0, wall_s=0.08, cpu_s=0.01, delay_s=0.0, read_bytes=80_000, system_s=0.0, busy_share=1.0)
READ = {"storage.read_mb_s": 1.0, "storage.reads_s": 50.0}  # a hundred samples and fifty requests a second
BUSY = {"storage.busy_share": 0.95, "storage.queue": 3.0}


def of_job(values: dict[str, float]) -> Measured:
    return Measured({(name, "job"): value for name, value in values.items()})


@pytest.mark.parametrize(
    ("probe", "ceiling"),
    [
        pytest.param({}, None, id="nothing known of the disk"),
        pytest.param({"storage.limit_mb_s": 1.1}, (110.0, True), id="a control group's limit"),
        pytest.param({"storage.limit_mb_s": 2.0}, (200.0, False), id="a limit that is far"),
        pytest.param({"storage.limit_reads_s": 55.0}, (110.0, True), id="a limit on requests"),
        pytest.param({"storage.limit_reads_s": 75.0, "storage.limit_mb_s": 2.0}, (150.0, False), id="the lower of two"),
        pytest.param(BUSY, (100.0, True), id="a disk that is busy"),
        pytest.param({**BUSY, "storage.limit_mb_s": 2.0}, (100.0, True), id="a disk that gives less than is allowed"),
        pytest.param({"storage.busy_share": 0.95, "storage.queue": 1.0}, None, id="one request at a time"),
        pytest.param({"storage.volume_exceeded_share": 0.5}, (100.0, True), id="a volume that its provider throttles"),
    ],
)
def test_the_most_that_storage_gives(probe: dict[str, float], ceiling: tuple[float, bool] | None) -> None:
    for hosts in (1, 2):
        found = storage_ceiling(of_job({**READ, **probe}), MADE, hosts)
        limit = None if found is None else (found.samples_per_s, found.reached)
        assert limit == (None if ceiling is None else (pytest.approx(hosts * ceiling[0]), ceiling[1]))
    assert storage_ceiling(of_job(probe), MADE) is None, "how much is read must be known"


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ({"storage.limit_mb_s": 12.8}, "1 MB/s read of 12.8 that a control group allows"),
        ({"storage.busy_share": 0.95, "storage.queue": 2.0}, "1 MB/s read from a disk that is busy 95% of the time"),
        ({"storage.volume_exceeded_share": 0.2}, "1 MB/s read from a volume that its provider throttles"),
    ],
)
def test_it_says_why_that_is_the_most(probe: dict[str, float], why: str) -> None:
    found = storage_ceiling(of_job({**READ, **probe}), MADE)
    assert found is not None and found.why == why


def test_data_in_memory_knows_no_limit_of_storage() -> None:
    assert storage_ceiling(of_job({**READ, "storage.limit_mb_s": 12.8}), replace(MADE, read_bytes=0.0)) is None
