"""From a profile to the lines in which a loop makes its batches ready, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

import profiled_steps
from profiled_steps import LIBRARY, MODULE, SCRIPT, TENSOR, Call, profile
from recordings import gpu_steps, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Source
from rn50_advisor.probes.rank.layout import FLAG_NO_LOADER

SET_UP, FETCH, READY, FORWARD, LOSS, BACKWARD, LOG = 18, 20, 22, 24, 25, 26, 28
LOADER = ("__next__", f"{LIBRARY}/torch/utils/data/dataloader.py", 700)
CONVOLUTION = ("forward", f"{LIBRARY}/torch/nn/modules/conv.py", 540)
ENGINE = ("_engine_run_backward", f"{LIBRARY}/torch/autograd/graph.py", 1100)
NUMPY = ("roll", f"{LIBRARY}/numpy/core/numeric.py", 1240)
AUGMENT = ("augment", "/job/augment.py", 7)
CROP = ("forward", f"{LIBRARY}/torchvision/transforms/v2/_container.py", 53)


def looks(
    count: int, line: int, *inner: Call, outer: tuple[Call, ...] = (), function: str = "train", text: str = ""
) -> Any:
    """A number of stack samples at a line of the loop and its calls, outermost first."""
    return profiled_steps.looks(count, *reversed(outer), (function, SCRIPT, line), *inner, text=text)


STEP = (
    looks(20, FETCH, LOADER),
    looks(80, FORWARD, MODULE, CONVOLUTION),
    looks(160, BACKWARD, TENSOR, ENGINE),
)


def seen(*rows: Any, facts: dict[str, Any] | None = None, step: tuple[Any, ...] = STEP, **more: Any) -> Analysis:
    """Steps of 130 ms, and a profile of 400 looks."""
    stacks = [*step, *rows]
    stacks.append(looks(400 - sum(row["count"] for row in stacks), FORWARD, MODULE, CONVOLUTION))
    steps = {0: plan(60, forward=60, **more.pop("flags", {}))}
    return analyse(recording(steps, events=(profile(*stacks),), facts={100: facts or {}}, **more))


def preparing(*rows: Any, **more: Any) -> tuple[float, list[tuple[str, int, str]]]:
    found = seen(*rows, **more)
    lines = [(line.file, line.line, line.leaf) for line in found.preparing_lines]
    return round(1000 * found.value("step.preparing_s", 0), 1), lines


def of(leaf: str = "", line: int = READY, file: str = SCRIPT) -> tuple[float, list[tuple[str, int, str]]]:
    return (26.0, [(file, line, leaf)])


NOTHING: tuple[float, list[tuple[str, int, str]]] = (0.0, [])


def measuring(*rows: Any, **more: Any) -> tuple[float, list[tuple[str, int, str]]]:
    found = seen(*rows, **more)
    lines = [(line.file, line.line, line.leaf) for line in found.measuring_lines]
    return round(1000 * found.value("step.measuring_s", 0), 1), lines


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(looks(80, READY), of(), id="in the line itself"),
        pytest.param(looks(80, READY, AUGMENT), of("augment (augment.py:7)"), id="in a function of the user's"),
        pytest.param(looks(80, READY, NUMPY), of("roll (numeric.py:1240)"), id="in a library"),
        pytest.param(looks(80, READY, MODULE, CROP), of("forward (_container.py:53)"), id="in transforms that are modules"),
        pytest.param(looks(80, FETCH, AUGMENT), of("augment (augment.py:7)", FETCH), id="around the loader, by map"),
        pytest.param(looks(80, READY, ("wait", "/usr/lib/python3.12/threading.py", 9)), NOTHING, id="it waits"),
        pytest.param({**looks(110, READY), "awake": 80}, of(), id="what sleeps there is not computed"),
        pytest.param(looks(80, FETCH, ("__iter__", f"{LIBRARY}/tqdm/std.py", 9)), NOTHING, id="a progress bar"),
        pytest.param(looks(80, SET_UP), NOTHING, id="before the loop"),
        pytest.param(looks(80, FETCH, LOADER, AUGMENT), NOTHING, id="in the data set"),
        pytest.param(looks(80, FETCH, LOADER, CROP), NOTHING, id="in the data set's transforms"),
        pytest.param(looks(80, FORWARD, AUGMENT), NOTHING, id="in one line with the model"),
        pytest.param(looks(80, FORWARD, MODULE, AUGMENT), NOTHING, id="in the model"),
        pytest.param(looks(80, LOSS, AUGMENT), NOTHING, id="the loss"),
        pytest.param(looks(80, BACKWARD, TENSOR, ENGINE, AUGMENT), NOTHING, id="in a hook"),
        pytest.param(looks(80, LOG, AUGMENT), NOTHING, id="after the step"),
        pytest.param(
            looks(80, READY, ("zero_grad", f"{LIBRARY}/torch/optim/optimizer.py", 9)), NOTHING, id="the optimizer"
        ),
        pytest.param(
            looks(80, READY, ("broadcast", f"{LIBRARY}/torch/distributed/c10d.py", 9)), NOTHING, id="an exchange"
        ),
    ],
)  # fmt: skip
def test_a_line_between_the_batch_and_the_model(row: Any, expected: Any) -> None:
    assert preparing(row) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(looks(80, LOSS, NUMPY), of("roll (numeric.py:1240)", LOSS), id="in a library"),
        pytest.param(looks(80, LOSS, AUGMENT, NUMPY), of("roll (numeric.py:1240)", LOSS), id="through the user's own"),
        pytest.param({**looks(110, LOSS, NUMPY), "awake": 80}, of("roll (numeric.py:1240)", LOSS), id="awake alone"),
        pytest.param(looks(80, LOSS), NOTHING, id="a line of tensors may be the loss"),
        pytest.param(looks(80, LOSS, AUGMENT), NOTHING, id="and so may a function of the user's"),
        pytest.param(looks(80, LOSS, NUMPY, ENGINE), NOTHING, id="torch"),
        pytest.param(looks(80, BACKWARD, NUMPY), NOTHING, id="in one line with the backward pass"),
        pytest.param(looks(80, LOG, NUMPY), NOTHING, id="after it"),
        pytest.param(looks(80, READY, NUMPY), NOTHING, id="before the model"),
    ],
)
def test_a_line_between_the_model_and_the_backward_pass(row: Any, expected: Any) -> None:
    assert measuring(row) == expected


def test_both_together_take_no_more_than_the_forward_pass() -> None:
    rows = [looks(135, READY), looks(135, LOSS, NUMPY)]
    short = (looks(20, FETCH, LOADER), looks(20, FORWARD, MODULE, CONVOLUTION), looks(60, BACKWARD, TENSOR, ENGINE))
    assert (preparing(*rows, step=short)[0], measuring(*rows, step=short)[0]) == (43.9, 16.1)


def test_lines_of_a_function_that_the_loop_trains_with() -> None:
    """The loop calls `step(batch)`: what that does before the model, and what the loop does before it calls that."""
    main = (("main", SCRIPT, 50),)
    step = (
        looks(20, 45, LOADER, function="main"),
        looks(80, FORWARD, MODULE, CONVOLUTION, outer=main),
        looks(160, BACKWARD, TENSOR, ENGINE, outer=main),
    )
    assert preparing(looks(80, READY, AUGMENT, outer=main), step=step) == of("augment (augment.py:7)")
    assert preparing(looks(80, 47, AUGMENT, function="main"), step=step) == of("augment (augment.py:7)", 47)
    assert preparing(looks(80, LOG, AUGMENT, outer=main), step=step) == NOTHING
    assert preparing(looks(80, 52, AUGMENT, function="main"), step=step) == NOTHING
    assert measuring(looks(80, LOSS, NUMPY, outer=main), step=step) == of("roll (numeric.py:1240)", LOSS)
    assert measuring(looks(80, 52, NUMPY, function="main"), step=step) == NOTHING


def test_a_frameworks_own_lines_are_passed_over_for_the_users() -> None:
    """The framework calls a callback of the user's before the training step that he wrote, which its optimizer calls."""
    advance, closure = "/env/site-packages/lightning/loop.py", ("closure", f"{LIBRARY}/torch/optim/sgd.py", 80)

    def framed(count: int, line: int, *inner: Call) -> Any:
        return profiled_steps.looks(count, ("advance", advance, line), *inner)

    step = (
        framed(20, 130, LOADER),
        framed(80, 150, closure, ("training_step", SCRIPT, FORWARD), MODULE, CONVOLUTION),
        framed(160, 150, closure, TENSOR, ENGINE),
    )
    ready = framed(80, 150, closure, ("training_step", SCRIPT, READY), AUGMENT)
    assert preparing(ready, step=step) == of("augment (augment.py:7)")
    callback = framed(80, 140, ("on_batch", "/job/callback.py", 5), AUGMENT)
    assert preparing(callback, step=step) == of("augment (augment.py:7)", 5, "/job/callback.py")
    assert preparing(framed(80, 140, ("move", advance, 9)), step=step) == NOTHING


