"""A change is written as one would write it."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.findings import Fix
from rn50_advisor.advisor.model.job_changes import (
    Assignment,
    CallChange,
    CallRemoval,
    EnvironmentChange,
    Expression,
    ForwardContext,
    Invocation,
    JobChange,
    LauncherChange,
    ModelChange,
    Setup,
)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            CallChange.of("DataLoader", num_workers=6, pin_memory=True),
            "DataLoader(..., num_workers=6, pin_memory=True)",
        ),
        (CallChange.of("DataLoader", prefetch_factor=None), "DataLoader(..., prefetch_factor=None)"),
        (CallChange("DataLoader", (("num_workers", 0),), ("timeout",)), "DataLoader(..., num_workers=0)"),
        (Setup((Invocation("gc.collect"), Invocation("gc.freeze"))), "gc.collect(); gc.freeze()"),
        (
            Setup((Invocation("torch.set_float32_matmul_precision", ("high",)), Assignment("cudnn.allow_tf32", True))),
            'torch.set_float32_matmul_precision("high"); cudnn.allow_tf32 = True',
        ),
        (
            ModelChange(Invocation("torch.compile", (Expression("model"),), (("mode", "reduce-overhead"),))),
            'model = torch.compile(model, mode="reduce-overhead")',
        ),
        (
            ForwardContext(Invocation("torch.autocast", ("cuda", Expression("torch.bfloat16")))),
            'with torch.autocast("cuda", torch.bfloat16): loss = ...',
        ),
        (CallRemoval("convert_sync_batchnorm", "model"), "without the call to convert_sync_batchnorm(model)"),
        (EnvironmentChange((("A", "1"), ("B", "2"))), "A=1 B=2"),
        (EnvironmentChange.unset("A"), "unset A"),
        (LauncherChange("torchrun", ("--numa-binding=node",)), "torchrun --numa-binding=node"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_change_is_shown_as_one_would_write_it(change: JobChange, text: str) -> None:
    fix = Fix.of("title", change, None, "one line", more="; and more")
    assert (fix.call, fix.change) == (change, f"{text}; and more")
