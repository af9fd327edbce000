"""Loops that slice their batches themselves: what a profile shows of the time between the update and the next backward pass."""

from __future__ import annotations

from typing import Any

import pytest

import profiled_steps
from profiled_steps import LIBRARY, SCRIPT, TENSOR, Call
from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event, Source
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, FLAG_NO_LOADER
from rn50_advisor.rules.registry import all_rules

TORCH = f"{LIBRARY}/torch"
SLICE, FORWARD, BACKWARD, UPDATE, LOG = 20, 22, 24, 25, 26
MODULE = ("_call_impl", f"{TORCH}/nn/modules/module.py", 1790)
ENGINE = ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1100)
OPTIMIZER = ("Optimizer.profile_hook_step.<locals>.wrapper", f"{TORCH}/optim/optimizer.py", 550)
WRITES = ("emit", "/usr/lib/python3.11/logging/__init__.py", 1100)


def row(count: int, line: int, *inner: Call, text: str = "") -> Any:
    """A number of stack samples at a line of the loop and its calls, outermost first."""
    return profiled_steps.looks(count, ("main", SCRIPT, line), *inner, text=text)


LOOP = (row(30, SLICE), row(90, FORWARD, MODULE), row(120, BACKWARD, TENSOR, ENGINE))
STEP = (*LOOP, row(10, UPDATE, OPTIMIZER))
CHUNK = {"input_wait": 0, "forward": 60, "backward": 30, "optimizer": 10, "forward_cpu": 60, "backward_cpu": 30}


def profile(*rows: dict[str, Any], rank: int = 0) -> Event:
    return profiled_steps.profile(*rows, rank=rank, outside_share=0.6)


def seen(*rows: dict[str, Any], steps: list[dict[str, float]] | None = None, **more: Any) -> Analysis:
    """Steps of 100 ms, 60 of them between update and backward."""
    made = steps or plan(60, flags=FLAG_NO_LOADER | FLAG_CLOCKED, **CHUNK)
    return analyse(recording({0: made}, events=(profile(*rows),), **more))


@pytest.mark.parametrize(
    ("rows", "gap_ms"),
    [
        pytest.param((*STEP, row(50, LOG)), 16.7, id="a line after the update"),
        pytest.param((*STEP, row(50, LOG, ("log", SCRIPT, 7), WRITES)), 16.7, id="a function called after it"),
        pytest.param((*STEP, row(50, LOG, ("check", SCRIPT, 7), MODULE)), 16.7, id="an evaluation"),
        pytest.param((*STEP, row(50, SLICE)), 0.0, id="the next batch"),
        pytest.param((*STEP, row(50, UPDATE, OPTIMIZER)), 0.0, id="another optimizer"),
        pytest.param((*LOOP, row(60, LOG)), 20.0, id="an update too short to be seen"),
        pytest.param((*LOOP, row(60, LOG, text="p.data.add_(p.grad, alpha=-lr)")), 0.0, id="an update by hand"),
        pytest.param((*STEP, row(50, LOG, text="total.add_(loss)")), 16.7, id="in place after an optimizer"),
    ],
)
def test_what_comes_after_the_update_is_time_between_steps(rows: Any, gap_ms: float) -> None:
    found = seen(*rows)
    assert round(1000 * found.value("step.gap_s", 0), 1) == gap_ms
    assert found.budget.critical["gap"] == pytest.approx(gap_ms / 1000, abs=1e-4)
    assert found.feed is not None and round(1000 * found.feed.chunk_s, 1) == 60 - gap_ms


def test_an_evaluation_that_was_labelled_as_such_is_not_counted_again() -> None:
    check = row(50, LOG, ("check", SCRIPT, 7), MODULE)
    sites = {100: {"evaluation_sites": [{"file": SCRIPT, "line": LOG, "count": 3}]}}
    found = seen(*STEP, check, facts=sites)
    assert found.value("step.gap_s", 0) == 0.0 and not found.hot_lines
    [line] = seen(*STEP, check, row(50, LOG + 1), facts=sites).hot_lines
    assert line.line == LOG + 1 and line.share == 1.0