def test_an_evaluation_prepares_its_batches_as_well_but_it_is_none_of_the_step() -> None:
    def evaluated(count: int, line: int, *inner: Call) -> Any:
        return looks(count, line, *inner, outer=(("train", SCRIPT, LOG),), function="evaluate")

    step = (*STEP, evaluated(20, 60, LOADER), evaluated(20, 64, MODULE, CONVOLUTION))
    assert preparing(evaluated(80, 62, AUGMENT), step=step) == NOTHING


def test_no_more_than_the_forward_pass_takes() -> None:
    rows = [looks(135, READY)] * 2
    short = (looks(20, FETCH, LOADER), looks(20, FORWARD, MODULE, CONVOLUTION), looks(60, BACKWARD, TENSOR, ENGINE))
    assert preparing(*rows, step=short)[0] == 60.0


@pytest.mark.parametrize(("forward_ms", "expected"), [(60, 26.0), (600, 0.0)])
def test_on_a_gpu_no_more_than_it_had_nothing_queued(forward_ms: int, expected: float) -> None:
    cuda = {"cuda": {"devices": 1}}
    assert not seen(looks(80, READY), facts=cuda).has("step.preparing_s")
    events = [{"input_wait": 10, "forward": forward_ms, "backward": 50, "optimizer": 10, "gap": 0}] * 60
    given = seen(looks(80, READY), facts=cuda, gpu_steps={0: gpu_steps(events)})
    assert given.value("step.preparing_s", 0) == pytest.approx(expected / 1000)


