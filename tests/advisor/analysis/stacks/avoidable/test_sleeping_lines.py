"""From two profiles, one without those looks that found the thread asleep, to the lines where a step waits."""

from __future__ import annotations

from typing import Any

import pytest

import profiled_steps
from profiled_steps import LIBRARY, SCRIPT, TENSOR, Call, profile
from recordings import FIRST_STEP_NS, gpu_steps, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED

TORCH = f"{LIBRARY}/torch"
FETCH, ASK, FORWARD, BACKWARD, LOG = 20, 22, 24, 26, 28
LOADER = ("__next__", f"{TORCH}/utils/data/dataloader.py", 700)
MODULE = ("_call_impl", f"{TORCH}/nn/modules/module.py", 1790)
ENGINE = ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1100)
SOCKET = ("SocketIO.readinto", "/usr/lib/python3.11/socket.py", 706)
ASLEEP = {"forward": 60, "forward_cpu": 30, "backward_cpu": 50, "optimizer_cpu": 10, "flags": FLAG_CLOCKED}


def looks(
    asleep: int, awake: int, line: int, *inner: Call, outer: tuple[Call, ...] = (), function: str = "train"
) -> Any:
    """A number of stack samples at a line of the loop and its calls, outermost first."""
    return profiled_steps.looks(asleep + awake, *reversed(outer), (function, SCRIPT, line), *inner, awake=awake)


STEP = (
    looks(0, 20, FETCH, LOADER),
    looks(0, 100, FORWARD, MODULE),
    looks(0, 160, BACKWARD, TENSOR, ENGINE),
)


def seen(*rows: Any, facts: dict[str, Any] | None = None, step: tuple[Any, ...] = STEP, **more: Any) -> Analysis:
    """Steps of 130 ms, 30 of which the thread sleeps, and a profile of 400 looks."""
    stacks = [*step, *rows]
    stacks.append(looks(0, 400 - sum(row["count"] for row in stacks), FORWARD))
    return analyse(recording({0: plan(60, **ASLEEP)}, events=(profile(*stacks),), facts={100: facts or {}}, **more))


def waiting(*rows: Any, **more: Any) -> tuple[float, list[int]]:
    found = seen(*rows, **more)
    return round(1000 * found.value("step.waiting_s", 0), 1), [line.line for line in found.waiting_lines]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(looks(80, 2, ASK), (26.0, [ASK]), id="between batch and backward"),
        pytest.param(looks(80, 2, ASK, SOCKET), (26.0, [ASK]), id="in a library that the line calls"),
        pytest.param(
            looks(80, 0, ASK, ("ask", "/job/store.py", 7), SOCKET), (26.0, [7]), id="in a function of the user's"
        ),
        pytest.param(
            looks(80, 0, FORWARD, MODULE, ("forward", "/job/net.py", 9), SOCKET), (26.0, [9]), id="in the model"
        ),
        pytest.param(looks(80, 0, BACKWARD, TENSOR, ENGINE, ("hook", "/job/net.py", 5)), (26.0, [5]), id="in a hook"),
        pytest.param(looks(100, 0, ASK), (30.0, [ASK]), id="no more than the clocks say"),
        pytest.param(looks(40, 60, ASK), (0.0, []), id="a line that computes"),
        pytest.param(looks(80, 0, LOG), (0.0, []), id="after the backward pass"),
        pytest.param(looks(80, 0, FETCH, LOADER, ("__getitem__", "/job/data.py", 9)), (0.0, []), id="in the data set"),
        pytest.param(
            looks(80, 0, FORWARD, MODULE, ("forward", f"{TORCH}/nn/modules/conv.py", 9)), (0.0, []), id="torch"
        ),
        pytest.param(looks(80, 0, ASK, ("wait", f"{TORCH}/distributed/c10d.py", 9)), (0.0, []), id="an exchange"),
    ],
)
def test_a_line_that_sleeps_inside_the_step(row: Any, expected: tuple[float, list[int]]) -> None:
    assert waiting(row) == expected


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("hist = torch.histc(grad, bins=64)", 0.0),
        ("answer = store.get(torch.tensor(ids))", 26.0),
        ("rows = connection.recv()", 26.0),
    ],
)
def test_a_line_that_computes_with_torch_waits_for_its_threads(text: str, waits: float) -> None:
    row = looks(80, 0, BACKWARD, TENSOR, ENGINE, ("hook", "/job/net.py", 5))
    assert waiting({**row, "user": {**row["user"], "text": text}})[0] == waits
    library = looks(80, 0, ASK, SOCKET)
    assert waiting({**library, "user": {**library["user"], "text": text}})[0] == 26.0


def test_functions_that_lead_to_the_backward_pass_are_split_at_the_line_that_calls_it() -> None:
    main = (("main", SCRIPT, 50),)
    step = (
        looks(0, 20, 45, LOADER, function="main"),
        looks(0, 200, BACKWARD, TENSOR, ENGINE, outer=main),
    )
    assert waiting(looks(80, 0, 47, SOCKET, function="main"), step=step) == (26.0, [47])
    assert waiting(looks(80, 0, ASK, SOCKET, outer=main), step=step) == (26.0, [ASK])
    assert waiting(looks(80, 0, LOG, SOCKET, outer=main), step=step) == (0.0, [])
    assert waiting(looks(80, 0, 52, SOCKET, function="main"), step=step) == (0.0, [])
    assert waiting(looks(80, 0, 40, SOCKET, function="main"), step=step) == (0.0, []), "before the fetch"


def test_without_a_profile_of_who_is_awake_nobody_knows() -> None:
    rows = [{key: value for key, value in row.items() if key != "awake"} for row in (*STEP, looks(80, 0, ASK))]
    event = Event(FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.0, "looks": 400, "stacks": rows})
    found = analyse(recording({0: plan(60, **ASLEEP)}, events=(event,)))
    assert not found.has("step.waiting_s") and "was not observed" in found.missing["step.waiting_s"]


def test_on_a_gpu_no_more_than_it_had_nothing_queued() -> None:
    cuda = {"cuda": {"devices": 1}}
    assert not seen(looks(80, 0, ASK), facts=cuda).has("step.waiting_s")
    events = {0: gpu_steps([{"input_wait": 10, "forward": 60, "backward": 50, "optimizer": 10, "gap": 0}] * 60)}
    assert waiting(looks(80, 0, ASK), facts=cuda, gpu_steps=events) == (26.0, [ASK])
