"""The program that measures GPUs, with a torch that the tests make: what it says of itself, of ways between GPUs, of what they lack."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.triage import child_program
from rn50_advisor.advisor.triage.gpu.gpu_speed import MeasuredGpus, speeds


def program() -> ModuleType:
    """The program that measures, with a torch that the test makes."""
    path = Path(child_program.__file__).parent / "children" / "on_gpus.py"
    spec = importlib.util.spec_from_file_location("on_gpus_child", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_that(count: int = 1, error: Exception | None = None, version: str | None = "12.8") -> SimpleNamespace:
    def begin() -> None:
        if error is not None:
            raise error

    cuda = SimpleNamespace(init=begin, device_count=lambda: count, empty_cache=begin)
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda=version))


@pytest.mark.parametrize(
    ("torch", "count", "reported"),
    [
        (torch_that(3), 3, [("cuda", "12.8", None)]),
        (torch_that(version=None), 0, [("cuda", None, None)]),
        (
            torch_that(error=RuntimeError("CUDA error: x\nmore")),
            0,
            [("cuda", "12.8", None), ("devices", [], "RuntimeError: CUDA error: x")],
        ),
    ],
)
def test_the_program_says_that_it_begins_before_cuda_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], torch: Any, count: int, reported: list[Any]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert program().begin_cuda() == count
    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert [(row["name"], row["value"], row.get("reason")) for row in rows] == reported


def test_an_error_that_stays_ends_no_measurement_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Emptying the cache fails in the words of the error before."""
    monkeypatch.setitem(sys.modules, "torch", torch_that(error=RuntimeError("CUDA error: sticky")))

    def measure() -> None:
        raise RuntimeError("CUDA error: sticky")

    program().attempt("hbm_gb_per_s", SimpleNamespace(type="cuda", index=3), measure)
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["gpu"], row["value"], row["reason"]) == (3, None, "RuntimeError: CUDA error: sticky")


def double_of_gpus(capability: tuple[int, int]) -> SimpleNamespace:
    """As much of torch as copies between two GPUs, and products, ask for."""

    def tensor(*shape: int, **more: Any) -> SimpleNamespace:
        made = SimpleNamespace(copy_=lambda other: other)
        made.to = lambda dtype: made
        return made

    cuda = SimpleNamespace(
        synchronize=lambda device: None,
        empty_cache=lambda: None,
        can_device_access_peer=lambda one, other: one < other,
        get_device_capability=lambda device: capability,
    )
    return SimpleNamespace(
        cuda=cuda,
        ones=tensor,
        empty=tensor,
        randn=tensor,
        empty_like=tensor,
        matmul=lambda one, other, out: out,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False))),
        **{name: name for name in ("uint8", "bfloat16", "float16", "float32")},
    )


ASKED = {"seconds": 1e-6, "matrix": 8, "buffer_bytes": 64}


def test_each_direction_between_two_gpus_is_measured_and_marked_as_direct_or_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", double_of_gpus((8, 0)))
    program().peers([SimpleNamespace(type="cuda", index=n) for n in range(3)], ASKED)
    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert [(row["gpu"], row["to"], row["direct"]) for row in rows] == [
        (one, other, one < other) for one in range(3) for other in range(3) if one != other
    ]
    assert all(row["name"] == "p2p_gb_per_s" and row["value"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("capability", "measured"), [((7, 5), {"fp16", "fp32"}), ((8, 0), {"bf16", "fp16", "tf32", "fp32"})]
)
def test_what_a_gpu_has_no_units_for_is_a_gap_and_no_number(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    capability: tuple[int, int],
    measured: set[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch", double_of_gpus(capability))
    program().products(SimpleNamespace(type="cuda", index=0), ASKED)
    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    precisions = {row["name"].split("_")[1] for row in rows if row["value"] is not None}
    assert precisions == measured and len(rows) == 4
    items = list(speeds(MeasuredGpus(rows), ()))
    gaps = [item for item in items if isinstance(item, TriageGap)]
    assert len(gaps) == 4 - len(measured) and all("no units for it" in gap.reason for gap in gaps)
