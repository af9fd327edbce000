"""A triage for real: under a quota, with little shared memory, on a throttled disk, as a command; and the program for GPUs without any."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from samples.faults.fixtures import Burners, CpuQuota, SlowDisk, SmallSharedMemory
from samples.faults.scenario import CannotBeMade
from samples.gpus import machines

from cli_process import environment
from rn50_advisor.advisor.model.documents.machine_triage import Check, Triage, parse_triage
from rn50_advisor.advisor.triage.child_program import run_child
from rn50_advisor.probes.host.cpu_probe import allowed_cores

ROOT = Path(__file__).resolve().parents[3]


def found(code: str, folder: Path, *, under: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Checks by name that a fresh process, started by the command `under`, makes of `items`."""
    program = (
        "import json, sys\nfrom pathlib import Path\nfrom rn50_advisor.advisor.triage.host.other_load import Watch, LoadInterval\n"
        "from rn50_advisor.advisor.triage.found_checks import Found, TriageOptions\n"
        "from rn50_advisor.advisor.triage.host import memory_checks as memory, processor\n"
        "from rn50_advisor.advisor.triage.storage import disk_checks as disk, timed_io as reading\n"
        "watch = Watch()\nnow = watch.now()\nidle = LoadInterval(now, now)\nscratch = Path(sys.argv[1])\n"
        f"items = {code}\n"
        "print(json.dumps({i.check.name: {'value': i.check.value, 'state': i.check.state, 'remedy': i.remedy, 'why': i.why}"
        " for i in items if isinstance(i, Found)}))"
    )
    command = [*under, sys.executable, "-c", program, str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    checks: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return checks


def test_a_quota_is_seen_in_whatever_version_of_control_groups(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a quota of one core is none on one core")
    try:
        with CpuQuota(0.8).hold(tmp_path) as conditions:
            check = found("processor.facts(watch)", tmp_path, under=conditions.container)["cpu.cores_allowed"]
    except CannotBeMade as reason:
        pytest.skip(f"THE QUOTA IS NOT TESTED HERE: {reason}")
    assert (check["value"], check["state"], check["remedy"]) == (0.8, "bad", "fix")


def test_shared_memory_of_a_container_is_seen(tmp_path: Path) -> None:
    try:
        with SmallSharedMemory(64).hold(tmp_path) as conditions:
            tried = subprocess.run([*conditions.container, "true"], capture_output=True, text=True, check=False)
    except CannotBeMade as reason:
        pytest.skip(f"SMALL SHARED MEMORY IS NOT TESTED HERE: {reason}")
    if tried.returncode:
        pytest.skip(f"SMALL SHARED MEMORY IS NOT TESTED HERE: {tried.stderr}")
    check = found("memory.shared_memory()", tmp_path, under=conditions.container)["memory.shm_bytes"]
    assert (check["value"], check["state"], check["remedy"]) == (64 << 20, "bad", "fix")


@pytest.mark.alone
@pytest.mark.parametrize("behind", [False, True])
def test_a_throttled_disk_is_seen_by_its_limit_and_by_its_rate(tmp_path: Path, behind: bool) -> None:
    """`behind`: what is limited lies below the disk that the data is on, as the limit of a provider does."""
    try:
        with SlowDisk(4_000_000, 100, behind=behind).hold(tmp_path) as conditions:
            data = conditions.values["disk"]
            place, amounts = f"disk.place_of(Path({data!r}))", "disk.Amounts(4 << 20, 100, 1.5, 8 << 20)"
            trial = f"disk.DiskTrial({place}, {amounts}, watch, idle)"
            code = f"[*disk._limit({place}), *disk._reads(reading.list_files(Path({data!r})), {trial})]"
            checks = found(code, tmp_path, under=conditions.prefix)
    except CannotBeMade as reason:
        pytest.skip(f"A THROTTLED DISK IS NOT TESTED HERE: {reason}")
    small, limit = checks["disk.small_reads_per_s"], checks.get("disk.limit_mb_per_s")
    assert small["state"] == "bad" and small["remedy"] == "fix" and ("control group" in small["why"]) == (not behind)
    assert behind or (limit is not None and (limit["value"], limit["state"]) == (4.0, "bad"))


# Everything is made short; what a number is worth then is no affair of these tests.
SHORT = """
import sys
import rn50_advisor.advisor.commands.triage as command
from rn50_advisor.advisor.triage import triage_runner as runner
from rn50_advisor.advisor.triage.gpu import gpu_driver
from rn50_advisor.advisor.triage.host import memory_checks as memory
from rn50_advisor.advisor.triage.storage import decode_speed as decode, disk_checks as disk
runner.IDLE_S, decode.QUICK_S, memory._SECONDS = 0.5, 0.2, 0.1
gpu_driver.PERIOD_S, gpu_driver.LEAST_S = 0.1, 0.5
command._ANSWERS_S = runner._DATA_ANSWERS_S = 0.5
disk.QUICK = disk.Amounts(4 << 20, 8, 1.0, 8 << 20)
from rn50_advisor.advisor.cli import main
main(sys.argv[1:])
"""
CODES = {"keep": 0, "fix": 3, "hand-back": 4}
# A torch that was built for CUDA, on a machine whose fabric manager does not run; without torchvision pictures are decoded by Pillow alone.
BROKEN_TORCH = """
from types import SimpleNamespace
version = SimpleNamespace(cuda="12.8")
class cuda:
    @staticmethod
    def init():
        raise RuntimeError("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized")
"""


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For PYTHONPATH: decoding by Pillow alone starts ten times as fast, and is as good here."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "torchvision.py").write_text("raise ImportError('none here')\n")
    (folder / "torch.py").write_text(BROKEN_TORCH)
    return folder


def examined(folder: Path, *arguments: str, under: tuple[str, ...] = (), **variables: str) -> tuple[Triage, bytes]:
    """The command's result and its messages; the verdict is its exit code, and its scratch folder is gone."""
    scratch, output = folder / "scratch", folder / "runs" / "triage.json"
    scratch.mkdir()
    command = [*under, sys.executable, "-c", SHORT, "triage", "--python", sys.executable, "--scratch", str(scratch)]
    done = subprocess.run(
        [*command, *arguments, "-o", str(output)],
        cwd=ROOT,
        env=environment(**variables),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert output.exists(), done.stderr
    found = parse_triage(output.read_text())
    assert done.returncode == CODES[found.verdict.state], done.stderr
    assert list(scratch.iterdir()) == []
    return found, done.stderr


def states(found: Triage) -> dict[str, str]:
    return {check.name: check.state for check in found.checks}


def check_of(found: Triage, name: str) -> Check:
    check = found.get(name)
    assert check is not None, found.gaps
    return check


def own_limits() -> list[str]:
    """Faults of the machine that runs these tests, found by other means than the triage's."""
    space = os.statvfs("/dev/shm")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    quota = allowed_cores(os.getpid())
    limits = {
        "a CPU quota": quota is not None and quota < len(os.sched_getaffinity(0)),
        "little shared memory": space.f_blocks * space.f_frsize < 1 << 30 or space.f_bavail < space.f_blocks / 10,
        "few open files": 0 <= files < 1024,
    }
    return [name for name, is_so in limits.items() if is_so]


# What this machine's owner and its other tenants do is none of the tests' doing; eight files in a second say nothing of a disk.
DISTURBED = (
    "cpu.others_cores",
    "cpu.steal_share",
    "psi.memory_share",
    "disk.sequential_mb_per_s",
    "disk.small_reads_per_s",
)


@pytest.mark.alone
@pytest.mark.torch
def test_a_clean_machine_is_kept_and_nothing_is_left(tmp_path: Path, images: Path) -> None:
    found, said = examined(tmp_path, "--data", os.path.relpath(images / "train", ROOT))
    for name in ("decode.images_per_core_s", "decode.data_images_per_core_s", "memory.copy_gb_per_s"):
        value = check_of(found, name).value
        assert isinstance(value, float) and value > 0
    assert b"decoding pictures" in said
    wrong = [*own_limits(), *(name for name in DISTURBED if states(found).get(name) in ("low", "bad"))]
    if wrong:
        pytest.skip(f"A CLEAN MACHINE IS NOT TESTED HERE: {', '.join(wrong)}")
    assert found.verdict.state == "keep", found.verdict


@pytest.mark.alone
def test_under_a_quota_a_setting_is_to_be_fixed(tmp_path: Path, without_torch: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a quota of one core is none on one core")
    try:
        with CpuQuota(0.8).hold(tmp_path) as conditions:
            found, _ = examined(tmp_path, under=conditions.container, PYTHONPATH=str(without_torch))
    except CannotBeMade as reason:
        pytest.skip(f"THE QUOTA IS NOT TESTED HERE: {reason}")
    check = check_of(found, "cpu.cores_allowed")
    assert (check.value, check.state) == (0.8, "bad")
    assert any("a CPU quota of 0.8 cores" in reason for reason in found.verdict.reasons)
    assert found.verdict.state == ("hand-back" if states(found).get("cpu.steal_share") == "bad" else "fix")


@pytest.mark.alone
def test_cores_that_others_burn_are_theirs_and_no_slow_ones(tmp_path: Path, without_torch: Path) -> None:
    try:
        with Burners(len(os.sched_getaffinity(0))).hold(tmp_path):
            found, _ = examined(tmp_path, PYTHONPATH=str(without_torch))
    except CannotBeMade as reason:
        pytest.skip(f"BURNT CORES ARE NOT TESTED HERE: {reason}")
    state_of = states(found)
    if "cpu.others_cores" not in state_of:
        pytest.skip("BURNT CORES ARE NOT TESTED HERE: this kernel keeps no account of them")
    assert state_of["cpu.others_cores"] == "bad"
    assert not {state_of.get(f"decode.{what}") for what in ("images_per_core_s", "images_all_cores_s")} & {"low", "bad"}
    assert found.verdict.state == ("hand-back" if state_of.get("cpu.steal_share") == "bad" else "fix")


@pytest.mark.alone
def test_gpus_that_the_driver_shows_and_cuda_cannot_use_are_not_kept(
    tmp_path: Path, without_torch: Path, fake_driver: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("\n".join([*machines.MACHINES["8xA100"](), "gpu 3 serial 1320921000000"]))
    variables = {"FAKE_NVML_SCRIPT": str(script), "LD_LIBRARY_PATH": str(fake_driver)}
    variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(8)))  # a developer may have hidden some
    found, _ = examined(tmp_path, PYTHONPATH=str(without_torch), **variables)
    check = check_of(found, "gpu.usable")
    assert (check.value, check.expected.lo, check.state) == (0.0, 8.0, "bad")
    assert any("802" in reason and "nvidia-fabricmanager" in reason for reason in found.verdict.reasons)
    assert found.verdict.state == ("hand-back" if states(found).get("cpu.steal_share") == "bad" else "fix")
    names = [check_of(found, f"gpu.3.{what}").value for what in ("uuid", "pci_bus_id", "serial")]
    assert names == [machines.uuid(3), machines.bus_id(3), "1320921000000"]


@contextlib.contextmanager
def hung_mount(place: Path) -> Iterator[None]:
    """A file system in user space whose program never answers, as a dead NFS server does not."""
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        program = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        raise CannotBeMade(f"/dev/fuse: {error.strerror}") from error
    options = f"fd={program},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    try:
        if libc.mount(b"hung", bytes(place), b"fuse", 0, options):
            raise CannotBeMade(f"no mount: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        libc.umount2(bytes(place), 1)
        os.close(program)


def test_a_mount_that_hangs_is_reported_and_hangs_nobody(tmp_path: Path, without_torch: Path) -> None:
    try:
        with hung_mount(tmp_path / "data"):
            found, _ = examined(tmp_path, "--data", str(tmp_path / "data"), PYTHONPATH=str(without_torch))
    except CannotBeMade as reason:
        pytest.skip(f"A MOUNT THAT HANGS IS NOT TESTED HERE: {reason}")
    assert check_of(found, "disk.data_answers").state == "bad" and found.verdict.state != "keep"


@pytest.mark.torch
def test_the_program_for_gpus_runs_to_its_end_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two ranks that sum up over gloo; what torch writes by the way lies in the scratch folder alone."""
    scratch, beside = tmp_path / "scratch", tmp_path / "beside"
    scratch.mkdir()
    beside.mkdir()
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(beside))
    asked = {
        "device": "cpu",
        "seconds": 0.01,
        "sustained_s": 0.1,
        "matrix": 64,
        "buffer_bytes": 1 << 20,
        "scratch": str(scratch),
        "reduced_bytes": [1 << 16],
    }
    rows: list[dict[str, Any]] = []
    ended = run_child(sys.executable, "on_gpus", asked, timeout_s=240, scratch=scratch, on_result=rows.append)
    assert (ended.code, ended.timed_out) == (0, False), ended.last_line
    row_of = {row["name"]: row for row in rows}
    assert {"hbm_gb_per_s", "h2d_pinned_gb_per_s", "d2h_pageable_gb_per_s", "matmul_bf16_tflop_per_s"} <= set(row_of)
    assert row_of["matmul_fp32_tflop_per_s"]["value"] > 0 and row_of["sustained_tflop_per_s"]["value"] > 0
    start_ns, end_ns = (row_of[f"sustained_{mark}"]["value"] for mark in ("begins", "ends"))
    assert end_ns - start_ns >= 0.1e9
    reduced = row_of["allreduce_gb_per_s"]
    assert "joined" in row_of and reduced["value"] > 0, reduced
    assert (reduced["bytes"], reduced["gpus"]) == (1 << 16, 2)
    assert list(beside.iterdir()) == []