def test_what_stands_before_an_update_that_nobody_saw_is_counted_once() -> None:
    steps = plan(60, flags=FLAG_NO_LOADER | FLAG_CLOCKED, **{**CHUNK, "forward": 50, "clip": 10})
    assert seen(*LOOP, row(60, LOG), steps=steps).value("step.gap_s", 0) == pytest.approx(0.02)


def test_a_step_that_is_longer_than_the_usual_one_has_it() -> None:
    steps = plan(60, flags=FLAG_NO_LOADER | FLAG_CLOCKED, **CHUNK)
    for n in range(0, 60, 6):
        steps[n]["forward"] = 180
    found = seen(*STEP, row(50, LOG), steps=steps)
    assert found.value("step.gap_s", 0) == pytest.approx(0.020, abs=0.0015)
    assert found.pulse is not None and found.pulse.phase == "gap"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (row(80, LOG, ("log", SCRIPT, 7), WRITES), "LOP002"),
        (row(80, LOG, text="time.sleep(0.02)"), "LOP004"),
        (row(80, LOG, ("check", SCRIPT, 7), MODULE), "LOP004"),
    ],
)
def test_it_is_found_with_its_line(line: dict[str, Any], rule: str) -> None:
    found = judge(seen(*STEP, line), all_rules(), Config())
    assert found.verdict.rule == rule
    where = found.findings[0].fixes[0].where
    assert where is not None and where.line == line["user"]["line"]


def test_compute_before_the_backward_comes_from_the_samples_in_the_model() -> None:
    quick, slow = (row(90, FORWARD, MODULE), row(270, FORWARD, MODULE))
    steps = {n: plan(60, flags=FLAG_NO_LOADER | FLAG_CLOCKED, **{**CHUNK, "forward": 60 + 90 * n}) for n in (0, 1)}
    rest = [row(30, SLICE), row(120, BACKWARD, TENSOR, ENGINE)]
    events = (profile(*rest, quick), profile(*rest, slow, rank=1))
    found = analyse(recording(steps, events=events)).by_rank("step.compute_s")
    blind = analyse(recording(steps)).by_rank("step.compute_s")
    assert found[1] - found[0] > 0.06 and blind == pytest.approx({0: 0.04, 1: 0.04}, abs=0.001)


@pytest.mark.parametrize(
    "given", [{"facts": {100: {"cuda": {"name": "H200"}}}}, {"events": ()}, {"events": (profile(row(99, LOG)),)}]
)
def test_on_a_gpu_or_without_a_profile_that_shows_the_loop_nobody_knows(given: dict[str, Any]) -> None:
    steps = plan(60, flags=FLAG_NO_LOADER | FLAG_CLOCKED, **CHUNK)
    found = analyse(recording({0: steps}, **{"events": (profile(*STEP, row(50, LOG)),), **given}))
    assert not found.has("step.gap_s") and found.missing["step.gap_s"]


ROLLOUT = 18
PLAYS = ("rollout", SCRIPT, 5)


def stalling() -> list[dict[str, float]]:
    """Every sixth step takes 250 ms instead of 100: a fifth of the time."""
    steps = plan(60, flags=FLAG_NO_LOADER | FLAG_CLOCKED, **CHUNK)
    for n in range(3, 60, 6):
        steps[n]["forward"] = 210
    return steps


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param((row(40, ROLLOUT, PLAYS), row(10, ROLLOUT, PLAYS, MODULE)), ("rollout", 0.2), id="a rollout"),
        pytest.param((row(50, ROLLOUT),), ("", 0.0), id="a line of the loop"),
        pytest.param((row(6, ROLLOUT, PLAYS),), None, id="too little"),
        pytest.param((row(50, ROLLOUT, PLAYS), row(50, 19, ("log", SCRIPT, 7))), None, id="two of a size"),
        pytest.param((row(50, UPDATE, OPTIMIZER),), None, id="a part of the step"),
    ],
)
def test_the_call_that_takes_what_the_stalls_take_is_named(rows: Any, expected: tuple[str, float] | None) -> None:
    loop = (row(4, SLICE), row(90, FORWARD, MODULE), row(60, BACKWARD, TENSOR, ENGINE), row(6, UPDATE, OPTIMIZER))
    pulse = seen(*loop, *rows, steps=stalling()).pulse
    assert pulse is not None and pulse.share == pytest.approx(0.2, abs=0.01)
    call = pulse.call
    assert (call and (call.called, round(call.in_model, 2))) == expected
    assert call is None or (call.file, call.line) == (SCRIPT, ROLLOUT)


