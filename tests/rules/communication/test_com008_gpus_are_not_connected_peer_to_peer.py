"""COM008, GPUs are not connected peer to peer: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

import gpu_rule_cases as gpu_jobs
from comm_rule_cases import with_values
from gpu_rule_cases import gpu, on_gpus
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuPath
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import META
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks

FAR = (GpuPath(0, 1, "SYS", "OK"), GpuPath(0, 2, "PIX", "OK"), GpuPath(1, 2, "SYS", "OK"))


def com008(
    wire: float | None = 0.3,
    paths: tuple[GpuPath, ...] = (GpuPath(0, 1, "NV12", "OK"),),
    variables: dict[str, str] | None = None,
    devices: int = 2,
    idle: float | None = 1.0,
    **more: Any,
) -> Analysis:
    """Two ranks on GPUs 0 and 1 of so many, with NCCL_P2P_DISABLE by default; `wire`: seconds of exposed communication.

    `idle`: whether the other GPUs are.
    """
    variables = {"NCCL_P2P_DISABLE": "1"} if variables is None else variables
    meta = replace(META, environment={"variables": variables})
    gpus = (gpu(0), gpu(1), *(gpu(n, ranks=()) for n in range(2, devices)))
    idles = {} if idle is None else {"gpu.idle": dict.fromkeys(range(2, devices), idle)}
    made = on_gpus(
        idles, gpus=gpus, paths=paths, ranks={"gpu.pairs": 1}, slow=0.2, wire_s=wire or 0.0, meta=meta, **more
    )
    if wire is not None:
        return made
    return replace(made, values={key: value for key, value in made.values.items() if key[0] != "comm.wire_s"})


GEFORCE = (GpuPath(0, 1, "PHB", "GNS"),)


NOTHING: dict[str, str] = {}


TABLE = Table(
    "COM008",
    com008,
    lines={"wire": ({"wire": 0.02}, {"wire": 0.0199})},
    false_alarms={
        "nothing is wrong": {"variables": NOTHING},
        "a GeForce refuses by itself": {"variables": NOTHING, "paths": GEFORCE},
        "switched off where it does not exist": {"paths": GEFORCE},
        "two sockets, and no other GPUs": {"variables": NOTHING, "paths": FAR[:1]},
        "all others are as far": {
            "variables": NOTHING,
            "devices": 3,
            "paths": tuple(GpuPath(a, b, "SYS", "OK") for a, b in ((0, 1), (0, 2), (1, 2))),
        },
        "near ones were chosen": {
            "variables": NOTHING,
            "devices": 3,
            "paths": (GpuPath(0, 1, "PIX", "OK"), *FAR[1:]),
        },
        "another user works on the near ones": {
            "variables": NOTHING,
            "devices": 3,
            "paths": FAR,
            "idle": 0.0,
        },
        "a way by the system, by number": {"variables": {"NCCL_P2P_LEVEL": "5"}},
    },
    severities=(
        ({"wire": 0.5}, "critical"),
        ({"wire": 0.3}, "high"),
        ({"wire": 0.1}, "medium"),
        ({"wire": 0.02}, "low"),
        ({"wire": None}, "low"),
    ),
    best=({"wire": 0.3}, 1 / 0.73),
    also_fires={
        "far GPUs while near ones are idle": {"variables": NOTHING, "devices": 3, "paths": FAR},
        "switched off in the driver": {"variables": NOTHING, "paths": (GpuPath(0, 1, "PHB", "DR"),)},
        "a virtual machine that hides": {"variables": NOTHING, "paths": (GpuPath(0, 1, "PHB", "NS"),)},
        "held to one board": {"variables": {"NCCL_P2P_LEVEL": "LOC"}},
        "the same by its old number": {"variables": {"NCCL_P2P_LEVEL": "0"}},
    },
    not_measured={
        "whether the near ones idle": (
            {"variables": NOTHING, "devices": 3, "paths": FAR, "idle": None},
            ("gpu.idle",),
        ),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_peer_to_peer_by_the_bytes() -> None:
    by_nvlink = found("COM008", with_values(com008(wire=0.3), comm_bus_gb_per_s=5.0)).saving  # 1.5 GB
    plain = found("COM008", com008(wire=0.3)).saving
    assert by_nvlink is not None and plain is not None
    assert by_nvlink.seconds_per_step[1] == pytest.approx(0.3 - 1.5 / 230)
    assert by_nvlink.seconds_per_step[0] == pytest.approx(plain.seconds_per_step[0]), "the slowest NVLink is not known"


def test_com008_gives_the_line_that_fixes_it() -> None:
    assert found("COM008", TABLE.job()).fixes[0].change == "unset NCCL_P2P_DISABLE"
    far = found("COM008", TABLE.job(variables={}, devices=3, paths=FAR))
    assert far.fixes[0].change == "CUDA_VISIBLE_DEVICES=0,2"
    assert "connected by SYS" in far.evidence[0].note


def far_apart(hosts: int, *, idle: bool = True, gpus: int = 4, wire_s: float = 0.3) -> Analysis:
    """On each host ranks on the even GPUs, of which two neighbours are near each other; the odd ones have no rank."""
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
    return gpu_jobs.on_gpus(idles, gpus=tuple(devices), paths=tuple(paths), **about)


def test_com008_judges_each_host_by_itself() -> None:
    """Among the GPUs of six hosts there are too many sets of twelve to try them all."""
    finding = found("COM008", far_apart(6))
    hosts = [f"node-{n}" for n in range(6)]
    assert finding.fixes[0].change == f"CUDA_VISIBLE_DEVICES=0,1  # on {', '.join(hosts)}"
    assert finding.scope.hosts == tuple(hosts)
    assert finding.evidence[1].note == (
        "GPUs 0 and 2 of node-1 are connected by SYS; GPUs 0 and 1 of node-1 are closer to each other, and GPU 1 of node-1 idles"
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
    facts = {"environment_rank": {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}}
    savings = [found("COM008", analysis).saving for analysis in (one, replace(several, facts={"0": facts}))]
    assert [saving is not None and saving.speedup[0] > 1.0 for saving in savings] == [True, False]


def test_com008_finds_an_idle_pair_with_nvlink() -> None:
    paths = (GpuPath(0, 1, "SYS", "OK"), GpuPath(0, 2, "NV4", "OK"), GpuPath(1, 2, "SYS", "OK"))
    saving = found("COM008", TABLE.job(variables={}, devices=3, paths=paths)).saving
    assert saving is not None and saving.speedup[1] == pytest.approx(1 / 0.73)


def test_com008_calls_no_unknown_path_far() -> None:
    paths = (GpuPath(0, 1, "", ""), GpuPath(0, 2, "PIX", "OK"), GpuPath(1, 2, "SYS", "OK"))
    analysis = com008(variables={}, devices=3, paths=paths)
    assert run_rule(RULES["COM008"], analysis, Config()) == Clear("COM008")


def test_com008_names_what_refuses_peer_to_peer_access() -> None:
    held = found("COM008", TABLE.job(variables={}, paths=(GpuPath(0, 1, "PHB", "DR"),)))
    assert "driver's settings" in held.evidence[0].note
    by_link = com008(variables={}, paths=(GpuPath(0, 1, "NV12", "NS"),))
    assert run_rule(RULES["COM008"], by_link, Config()) == Clear("COM008")  # NVLink does not ask PCIe


@pytest.mark.parametrize(("of_ranks", "fires"), [("1", True), ("0", False), (None, False)])
def test_com008_sees_what_a_script_between_the_advisor_and_the_ranks_sets(of_ranks: str | None, fires: bool) -> None:
    analysis = com008(variables={}, facts={"0": {"environment_rank": {"NCCL_P2P_DISABLE": of_ranks, "RANK": "0"}}})
    assert isinstance(run_rule(RULES["COM008"], analysis, Config()), Finding) is fires
