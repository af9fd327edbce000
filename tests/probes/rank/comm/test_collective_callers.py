"""Who calls a collective: the job's own line, and the library that calls for it."""

from __future__ import annotations

import os
import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.comm.collective_callers import NORM, callers_line, described
from rn50_advisor.probes.rank.facts.process_facts import torchs_folder
from rn50_advisor.probes.rank.layout import COLLECTIVE_KINDS

SITE = "/env/lib/python3.11/site-packages/"


def frame_in(file: str, name: str = "call", argument: Any = None, owner: str = "") -> FrameType:
    """A frame of a function of this name (of a class `owner`), in a file that is not there."""
    lines = [f"def {name}(first):", "    return sys._getframe()"]
    if owner:
        lines = [f"class {owner}:", *("    " + line for line in lines)]
    space: dict[str, Any] = {"sys": sys}
    exec(compile("\n".join(lines), file, "exec"), space)
    function = getattr(space[owner], name) if owner else space[name]
    frame: FrameType = function(argument)
    return frame


def library(*given: Any, **more: Any) -> str:
    return described(frame_in(*given, **more), 0, None)["library"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/job/train.py", ""),
        ("/job/deepspeed/train.py", ""),  # the job's own folders may have any name
        ("/job/train_syncbn.py", ""),
        (SITE + "deepspeed/runtime/engine.py", "DeepSpeed"),
        (SITE + "apex/parallel/optimized_sync_batchnorm.py", NORM),
        (SITE + "lightning/fabric/strategies/ddp.py", "lightning"),
        ("/usr/lib/python3/dist-packages/horovod/torch/mpi_ops.py", "horovod"),
        (SITE + "torch/nn/modules/_functions.py", NORM),
        (SITE + "torch/distributed/fsdp/_runtime_utils.py", "FSDP"),
        (SITE + "torch/distributed/optim/zero_redundancy_optimizer.py", "ZeRO"),
        (SITE + "torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py", "communication hook"),
        (SITE + "torch/distributed/utils.py", "torch"),
    ],
)
def test_a_library_is_known_by_its_file(file: str, name: str) -> None:
    assert library(file.replace("/", os.sep)) == name


def test_torch_is_torch_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/src/pytorch/torch/__init__.py"))  # type: ignore[arg-type]
    assert torchs_folder() == "/src/pytorch/torch/"
    assert library("/src/pytorch/torch/distributed/fsdp/api.py") == "FSDP"
    assert library("/src/pytorch/torch/anything.py") == "torch"
    assert library("/src/other/torch/fsdp/api.py") == ""


class SyncBatchNorm:
    pass


class MySyncBN:
    pass


@pytest.mark.parametrize("function", ["forward", "backward"])
@pytest.mark.parametrize("made", [SyncBatchNorm, MySyncBN])
def test_a_batch_norm_of_the_jobs_own_is_known_by_its_class(function: str, made: type) -> None:
    assert library("/job/layers.py", function, made()) == NORM
    assert library("/job/layers.py", "reduce", made()) == "", "other functions' variables are not read"
    assert library("/job/layers.py", function, object()) == ""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no qualified name")
def test_it_is_known_by_the_class_of_its_function_too() -> None:
    assert library("/job/layers.py", "reduce", owner="sync_batch_norm") == NORM
    assert library("/job/layers.py", "reduce", owner="Trainer") == ""


def test_the_jobs_line_and_its_group_are_described() -> None:
    frame = sys._getframe()
    group: Any = SimpleNamespace(backend="nccl", size=8)
    found = described(frame, COLLECTIVE_KINDS.index("broadcast"), group)
    assert (found["file"], found["function"]) == (__file__, "test_the_jobs_line_and_its_group_are_described")
    assert found["line"] == frame.f_lineno - 2
    assert (found["kind"], found["backend"], found["group_size"]) == ("broadcast", "nccl", 8)
    assert (found["calls"], found["bytes"], found["ns"]) == (0, 0, 0)
    alone = described(frame, 0, None)
    assert (alone["kind"], alone["backend"], alone["group_size"]) == (COLLECTIVE_KINDS[0], "", 0)


def test_libraries_for_metrics_are_known() -> None:
    made = frame_in(SITE + "torchmetrics/utilities/distributed.py")
    assert described(made, 0, None)["for_metrics"] and not described(frame_in("/job/train.py"), 0, None)["for_metrics"]


def test_a_call_from_within_a_module_is_told_from_one_of_the_loop() -> None:
    def _call_impl() -> FrameType:
        return frame_in("/job/loss.py")

    assert (
        described(_call_impl(), 0, None)["in_module"] and not described(frame_in("/job/train.py"), 0, None)["in_module"]
    )


def test_the_jobs_own_line_is_found_behind_a_library() -> None:
    space: dict[str, Any] = {"sys": sys}
    exec(compile("def log():\n    return callers_line(sys._getframe())", SITE + "lightning/log.py", "exec"), space)
    space["callers_line"] = callers_line
    exec(compile("def step(log):\n    first = log()\n    return first, log()", "/job/train.py", "exec"), space)
    (code, at), (same, later) = space["step"](space["log"])
    assert code is same and code.co_filename == "/job/train.py" and at < later
