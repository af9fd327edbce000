"""A fix's change as what can be applied from outside, or why it cannot be."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.findings import Fix, Where
from rn50_advisor.advisor.model.job_changes import (
    Assignment,
    CallChange,
    CallRemoval,
    EnvironmentChange,
    Expression,
    ForwardContext,
    GradientsKept,
    Invocation,
    JobChange,
    LauncherChange,
    ModelChange,
    NumbersKept,
    PaddedToLongest,
    Setup,
    ShrinkFirst,
)
from rn50_advisor.advisor.trials.knobs import NO_CHANGE, OTHER_TRAINING, REWRITES, TOO_LATE, Knob, knob_of, numbers_of

HERE = Where("/job/train.py", 41)
TF32 = Setup(
    (
        Invocation("torch.set_float32_matmul_precision", ("high",)),
        Assignment("torch.backends.cudnn.allow_tf32", True),
    )
)
THREADS = Setup((Invocation("torch.set_num_threads", (2,)),))
HALF = ForwardContext(Invocation("torch.autocast", ("cuda", Expression("torch.bfloat16"))))
COMPRESS = Setup((Invocation("model.register_comm_hook", (None, Expression("torch.distributed.hook"))),))


def knob(change: JobChange, where: Where | None = HERE) -> Knob:
    made = knob_of(Fix("", call=change, where=where))
    assert isinstance(made, Knob), made
    return made


def test_a_call_keeps_its_place_its_values_and_what_must_go() -> None:
    change = CallChange("SGD", (("fused", True), ("momentum_dtype", Expression("torch.float32"))), without=("foreach",))
    made = knob(change)
    assert made.changes == (
        {
            "kind": "call",
            "callable": "SGD",
            "arguments": {"fused": True, "momentum_dtype": {"source": "torch.float32"}},
            "without": ["foreach"],
            "file": "/job/train.py",
            "line": 41,
        },
    )
    assert made.name == "SGD(..., fused=True, momentum_dtype=torch.float32)"
    assert knob(change, where=None).changes[0]["file"] is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            THREADS,
            {"kind": "setup", "statements": [{"call": "torch.set_num_threads", "positional": [2], "arguments": {}}]},
        ),
        (
            Setup((Assignment("torch.backends.cudnn.benchmark", True),)),
            {"kind": "setup", "statements": [{"assign": "torch.backends.cudnn.benchmark", "value": True}]},
        ),
        (
            HALF,
            {
                "kind": "context",
                "call": "torch.autocast",
                "positional": ["cuda", {"source": "torch.bfloat16"}],
                "arguments": {},
            },
        ),
        (
            ModelChange(Invocation("model.to", arguments=(("memory_format", Expression("torch.channels_last")),))),
            {
                "kind": "model",
                "call": "model.to",
                "positional": [],
                "arguments": {"memory_format": {"source": "torch.channels_last"}},
            },
        ),
        (
            COMPRESS,
            {
                "kind": "model",
                "call": "model.register_comm_hook",
                "positional": [None, {"source": "torch.distributed.hook"}],
                "arguments": {},
            },
        ),
        (
            CallRemoval("torch.nn.SyncBatchNorm.convert_sync_batchnorm", "model"),
            {"kind": "removal", "callable": "convert_sync_batchnorm"},
        ),
    ],
)
def test_changes_in_a_rank_become_requests(change: JobChange, expected: dict[str, object]) -> None:
    assert knob(change).changes == (expected,)


def test_variables_and_launcher_options_are_no_business_of_the_ranks() -> None:
    made = knob(EnvironmentChange((("OMP_NUM_THREADS", "1"), ("NCCL_P2P_DISABLE", None))))
    assert made.environment == {"OMP_NUM_THREADS": "1", "NCCL_P2P_DISABLE": None}
    assert (made.can_switch, made.changes) == (False, ())
    bound = knob(LauncherChange("torchrun", ("--numa-binding=node",)))
    argv = ["/venv/bin/torchrun", "--nproc_per_node=2", "train.py"]
    assert bound.argv(argv) == ["/venv/bin/torchrun", "--numa-binding=node", "--nproc_per_node=2", "train.py"]
    module = ["python", "-m", "torch.distributed.run", "train.py"]
    assert bound.argv(module) == ["python", "-m", "torch.distributed.run", "--numa-binding=node", "train.py"]
    with pytest.raises(ValueError, match="torchrun does not start this job"):
        bound.argv(["python", "train.py"])
    assert made.argv(["python", "train.py"]) == ["python", "train.py"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (None, NO_CHANGE),
        (GradientsKept(), REWRITES),
        (NumbersKept(), REWRITES),
        (PaddedToLongest(), REWRITES),
        (ShrinkFirst("Resize", ("Rotate",)), REWRITES),
        (CallChange.of("DataLoader", batch_size=64), OTHER_TRAINING),
        (Setup((Invocation("torch.set_default_dtype", (Expression("torch.float32"),)),)), TOO_LATE),
    ],
)
def test_what_cannot_be_tried_says_why(change: JobChange | None, why: str) -> None:
    assert knob_of(Fix("", call=change)) == why


def test_a_batch_is_changed_for_who_asks_for_it() -> None:
    fix = Fix("", call=CallChange.of("DataLoader", batch_size=64))
    assert isinstance(knob_of(fix, also_other_training=True), Knob)


@pytest.mark.parametrize(
    ("change", "can_switch"),
    [
        (CallChange.of("DataLoader", num_workers=2, prefetch_factor=4, pin_memory=True), True),
        (CallChange.of("DataLoader", num_workers=2, persistent_workers=True), True),
        (CallChange.of("DataLoader", persistent_workers=True), False),
        (CallChange.of("DistributedDataParallel", bucket_cap_mb=100), False),
        (THREADS, True),
        (TF32, True),
        (Setup((Invocation("gc.collect"), Invocation("gc.freeze"))), True),
        (COMPRESS, False),
        (HALF, True),
        (CallRemoval("torch.nn.SyncBatchNorm.convert_sync_batchnorm", "model"), True),
        (CallChange("AdamW", (("fused", True),), without=("foreach",)), True),
        (CallChange.of("AdamW", fused=True, lr=0.1), False),
        (CallChange("AdamW", (("fused", True),), without=("weight_decay",)), False),
        (CallChange.of("DistributedDataParallel", broadcast_buffers=False), True),
        (
            CallChange("DistributedDataParallel", (("forward_sync_buffers", False),), without=("broadcast_buffers",)),
            True,
        ),
        (CallChange.of("Embedding", sparse=True), True),
    ],
)
def test_what_can_be_taken_back_is_switched_while_the_job_runs(change: JobChange, can_switch: bool) -> None:
    assert knob(change).can_switch == can_switch


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        (CallChange.of("DataLoader", num_workers=2), "same"),
        (THREADS, "same"),
        (EnvironmentChange.unset("CUDA_LAUNCH_BLOCKING"), "same"),
        (CallChange.of("SGD", fused=True), "rounding"),
        (ModelChange(Invocation("torch.compile", (Expression("model"),))), "rounding"),
        (Setup((Invocation("torch.set_flush_denormal", (True,)),)), "rounding"),
        (TF32, "accuracy"),
        (HALF, "accuracy"),
        (COMPRESS, "accuracy"),
        (CallRemoval("convert_sync_batchnorm", "model"), "accuracy"),
    ],
)
def test_what_a_change_does_to_the_numbers_is_said(change: JobChange, numbers: str) -> None:
    assert numbers_of(change) == numbers


def test_what_has_no_effect_between_batches_is_left_out_of_a_switch() -> None:
    made = knob(CallChange.of("DataLoader", num_workers=2, persistent_workers=True))
    assert made.changes[0]["arguments"] == {"num_workers": 2, "persistent_workers": True}
    assert made.switched[0]["arguments"] == {"num_workers": 2}
    assert knob(THREADS).switched == knob(THREADS).changes
