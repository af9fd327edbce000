"""What a triage reads of the host: quotas of both versions, who else uses the cores, shared memory, limits, links."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probe_trees import V1_MOUNTS, V2_MOUNTS, write_tree
from rn50_advisor.advisor.instances import by_name as by_name_of
from rn50_advisor.advisor.instances.metadata import NamedInstance
from rn50_advisor.advisor.model.documents.machine_triage import Band, Check, TriageGap
from rn50_advisor.advisor.triage.found_checks import Found, Item, TriageOptions, judged
from rn50_advisor.advisor.triage.host import memory_checks, network_links, other_load, processor
from rn50_advisor.advisor.triage.host.other_load import (
    LoadInterval,
    Moment,
    Watch,
    cpu_times,
    mean_others,
    taken_from_us,
    yielding_s,
)
from rn50_advisor.advisor.triage.instance_checks import gpu_count, instance
from rn50_advisor.advisor.triage.triage_runner import _disturbed

PID = os.getpid()
CPUS = {"proc/self/status": "Cpus_allowed_list:\t0-3\n", "sys/devices/system/cpu/online": "0-7\n"}


def host(root: Path, files: dict[str, str]) -> Watch:
    return Watch(write_tree(root, {**CPUS, **files}))


def v1(root: Path, quota_us: int) -> Watch:
    group = "sys/fs/cgroup/cpu,cpuacct"
    return host(
        root,
        {
            "proc/self/mountinfo": V1_MOUNTS,
            f"proc/{PID}/cgroup": "3:cpu,cpuacct:/\n",
            f"{group}/cpu.cfs_quota_us": f"{quota_us}\n",
            f"{group}/cpu.cfs_period_us": "100000\n",
            f"{group}/cpu.stat": "nr_periods 100\nnr_throttled 40\nthrottled_time 2000000000\n",
        },
    )


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


def by_name(items: Any) -> dict[str, Item]:
    return {item.check.name if isinstance(item, Found) else item.name: item for item in items}


def check_of(item: Item) -> Check:
    assert isinstance(item, Found)
    return item.check


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


STAT = (
    "cpu  9 9 9 9 9 9 9 9\ncpu0 100 50 10 1000 0 1 2 30 0 0\ncpu1 200 0 0 900 0 0 0 0 0 0\ncpu2 900 0 0 0 0 0 0 0 0 0\n"
)


def test_times_are_those_of_our_cores() -> None:
    found = cpu_times(STAT, {0, 1})
    assert found is not None
    ticks = [round(value * os.sysconf("SC_CLK_TCK")) for value in found]
    assert ticks == [300, 50, 10, 1900, 0, 1, 2, 30]
    assert cpu_times(STAT, {5}) is None
    assert cpu_times("cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\n", {0}) is None, "a sandbox that keeps no account"


def moment(at_s: float, own: float = 0.0, cpu: tuple[float, ...] | None = None, **more: Any) -> Moment:
    given: dict[str, Any] = {
        "throttled_periods": None,
        "periods": None,
        "thermal_events": None,
        "pressure_s": {},
        "disk_bytes": {},
        **more,
    }
    return Moment(at_s, own, cpu, **given)


def stretch(seconds: float = 10.0, own: float = 0.0, **fields: float) -> LoadInterval:
    """On four cores; fields in seconds as /proc/stat counts them."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    busy = sum(fields.values())
    after = tuple(fields.get(name, 0.0) for name in names)
    after = (*after[:3], max(0.0, 4 * seconds - busy), *after[4:])
    return LoadInterval(moment(0.0, cpu=(0.0,) * 8), moment(seconds, own, after))


def test_others_are_what_is_busy_and_not_ours() -> None:
    assert stretch(user=25.0, system=5.0, own=10.0).others_cores == pytest.approx(2.0)
    assert stretch(user=5.0, own=10.0).others_cores == 0.0
    assert LoadInterval(moment(0.0), moment(1.0)).others_cores is None


def test_who_gives_way_takes_nothing() -> None:
    beside = stretch(nice=20.0)
    assert beside.others_cores == pytest.approx(2.0)
    assert replace(beside, after=replace(beside.after, yielding_s={9: 20.0})).others_cores == 0.0


def test_who_is_niced_ourselves_has_nobody_who_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_load, "yielding_s", lambda root: {9: 1.0})
    for nice, expected in ((0, {9: 1.0}), (5, {})):
        monkeypatch.setattr(os, "getpriority", lambda which, who, nice=nice: nice)
        assert host(tmp_path, {}).now().yielding_s == expected