def test_a_loop_that_a_loader_feeds_has_no_such_call() -> None:
    steps = [{**step, "flags": FLAG_CLOCKED} for step in stalling()]
    pulse = seen(*STEP, row(50, ROLLOUT, PLAYS), steps=steps).pulse
    assert pulse is not None and pulse.call is None


# Lines as in the constants above: a rollout or an evaluation before minibatches, or in a branch of the loop itself.
def source(*lines: str) -> Source:
    return Source(SCRIPT, "", "\n" * 9 + "\n".join(lines))


PPO = source(
    "def main():",  # 10
    "    for update in range(60):",
    *[""] * 6,
    "        obs, act = rollout(env, net)",  # 18
    "        adv = act - act.mean()",
    "        for idx in split(obs):",
    "            obs[idx]",
    "            out = net(obs[idx])",  # 22
    "            loss = out - adv",
    "            loss.backward()",  # 24
    "            opt.step()",
)
IN_LOOP = source(
    "def main():",  # 10
    "    for update in range(60):",
    *[""] * 5,
    "        if update % 9 == 0:",
    "            obs, act = rollout(env, net)",  # 18
    *[""] * 3,
    "        out = net(obs)",  # 22
    "        loss = out.mean()",
    "        loss.backward()",  # 24
    "        opt.step()",
)
INLINE = source(
    "def main():",  # 10
    "    for update in range(60):",
    "        for n in range(128):",
    *[""] * 4,
    "            with torch.no_grad():",
    "                act = net(obs)",  # 18
    "            obs = env.step(act)",
    "        for idx in split(obs):",
    "            obs[idx]",
    "            out = net(obs[idx])",  # 22
    "            loss = out - adv",
    "            loss.backward()",  # 24
    "            opt.step()",
)
EVALUATES = source(*PPO.text.replace("obs, act = rollout", "losses = rollout").split("\n")[9:])
LONG_FORWARD = (row(4, SLICE), row(50, FORWARD, MODULE), row(60, BACKWARD, TENSOR, ENGINE), row(36, UPDATE, OPTIMIZER))
PLAYS_MODEL = row(38, ROLLOUT, PLAYS, MODULE)


@pytest.mark.parametrize(
    ("kept", "rows", "expected"),
    [
        pytest.param(PPO, (row(12, ROLLOUT, PLAYS), PLAYS_MODEL), True, id="its result is trained on"),
        pytest.param(EVALUATES, (row(12, ROLLOUT, PLAYS), PLAYS_MODEL), False, id="its result is not trained on"),
        pytest.param(IN_LOOP, (row(12, ROLLOUT, PLAYS), PLAYS_MODEL), True, id="in a branch of the loop"),
        pytest.param(
            EVALUATES,
            (row(12, ROLLOUT, PLAYS, ("CartPole.step", SCRIPT, 8)), PLAYS_MODEL),
            True,
            id="it steps an environment",
        ),
        pytest.param(
            EVALUATES,
            (row(12, ROLLOUT, PLAYS), row(38, ROLLOUT, PLAYS, ("Decoder.step", SCRIPT, 8), MODULE)),
            False,
            id="a step within the model",
        ),
    ],
)
def test_the_forward_of_every_step_is_no_rollout_however_long(kept: Source, rows: Any, expected: bool) -> None:
    pulse = seen(*LONG_FORWARD, *rows, steps=stalling(), sources=(kept,)).pulse
    assert pulse is not None and pulse.call is not None
    assert (pulse.call.line, pulse.call.called, pulse.call.collects) == (ROLLOUT, "rollout", expected)


def test_a_rollout_written_out_in_the_loop_is_one_loop_of_several_lines() -> None:
    played = (row(20, ROLLOUT, MODULE), row(30, 19, ("Envs.step", "/job/envs.py", 7)))
    pulse = seen(*LONG_FORWARD, *played, steps=stalling(), sources=(INLINE,)).pulse
    assert pulse is not None and pulse.call is not None
    assert (pulse.call.line, pulse.call.called, pulse.call.collects) == (19, "step", True)
    assert pulse.call.in_model == pytest.approx(0.4) and pulse.call.share == pytest.approx(0.25)


