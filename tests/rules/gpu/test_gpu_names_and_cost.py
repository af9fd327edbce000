"""How GPUs are named in findings and commands, and what their clocks and links cost a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import gpu_rule_cases as gpu_jobs
from gpu_rule_cases import gpu, on_two_hosts
from rn50_advisor.advisor.model.findings import Clear, NotMeasured
from rn50_advisor.advisor.model.gpu.gpu_facts import Xid
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_CLOCK_MHZ, GPU_PCIE_WIDTH, GPU_PEAK_SHARE
from rn50_advisor.rules.gpu.gpu_names_and_cost import (
    clear_if_measured,
    clock_ratio,
    link_mb_per_s,
    listed,
    meets_within_passes,
    named,
    on_each_host,
    placed,
    ranks_on,
    saving_at_peers_clock,
    step_if_faster,
    unmeasured,
    unmeasured_of_ranks,
)
from rule_runs import found


@pytest.mark.parametrize(
    ("rule", "values", "xids", "fix", "change"),
    [
        (
            "GPU002",
            {
                "gpu.power_capped_share": {1: 0.9, 3: 0.9},
                "gpu.clock_mhz": {0: 1400.0, 1: 1000.0, 2: 1400.0, 3: 1000.0},
                "gpu.power_limit_w": {1: 250.0, 3: 250.0},
            },
            (),
            "raise the power limit of GPU 1 of node-a, node-b to 400 W",
            "nvidia-smi -i 1 -pl 400  # on node-a, node-b",
        ),
        (
            "GPU005",
            {"gpu.foreign_processes": {0: 1, 2: 1, 3: 1}},
            (),
            "move the other processes off GPU 0 of node-a; GPUs 0 and 1 of node-b",
            "nvidia-smi -i 0 --query-compute-apps=pid,name,used_memory --format=csv  # on node-a; lists them\n"
            "nvidia-smi -i 0,1 --query-compute-apps=pid,name,used_memory --format=csv  # on node-b; lists them",
        ),
        (
            "GPU006",
            {"gpu.pcie_width": {0: 16, 1: 16, 2: 16, 3: 4}, "gpu.pcie_gen": dict.fromkeys(range(4), 4)},
            (),
            "reseat GPU 1 of node-b or its riser, or replace the node",
            "",
        ),
        (
            "GPU007",
            {"gpu.errors_watched": dict.fromkeys(range(4), 5)},
            (48,),
            "drain and reset GPU 1 of node-b; replace the node if it happens again",
            "nvidia-smi --gpu-reset -i 1  # on node-b; with no process on it",
        ),
        (
            "GPU008",
            {"gpu.nvlinks_active": {0: 12, 1: 12, 2: 12, 3: 9}},
            (),
            "reset GPU 1 of node-b and the fabric manager, or replace the node",
            "",
        ),
    ],
)
def test_fixes_count_gpus_as_their_own_host_does(
    rule: str, values: dict[str, dict[int, float]], xids: tuple[int, ...], fix: str, change: str
) -> None:
    *sound, last = on_two_hosts()
    gpus = (*sound, replace(last, xids=tuple(Xid(40.0, code) for code in xids)))
    finding = found(rule, gpu_jobs.on_gpus(values, gpus=gpus))
    assert (finding.fixes[0].title, finding.fixes[0].change) == (fix, change)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "GPU 3 (rank 3)"),
        ({"ranks": (3, 4)}, "GPU 3 (ranks 3, 4)"),
        ({"ranks": ()}, "GPU 3"),
        ({"made_up_rank": True}, "GPU 3"),
    ],
)
def test_a_gpu_is_named_with_its_ranks(given: dict[str, Any], name: str) -> None:
    assert named(gpu(3, **given)) == name


def test_gpus_are_listed_by_their_numbers_in_the_job_or_on_their_host() -> None:
    assert [listed(map(gpu, some)) for some in ((3,), (3, 5), (0, 3, 5))] == [
        "GPU 3",
        "GPUs 3 and 5",
        "GPUs 0, 3 and 5",
    ]
    hosts = on_two_hosts()
    assert placed(hosts[:2]) == "GPUs 0 and 1 of node-a"
    assert placed((hosts[1], hosts[3])) == "GPU 1 of node-a, node-b"
    assert placed((hosts[0], hosts[3])) == "GPU 0 of node-a; GPU 1 of node-b"
    assert placed((gpu(0), gpu(1))) == "GPUs 0 and 1"


def test_of_many_hosts_the_first_eight_are_named() -> None:
    many = [gpu(n, host=f"n{n}", index_on_host=0) for n in range(10)]
    assert placed(many[:8]).endswith("n6, n7") and placed(many).endswith("n6, n7 and 2 more")


def test_a_command_is_shown_once_for_each_list_of_numbers() -> None:
    assert on_each_host((gpu(0), gpu(1)), "reset -i {}") == "reset -i 0,1"
    assert on_each_host((gpu(0),), "reset -i {}", "when idle") == "reset -i 0  # when idle"
    assert on_each_host(on_two_hosts()[1:], "reset -i {}") == "reset -i 1  # on node-a\nreset -i 0,1  # on node-b"


def test_what_one_of_the_gpus_or_ranks_lacks_is_missing() -> None:
    a = gpu_jobs.on_gpus({"gpu.clock_mhz": {0: 1400.0, 1: 1400.0}, "gpu.pcie_width": {0: 16.0}})
    assert unmeasured(a, a.gpu_view.used, GPU_CLOCK_MHZ, GPU_PCIE_WIDTH) == (GPU_PCIE_WIDTH,)
    assert unmeasured(a, a.gpu_view.used[:1], GPU_CLOCK_MHZ, GPU_PCIE_WIDTH) == ()
    assert unmeasured_of_ranks(gpu_jobs.on_gpus({}, ranks={"gpu.peak_share": {0: 0.5}}), GPU_PEAK_SHARE) == (
        GPU_PEAK_SHARE,
    )
    assert unmeasured_of_ranks(gpu_jobs.on_gpus({}, ranks={"gpu.peak_share": {0: 0.5, 1: 0.5}}), GPU_PEAK_SHARE) == ()
    assert (clear_if_measured("GPU001"), clear_if_measured("GPU001", "x")) == (
        Clear("GPU001"),
        NotMeasured("GPU001", ("x",)),
    )


def test_ranks_are_listed_unless_they_are_all() -> None:
    a = gpu_jobs.on_gpus({})
    assert ranks_on(a, a.gpu_view.used[1:]) == (1,) and ranks_on(a, a.gpu_view.used) == ()


@pytest.mark.parametrize(
    ("clocks", "ratio"),
    [
        ({0: 1400.0, 1: 700.0}, (0.5, 1400.0, True)),
        ({0: 700.0, 1: 1400.0}, (1.0, 700.0, True)),  # no faster than it is
        ({1: 705.0}, (0.5, 1410.0, False)),  # of the board's highest
        ({0: 1400.0}, None),
    ],
)
def test_a_clock_is_compared_with_sound_peers_or_the_boards_highest(
    clocks: dict[int, float], ratio: tuple[float, float, bool] | None
) -> None:
    a = gpu_jobs.on_gpus({"gpu.clock_mhz": clocks})
    other, held = a.gpu_view.used
    found = clock_ratio(a, held, (other, held))
    assert found == (None if ratio is None else pytest.approx(ratio))


def test_another_model_is_no_peer() -> None:
    a = gpu_jobs.on_gpus({"gpu.clock_mhz": {0: 1980.0, 1: 705.0}}, gpus=(gpu(0, name="NVIDIA H200"), gpu(1)))
    assert clock_ratio(a, a.gpu_view.used[1], a.gpu_view.used[:1]) == pytest.approx((0.5, 1410.0, False))
    unknown = gpu_jobs.on_gpus({"gpu.clock_mhz": {1: 705.0}}, gpus=(gpu(0), gpu(1, sm_clock_max_mhz=None)))
    assert clock_ratio(unknown, unknown.gpu_view.used[1], unknown.gpu_view.used[:1]) is None


def test_compute_alone_becomes_faster_and_the_next_rank_caps_the_gain() -> None:
    a = gpu_jobs.on_gpus({}, slow=0.6)
    _, held = a.gpu_view.used
    assert step_if_faster(a, [(held, 0.8)]) == pytest.approx(0.8)
    assert step_if_faster(a, [(held, 0.1)]) == pytest.approx(0.6)


IN_CUDA = {str(rank): {"cuda": {"name": "A100"}} for rank in (0, 1)}
NORMED = {"collectives.calls": {0: 60.0, 1: 60.0}, "collectives.norm_calls": {0: 60.0, 1: 60.0}}
SHARDED = {"collectives.calls": {0: 30.0, 1: 30.0}}


@pytest.mark.parametrize(
    ("ranks", "timed", "meet"),
    [
        (NORMED, True, True),
        (SHARDED, False, True),
        (SHARDED, True, False),  # DDP times the only exchange for which streams wait; the calls are metrics
        ({}, True, False),
        ({}, False, True),  # they exchange something that was not seen
        ({**NORMED, "collectives.held_s": {0: 0.1, 1: 0.1}}, True, False),  # they block the hosts: that is timed
        ({**NORMED, "collectives.stream_s": {0: 0.1, 1: 0.1}}, True, False),
        ({**SHARDED, "collectives.stream_s": {0: 0.1, 1: 0.1}}, False, False),
        ({"collectives.calls": {0: 30.0}}, False, False),
    ],
)
def test_streams_that_wait_for_each_other_within_their_passes_all_gain_by_the_slowest(
    ranks: dict[str, dict[int, float]], timed: bool, meet: bool
) -> None:
    a = gpu_jobs.on_gpus({}, slow=1.0, ranks=ranks, facts=IN_CUDA)
    a = replace(a, values={key: value for key, value in a.values.items() if timed or key[0] != "comm.wire_s"})
    _, held = a.gpu_view.used
    assert meets_within_passes(a) is meet
    assert step_if_faster(a, [(held, 0.66)]) == pytest.approx(0.66 if meet else 1.0)


def test_a_rank_whose_passes_are_shorter_does_not_wait_within_them() -> None:
    a = gpu_jobs.on_gpus({}, slow=0.8, ranks=NORMED, facts=IN_CUDA)
    _, held = a.gpu_view.used
    assert step_if_faster(a, [(held, 0.5)]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("clocks", "sure", "spared_s"),
    [
        ({0: 1400.0, 1: 1120.0}, True, (0.1, 0.2)),
        ({0: 1400.0, 1: 1120.0}, False, (0.0, 0.2)),
        ({1: 1128.0}, True, (0.0, 0.2)),  # no peer shows that it could be faster
    ],
)
def test_half_of_it_is_sure_where_a_peer_shows_the_clock(
    clocks: dict[int, float], sure: bool, spared_s: tuple[float, float]
) -> None:
    a = gpu_jobs.on_gpus({"gpu.clock_mhz": clocks})
    sound, held = a.gpu_view.used
    saving = saving_at_peers_clock(a, [held], [sound], 0.5, sure=sure)
    assert saving.seconds_per_step == pytest.approx(spared_s)
    assert saving.basis == ("GPU 1 at the clock of its peers" if spared_s[0] else "at most the highest clock of GPU 1")


def test_nothing_is_sure_where_it_was_not_seen_that_ranks_wait_for_each_other() -> None:
    a = gpu_jobs.on_gpus({"gpu.clock_mhz": {0: 1400.0, 1: 1120.0}}, slow=1.0, facts=IN_CUDA)
    unseen = replace(a, values={key: value for key, value in a.values.items() if key[0] != "comm.wire_s"})
    sound, held = unseen.gpu_view.used
    saving = saving_at_peers_clock(unseen, [held], [sound], 0.5, sure=True)
    assert saving.seconds_per_step == pytest.approx((0.0, 0.2))


@pytest.mark.parametrize(
    ("gen", "width", "mb"), [(4, 16, 26_000), (4, 8, 13_000), (3, 4, 3000), (5, 1, 3250), (9, 16, 104_000)]
)
def test_a_link_carries_by_generation_and_width(gen: float, width: float, mb: float) -> None:
    assert link_mb_per_s(gen, width) == mb