@pytest.mark.parametrize(
    ("by_session", "ours", "yielding"),
    [("1", "/", {8}), ("0", "/", {8, 9}), (None, "/", {8, 9}), ("1", "/job", {10}), ("1", None, set())],
)
def test_who_is_weighed_in_another_group_gives_no_way(
    tmp_path: Path, by_session: str | None, ours: str | None, yielding: set[int]
) -> None:
    """A niced job of another session, or container, has as much of a core as we have."""
    where = {8: ("/", 1), 9: ("/", 2), 10: ("/job", 2)}
    fields = " ".join(["S", *["0"] * 10, "500", "100", "0", "0", "20", "19", *["0"] * 34])
    files = {f"proc/{pid}/stat": f"{pid} (x) {fields}\n" for pid in where}
    files |= {f"proc/{pid}/cgroup": f"1:cpu:{path}\n" for pid, (path, _) in where.items()}
    files |= {f"proc/{pid}/autogroup": f"/autogroup-{session} nice 0\n" for pid, (_, session) in where.items()}
    files["proc/self/autogroup"] = "/autogroup-1 nice 0\n"
    files |= {"proc/self/cgroup": f"1:cpu:{ours}\n"} if ours else {}
    files |= {"proc/sys/kernel/sched_autogroup_enabled": f"{by_session}\n"} if by_session else {}
    assert set(yielding_s(write_tree(tmp_path, files))) == yielding


def test_who_runs_only_when_nobody_else_wants_to_is_told_by_its_process(tmp_path: Path) -> None:
    def line(pid: int, nice: int, policy: int) -> str:
        fields = ["0"] * 53
        fields[3], fields[14], fields[15], fields[19], fields[41] = "S", "500", "100", str(nice), str(policy)
        return f"{pid} (a (b) c) " + " ".join(fields[3:]) + "\n"

    tasks = {7: (0, 0), 8: (19, 0), 9: (0, 5), 10: (19, 5)}
    root = write_tree(tmp_path, {f"proc/{pid}/stat": line(pid, *of) for pid, of in tasks.items()})
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert yielding_s(root) == pytest.approx({8: 600 * tick, 9: 600 * tick, 10: 600 * tick})
    before, after = moment(0.0, cpu=(0.0,) * 8), moment(10.0, 0.0, (20.0, *(0.0,) * 7))
    given_way = replace(after, yielding_s={9: 15.0})
    assert LoadInterval(before, after).others_cores == pytest.approx(2.0)
    assert LoadInterval(before, given_way).others_cores == pytest.approx(0.5)
    assert LoadInterval(replace(before, yielding_s={9: 12.0}), given_way).others_cores == pytest.approx(1.7)


def test_steal_and_throttling_are_shares() -> None:
    assert stretch(user=36.0, steal=4.0).steal_share == pytest.approx(0.1)
    assert stretch(user=3.6, steal=0.4).steal_share == pytest.approx(0.1)  # nobody takes what nobody wants
    assert stretch().steal_share is None
    first, last = moment(0.0, periods=100.0, throttled_periods=10.0), moment(1.0, periods=110.0, throttled_periods=15.0)
    assert LoadInterval(first, last).throttled_share == pytest.approx(0.5)
    assert LoadInterval(first, first).throttled_share is None


def test_beside_a_quota_there_may_be_room_for_others() -> None:
    assert taken_from_us(2.0, 4, 4.0) == 2.0
    assert taken_from_us(2.0, 4, 1.0) == 0.0
    assert taken_from_us(3.5, 4, 1.0) == pytest.approx(0.5)


def test_others_are_averaged_by_time() -> None:
    assert mean_others([stretch(30.0, user=30.0), stretch(10.0)]) == pytest.approx(0.75)
    assert mean_others([]) is None


def loaded(watch: Watch, *stretches: LoadInterval) -> dict[str, Item]:
    return by_name(processor.load(stretches, watch, stretches[0]))


def test_a_machine_that_others_use_is_to_be_freed_and_not_handed_back(tmp_path: Path) -> None:
    watch = v1(tmp_path, -1)
    burnt = loaded(watch, stretch(user=20.0))["cpu.others_cores"]
    assert isinstance(burnt, Found) and burnt.remedy == "fix" and burnt.check.state == "bad"
    # on the line: a tenth of four cores
    assert check_of(loaded(watch, stretch(user=4.0))["cpu.others_cores"]).state == "ok"
    assert check_of(loaded(watch, stretch(user=4.1))["cpu.others_cores"]).state == "bad"


def test_stolen_time_is_the_owners(tmp_path: Path) -> None:
    watch = v1(tmp_path, -1)
    stolen = loaded(watch, stretch(user=37.9, steal=2.1))["cpu.steal_share"]
    assert isinstance(stolen, Found) and stolen.remedy == "hand-back" and stolen.check.state == "bad"
    assert check_of(loaded(watch, stretch(user=38.1, steal=1.9))["cpu.steal_share"]).state == "ok"
    assert check_of(loaded(watch, stretch(user=10.0, steal=1.9))["cpu.steal_share"]).state == "bad"
    assert "CPU002" in stolen.check.expected.source