TWO_LOOPS = source(
    "def main():",  # 10
    "    for update in range(60):",
    "        for n in range(128):",
    "            act = net(obs)",
    "            obs = env.step(act)",
    "        for n in range(128):",
    *[""] * 2,
    "            adv = mix(rewards, adv)",  # 18
    "        bias = adv.mean()",
    "        for idx in split(obs):",
    "            obs[idx]",
    "            out = net(obs[idx])",  # 22
    "            loss = out - adv",
    "            loss.backward()",  # 24
    "            opt.step()",
)
PLAYED = row(9, 13, MODULE), row(6, 14, ("Envs.step", "/job/envs.py", 7))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param((*PLAYED, row(20, ROLLOUT)), True, id="two loops"),
        pytest.param(PLAYED, True, id="one of which part of the samples is missing"),
        pytest.param((row(5, 13, MODULE),), False, id="too little"),
        pytest.param((*PLAYED, row(150, ROLLOUT)), False, id="too much"),
        pytest.param(
            (*PLAYED, row(14, ROLLOUT), row(12, BACKWARD, ("log", SCRIPT, 7))), True, id="with the step's own"
        ),
    ],
)
def test_lines_between_series_of_steps_belong_together(rows: Any, expected: bool) -> None:
    pulse = seen(*LONG_FORWARD, *rows, steps=stalling(), sources=(TWO_LOOPS,)).pulse
    assert pulse is not None and (pulse.call is not None and pulse.call.collects) is expected


def test_lines_of_a_branch_of_the_loop_that_steps_are_none_of_them() -> None:
    branch = Source(SCRIPT, "", TWO_LOOPS.text.replace("            obs[idx]", "            if n % 9 == 0: log(obs)"))
    pulse = seen(*LONG_FORWARD, *PLAYED, row(9, 21, ("log", SCRIPT, 7)), steps=stalling(), sources=(branch,)).pulse
    assert pulse is not None and pulse.call is None


@pytest.mark.parametrize("kept", [(), (Source(SCRIPT, "", "def main(:"),), (Source(SCRIPT, "", PPO.text, True),)])
def test_without_the_loops_source_two_lines_of_a_size_are_not_told_apart(kept: Any) -> None:
    pulse = seen(*LONG_FORWARD, row(12, ROLLOUT, PLAYS), PLAYS_MODEL, steps=stalling(), sources=kept).pulse
    assert pulse is not None and pulse.call is None


# main() calls both on line 30; `update` is the function with the backward pass.
BOTH = 30
COLLECT = ("Agent.collect", SCRIPT, 60)


def both(call: str) -> Source:
    lines = [""] * 80
    lines[27:30] = ["def main():", "    for n in range(9):", f"        {call}"]
    lines[39:44] = [
        "def update(roll):",
        "    for part in split(roll):",
        "        loss = net(part)",
        "        loss.backward()",
    ]
    return Source(SCRIPT, "", "\n".join(lines))


def update_at(line: int) -> Call:
    return "Agent.update", SCRIPT, line


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param("agent.update(agent.collect())", True, id="handed on"),
        pytest.param("agent.update(x, roll=agent.collect())", True, id="by name"),
        pytest.param("found = agent.update(x), agent.collect()", False, id="beside it"),
    ],
)
def test_a_line_that_calls_both_is_told_apart_by_what_it_calls(call: str, expected: bool) -> None:
    steps = (
        row(90, BOTH, update_at(42), MODULE),
        row(64, BOTH, update_at(43), TENSOR, ENGINE),
        row(6, BOTH, update_at(44), OPTIMIZER),
    )
    rollout = row(12, BOTH, COLLECT), row(38, BOTH, COLLECT, MODULE)
    pulse = seen(*steps, *rollout, steps=stalling(), sources=(both(call),)).pulse
    assert pulse is not None and pulse.call is not None
    assert (pulse.call.line, pulse.call.called, pulse.call.collects) == (BOTH, "collect", expected)
