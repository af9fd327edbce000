"""Where and in which phase an exception was raised that nobody caught, and what is kept of it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rn50_advisor.probes.rank.raised_exceptions import (  # noqa: E402
    raised_at,
    raised_in,
    shortened,
    uncaught,
    without_secrets,
)

pytestmark = pytest.mark.torch


def fail(*_: Any) -> Any:
    raise RuntimeError("CUDA out of memory.")


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, *, full: bool = False, checkpointed: bool = False) -> None:
        super().__init__()
        self.layer, self.full, self.checkpointed = torch.nn.Linear(2, 1), full, checkpointed
        self.runs = 0

    def inner(self, x: Any) -> Any:
        self.runs += 1
        return fail() if self.full and self.runs > self.checkpointed else self.layer(x)

    def forward(self, x: Any) -> Any:
        if self.checkpointed:
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)
        return self.inner(x)


class Optimizer(torch.optim.SGD):  # type: ignore[misc]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return closure() if closure is not None else fail()


def forward() -> None:
    Net(full=True)(torch.ones(1, 2))


def backward(**options: Any) -> None:
    net = Net(**options)
    out = net(torch.ones(1, 2))
    if not net.full:
        out.register_hook(fail)
    out.sum().backward()


def update() -> None:
    Optimizer(Net().parameters()).step()


def closure() -> None:
    Optimizer(Net().parameters()).step(forward)


def fused() -> None:
    """The optimizer of each parameter, run by a hook of its gradient."""
    net = Net()
    net.layer.weight.register_post_accumulate_grad_hook(lambda _: update())
    net(torch.ones(1, 2)).sum().backward()


@pytest.mark.parametrize(
    ("job", "marked", "phase"),
    [
        pytest.param(backward, "clip", "backward", id="the mark at its end was made on the way out"),
        pytest.param(
            lambda: backward(full=True, checkpointed=True), "clip", "backward", id="a forward pass that is made again"
        ),
        pytest.param(update, "optimizer", "optimizer", id="update"),
        pytest.param(update, "gap", "optimizer", id="update within a scaler's step"),
        pytest.param(fused, "clip", "optimizer", id="update within the backward pass"),
        pytest.param(closure, "optimizer", "forward", id="forward pass of a closure"),
        pytest.param(forward, "forward", "forward", id="forward"),
        pytest.param(forward, "clip", "forward", id="forward pass of a second loss"),
        pytest.param(forward, "evaluation", "evaluation", id="evaluation"),
        pytest.param(fail, "forward", "forward", id="loss"),
        pytest.param(fail, "clip", "clip", id="clipping"),
    ],
)
def test_the_traceback_tells_where_the_marks_have_gone_on(job: Callable[[], None], marked: str, phase: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        job()
    assert raised_in(torch, raised.value, marked) == phase


def leaving(raises: Callable[[], Any]) -> BaseException | None:
    """As multiprocessing calls finalizers: with what a child has raised on its way out."""
    found = []
    with contextlib.suppress(BaseException):
        try:
            raises()
        finally:
            found.append(uncaught())
    return found[0]


def handled(code: int) -> None:
    try:
        fail()
    except RuntimeError:
        sys.exit(code)


def _wrap(code: int) -> None:
    """As torch.multiprocessing.spawn does."""
    try:
        fail()
    except RuntimeError:
        sys.exit(code)


@pytest.mark.parametrize(
    ("raises", "kind"),
    [
        pytest.param(fail, RuntimeError, id="a child's own exception"),
        pytest.param(lambda: _wrap(1), RuntimeError, id="caught by mp.spawn"),
        pytest.param(lambda: _wrap(0), None, id="no error"),
        pytest.param(lambda: handled(3), None, id="caught by the job, which knows why it exits"),
        pytest.param(lambda: None, None, id="nothing raised"),
    ],
)
def test_of_a_child_that_leaves_its_own_exception_counts(raises: Callable[[], Any], kind: type | None) -> None:
    found = leaving(raises)
    assert found is None if kind is None else isinstance(found, kind)


def test_values_of_secret_variables_are_masked_and_others_stay() -> None:
    variables = {
        "LATE_TOKEN": "correcthorse",
        "DB_PASSWORD": "correcthorsebattery",
        "MONKEY": "bananas!",
        "API_KEY": "short",
        "HOME": "/home/me",
    }
    text = "no correcthorsebattery, no correcthorse for /home/me, bananas! or a short one"
    assert without_secrets(text, variables) == "no ***, no *** for /home/me, bananas! or a short one"


def test_an_environment_that_the_job_has_replaced_is_no_reason_to_lose_the_exception() -> None:
    assert without_secrets("correcthorse", {"TOKEN": 12345678, 3: "correcthorse", "SECRET": None}) == "correcthorse"  # type: ignore[dict-item]


def test_a_long_message_keeps_its_start_and_its_last_line() -> None:
    traceback = "Caught RuntimeError in worker 0.\n" + "  File ...\n" * 900 + "RuntimeError: no space in shared memory"
    kept = shortened(traceback)
    assert kept.startswith("Caught RuntimeError") and kept.endswith("no space in shared memory")
    assert len(kept) < 2100
    assert shortened("short") == "short"


def test_the_place_is_the_innermost_line_of_the_users_own() -> None:
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads("{")  # raised below this line
    place = raised_at(raised.value)
    assert (place["file"], place["function"]) == (__file__, "test_the_place_is_the_innermost_line_of_the_users_own")
    assert Path(__file__).read_text().splitlines()[place["line"] - 1].endswith("# raised below this line")
    assert raised_at(RuntimeError("never raised")) == {}
