"""What the rules on GPUs say once they fired."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import gpu_rule_cases as jobs
import pytest
from gpu_rule_cases import FAR, gpu, trend
from gpu_rule_tables import GPU_TABLES

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuPath, Xid
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}


def found(rule: str, analysis: Analysis | None = None, **given: Any) -> Finding:
    result = run_rule(RULES[rule], analysis or GPU_TABLES[rule].job(**given), Config())
    assert isinstance(result, Finding), result
    return result


@pytest.mark.parametrize(
    ("kind", "words", "fix"),
    [
        ("hw_thermal", "halved by the board for the temperature", "cool GPU 1"),
        ("sw_thermal", "lowered by the driver for the temperature", "cool GPU 1"),
        ("power_brake", "halved by the power brake", "power supply of GPU 1"),
    ],
)
def test_gpu001_says_what_held_the_clocks_down(kind: str, words: str, fix: str) -> None:
    finding = found("GPU001", kind=kind)
    assert words in finding.title and fix in finding.fixes[0].title
    assert "60 % of the time" in finding.evidence[0].note
    assert "900 MHz under load, its peers 1370 MHz, 91 °C" in finding.evidence[1].note


def test_gpu001_promises_nothing_for_sure_without_a_sound_peer() -> None:
    alone = found("GPU001", gpus=(gpu(0, ranks=()), gpu(1)), peer=None, slow=0.0)
    assert alone.saving is not None and alone.saving.speedup[0] == 1.0
    assert alone.saving.speedup[1] == pytest.approx(1 / (900 / 1410))
    assert "at most" in alone.saving.basis
    by_peers = found("GPU001", slow=0.0).saving
    assert by_peers is not None and by_peers.speedup[0] > 1.0


def test_gpu001_does_not_take_a_hot_gpu_for_a_peer() -> None:
    both = jobs.on_gpus({"gpu.throttled_share": {0: 0.5, 1: 0.5}, "gpu.clock_mhz": {0: 705.0, 1: 705.0}}, slow=1.0)
    finding = found("GPU001", both)
    assert finding.scope.gpus == (0, 1) and finding.scope.ranks == ()
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1.0, 2.0))


def test_gpu002_gives_the_command_where_the_limit_was_lowered() -> None:
    lowered = found("GPU002", limit=250.0)
    assert "it was lowered" in lowered.title and lowered.fixes[0].change == "nvidia-smi -i 1 -pl 400"
    assert "cooling" in found("GPU002").fixes[0].title


def test_gpu002_mends_those_that_were_lowered_and_cools_the_others() -> None:
    values = {
        "gpu.power_capped_share": {0: 0.3, 1: 0.9, 2: 0.0},
        "gpu.clock_mhz": {0: 1250.0, 1: 1000.0, 2: 1400.0},
        "gpu.power_limit_w": {0: 400.0, 1: 250.0, 2: 400.0},
    }
    finding = found("GPU002", jobs.on_gpus(values, gpus=tuple(map(gpu, range(3)))))
    assert finding.title.endswith("slows GPUs 0 and 1 down: that of GPU 1 was lowered")
    assert [(fix.title, fix.change) for fix in finding.fixes] == [
        ("raise the power limit of GPU 1 to 400 W", "nvidia-smi -i 1 -pl 400"),
        ("look at the cooling of GPU 0, or ask for another instance", ""),
    ]


def test_gpu002_gives_each_board_its_own_limit() -> None:
    values = {
        "gpu.power_capped_share": {0: 0.9, 1: 0.9},
        "gpu.clock_mhz": {0: 1000.0, 1: 1000.0},
        "gpu.power_limit_w": {0: 250.0, 1: 250.0},
    }
    boards = (gpu(0), gpu(1, name="NVIDIA L40S", power_limit_default_w=350.0))
    changes = [fix.change for fix in found("GPU002", jobs.on_gpus(values, gpus=boards)).fixes]
    assert changes == ["nvidia-smi -i 0 -pl 400", "nvidia-smi -i 1 -pl 350"]


def on_two_hosts(per_host: int = 2) -> tuple[Gpu, ...]:
    """Numbered through; each host counts its own from 0."""
    return tuple(
        gpu(place * per_host + number, host=host, index_on_host=number)
        for place, host in enumerate(("node-a", "node-b"))
        for number in range(per_host)
    )


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
            "nvidia-smi -i 0 --query-compute-apps=pid,name,used_memory --format=csv  # on node-a; shows who they are\n"
            "nvidia-smi -i 0,1 --query-compute-apps=pid,name,used_memory --format=csv  # on node-b; shows who they are",
        ),
        (
            "GPU006",
            {"gpu.pcie_width": {0: 16, 1: 16, 2: 16, 3: 4}, "gpu.pcie_gen": dict.fromkeys(range(4), 4)},
            (),
            "reseat GPU 1 of node-b or its riser, or hand the machine back",
            "",
        ),
        (
            "GPU007",
            {"gpu.errors_watched": dict.fromkeys(range(4), 5)},
            (48,),
            "drain and reset GPU 1 of node-b; hand it back if it happens again",
            "nvidia-smi --gpu-reset -i 1  # on node-b; with nothing running on it",
        ),
        (
            "GPU008",
            {"gpu.nvlinks_active": {0: 12, 1: 12, 2: 12, 3: 9}},
            (),
            "reset GPU 1 of node-b and the fabric manager, or hand the machine back",
            "",
        ),
    ],
)
def test_fixes_count_gpus_as_their_own_host_does(
    rule: str, values: dict[str, dict[int, float]], xids: tuple[int, ...], fix: str, change: str
) -> None:
    *sound, last = on_two_hosts()
    gpus = (*sound, replace(last, xids=tuple(Xid(40.0, code) for code in xids)))
    finding = found(rule, jobs.on_gpus(values, gpus=gpus))
    assert (finding.fixes[0].title, finding.fixes[0].change) == (fix, change)


def test_gpu002_with_all_limits_lowered_alike_knows_only_the_most() -> None:
    values = {
        "gpu.power_capped_share": {0: 0.9, 1: 0.9},
        "gpu.clock_mhz": {0: 1128.0, 1: 1128.0},
        "gpu.power_limit_w": {0: 250.0, 1: 250.0},
    }
    finding = found("GPU002", jobs.on_gpus(values, slow=1.0))
    assert finding.scope.gpus == (0, 1)
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1.0, 1.25))


@pytest.mark.parametrize(("retries", "pieces", "first"), [(4, 0.2, "PYTORCH_CUDA_ALLOC_CONF"), (4, 0.05, "")])
def test_gpu003_advises_to_join_pieces_where_there_are_any(retries: float, pieces: float, first: str) -> None:
    told = found("GPU003", retries=retries, pieces=pieces)
    assert told.fixes[0].change.startswith(first) and bool(told.fixes[0].change) is bool(first)
    assert {e.metric: e.value for e in told.evidence}["gpu.fragmented_share"] == pieces


def test_gpu003_does_not_advise_what_the_environment_has() -> None:
    job = GPU_TABLES["GPU003"].job(retries=4, pieces=0.2)
    environment = {"variables": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
    told = found("GPU003", replace(job, meta=replace(job.meta, environment=environment)))
    assert [fix.change for fix in told.fixes] == [""]


def test_gpu004_tells_how_long_memory_lasts() -> None:
    finding = found("GPU004", left=600.0)
    assert "used up in 5m 00s" in finding.title and finding.urgent and finding.scope.gpus == (1,)
    assert "2 MB a step" in finding.evidence[0].note
    both = found("GPU004", jobs.gpu004((trend(left=9000.0), trend(per_step=50.0, left=9000.0))))
    assert "used up in 3m 00s" in both.title  # by the faster of the two


def test_gpu005_names_who_and_how_to_see_them() -> None:
    finding = found("GPU005")
    assert "GPU 1 (rank 1)" in finding.evidence[0].note and "nvidia-smi -i 1" in finding.fixes[0].change


def test_gpu006_promises_for_sure_only_where_the_link_is_busy_all_the_time() -> None:
    idle, busy = (found("GPU006", carried=mb_per_s, slow=0.0).saving for mb_per_s in (1000.0, 6500.0))
    assert idle is not None and busy is not None
    assert idle.speedup[0] == 1.0 and busy.speedup[0] == pytest.approx(4.0)
    capped = found("GPU006", carried=6500.0, slow=0.6).saving
    assert capped is not None and capped.speedup == pytest.approx((1 / 0.6, 1 / 0.6))  # the other rank needs as long
    note = found("GPU006").evidence[0].note
    assert "4 lanes of generation 4 under load, could be 16 lanes of generation 4" in note


def test_gpu006_says_what_copies_reached_on_a_link_that_calls_itself_full() -> None:
    exact, more = (found("GPU006", width=16, copied=(25_500.0, rate)) for rate in (0.75 * 26_000, 9_000.0))
    assert [finding.evidence[0].metric for finding in (exact, more)] == ["kernel.pinned_mb_per_s"] * 2
    assert more.evidence[0].value == 9_000.0 and "16 lanes of generation 4 carry 26000" in more.evidence[0].note
    narrow = found("GPU006", copied=(25_500.0, 6_400.0))
    assert [e.metric for e in narrow.evidence[:2]] == ["kernel.pinned_mb_per_s", "gpu.pcie_width"]


def test_gpu006_notes_links_that_all_gpus_of_a_host_have_alike() -> None:
    note = found("GPU006", width=8, other=(8, 4), carried=13_000.0)
    assert note.scope.gpus == (0, 1) and note.saving is None
    assert "hand" not in note.fixes[0].title and "how the machine was built" in note.fixes[0].title
    for defect in (found("GPU006", width=4, other=(8, 4)), found("GPU006", width=8, gen=3, other=(8, 4))):
        assert defect.scope.gpus == (0, 1) and "hand the machine back" in defect.fixes[0].title
    slow = found("GPU006", width=8, other=(8, 4), copied=(12_800.0, 6_000.0))
    assert slow.scope.gpus == (1,) and "hand the machine back" in slow.fixes[0].title, "it carries less than its like"


def test_gpu006_compares_links_and_copies_within_a_host() -> None:
    """All links of the second host are built so; those of the first tell nothing about them, and its own short one is none."""
    widths = {"gpu.pcie_width": {0: 16, 1: 4, 2: 8, 3: 8}, "gpu.pcie_gen": dict.fromkeys(range(4), 4)}
    finding = found("GPU006", jobs.on_gpus(widths, gpus=on_two_hosts()))
    assert finding.scope.gpus == (1,) and "GPU 1 of node-a" in finding.fixes[0].title
    full = {"gpu.pcie_width": dict.fromkeys(range(4), 16), "gpu.pcie_gen": dict.fromkeys(range(4), 4)}
    ranks = {
        "gpu.near_cpu_share": dict.fromkeys(range(4), 1.0),
        "kernel.pinned_mb_per_s": {0: 25_500.0, 1: 25_000.0, 2: 13_000.0, 3: 12_500.0},
    }
    assert run_rule(RULES["GPU006"], jobs.on_gpus(full, gpus=on_two_hosts(), ranks=ranks), Config()) == Clear("GPU006")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"xids": (48,)}, "double-bit memory error"),
        ({"xids": (160,)}, "catalogue"),
        ({"xids": (), "recovery_action": 4}, "drain and reset"),
        ({"xids": (), "row_remap_failed": 1}, "could not be replaced"),
        ({"xids": (), "uncorrected_errors": 3}, "memory errors in the run"),
    ],
)
def test_gpu007_says_what_the_driver_reported(told: dict[str, Any], words: str) -> None:
    said = [f"{e.value} {e.note}" for e in found("GPU007", **told).evidence]
    assert any(words in text for text in said)


def test_gpu007_names_the_lost_gpu_and_does_not_advise_to_reset_it() -> None:
    finding = found("GPU007", xids=(79,), lost=1)
    assert finding.title == "GPU 1 is lost" and finding.urgent
    assert "reboot" in finding.fixes[0].title


def test_gpu007_leaves_a_job_that_was_stopped_to_its_user() -> None:
    from rule_cases import death

    stopped = tuple(death(n, exit_code=None, signal=2, first=n == 0) for n in (0, 1))
    assert not found("GPU007", deaths=stopped).fatal


def test_gpu008_tells_links_that_are_down_from_links_that_are_noisy() -> None:
    assert found("GPU008").title == "NVLinks of GPU 1 are down"
    assert "9 of 12 links up" in found("GPU008").evidence[0].note
    noisy = found("GPU008", active=12, damaged=400.0, recoveries=7)
    assert "lose packets" in noisy.title and [e.value for e in noisy.evidence] == [7.0, 400.0]


def test_gpu008_sees_that_a_switch_is_missing_where_all_are_alike() -> None:
    assert found("GPU008", active=10, peer=10).scope.gpus == (0, 1)


def test_com008_gives_the_line_that_mends_it() -> None:
    assert found("COM008").fixes[0].change == "unset NCCL_P2P_DISABLE"
    far = found("COM008", variables={}, devices=3, paths=FAR)
    assert far.fixes[0].change == "CUDA_VISIBLE_DEVICES=0,2"
    assert "meet at SYS" in far.evidence[0].note


def far_apart(hosts: int, *, idle: bool = True, gpus: int = 4, wire_s: float = 0.3) -> Analysis:
    """On each host ranks on the even GPUs, of which two neighbours are near each other; the odd ones are nobody's."""
    names = [f"node-{n}" for n in range(hosts)] if hosts > 1 else [""]
    devices, paths = [], []
    for place, host in enumerate(names):
        first = place * gpus
        devices += [
            gpu(first + n, ranks=() if n % 2 else (place * gpus // 2 + n // 2,), host=host, index_on_host=n)
            for n in range(gpus)
        ]
        paths += [
            GpuPath(first + a, first + b, "PIX" if 2 * a // gpus == 2 * b // gpus else "SYS", "OK")
            for a, b in combinations(range(gpus), 2)
        ]
    idles = {"gpu.idle": {one.index: float(idle) for one in devices if not one.ranks}}
    about = {"ranks": {"gpu.pairs": 1}, "facts": {}, "wire_s": wire_s, "slow": 0.2}
    return jobs.on_gpus(idles, gpus=tuple(devices), paths=tuple(paths), **about)


def test_com008_judges_each_host_by_itself() -> None:
    """Among the GPUs of six hosts there are more sets of twelve than anybody can go through."""
    finding = found("COM008", far_apart(6))
    hosts = [f"node-{n}" for n in range(6)]
    assert finding.fixes[0].change == f"CUDA_VISIBLE_DEVICES=0,1  # on {', '.join(hosts)}"
    assert finding.scope.hosts == tuple(hosts)
    assert finding.evidence[1].note == (
        "GPUs 0 and 2 of node-1 meet at SYS; GPUs 0 and 1 of node-1 are nearer to each other, and GPU 1 of node-1 idles"
    )
    assert (
        found("COM008", far_apart(10))
        .fixes[0]
        .title.endswith("of node-0, node-1, node-2, node-3, node-4, node-5, node-6, node-7 and 2 more")
    )
    large = found("COM008", far_apart(1, gpus=64))
    assert large.fixes[0].change == f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(32)))}"


