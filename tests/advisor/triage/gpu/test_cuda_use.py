"""GPUs that are seen and cannot be used: CUDA that does not start, work that fails or hangs, ways that lead through the host."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.model.metrics import Reading
from rn50_advisor.advisor.triage.found_checks import Found, Item, TriageOptions
from rn50_advisor.advisor.triage.gpu import all_gpus as gpus_module
from rn50_advisor.advisor.triage.gpu import gpu_driver
from rn50_advisor.advisor.triage.gpu.cuda_use import FIRST_REDUCED_S, SILENT_S, usable
from rn50_advisor.advisor.triage.gpu.gpu_speed import MeasuredGpus, speeds
from rn50_advisor.advisor.triage.host.other_load import Watch
from rn50_advisor.advisor.triage.triage_runner import conclude
from rn50_advisor.probes.host.gpu.gpu_devices import GpuConnection, GpuDevice

FABRIC = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"
ECC = "AcceleratorError: CUDA error: uncorrectable ECC error encountered"
NCCL = "ProcessRaisedException: torch.distributed.DistBackendError: NCCL error: unhandled system error, NCCL version 2.27.5"
FULL = "OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB"


BOARD = tuple(GpuDevice(n, "NVIDIA A100-SXM4-40GB", f"GPU-{n}", "", 40 << 30) for n in range(2))


def line(name: str, value: Any = None, gpu: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "gpu": gpu, "value": value, "unit": "GB/s", **more}


BUILT, UNBUILT, JOINED = line("cuda", "12.8"), line("cuda", None), line("joined")
REDUCED_ONCE = line("allreduce_gb_per_s", 3.0, bytes=1 << 20, gpus=2)


def listed(count: int = 2) -> dict[str, Any]:
    return line("devices", [{"name": "A100", "uuid": f"GPU-{n}", "index": n} for n in range(count)])


def ran(gpu: int) -> list[dict[str, Any]]:
    return [line("hbm_gb_per_s", 1500.0, gpu), line("sustained_tflop_per_s", 250.0, gpu)]


def broke(gpu: int, reason: str, *, to_the_end: bool = True) -> list[dict[str, Any]]:
    first = [line("hbm_gb_per_s", None, gpu, reason=reason), line("matmul_bf16_tflop_per_s", None, gpu, reason=reason)]
    return [
        *first,
        line("sustained_tflop_per_s", None if to_the_end else 250.0, gpu, reason=reason if to_the_end else ""),
    ]


def of(done: MeasuredGpus, visible: int | None = 2) -> Item:
    (item,) = usable(done, BOARD, visible, longest_s=6.0)
    return item


@pytest.mark.parametrize(
    ("done", "state", "remedy"),
    [
        (MeasuredGpus([BUILT, listed(), *ran(0), *ran(1)]), "ok", "fix"),
        (MeasuredGpus([BUILT, line("devices", [], reason=FABRIC)]), "bad", "fix"),
        (MeasuredGpus([BUILT], "measuring: died of SIGSEGV"), "bad", "fix"),
        (MeasuredGpus([BUILT], "took too long", SILENT_S + 6.0), "bad", "fix"),
        (MeasuredGpus([BUILT, listed(1), *ran(0)]), "bad", "fix"),  # CUDA sees one of two
        (MeasuredGpus([BUILT, listed(), *ran(0), *broke(1, ECC)]), "bad", "hand-back"),
        (
            MeasuredGpus([BUILT, listed(), *ran(0), *broke(1, "RuntimeError: CUDA error: unspecified launch failure")]),
            "bad",
            "fix",
        ),
        (MeasuredGpus([BUILT, listed(), *ran(0), *broke(1, ECC, to_the_end=False)]), "ok", "fix"),
        (MeasuredGpus([BUILT, listed(), *ran(0), *broke(1, FULL)]), "ok", "fix"),
        (MeasuredGpus([BUILT, listed(), *ran(0), *ran(1), line("allreduce_gb_per_s", reason=NCCL)]), "bad", "fix"),
        (MeasuredGpus([BUILT, listed(), *ran(0), *ran(1), JOINED], "took too long", FIRST_REDUCED_S), "bad", "fix"),
        (MeasuredGpus([BUILT, listed(), *ran(0), JOINED, REDUCED_ONCE], "took too long", SILENT_S + 6.0), "bad", "fix"),
        (MeasuredGpus([BUILT, listed(), *ran(0)], "took too long", SILENT_S + 6.0), "bad", "fix"),
    ],
)
def test_gpus_that_are_seen_and_cannot_be_used_are_no_reason_to_keep(
    done: MeasuredGpus, state: str, remedy: str
) -> None:
    found = of(done)
    assert isinstance(found, Found) and found.check.state == state
    expected = {"ok": "keep", "bad": remedy}[state]
    assert conclude([found]).verdict.state == expected, found


@pytest.mark.parametrize(
    ("done", "visible", "said"),
    [
        (MeasuredGpus([], "ModuleNotFoundError: No module named 'torch'"), 2, "torch"),
        (MeasuredGpus([UNBUILT]), 2, "built without CUDA"),
        (
            MeasuredGpus([BUILT, line("devices", [], reason="RuntimeError: No CUDA GPUs are available")]),
            0,
            "CUDA_VISIBLE_DEVICES",
        ),
        (MeasuredGpus([BUILT, line("devices", [], reason="RuntimeError: No CUDA GPUs are available")]), None, "MIG"),
        (MeasuredGpus([BUILT], "took too long", SILENT_S + 5.9), 2, "too long"),  # the triage's time was over before
        (MeasuredGpus([BUILT, listed(), *ran(0), JOINED], "took too long", FIRST_REDUCED_S - 0.1), 2, "too long"),
        (
            MeasuredGpus([BUILT, listed(), *ran(0), JOINED, REDUCED_ONCE], "took too long", SILENT_S + 5.9),
            2,
            "too long",
        ),
    ],
)
def test_what_is_the_shells_affair_or_was_not_waited_for_is_a_gap(
    done: MeasuredGpus, visible: int | None, said: str
) -> None:
    gap = of(done, visible)
    assert isinstance(gap, TriageGap) and said in gap.reason


def test_the_cause_is_named_with_what_mends_it() -> None:
    found = of(MeasuredGpus([BUILT, line("devices", [], reason=FABRIC)]))
    assert isinstance(found, Found) and "802" in found.why and "nvidia-fabricmanager" in found.why
    hung = of(MeasuredGpus([BUILT, listed(), JOINED], "took too long", 40.0))
    assert isinstance(hung, Found) and "an all-reduce over all GPUs has hung for 40 s" in hung.why


def test_of_mig_nobody_knows_how_many_are_due() -> None:
    found = of(MeasuredGpus([BUILT, listed(1), *ran(0)]), None)
    assert isinstance(found, Found) and found.check.state == "ok"


def test_a_driver_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_module, "within", lambda seconds, ask: None)
    (found,) = gpus_module.gpus(TriageOptions(tmp_path, "python"), Watch())
    assert isinstance(found, Found) and "has not answered for 30 s" in found.why and found.remedy == "fix"
    (gap,) = gpus_module.gpus(TriageOptions(tmp_path, "python", until_s=0.0), Watch())
    assert isinstance(gap, TriageGap), "nobody had the time to wait for it"


class WedgedProbe:
    """A driver that lists the GPUs and then answers no more. It does in the end, so that no thread of the test hangs for ever."""

    driver_version = cuda_version = None

    def __init__(self, root: Path) -> None:
        self.answers = threading.Event()

    def devices(self) -> tuple[GpuDevice, ...]:
        return BOARD

    def paths(self) -> tuple[GpuConnection, ...]:
        return ()

    def serials(self) -> dict[int, str]:
        return {}

    def sample(self, now_ns: int, targets: object) -> Reading:
        self.answers.wait(600)
        return Reading(())


def test_a_driver_that_hangs_while_the_gpus_work_is_reported_and_results_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes: list[WedgedProbe] = []

    def made(root: Path) -> WedgedProbe:
        probes.append(WedgedProbe(root))
        return probes[-1]

    until: list[float] = []

    def played(setting: TriageOptions, devices: object) -> MeasuredGpus:
        until.append(setting.until_s)
        return MeasuredGpus([BUILT, listed(), *ran(0), *ran(1)])

    monkeypatch.setattr(gpu_driver, "GpuProbe", made)
    monkeypatch.setattr(gpus_module, "measure", played)
    monkeypatch.setattr(gpu_driver, "ENDS_S", 0.05)
    monkeypatch.setattr(gpu_driver, "LEAST_S", 0.0)
    ends_s = time.monotonic() + 600.0
    items = list(gpus_module.gpus(TriageOptions(tmp_path, "python", root=tmp_path, until_s=ends_s), Watch()))
    probes[0].answers.set()
    found = {one.check.name: one for one in items if isinstance(one, Found)}
    assert found["gpu.driver_answers"].check.state == "bad" and found["gpu.driver_answers"].remedy == "fix"
    assert found["gpu.1.hbm_gb_per_s"].check.value == 1500.0 and found["gpu.usable"].check.state == "ok"
    assert conclude(items).verdict.state == "fix" and "NVRM: Xid" in conclude(items).verdict.reasons[0]
    assert until == [ends_s - gpus_module.ENDS_S], "the time to wait for the driver is left"


def test_the_time_in_which_all_gpus_work_at_once_is_on_our_clock() -> None:
    marks = [line("sustained_begins", 10**9), line("sustained_ends", 7 * 10**9)]
    assert MeasuredGpus([BUILT, listed(), *marks]).sustained_ns == (10**9, 7 * 10**9)
    assert MeasuredGpus([BUILT, listed(), marks[0]]).sustained_ns is None
    assert list(speeds(MeasuredGpus([BUILT, listed(), *marks]), ())) == [], "marks are no numbers of a GPU"


@pytest.mark.parametrize(
    ("name", "direct", "state"),
    [
        ("NVIDIA A100-SXM4-40GB", True, "ok"),
        ("NVIDIA A100-SXM4-40GB", False, "bad"),
        ("NVIDIA L40S", False, None),
        ("Tesla V100-SXM2-32GB", False, None),  # of eight only some pairs are joined
    ],
)
def test_gpus_that_are_joined_reach_each_other_without_the_host(name: str, direct: bool, state: str | None) -> None:
    named = line("devices", [{"name": name, "uuid": "", "index": n} for n in range(2)])
    ways = [line("p2p_gb_per_s", 9.0, one, to=1 - one, direct=direct) for one in range(2)]
    items = list(speeds(MeasuredGpus([BUILT, named, *ways]), ()))
    judged = [item for item in items if isinstance(item, Found) and item.check.name == "gpu.direct_ways"]
    assert [item.check.state for item in judged] == ([state] if state else [])
    assert conclude(items).verdict.state == ("fix" if state == "bad" else "keep")