def test_what_others_disturb_proves_nothing(tmp_path: Path) -> None:
    watch = v1(tmp_path, -1)
    slow = judged("x", 1.0, "MB/s", Band(100.0, None), remedy="hand-back", needs_cores=True, hint="slow", why="slow")
    beside = _disturbed(slow, stretch(user=20.0), watch)
    assert (
        isinstance(beside, Found) and beside.check.state == "unknown" and "others kept 2 of our 4" in beside.check.hint
    )
    assert beside.remedy == "note"
    assert _disturbed(slow, stretch(user=1.0), watch) is slow
    good = judged("x", 100.0, "MB/s", Band(100.0, None), needs_cores=True)
    assert _disturbed(good, stretch(user=20.0), watch) is good


@pytest.mark.parametrize(("ran", "state"), [(1.0, "bad"), (0.8, "bad"), (0.79, "unknown"), (0.4, "unknown")])
def test_cores_that_we_do_not_get_though_nobody_else_uses_them_prove_nothing(
    tmp_path: Path, ran: float, state: str
) -> None:
    """A quota of a container around ours is not to be seen from here."""
    watch = v1(tmp_path, -1)
    band = Band(100.0, None)
    slow = judged("x", 1.0, "images/s", band, remedy="hand-back", needs_cores=True, hint="slow", why="slow")
    found = _disturbed(replace(slow, ran_share=ran), stretch(user=1.0), watch)
    assert isinstance(found, Found) and found.check.state == state
    assert (state == "bad") or ("something we cannot see stops us" in found.check.hint and found.remedy == "note")
    busy = _disturbed(replace(slow, ran_share=ran), stretch(user=20.0), watch)
    assert isinstance(busy, Found) and "others kept 2 of our 4" in busy.check.hint, "who is seen is named"


def test_without_an_account_of_others_no_machine_is_handed_back_for_slow_cores(tmp_path: Path) -> None:
    watch, unseen = v1(tmp_path, -1), LoadInterval(moment(0.0), moment(1.0))
    slow = judged("x", 1.0, "MB/s", Band(100.0, None), remedy="hand-back", needs_cores=True, hint="slow", why="slow")
    beside = _disturbed(slow, unseen, watch)
    assert isinstance(beside, Found) and beside.check.state == "unknown" and beside.remedy == "note"
    setting = replace(slow, remedy="fix")
    assert _disturbed(setting, unseen, watch) is setting
    found = loaded(watch, unseen)
    assert isinstance(found["cpu.others_cores"], TriageGap) and isinstance(found["cpu.steal_share"], TriageGap)


@pytest.mark.parametrize(
    ("megabytes", "free_share", "states"),
    [(64, 1.0, ("bad", "ok")), (1023, 1.0, ("low", "ok")), (1024, 1.0, ("ok", "ok")), (8192, 0.05, ("ok", "bad"))],
)
def test_small_or_full_shared_memory_is_a_setting(
    monkeypatch: pytest.MonkeyPatch, megabytes: int, free_share: float, states: tuple[str, str]
) -> None:
    blocks = megabytes << 8
    space = SimpleNamespace(f_blocks=blocks, f_frsize=4096, f_bavail=int(blocks * free_share))
    monkeypatch.setattr(os, "statvfs", lambda path: space)
    found = by_name(memory_checks.shared_memory())
    size, free = found["memory.shm_bytes"], found["memory.shm_free_bytes"]
    assert (check_of(size).state, check_of(free).state) == states
    assert isinstance(size, Found) and size.remedy == "fix"


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


def test_amd_tells_its_base_clock_by_acpi(tmp_path: Path) -> None:
    named = {"proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7R13 Processor\n\n"}
    assert processor.nominal_mhz(write_tree(tmp_path, named)) is None
    told = "sys/devices/system/cpu/cpu0/acpi_cppc/nominal_freq"
    assert processor.nominal_mhz(write_tree(tmp_path, {told: "0\n"})) is None, "some firmware knows none"
    assert processor.nominal_mhz(write_tree(tmp_path, {told: "2650\n"})) == 2650.0


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
    told = "sys/devices/system/cpu/cpu0/cpufreq"
    files = {f"{told}/base_frequency": "2000000\n", f"{told}/scaling_governor": f"{governor}\n"}
    root = write_tree(tmp_path, {**files, f"{told}/scaling_driver": f"{driver}\n"})
    slow = processor.clock(1000.0, root)
    assert isinstance(slow, Found) and slow.remedy == remedy and ("powersave" in slow.why) == (remedy == "fix")
    shown = by_name(processor.facts(host(tmp_path, {}), root))["cpu.governor"]
    assert check_of(shown).value == governor