def test_com008_names_the_host_alone_whose_gpus_are_far() -> None:
    both = far_apart(2)
    near = [replace(path, path="PIX") if path.a < 4 else path for path in both.gpu_view.paths]
    finding = found("COM008", replace(both, gpu_view=replace(both.gpu_view, paths=tuple(near))))
    assert finding.scope.gpus == (4, 6) and finding.scope.hosts == ("node-1",)
    assert finding.fixes[0].change == "CUDA_VISIBLE_DEVICES=0,1  # on node-1"


def test_com008_promises_nothing_for_sure_between_hosts() -> None:
    one, several = far_apart(1), far_apart(2)
    told = {"environment_rank": {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}}
    savings = [found("COM008", analysis).saving for analysis in (one, replace(several, facts={"0": told}))]
    assert [saving is not None and saving.speedup[0] > 1.0 for saving in savings] == [True, False]


def test_com008_knows_a_bridge_that_stands_idle() -> None:
    paths = (GpuPath(0, 1, "SYS", "OK"), GpuPath(0, 2, "NV4", "OK"), GpuPath(1, 2, "SYS", "OK"))
    saving = found("COM008", variables={}, devices=3, paths=paths).saving
    assert saving is not None and saving.speedup[1] == pytest.approx(1 / 0.73)


