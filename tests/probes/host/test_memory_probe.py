"""Memory, swap, pressure, shared memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probe_trees import missing, values, write_tree
from rn50_advisor.probes.host.memory_probe import MemoryProbe
from rn50_advisor.probes.host.procfs import PAGE_BYTES
from rn50_advisor.probes.host.target import Target

PRESSURE = "some avg10=0.10 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=77\n"
FILES = {
    "proc/meminfo": "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:   600 kB\nBuffers: 3 kB\nCached:  200 kB\nSwapCached: 9 kB\n",
    "proc/vmstat": "nr_free_pages 9\npswpin 4\npswpout 2\noom_kill 5\n",
    "proc/pressure/cpu": PRESSURE.format(1_500_000),
    "proc/pressure/memory": PRESSURE.format(2_500_000),
    "proc/pressure/io": PRESSURE.format(3_500_000),
    "dev/shm/x": "",
}


def test_values_in_the_units_of_the_catalogue(tmp_path: Path) -> None:
    reading = MemoryProbe(write_tree(tmp_path, FILES)).sample(0, [])
    found = {metric: value for (metric, _), value in values(reading).items()}
    assert found.pop("mem.shm_total_bytes") >= found.pop("mem.shm_used_bytes") >= 0
    assert found == {
        "mem.total_bytes": 1000 * 1024,
        "mem.available_bytes": 600 * 1024,
        "mem.cached_bytes": 200 * 1024,
        "mem.swap_in_bytes": 4 * PAGE_BYTES,
        "mem.oom_kills": 5,
        "psi.cpu_some_s": 1.5,
        "psi.mem_some_s": 2.5,
        "psi.io_some_s": 3.5,
    }
    assert not reading.gaps


@pytest.mark.parametrize(
    ("absent", "gaps"),
    [
        ("proc/pressure/io", {"psi.io_some_s"}),
        ("proc/vmstat", {"mem.swap_in_bytes", "mem.oom_kills"}),
        ("proc/meminfo", {"mem.total_bytes", "mem.available_bytes", "mem.cached_bytes"}),
        ("dev/shm/x", {"mem.shm_total_bytes", "mem.shm_used_bytes"}),
    ],
)
def test_what_is_absent_is_a_gap_once_and_the_rest_is_reported(tmp_path: Path, absent: str, gaps: set[str]) -> None:
    write_tree(tmp_path, {name: text for name, text in FILES.items() if name != absent})
    probe = MemoryProbe(tmp_path)
    reading = probe.sample(0, [])
    assert missing(reading) == gaps
    assert {metric for metric, _ in values(reading)}.isdisjoint(gaps)
    assert len(reading.samples) == 10 - len(gaps)
    assert not probe.sample(1, []).gaps


def test_an_old_kernel_without_oom_counter(tmp_path: Path) -> None:
    reading = MemoryProbe(write_tree(tmp_path, FILES | {"proc/vmstat": "pswpin 4\n"})).sample(0, [])
    assert missing(reading) == {"mem.oom_kills"}
    assert ("mem.swap_in_bytes", "host") in values(reading)


def test_pressure_comes_back_when_its_file_does(tmp_path: Path) -> None:
    write_tree(tmp_path, {name: text for name, text in FILES.items() if "pressure" not in name})
    probe = MemoryProbe(tmp_path)
    assert missing(probe.sample(0, [])) == {"psi.cpu_some_s", "psi.mem_some_s", "psi.io_some_s"}
    write_tree(tmp_path, FILES)
    assert values(probe.sample(1, []))["psi.cpu_some_s", "host"] == 1.5


def test_shared_memory_is_the_jobs_not_the_advisors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"dev/shm": (1000, 900), "proc/7/root/dev/shm": (64, 16), "proc/8/root/dev/shm": (64, 4)}

    def statvfs(path: Path) -> os.statvfs_result:
        blocks, free = sizes[str(path.relative_to(tmp_path))]
        return os.statvfs_result((4096, 4096, blocks, free, free, 0, 0, 0, 0, 255))

    def shared(*targets: Target) -> tuple[float, float]:
        found = values(MemoryProbe(write_tree(tmp_path, FILES)).sample(0, targets))
        return found["mem.shm_used_bytes", "host"] / 4096, found["mem.shm_total_bytes", "host"] / 4096

    monkeypatch.setattr("rn50_advisor.probes.host.memory_probe.os.statvfs", statvfs)
    assert shared(Target(7, "rank", 0)) == (48, 64)
    assert shared(Target(7, "rank", 0), Target(8, "rank", 1)) == (60, 64), "the fullest"
    assert shared(Target(8, "worker", 0)) == (100, 1000), "workers see what their rank sees; they are not asked"


def test_shared_memory_of_a_process_that_is_gone_is_the_hosts() -> None:
    gone = values(MemoryProbe().sample(0, [Target(2**22 + 1, "rank", 0)]))
    assert gone["mem.shm_total_bytes", "host"] == values(MemoryProbe().sample(0, []))["mem.shm_total_bytes", "host"]


def test_the_real_machine_has_memory() -> None:
    found = values(MemoryProbe().sample(0, []))
    assert 0 < found["mem.available_bytes", "host"] <= found["mem.total_bytes", "host"]
