"""What others take of the machine, and what that says of its numbers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probe_trees import write_tree
from rn50_advisor.advisor.model.documents.machine_triage import Band, TriageGap
from rn50_advisor.advisor.triage.found_checks import Found, Item, judged
from rn50_advisor.advisor.triage.host import other_load, processor
from rn50_advisor.advisor.triage.host.other_load import (
    LoadInterval,
    Moment,
    Watch,
    cpu_times,
    mean_others,
    taken_from_us,
    yielding_s,
)
from rn50_advisor.advisor.triage.triage_runner import _disturbed
from triage_hosts import by_name, check_of, host, v1

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


def test_processes_of_idle_priority_are_recognised(tmp_path: Path) -> None:
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
        isinstance(beside, Found)
        and beside.check.state == "unknown"
        and "other processes kept 2 of the 4" in beside.check.hint
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
    assert (state == "bad") or ("something outside stops us" in found.check.hint and found.remedy == "note")
    busy = _disturbed(replace(slow, ran_share=ran), stretch(user=20.0), watch)
    assert isinstance(busy, Found) and "other processes kept 2 of the 4" in busy.check.hint, "who is seen is named"


def test_without_an_account_of_others_no_machine_is_handed_back_for_slow_cores(tmp_path: Path) -> None:
    watch, unseen = v1(tmp_path, -1), LoadInterval(moment(0.0), moment(1.0))
    slow = judged("x", 1.0, "MB/s", Band(100.0, None), remedy="hand-back", needs_cores=True, hint="slow", why="slow")
    beside = _disturbed(slow, unseen, watch)
    assert isinstance(beside, Found) and beside.check.state == "unknown" and beside.remedy == "note"
    setting = replace(slow, remedy="fix")
    assert _disturbed(setting, unseen, watch) is setting
    found = loaded(watch, unseen)
    assert isinstance(found["cpu.others_cores"], TriageGap) and isinstance(found["cpu.steal_share"], TriageGap)
