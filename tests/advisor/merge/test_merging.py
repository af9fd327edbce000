"""The runs of one job's nodes merged into one: clocks, names, blame across hosts, and nodes that were lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nodes import APART_NS, elsewhere, four_ranks, only, two_nodes, with_host_samples
from recordings import FIRST_STEP_NS, SECOND, plan, recording, stall, stall_end
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.merge.merging import LATE_NS, LOST_AFTER_NS, merge
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import NODE_PIDS, Recording, Series
from rn50_advisor.advisor.store.run_reader import cut
from rn50_advisor.advisor.verdict.diagnose import diagnose


def test_a_clock_that_runs_faster_stays_aligned_over_an_hour() -> None:
    hour = {rank: plan(360, forward=10_000) for rank in range(2)}
    first, second = two_nodes(hour, drift=80e-6)
    merged = merge([first, second])
    ends = [merged.steps[rank]["t_end_ns"] for rank in (0, 1)]
    assert merged.nodes[1].clock.drift == pytest.approx(-80e-6, rel=0.05)
    assert np.abs(ends[0] - ends[1]).max() < 20_000_000  # without the drift it would be 290 ms


def test_the_late_rank_of_another_host_is_named_with_its_host() -> None:
    report = diagnose(merge(two_nodes(four_ranks(slow=3))))
    finding = next(f for f in report.findings if f.rule == report.verdict.rule)
    assert (finding.scope.ranks, finding.scope.hosts) == ((3,), ("b",))
    assert report.verdict.summary.startswith("On b.")
    assert {node.host: node.ranks for node in report.nodes} == {"a": (0, 1), "b": (2, 3)}
    assert [strip.host for strip in report.ranks] == ["a", "a", "b", "b"]


def test_blame_within_a_merged_job_is_that_of_all_ranks_recorded_together() -> None:
    plans = four_ranks(slow=3)
    together, merged = analyse(recording(plans, wire_ms=2)), analyse(merge(two_nodes(plans, jitter_us=0)))
    for name in ("comm.skew_s", "comm.wire_s", "step.time_s"):
        assert merged.value(name) == pytest.approx(together.value(name), rel=1e-6)
    assert merged.by_rank("comm.late_share") == together.by_rank("comm.late_share")
    assert merged.world_size == together.world_size == 4


def test_processes_of_different_hosts_never_share_a_number() -> None:
    merged = merge(two_nodes(four_ranks()))
    assert sorted(merged.facts) == [100, 101, 100 + NODE_PIDS, 101 + NODE_PIDS]
    assert [strip.pid for strip in analyse(merged).ranks] == [100, 101, 100, 101]  # as the host itself calls them


def test_cores_are_those_of_the_critical_host() -> None:
    first, second = two_nodes(four_ranks(slow=3))
    first = with_host_samples(first, cpu__allowed_cores=64, cpu__cores=64)
    second = with_host_samples(second, cpu__allowed_cores=8, cpu__cores=8)
    analysis = analyse(merge([first, second]))
    assert analysis.value("cpu.allowed_cores") == 8
    assert (analysis.host_ranks, analysis.ranks_of_host) == ((2, 3), 2)
    assert [node.strip.allowed_cores for node in analysis.nodes if node.strip] == [64, 8]
    assert analysis.host is not None and analysis.host.name == "b"


def on_gpus(own: Recording, *ordinals: int) -> Recording:
    """Two GPUs on this host, the first of them hot; its ranks see only these, by number, and know no UUID."""
    gpus = [{"index": i, "name": "A100", "uuid": f"GPU-{own.meta.host}-{i}", "pci_bus_id": ""} for i in range(2)]
    t_ns = np.array([own.meta.started_ns, own.meta.last_ns], np.int64)
    facts = {
        pid: {**known, "cuda": {"device": 0, "visible": str(ordinal)}}
        for (pid, known), ordinal in zip(own.facts.items(), ordinals, strict=True)
    }
    samples = {("gpu.temp_c", f"gpu:{i}"): Series(t_ns, np.array([80.0 - i] * 2)) for i in range(2)}
    return replace(own, meta=replace(own.meta, environment={"gpus": gpus}), facts=facts, samples=samples)


def test_gpus_are_numbered_through_and_ranks_are_on_those_of_their_own_host() -> None:
    first, second = two_nodes(four_ranks())
    analysis = analyse(merge([on_gpus(first, 0, 1), on_gpus(second, 1, 0)]))
    assert [(gpu.index, gpu.place, gpu.ranks, gpu.temp_c) for gpu in analysis.gpus] == [
        (0, "a, 0", "0", 80.0),
        (1, "a, 1", "1", 79.0),
        (2, "b, 0", "3", 80.0),
        (3, "b, 1", "2", 79.0),
    ]
    assert [(gpu.host, gpu.own_index) for gpu in analysis.gpu_view.devices] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_a_pcie_slot_is_compared_with_those_of_its_own_host() -> None:
    """The slots of a host with an older PCIe generation are not too slow."""
    made = []
    for own, gens in zip(two_nodes(four_ranks()), ((4, 4), (3, 2)), strict=True):
        node = on_gpus(own, 0, 1)
        gpus = [{**gpu, "pcie_gen_max": gen} for gpu, gen in zip(node.meta.environment["gpus"], gens, strict=True)]
        made.append(replace(node, meta=replace(node.meta, environment={"gpus": gpus})))
    assert [gpu.pcie_gen_max for gpu in analyse(merge(made)).gpu_view.devices] == [4, 4, 3, 3]


def test_agents_that_see_the_same_gpus_are_reported_as_on_one_host() -> None:
    first, second = (on_gpus(own, 0, 1) for own in two_nodes(four_ranks()))
    gpus = first.meta.environment["gpus"]
    twice = replace(second, meta=replace(second.meta, environment={"gpus": gpus}))
    found = [[gap for gap in merge([first, other]).gaps if "from one host" in gap.reason] for other in (twice, second)]
    assert [len(gaps) for gaps in found] == [1, 0] and "--ntasks-per-node=1" in found[0][0].hint


def test_a_single_recording_stays_unchanged() -> None:
    alone = recording(four_ranks())
    assert merge([alone]) is alone


def test_nodes_are_ordered_by_their_launchers_numbers() -> None:
    first, second = two_nodes(four_ranks())
    assert [node.host for node in merge([second, first]).nodes] == ["a", "b"]


def test_ranks_without_global_numbers_get_distinct_ones() -> None:
    whole = recording({rank: plan(30) for rank in range(2)}, wire_ms=1)
    first, second = only(whole, [0], host="a", group=0), only(whole, [0], host="b", group=1)
    merged = merge([first, elsewhere(second, APART_NS)])
    assert sorted(merged.steps) == [0, 1]
    assert [node.ranks for node in merged.nodes] == [(0,), (1,)]


def test_containers_with_one_host_name_are_numbered() -> None:
    first, second = two_nodes(four_ranks())
    merged = merge([first, replace(second, meta=replace(second.meta, host="a"))])
    assert [node.host for node in merged.nodes] == ["a#0", "a#1"]


def test_a_lost_node_is_named_and_does_not_keep_the_job_running() -> None:
    first, second = two_nodes(four_ranks())
    silent_ns = second.meta.last_ns - LOST_AFTER_NS - SECOND
    meta = replace(second.meta, ended_ns=None, exit_code=None, last_ns=silent_ns)
    merged = merge([first, replace(second, meta=meta)])
    assert merged.meta.ended_ns is not None
    lost = next(node for node in merged.nodes if node.host == "b")
    assert lost.lost_ns == pytest.approx(silent_ns + APART_NS, abs=5_000_000)
    assert any(gap.metric == "node" and "b" in gap.reason for gap in merged.gaps)


def test_a_job_runs_while_one_of_its_nodes_does_and_fails_if_one_failed() -> None:
    first, second = two_nodes(four_ranks())
    going = replace(second.meta, ended_ns=None, exit_code=None, last_ns=second.meta.last_ns + LATE_NS + SECOND)
    assert merge([first, replace(second, meta=going)]).meta.ended_ns is None
    nearly = replace(going, last_ns=second.meta.last_ns - SECOND)  # its agent was killed just before
    merged = merge([first, replace(second, meta=nearly)])
    assert merged.meta.ended_ns == first.meta.ended_ns
    assert any("the end of b was not seen" in gap.reason for gap in merged.gaps)
    failed = replace(second, meta=replace(second.meta, exit_code=1))
    assert merge([first, failed]).meta.exit_code == 1


def test_ranks_that_are_in_no_run_are_reported() -> None:
    first, second = two_nodes(four_ranks())
    alone = {pid: {"environment_rank": {**f["environment_rank"], "WORLD_SIZE": "8"}} for pid, f in first.facts.items()}
    gaps = merge([replace(first, facts=alone), second]).gaps
    assert any("4 ranks of 8" in gap.reason for gap in gaps)


def test_a_gap_of_all_nodes_is_listed_once_and_a_gap_of_one_with_its_host() -> None:
    common, own = ProbeGap("psi.mem_some_s", "host", "no /proc/pressure"), ProbeGap("gpu.*", "host", "no driver")
    first, second = two_nodes(four_ranks())
    merged = merge([replace(first, gaps=(common,)), replace(second, gaps=(common, own))])
    assert common in merged.gaps
    assert replace(own, reason="on b: no driver") in merged.gaps


def test_one_hang_seen_by_two_agents_is_one_and_its_culprit_the_rank_outside_the_exchange() -> None:
    first, second = two_nodes(four_ranks())
    waiting = [{"rank": rank, "phase": "backward"} for rank in (0, 1)]
    first = replace(first, events=(stall(20.0, *waiting), stall_end()))
    own = replace(
        second, events=(stall(18.0, {"rank": 2, "phase": "backward"}, {"rank": 3, "phase": "input_wait"}), stall_end())
    )
    own = replace(own, events=tuple(replace(e, t_ns=e.t_ns - APART_NS, data=moved(e.data)) for e in own.events))
    stalls = analyse(merge([first, own])).stalls
    assert len(stalls) == 1 and stalls[0].ended
    assert {rank.rank: rank.culprit for rank in stalls[0].ranks} == {0: False, 1: False, 2: False, 3: True}


def test_a_rank_that_sleeps_between_two_reports_of_its_agent_is_known_in_merged_runs() -> None:
    first, second = two_nodes(four_ranks())
    asleep = {"phase": "gap", "state": "S", "wchan": "hrtimer_nanosleep", "cpu_s": 5.0, **SLEEPS_AT}
    stalled = [{"rank": 2, "phase": "backward"}, {"rank": 3, **asleep}]
    reports = [stall(s, *stalled) for s in (15.0, 17.5)]
    own = replace(second, events=tuple(replace(e, t_ns=e.t_ns - APART_NS, data=moved(e.data)) for e in reports))
    waiting = [{"rank": rank, "phase": "backward"} for rank in (0, 1)]
    for others in ((15.2, 17.7), (26.0,)):  # the other agent has reported as often, or only once and later
        (hang,) = analyse(merge([replace(first, events=tuple(stall(s, *waiting) for s in others)), own])).stalls
        assert [rank.halted for rank in hang.ranks] == ["", "", "", "asleep"] and hang.ranks[3].culprit
    (once,) = analyse(merge([first, replace(own, events=own.events[:1])])).stalls
    assert once.ranks[1].halted == "", "one report proves nothing"


LINE = {"file": "/job/train.py", "line": 33, "function": "find_batch"}
SLEEPS_AT = {"user": LINE, "frames": [LINE]}


def moved(data: dict[str, object]) -> dict[str, object]:
    rows = [{**row, "since_ns": row["since_ns"] - APART_NS} for row in data.get("ranks", ())]  # type: ignore[attr-defined]
    return {**data, "ranks": rows} if rows else dict(data)


@pytest.mark.parametrize(
    ("apart_ms", "sure", "ranks"),
    [(2000, True, (1,)), (1, False, (1, 3))],
    ids=["seconds apart", "within the clocks' uncertainty"],
)
def test_the_first_death_is_known_between_hosts_if_they_differ_by_more_than_the_clocks_uncertainty(
    apart_ms: int, sure: bool, ranks: tuple[int, ...]
) -> None:
    first, second = two_nodes(four_ranks())
    died_ns = first.meta.last_ns
    report = diagnose(merge([dead(first, 1, died_ns), dead(second, 3, died_ns - APART_NS + apart_ms * 1_000_000)]))
    finding = next(f for f in report.findings if f.rule == "RUN002")
    assert finding.scope.ranks == ranks
    assert (finding.confidence > 0.9) == sure
    assert any("is unknown" in e.note for e in finding.evidence) != sure


def test_a_rank_ended_by_its_launcher_is_not_the_first_death() -> None:
    first, second = two_nodes(four_ranks())
    died_ns = first.meta.last_ns
    ended = dead(second, 3, died_ns - APART_NS - 1_000_000, number=15)
    finding = next(f for f in diagnose(merge([dead(first, 1, died_ns), ended])).findings if f.rule == "RUN002")
    assert (finding.scope.ranks, finding.scope.hosts) == ((1,), ("a",))


def dead(own: Recording, rank: int, t_ns: int, number: int = 9) -> Recording:
    """This rank was killed by a signal; its node's job failed."""
    processes = tuple(
        replace(p, ended_ns=t_ns, exit_signal=number, clean_exit=False) if p.rank == rank else p for p in own.processes
    )
    return replace(own, processes=processes, meta=replace(own.meta, exit_code=1))


def test_a_merged_job_is_replayed_with_all_its_nodes() -> None:
    merged = merge(two_nodes(four_ranks()))
    early = cut(merged, FIRST_STEP_NS + SECOND)
    assert all(0 < rows.size < merged.steps[rank].size for rank, rows in early.steps.items())
    assert [node.recording.meta.last_ns for node in early.nodes] == [FIRST_STEP_NS + SECOND] * 2