def test_com008_calls_no_path_far_that_nobody_knows() -> None:
    paths = (GpuPath(0, 1, "", ""), GpuPath(0, 2, "PIX", "OK"), GpuPath(1, 2, "SYS", "OK"))
    analysis = jobs.com008(variables={}, devices=3, paths=paths)
    assert run_rule(RULES["COM008"], analysis, Config()) == Clear("COM008")


def test_com008_says_what_refuses() -> None:
    held = found("COM008", variables={}, paths=(GpuPath(0, 1, "PHB", "DR"),))
    assert "driver's settings" in held.evidence[0].note
    by_link = jobs.com008(variables={}, paths=(GpuPath(0, 1, "NV12", "NS"),))
    assert run_rule(RULES["COM008"], by_link, Config()) == Clear("COM008")  # NVLink does not ask PCIe


def test_cpu004_says_which_gpu_and_node() -> None:
    finding = found("CPU004")
    assert "near its GPU 1 on node 0" in finding.evidence[0].note and finding.scope.gpus == (1,)


def test_gpu008_tells_whom_it_reaches_over_pcie_while_the_others_have_nvlink() -> None:
    gpus = tuple(gpu(n, nvlink_switched=False) for n in range(3))
    paths = (GpuPath(0, 1, "SYS", "OK"), GpuPath(0, 2, "NV12", "OK"), GpuPath(1, 2, "SYS", "OK"))
    counted = {"gpu.nvlinks_active": {0: 12, 1: 0, 2: 12}}
    analysis = jobs.on_gpus(counted, gpus=gpus, paths=paths, slow=0.2, wire_s=0.3)
    finding = found("GPU008", analysis)
    assert finding.scope.gpus == (1,)
    assert [e.note for e in finding.evidence] == [
        "GPU 1 (rank 1): 0 of 12 links up",
        "GPU 1 (rank 1) reaches GPUs 0 and 2 over PCIe, its peers have NV12",
    ]


def test_gpu008_compares_links_within_a_host() -> None:
    gpus = tuple(replace(one, nvlink_switched=False) for one in on_two_hosts())
    paths = (GpuPath(0, 1, "SYS", "OK"), GpuPath(2, 3, "NV12", "OK"))
    fewer = jobs.on_gpus({"gpu.nvlinks_active": {0: 4, 1: 4, 2: 12, 3: 12}}, gpus=gpus, paths=paths)
    assert not isinstance(run_rule(RULES["GPU008"], fewer, Config()), Finding)
    finding = found("GPU008", jobs.on_gpus({"gpu.nvlinks_active": {0: 12, 1: 0, 2: 12, 3: 12}}, gpus=gpus, paths=paths))
    assert [e.note for e in finding.evidence] == ["GPU 1 (rank 1): 0 of 12 links up"]


def test_gpu008_tells_what_the_links_that_are_left_carry() -> None:
    carrying = found("GPU008", jobs.on_gpus({"gpu.nvlinks_active": {0: 12, 1: 9}, "gpu.nvlink_mb_per_s": {1: 9000.0}}))
    assert [(e.metric, e.value) for e in carrying.evidence][1:] == [("gpu.nvlink_mb_per_s", 9000.0)]
