"""From counts of hooks and the steps of a run to what hooks that pile up add to a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recordings import plan, recording, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import HookPile
from rn50_advisor.advisor.model.recording import Source

SCRIPT, STEPS, MS = "/job/train.py", 240, 0.001
COUNTS = [[2, 4], [50, 100], [100, 200], [239, 478]]


def hooks(kind: str = "register_forward_hook", counts: Sequence[Sequence[int]] = COUNTS, **more: Any) -> Any:
    return {"kind": kind, "function": "watch", "file": SCRIPT, "line": 1, "counts": [*map(list, counts)], **more}


def found(*piled: Any, phase: str = "forward", growth_ms: float = 0.1, ranks: int = 1) -> tuple[HookPile, ...]:
    """Steps whose phase grows by so many milliseconds with each step."""
    usual = plan(1)[0]
    steps = [step(**{phase: usual.get(phase, 0) + growth_ms * n}) for n in range(STEPS)]
    facts = {100 + rank: {"piled_hooks": list(piled)} for rank in range(ranks)}
    source = Source(SCRIPT, "", "def watch(*_):\n    pass\nnet.register_forward_hook(watch)\n")
    return analyse(recording(dict.fromkeys(range(ranks), steps), facts=facts, sources=(source,))).piled_hooks


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        ("register_forward_hook", "forward"),
        ("register_forward_pre_hook", "forward"),
        ("register_full_backward_hook", "backward"),
        ("register_hook", "backward"),
        ("register_post_accumulate_grad_hook", "backward"),
        ("register_step_post_hook", "optimizer"),
        ("addHandler", "gap"),
    ],
)
def test_the_phase_grows_with_the_hooks_that_run_in_it(kind: str, phase: str) -> None:
    (piled,) = found(hooks(kind), phase=phase)
    assert piled.phase == phase
    # 0.1 ms more in each of 240 steps: 14.4 of 114.4 ms without the first fifth, as a share of 112 ms
    assert piled.lost_s == pytest.approx((14.1 * MS, 14.1 * MS), rel=0.05)


def test_the_call_and_the_number_of_hooks() -> None:
    (piled,) = found(hooks())
    assert (piled.file, piled.line, piled.registered) == (SCRIPT, 3, True)
    assert (piled.function_at, piled.count, piled.added, piled.steps) == (f"{SCRIPT}:1", 478, 474, 237)
    (elsewhere,) = found(hooks("register_hook"))
    assert (elsewhere.file, elsewhere.line, elsewhere.registered) == (SCRIPT, 1, False)


@pytest.mark.parametrize("growth_ms", [0.0, -0.1])
def test_a_phase_that_does_not_grow_lost_nothing(growth_ms: float) -> None:
    (piled,) = found(hooks(), growth_ms=growth_ms)
    assert piled.lost_s == pytest.approx((0.0, 0.0), abs=1e-6)


def test_another_phase_that_grows_is_not_theirs() -> None:
    (piled,) = found(hooks(), phase="backward")
    assert piled.lost_s == pytest.approx((0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param([[2, 4], [100, 8]], id="read twice"),
        pytest.param([[2, 4], [50, 4], [100, 4], [239, 4]], id="registered twice at the start"),
        pytest.param([[2, 4], [50, 100], [100, 2], [239, 300]], id="removed now and then"),
    ],
)
def test_hooks_that_do_not_become_more(counts: list[list[int]]) -> None:
    assert found(hooks(counts=counts)) == ()


def test_only_the_hook_that_is_there_most_stands_for_its_phase() -> None:
    few = [[at, count // 4] for at, count in COUNTS]
    (piled,) = found(hooks(counts=few, function="other"), hooks())
    assert piled.function == "watch"


def test_each_rank_has_its_own() -> None:
    assert {piled.rank for piled in found(hooks(), ranks=2)} == {0, 1}