def test_copies_to_the_gpu_are_reported_elsewhere() -> None:
    cuda = {"cuda": {"devices": 1}}
    for text, found in (("x = x.to(device)", []), ("x = mix(x)", [READY])):
        given = seen(looks(80, READY, text=text), facts=cuda)
        assert [line.line for line in given.preparing_lines] == found
    assert preparing(looks(80, READY, text="x = x.to(device)")) == of()


def test_nobody_knows_without_a_profile_or_a_loader() -> None:
    assert not analyse(recording({0: plan(60)})).has("step.preparing_s")
    assert not seen(looks(80, READY), flags={"flags": FLAG_NO_LOADER}).has("step.preparing_s")


UNFED = {"flags": FLAG_NO_LOADER}
TABLE = """\
def train(table, environment):
    net = Net()
    for batch in {over}:
        x = environment.observe()
        loss = criterion(net(x), batch)
        loss.backward()
"""


@pytest.mark.parametrize(
    ("over", "line", "found"),
    [
        pytest.param("table.iter(64)", 3, [3], id="batches of a table"),
        pytest.param("table.iter(64)", 4, [], id="what it makes itself, on purpose"),
        pytest.param("range(64)", 3, [], id="numbers"),
    ],
)
def test_without_a_loader_what_the_loop_iterates_over_prepares(over: str, line: int, found: list[int]) -> None:
    source = (Source(SCRIPT, "", TABLE.format(over=over)),)
    step = (looks(80, 5, MODULE, CONVOLUTION), looks(160, 6, TENSOR, ENGINE))
    stacks = (*step, looks(80, line, ("_getitem", f"{LIBRARY}/datasets/arrow_dataset.py", 2900)))
    steps = {0: plan(60, forward=60, **UNFED)}
    a = analyse(recording(steps, events=(profile(*stacks),), facts={100: {}}, sources=source))
    assert [each.line for each in a.preparing_lines] == found
    assert a.has("step.preparing_s") == bool(found) and not a.has("step.measuring_s")
