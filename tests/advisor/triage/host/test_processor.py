"""Cores that can be used, and their clocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probe_trees import V2_MOUNTS, write_tree
from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.triage.found_checks import Found
from rn50_advisor.advisor.triage.host import processor
from rn50_advisor.advisor.triage.host.other_load import (
    Watch,
)
from triage_hosts import PID, by_name, check_of, host, v1


def v2(root: Path, quota: str) -> Watch:
    return host(
        root,
        {
            "proc/self/mountinfo": V2_MOUNTS,
            f"proc/{PID}/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/cpu.max": f"{quota} 100000\n",
            "sys/fs/cgroup/job/cpu.stat": "nr_periods 100\nnr_throttled 40\nthrottled_usec 2000000\n",
        },
    )


@pytest.mark.parametrize(
    ("make", "given", "allowed", "state"),
    [
        (v1, 50_000, 0.5, "bad"),
        (v1, 390_000, 3.9, "bad"),
        (v1, 400_000, 4.0, "ok"),
        (v1, -1, 4.0, "ok"),
        (v2, "50000", 0.5, "bad"),
        (v2, "max", 4.0, "ok"),
    ],
)
def test_a_quota_below_the_cores_that_are_seen_is_a_setting_to_fix(
    tmp_path: Path, make: Any, given: Any, allowed: float, state: str
) -> None:
    watch = make(tmp_path, given)
    found = by_name(processor.facts(watch, tmp_path))["cpu.cores_allowed"]
    check = check_of(found)
    assert (check.value, check.expected.lo, check.state) == (allowed, 4.0, state)
    assert processor.cores_allowed(watch) == allowed
    if state == "bad":
        assert isinstance(found, Found) and found.remedy == "fix" and f"{allowed:g} cores" in found.why


def test_a_control_group_that_cannot_be_seen_is_a_gap(tmp_path: Path) -> None:
    found = by_name(processor.facts(host(tmp_path, {}), tmp_path))
    assert isinstance(found["cpu.cores_allowed"], TriageGap)
    assert check_of(found["cpu.cores_seen"]).value == 8.0
    affinity = check_of(found["cpu.cores_affinity"])
    assert affinity.value == 4.0 and affinity.state == "ok" and "cpuset" in affinity.hint


def test_the_clock_is_held_against_the_base_clock(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz\n\n"}
    )
    assert processor.nominal_mhz(tmp_path) == 2300.0
    states = {
        mhz: check_of(processor.clock(mhz, tmp_path)).state for mhz in (2400.0, 2070.0, 2069.0, 1730.0, 1720.0, 1100.0)
    }
    assert list(states.values()) == ["ok", "ok", "low", "low", "bad", "bad"], "0.9 and 0.75 of the base clock"
    slow = processor.clock(1100.0, tmp_path)
    assert isinstance(slow, Found) and slow.remedy == "hand-back" and "heat" in slow.why
    write_tree(tmp_path, {"sys/devices/system/cpu/cpu0/cpufreq/base_frequency": "2000000\n"})
    assert processor.nominal_mhz(tmp_path) == 2000.0
    assert isinstance(processor.clock(None, tmp_path), TriageGap)


def test_the_base_clock_of_amd_comes_from_acpi(tmp_path: Path) -> None:
    named = {"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7R13 Processor\n\n"}
    assert processor.nominal_mhz(write_tree(tmp_path, named)) is None
    file = "sys/devices/system/cpu/cpu0/acpi_cppc/nominal_freq"
    assert processor.nominal_mhz(write_tree(tmp_path, {file: "0\n"})) is None, "some firmware knows none"
    assert processor.nominal_mhz(write_tree(tmp_path, {file: "2650\n"})) == 2650.0


@pytest.mark.parametrize(
    ("governor", "driver", "remedy"),
    [
        ("powersave", "acpi-cpufreq", "fix"),
        ("powersave", "intel_pstate", "hand-back"),  # there it is a preference, and the clock goes up all the same
        ("powersave", "amd-pstate-epp", "hand-back"),
        ("performance", "acpi-cpufreq", "hand-back"),
    ],
)
def test_a_governor_that_saves_power_is_a_setting(tmp_path: Path, governor: str, driver: str, remedy: str) -> None:
    folder = "sys/devices/system/cpu/cpu0/cpufreq"
    files = {f"{folder}/base_frequency": "2000000\n", f"{folder}/scaling_governor": f"{governor}\n"}
    root = write_tree(tmp_path, {**files, f"{folder}/scaling_driver": f"{driver}\n"})
    slow = processor.clock(1000.0, root)
    assert isinstance(slow, Found) and slow.remedy == remedy and ("powersave" in slow.why) == (remedy == "fix")
    shown = by_name(processor.facts(host(tmp_path, {}), root))["cpu.governor"]
    assert check_of(shown).value == governor


def test_the_clock_is_that_of_the_cores_that_have_work(tmp_path: Path) -> None:
    """Four cores of eight are ours, and a quota lets two of them work: the others rest, and are no sign of heat."""
    resting = {f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq": "800000\n" for core in range(8)}
    busy = {f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq": "3000000\n" for core in (1, 3)}
    root = write_tree(tmp_path / "a", {**resting, **busy})
    assert processor.working_mhz(range(4), 2, root) == 3000.0
    assert processor.working_mhz(range(4), 4, root) == 1900.0
    rows = "".join(f"processor\t: {core}\ncpu MHz\t\t: {mhz}\n\n" for core, mhz in enumerate((800.0, 2900.0)))
    assert processor.working_mhz((0, 1), 1, write_tree(tmp_path / "b", {"proc/cpuinfo": rows})) == 2900.0
    assert processor.working_mhz((0,), 1, write_tree(tmp_path / "c", {})) is None


def test_the_clock_that_a_hypervisor_writes_is_none(tmp_path: Path) -> None:
    text = "processor\t: 0\nflags\t\t: fpu hypervisor\ncpu MHz\t\t: 2200.000\n\n"
    assert processor.working_mhz((0,), 1, write_tree(tmp_path, {"proc/cpuinfo": text})) is None