def test_huge_pages_that_are_set_aside_and_the_memory_of_each_node_are_told(tmp_path: Path) -> None:
    node = "Node {n} MemTotal:       {kib} kB\nNode {n} MemFree:        100 kB\n"
    root = write_tree(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 1000 kB\nHugePages_Total:      64\nHugePages_Free:        8\n",
            **{f"sys/devices/system/node/node{n}/meminfo": node.format(n=n, kib=kib) for n, kib in ((0, 4096), (1, 0))},
        },
    )
    found = by_name(memory_checks.facts(host(tmp_path, {}), root))
    assert check_of(found["memory.hugepages_total"]).value == 64.0
    assert check_of(found["memory.hugepages_free"]).value == 8.0
    nodes = [check_of(found[f"numa.{n}.memory_bytes"]).value for n in range(2)]
    assert nodes == [4096 * 1024, 0.0], "a node without memory of its own gets it from afar"


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


def test_memory_that_could_not_be_had_is_no_slow_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(size: int) -> None:
        raise MemoryError

    monkeypatch.setattr(memory_checks.np, "ones", refused)
    monkeypatch.setattr(memory_checks, "_free_bytes", lambda watch: 64e9)
    (gap,) = memory_checks.speed(TriageOptions(tmp_path, "python"), v1(tmp_path, -1))
    assert isinstance(gap, TriageGap) and gap.name == "memory.copy_gb_per_s"


NET = "Inter-|   Receive\n face |bytes\n"


def test_the_fastest_card_counts_and_virtual_ones_do_not(tmp_path: Path) -> None:
    row = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
    files = {"proc/net/dev": NET + "".join(f"{name}: {row}\n" for name in ("lo", "eth0", "docker0"))}
    cards = {f"sys/class/net/{name}/device/vendor": "0x8086\n" for name in ("eth0", "docker0")}
    speeds = {"sys/class/net/eth0/speed": "10000\n", "sys/class/net/docker0/speed": "100000\n"}
    root = write_tree(tmp_path, {**files, **cards, **speeds})
    found = by_name(network_links.links(root))
    assert set(found) == {"network.eth0_gbit_per_s", "network.link_gbit_per_s"}
    check = check_of(found["network.link_gbit_per_s"])
    assert (check.value, check.state) == (10.0, "low") and isinstance(found["network.link_gbit_per_s"], Found)
    assert found["network.link_gbit_per_s"].remedy == "note"
    write_tree(root, {"sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n"})
    assert check_of(by_name(network_links.links(root))["network.link_gbit_per_s"]).state == "ok"


def test_cards_that_tell_no_speed_are_a_gap(tmp_path: Path) -> None:
    write_tree(tmp_path, {"proc/net/dev": NET})
    (gap,) = network_links.links(tmp_path)
    assert isinstance(gap, TriageGap) and gap.name == "network.link_gbit_per_s"


def test_a_containers_end_of_a_link_is_no_card(tmp_path: Path) -> None:
    row = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
    root = write_tree(tmp_path, {"proc/net/dev": f"{NET}eth0: {row}\n", "sys/class/net/eth0/speed": "10000\n"})
    (gap,) = network_links.links(root)
    assert isinstance(gap, TriageGap) and gap.name == "network.link_gbit_per_s"


def test_the_provider_is_asked_only_on_request_and_a_part_of_an_instance_is_a_note(tmp_path: Path) -> None:
    known = by_name_of("p4d.24xlarge")
    assert known is not None
    root = write_tree(tmp_path, {"sys/devices/system/cpu/online": "0-47\n"})
    setting = TriageOptions(tmp_path, "python", root=root)
    assert list(instance(setting)) == []
    (gap,) = instance(replace(setting, metadata=True))
    assert isinstance(gap, TriageGap)
    named = replace(setting, metadata=True, named=NamedInstance("AWS", known.name, known))
    found = by_name(instance(named))
    assert check_of(found["machine.instance"]).value == "AWS p4d.24xlarge"
    vcpus = found["machine.vcpus"]
    assert check_of(vcpus).expected.lo == 96.0 and check_of(vcpus).state == "low"
    assert isinstance(vcpus, Found) and vcpus.remedy == "note"
    assert check_of(gpu_count((), known)).state == "bad" and check_of(gpu_count((), None)).state == "ok"
    assert "machine.vcpus" not in by_name(instance(replace(named, named=NamedInstance("AWS", "x9.new", None))))
