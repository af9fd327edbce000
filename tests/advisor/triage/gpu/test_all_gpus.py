"""GPUs of machines that the fake driver plays: sound ones are kept, and each fault is named on its GPU, with the remedy that it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from samples.gpus import machines

from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.model.metrics import Reading
from rn50_advisor.advisor.triage.found_checks import Found, TriageOptions
from rn50_advisor.advisor.triage.gpu.all_gpus import gpus, link_of
from rn50_advisor.advisor.triage.gpu.gpu_driver import recording_of
from rn50_advisor.advisor.triage.gpu.gpu_health import health
from rn50_advisor.advisor.triage.host.other_load import Watch
from rn50_advisor.advisor.triage.triage_runner import conclude
from rn50_advisor.probes.host.gpu.gpu_devices import GpuConnection, GpuDevice


def bad(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in answer["triage"]["checks"] if check["state"] in ("bad", "low")}


# Readings a second apart, without waiting for the seconds. A driver library reads its script once: each machine gets a fork.
_PROGRAM = """
import json, os, sys
from pathlib import Path
from rn50_advisor.advisor.triage.found_checks import Found
from rn50_advisor.advisor.triage.gpu.gpu_driver import DriverReader, recording_of
from rn50_advisor.advisor.triage.gpu.gpu_checks import described
from rn50_advisor.advisor.triage.gpu.gpu_health import health
from rn50_advisor.advisor.triage.triage_runner import conclude
def play(folder):
    os.environ["FAKE_NVML_SCRIPT"] = str(folder / "script")
    reader = DriverReader(folder)
    devices, probe = reader.meet(), reader._probe
    readings = [(n * 10**9, probe.sample(n * 10**9, ())) for n in range(7)]
    gaps = [gap for _, reading in readings for gap in reading.gaps]
    variables = {"numa_nodes": {}, "variables": json.loads((folder / "variables").read_text())}
    recording = recording_of(devices, reader.paths, readings, gaps, variables)
    items = [*described(devices, reader.paths), *health(recording)]
    remedies = {item.check.name: item.remedy for item in items if isinstance(item, Found)}
    (folder / "answer").write_text(json.dumps({"triage": conclude(items).as_json(), "remedies": remedies}))
for name in sys.argv[1:]:
    if os.fork() == 0:
        try:
            play(Path(name))
        finally:
            sys.stderr.flush()
            os._exit(0)
    os.wait()
