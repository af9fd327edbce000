"""The driver's error reports."""

from __future__ import annotations

import os
import pty
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from samples.gpus.machines import L40S, machine

from gpu_playing import play
from rn50_advisor.probes.host.gpu.gpu_xid import is_kernels_log


def test_the_kernels_log_reports_xids_where_events_are_refused(fake_driver: Path, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    log = tmp_path / "dev/kmsg"
    log.write_text("4,1,1,-;NVRM: Xid (PCI:0000:20:00): 31, before the start\n")
    line = "4,{n},9,-;NVRM: Xid (PCI:0000:20:00): {xid}, pid=7, name=python, said in a later tick\\n"
    (tmp_path / "each_tick.py").write_text(
        f'if n == 0:\n  open(root / "dev/kmsg", "a").write("{line}".format(n=2, xid=79) + "6,3,9,-;usb 1-1: new\\n")'
    )
    script = [*machine(L40S, 2), "fail nvmlDeviceRegisterEvents 3"]
    output = play(fake_driver, script, 2, tmp_path)
    assert [s["gpu.xids gpu:1"] for s in output["samples"]] == [0, 1]
    assert output["samples"][1]["gpu.xid gpu:1"] == 79
    assert output["samples"][1]["gpu.xids gpu:0"] == 0


@pytest.mark.parametrize(
    ("kind", "device", "root", "whether"),
    [
        (stat.S_IFCHR, (1, 11), "/", True),
        (stat.S_IFCHR, (1, 3), "/", False),
        (stat.S_IFREG, (0, 0), "/", False),
        (stat.S_IFREG, (0, 0), "/copy", True),
    ],
)
def test_the_kernels_log_is_known_by_its_device(
    kind: int, device: tuple[int, int], root: str, *, whether: bool
) -> None:
    status: Any = SimpleNamespace(st_mode=kind | 0o644, st_rdev=os.makedev(*device))
    assert is_kernels_log(status, Path(root)) is whether


def test_xids_come_once_and_are_counted(fake_driver: Path, tmp_path: Path) -> None:
    script = [*machine(L40S, 2), "xid 1 48 after 1", "xid 1 63 after 1", "xid 0 13 after 3"]
    samples = play(fake_driver, script, 5, tmp_path)["samples"]
    assert [s["gpu.xids gpu:1"] for s in samples] == [0, 2, 2, 2, 2]
    assert [s["gpu.xids gpu:0"] for s in samples] == [0, 0, 0, 1, 1]
    assert samples[3]["gpu.xid gpu:0"] == 13 and "gpu.xid gpu:0" not in samples[4]


def test_a_gpu_whose_events_end_blinds_no_other(fake_driver: Path, tmp_path: Path) -> None:
    """Waiting for events fails where one of the GPUs waited for is lost."""
    script = [*machine(L40S, 2), "fail nvmlEventSetWait_v2 15 gpu 1 from 3", "xid 0 13 after 4", "xid 1 79 after 2"]
    output = play(fake_driver, script, 6, tmp_path)
    assert [s["gpu.xids gpu:0"] for s in output["samples"]] == [0, 0, 0, 0, 1, 1]
    assert output["samples"][2]["gpu.xid gpu:1"] == 79, "an Xid from before the loss is reported"
    assert ["gpu.xids gpu:1" in s for s in output["samples"]] == [True, True, False, False, False, False]
    missing = [(metric, scope) for gaps in output["gaps"] for metric, scope, _, _ in gaps]
    assert missing.count(("gpu.xids", "gpu:1")) == 1 and ("gpu.xids", "gpu:0") not in missing


def test_without_events_and_log_xids_are_a_gap(fake_driver: Path, tmp_path: Path) -> None:
    output = play(fake_driver, [*machine(L40S, 2), "fail nvmlDeviceRegisterEvents 4 gpu 1"], 1, tmp_path)
    assert "gpu.xids gpu:0" in output["samples"][0] and "gpu.xids gpu:1" not in output["samples"][0]
    ((_metric, scope, reason, hint),) = [gap for gap in output["gaps"][0] if gap[0] == "gpu.xids"]
    assert scope == "gpu:1" and "not permitted" in reason and "dmesg" in hint


def console(path: Path) -> None:
    path.symlink_to(os.ttyname(pty.openpty()[1]))


@pytest.mark.parametrize("other", [os.mkfifo, lambda path: path.symlink_to("/dev/null"), console])
def test_a_substitute_for_the_kernels_log_in_a_container_reports_no_xids(
    fake_driver: Path, tmp_path: Path, other: Callable[[Path], None]
) -> None:
    (tmp_path / "dev").mkdir()
    other(tmp_path / "dev/kmsg")
    output = play(fake_driver, [*machine(L40S, 2), "fail nvmlDeviceRegisterEvents 3"], 2, tmp_path)
    assert [scope for metric, scope, *_ in output["gaps"][0] if metric == "gpu.xids"] == ["gpu:0", "gpu:1"]
    assert all("gpu.power_w gpu:1" in s and "gpu.xids gpu:1" not in s for s in output["samples"])