"""
Answer = dict[str, Any]
Script = tuple[str, ...]


@pytest.fixture(scope="module")
def machine(fake_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Answer]:
    """The triage of a machine of the table with these lines added; all machines are played at once."""
    base = tmp_path_factory.mktemp("machines")
    keys = {(name, lines): base / str(n) for n, (name, lines) in enumerate(PLAYED)}
    for (name, lines), folder in keys.items():
        folder.mkdir()
        variables = {name: value for name, _, value in (line.partition("=") for line in lines) if value}
        (folder / "variables").write_text(json.dumps(variables))
        script = [line.format(folder=folder) for line in lines if "=" not in line]
        (folder / "script").write_text("\n".join([*machines.MACHINES[name](), *script]) + "\n")
        (folder / "listed").write_text("2 9100 6000000000 35\n")
        (folder / "proc" / "9100").mkdir(parents=True)
    environment = os.environ | {"LD_LIBRARY_PATH": str(fake_driver)}
    command = [sys.executable, "-c", _PROGRAM, *map(str, keys.values())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def answer(name: str, *lines: str) -> Answer:
        path = keys[name, lines] / "answer"
        assert path.exists(), done.stderr
        answer: Answer = json.loads(path.read_text())
        return answer

    return answer


SOUND = ("8xA100", "8xH100", "4xL40S", "2xRTX3090", "1xH200", "MIG")
LOST_LINK = "gpu 6 nvlink.3 0 switch"
Fault = tuple[str, Script, str, str]
FAULTS: list[Fault] = [
    ("throttled", (), "gpu.3.throttled_share", "hand-back"),
    ("8xA100", ("gpu 3 field.270 0 +25000000",), "gpu.3.throttled_share", "hand-back"),
    ("8xA100", ("gpu 3 field.271 0 +500000000",), "gpu.3.throttled_share", "hand-back"),
    ("degraded-link", (), "gpu.1.pcie_link_gb_per_s", "hand-back"),
    ("4xL40S", ("gpu 1 pcie_gen 3",), "gpu.1.pcie_link_gb_per_s", "hand-back"),
    ("8xH100", ("gpu 5 field.144 1",), "gpu.5.errors", "fix"),  # a row that waits for a reset
    ("8xH100", ("gpu 5 field.144 1", "xid 5 63 after 2"), "gpu.5.errors", "fix"),
    ("8xH100", ("gpu 5 field.145 1",), "gpu.5.errors", "hand-back"),  # one that could not be replaced
    ("8xH100", ("gpu 5 field.4 7 +1",), "gpu.5.errors", "hand-back"),
    ("8xH100", ("xid 5 79 after 2",), "gpu.5.errors", "hand-back"),
    ("8xH100", ("gpu 5 field.230 1",), "gpu.5.errors", "fix"),
    ("failing-memory", (), "gpu.5.errors", "hand-back"),
    ("8xH100", ("gpu 5 field.4 7",), "gpu.5.ecc_uncorrected", "fix"),  # errors from before we looked
    ("broken-nvlink", (), "gpu.6.nvlinks_active", "hand-back"),
    ("8xA100", (LOST_LINK,), "gpu.6.nvlinks_active", "hand-back"),
    ("capped", (), "gpu.1.power_capped_share", "fix"),
    ("capped", (), "gpu.1.power_limit_w", "fix"),
    ("locked", (), "gpu.5.clock_set_share", "fix"),
    ("4xL40S", ("gpu 2 power_limit_mw 332000",), "gpu.2.power_limit_w", "fix"),  # 0.949 of 350 W
    ("1xH200", ("gpu 0 pcie_gen_max 3", "gpu 0 pcie_gen 3"), "gpu.0.pcie_gen_of_slot", "fix"),
    ("1xH200", ("gpu 0 pcie_gen_max 1", "gpu 0 pcie_gen 1"), "gpu.0.pcie_gen_of_slot", "fix"),
]
BELOW: list[tuple[str, Script]] = [
    ("8xA100", ("gpu 5 clock_reasons 2",)),  # set to the highest clock
    ("8xA100", ("gpu 3 field.270 0 +15000000",)),
    ("8xA100", ("gpu 1 pcie_width 14",)),
    ("8xA100", ("xid 3 43 after 2",)),  # a program's own
    ("8xA100", ("gpu 3 field.38 0 +90",)),
    ("4xL40S", ("gpu 2 power_limit_mw 333000",)),  # 0.951 of 350 W
    ("1xH200", ("gpu 0 pcie_gen_max 4", "gpu 0 pcie_gen 4")),  # one generation less is how machines are built
]
HALF_LINKS = ("gpu 0 pcie_width 8", "gpu 1 pcie_width 8")
# Two of four boards have a bridge between them.
BRIDGED = tuple(
    line
    for n in range(4)
    for line in (
        *(f"gpu {n} field.{field} 0" for field in (38, 45, 52, 59, 138, 139)),
        f"gpu {n} field.91 4",
        *(f"gpu {n} nvlink.{link} {int(n < 2)} {1 - n if n < 2 else 0}" for link in range(4)),
    )
)
ONE_LOWERED = (
    *(f"gpu 0 {line}" for line in ("field.74 0 +300000000", "sm_clock 1250")),
    *(f"gpu 1 {line}" for line in ("field.74 0 +900000000", "sm_clock 1000", "power_limit_mw 250000")),
)
STRANGER = ("processes {folder}/listed",)
# No fabric manager runs: no link is up, and none reports what is at its other end.
NO_FABRIC = tuple(f"gpu {n} nvlink.{link} 0 unknown" for n in range(8) for link in range(12))
P2P_OFF = ("NCCL_P2P_DISABLE=1",)
IDLE = tuple(line for n in range(4) for line in (f"gpu {n} util 0", f"gpu {n} pcie_gen 1"))
ONE_MUTE = ("fail nvmlDeviceRegisterEvents 4 gpu 5",)
PLAYED: list[tuple[str, Script]] = [
    *((name, ()) for name in SOUND),
    *((name, lines) for name, lines, _, _ in FAULTS),
    *BELOW,
    ("4xL40S", STRANGER),
    ("8xA100", P2P_OFF),
    ("8xA100", NO_FABRIC),
    ("4xL40S", IDLE),
    ("8xH100", ONE_MUTE),
    ("2xRTX3090", HALF_LINKS),
    ("4xL40S", BRIDGED),
    ("8xA100", ONE_LOWERED),
    ("restricted", ()),
    ("narrow-slot", ()),
]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_machine_is_kept(machine: Callable[..., Answer], name: str) -> None:
    answer = machine(name)
    assert answer["triage"]["verdict"]["state"] == "keep", answer["triage"]["verdict"]
    assert bad(answer) == {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[0]} {fault[2]} {' '.join(fault[1])}")
def test_a_fault_is_named_on_its_gpu(machine: Callable[..., Answer], fault: Fault) -> None:
    kind, lines, name, state = fault
    answer = machine(kind, *lines)
    assert name in bad(answer), answer["triage"]["verdict"]
    assert answer["remedies"][name] == state
    verdict = answer["triage"]["verdict"]
    assert verdict["state"] == state
    assert any(f"GPU {name.split('.')[1]}" in reason for reason in verdict["reasons"]) and "rank" not in str(verdict)
    assert [other for other in bad(answer) if other.split(".")[1] != name.split(".")[1]] == []


@pytest.mark.parametrize("line", BELOW, ids=str)
def test_what_lies_below_the_lines_of_the_rules_is_sound(
    machine: Callable[..., Answer], line: tuple[str, Script]
) -> None:
    answer = machine(line[0], *line[1])
    assert answer["triage"]["verdict"]["state"] == "keep", answer["triage"]["verdict"]


def test_a_stranger_is_none_where_nobody_knows_our_own_processes(machine: Callable[..., Answer]) -> None:
    """The driver lists no process of ours: it may number them otherwise than we do."""
    answer = machine("4xL40S", *STRANGER)
    states = {c["name"]: c["state"] for c in answer["triage"]["checks"]}
    assert states["gpu.2.foreign_processes"] in ("unknown", "bad")


def test_peer_to_peer_that_is_switched_off_is_a_setting(machine: Callable[..., Answer]) -> None:
    answer = machine("8xA100", *P2P_OFF)
    assert set(bad(answer)) == {"gpu.peer_to_peer"} and answer["triage"]["verdict"]["state"] == "fix"
    assert "NCCL_P2P_DISABLE" in answer["triage"]["verdict"]["reasons"][0]


def test_boards_that_exist_with_nvlink_alone_have_some_of_it_up(machine: Callable[..., Answer]) -> None:
    answer = machine("8xA100", *NO_FABRIC)
    assert set(bad(answer)) == {f"gpu.{n}.nvlinks_active" for n in range(8)}
    assert answer["triage"]["verdict"]["state"] == "hand-back"


def test_links_that_all_gpus_have_alike_are_no_reason_to_give_the_machine_back(machine: Callable[..., Answer]) -> None:
    answer = machine("2xRTX3090", *HALF_LINKS)
    links = {f"gpu.{n}.pcie_link_gb_per_s" for n in range(2)}
    assert set(bad(answer)) == links and {answer["remedies"][name] for name in links} == {"note"}
    verdict = answer["triage"]["verdict"]
    assert verdict["state"] == "keep" and "by design of the machine" in str(verdict["reasons"])


def test_the_only_gpu_in_a_slot_of_fewer_lanes_than_its_data_sheet_has_is_a_note(
    machine: Callable[..., Answer],
) -> None:
    answer = machine("narrow-slot")
    check = bad(answer)["gpu.0.pcie_link_gb_per_s"]
    assert "per data sheet" in check["hint"] and answer["remedies"]["gpu.0.pcie_link_gb_per_s"] == "note"
    assert answer["triage"]["verdict"]["state"] == "keep"


def test_a_board_without_a_bridge_is_not_one_whose_links_are_down(machine: Callable[..., Answer]) -> None:
    answer = machine("4xL40S", *BRIDGED)
    checks = {check["name"]: check for check in answer["triage"]["checks"]}
    assert [checks[f"gpu.{n}.nvlinks_active"]["state"] for n in range(4)] == ["ok", "ok", "unknown", "unknown"]
    assert "whether a bridge is installed is unknown" in checks["gpu.2.nvlinks_active"]["hint"]
    assert answer["triage"]["verdict"]["state"] == "keep"


def test_each_gpu_at_its_power_limit_gets_its_own_advice(machine: Callable[..., Answer]) -> None:
    hints = {name: check["hint"] for name, check in bad(machine("8xA100", *ONE_LOWERED)).items()}
    assert "check the cooling of GPU 0" in hints["gpu.0.power_capped_share"]
    assert hints["gpu.1.power_capped_share"].endswith("(nvidia-smi -i 1 -pl 400)")


def test_a_slot_whose_copies_are_fast_enough_is_as_it_should_be_whatever_it_calls_itself() -> None:
    """Virtual machines make it up."""
    device = GpuDevice(
        0, "NVIDIA H100 80GB HBM3", "GPU-0", "", 80 << 30, pcie_gen_max=3, pcie_gen_gpu_max=5, pcie_width_max=16
    )
    recording = recording_of((device,), (), [(10**9, Reading(())), (2 * 10**9, Reading(()))], (), {})
    for carrying, remedy in (((), "fix"), ((0,), "note")):
        items = health(recording, None, carrying)
        (slot,) = [one for one in items if isinstance(one, Found) and one.check.name == "gpu.0.pcie_gen_of_slot"]
        assert slot.remedy == remedy and slot.check.state == "low"


def test_what_a_gpu_is_and_where_it_sits_is_reported(machine: Callable[..., Answer]) -> None:
    values = {check["name"]: check["value"] for check in machine("8xA100")["triage"]["checks"]}
    assert values["gpu.5.memory_total_bytes"] == machines.A100.mem_bytes
    assert values["gpu.5.memory_used_bytes"] == round(0.6 * machines.A100.mem_bytes)
    assert (values["gpu.5.numa_node"], values["gpu.5.near_cpus"]) == ("1", "64-127")
    assert (values["gpu.5.ecc"], values["gpu.5.mig"]) == ("on", "off")
    assert values["gpu.5.paths"] == "NV12 to 0-4,6-7"
    assert values["gpu.5.power_limit_w"] == 400.0 and values["gpu.5.nvlink_recoveries"] == 0.0
    cut = {check["name"]: check["value"] for check in machine("MIG")["triage"]["checks"]}
    assert (cut["gpu.0.mig"], cut["gpu.1.mig"]) == ("3 instances", "off")
    bridge = {check["name"]: check["value"] for check in machine("2xRTX3090")["triage"]["checks"]}
    assert bridge["gpu.0.paths"] == "PHB to 1 (no peer-to-peer: GNS)" and bridge["gpu.0.ecc"] == "off, or it has none"


def test_idle_links_prove_nothing(machine: Callable[..., Answer]) -> None:
    answer = machine("4xL40S", *IDLE)
    states = {c["name"]: c["state"] for c in answer["triage"]["checks"]}
    assert {states[f"gpu.{n}.pcie_link_gb_per_s"] for n in range(4)} == {"unknown"}
    assert answer["triage"]["verdict"]["state"] == "keep"


def test_reports_of_the_driver_are_listed_for_the_ticket(machine: Callable[..., Answer]) -> None:
    answer = machine("8xH100", "xid 5 79 after 2")
    assert [c["value"] for c in answer["triage"]["checks"] if c["name"] == "gpu.5.xids"] == ["79 after 2 s"]


def test_what_may_not_be_asked_is_unknown_and_a_gap(machine: Callable[..., Answer]) -> None:
    answer = machine("restricted")
    states = {c["name"]: c["state"] for c in answer["triage"]["checks"]}
    assert states["gpu.0.errors"] == "unknown"
    assert [gap for gap in answer["triage"]["gaps"] if "xids" in gap["name"]]


def test_what_one_gpu_does_not_report_is_unknown_of_it_alone(machine: Callable[..., Answer]) -> None:
    answer = machine("8xH100", *ONE_MUTE)
    checks = {c["name"]: c for c in answer["triage"]["checks"]}
    assert [checks[f"gpu.{n}.errors"]["state"] for n in range(8)] == ["ok"] * 5 + ["unknown"] + ["ok"] * 2
    assert "not permitted" in checks["gpu.5.errors"]["hint"]


def test_only_a_link_that_is_seen_identifies_an_instance() -> None:
    """Virtual machines hide how their GPUs are joined."""
    assert link_of([GpuConnection(0, 1, "SYS", "ok"), GpuConnection(0, 2, "NV12", "ok")]) == "nvlink"
    assert link_of([GpuConnection(0, 1, "SYS", "ok")]) is None and link_of([]) is None


def test_no_driver_is_one_gap(tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver")
    items = list(gpus(TriageOptions(tmp_path, sys.executable), Watch()))
    assert [item.name for item in items if isinstance(item, TriageGap)] == ["gpu.*"]
    assert not [item for item in items if isinstance(item, Found)] and conclude(items).verdict.state == "keep"
