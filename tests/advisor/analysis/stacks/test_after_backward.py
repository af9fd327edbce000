"""Time between the backward pass and the update: what of it has to stand there, and what is the user's own."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import FIRST_STEP_NS, gpu_steps, plan, recording, stack
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.rules.registry import all_rules

SCRIPT = "/job/train.py"
TORCH = "/env/site-packages/torch"
CLIPS = ("_clip_grads_with_norm_", f"{TORCH}/nn/utils/clip_grad.py", 150)
STEP_MS = {"clip": 30.0}  # of 130


def look(
    *callees: tuple[str, str, int], text: str = "", line: int = 40, function: str = "watch", **given: Any
) -> Event:
    user = {"function": function, "file": SCRIPT, "line": line, "text": text}
    return stack(SCRIPT, line, function, *callees, **{"phase": "clip", "user": user, **given})


def seen(*events: Event, **more: Any) -> Analysis:
    return analyse(recording({0: plan(60, **STEP_MS)}, events=events, **more))


def moved_ms(*events: Event, **more: Any) -> float:
    """Time that no longer counts as the update's."""
    budget = seen(*events, **more).budget.critical
    assert budget["gap"] + budget["optimizer"] == pytest.approx(0.040)
    return round(1000 * budget["gap"], 3)


@pytest.mark.parametrize(
    ("event", "own"),
    [
        pytest.param(look(text="time.sleep(0.05)"), True, id="it sleeps"),
        pytest.param(look(text="torch.histc(p.grad, 50)"), True, id="a line of its own, which calls into C"),
        pytest.param(look(("histogram", "/env/site-packages/numpy/lib/_histograms.py", 9)), True, id="numpy"),
        pytest.param(look(("emit", "/usr/lib/python3.11/logging/__init__.py", 9)), True, id="a logger"),
        pytest.param(look(("SummaryWriter.add_histogram", f"{TORCH}/utils/tensorboard/writer.py", 9)), True, id="a tracker"),
        pytest.param(look(("Tensor.norm", f"{TORCH}/_tensor.py", 9)), True, id="an expression on a tensor"),
        pytest.param(look(("Module.named_parameters", f"{TORCH}/nn/modules/module.py", 9)), True, id="through the model's parts"),
        pytest.param(look(("Module._call_impl", f"{TORCH}/nn/modules/module.py", 9)), False, id="the model once more"),
        pytest.param(look(callers=[{"function": "x", "file": f"{TORCH}/utils/_contextlib.py", "line": 1}]), True, id="no_grad"),
        pytest.param(look(CLIPS), False, id="clipping"),
        pytest.param(look(("GradScaler.unscale_", f"{TORCH}/amp/grad_scaler.py", 340)), False, id="unscaling"),
        pytest.param(look(("GradScaler._maybe_opt_step", f"{TORCH}/amp/grad_scaler.py", 351)), False, id="asking for inf"),
        pytest.param(look(("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 9)), False, id="an exchange"),
        pytest.param(look(("adaptive_clip_grad", "/env/site-packages/timm/utils/agc.py", 9)), False, id="a library for it"),
        pytest.param(look(text="p.grad.mul_(scale)"), False, id="in place"),
        pytest.param(look(text="p.grad = p.grad / world"), False, id="assigned to a gradient"),
        pytest.param(look(text="g /= world"), False, id="divided"),
        pytest.param(look(user=None), False, id="nobody knows"),
    ],
)  # fmt: skip
def test_what_torch_does_or_changes_gradients_stays_the_updates(event: Event, own: bool) -> None:
    assert moved_ms(event, event, event) == (30.0 if own else 0.0)


def test_fewer_than_three_samples_are_chance() -> None:
    assert moved_ms(look(), look()) == 0.0


def test_the_share_of_the_samples_is_the_share_of_the_time() -> None:
    assert moved_ms(look(), look(CLIPS), look(CLIPS)) == 10.0
    assert moved_ms(*[look()] * 3, *[look(phase="gap")] * 9) == 30.0, "the gap's own say nothing of it"
    assert moved_ms(*[look(step=0)] * 3) == 0.0, "before the first step"


def test_reading_belongs_to_clipping_in_a_function_that_clips_or_averages_by_hand() -> None:
    norm = look(text="total = sum(p.grad.pow(2).sum() for p in parameters)", function="clip")
    assert moved_ms(norm, norm, look(text="p.grad.mul_(scale)", function="clip", line=41)) == 0.0
    flat = look(text="flat = torch.cat([p.grad.view(-1) for p in parameters])", function="average")
    reduces = look(("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 9), function="average", line=42)
    assert moved_ms(flat, flat, reduces) == 0.0
    assert moved_ms(norm, norm, look(text="p.grad.mul_(scale)", function="other")) == 20.0


def profile(*rows: tuple[int, list[tuple[str, str, int]]], rank: int = 0) -> Event:
    """(looks, frames innermost first: function, file, line)."""
    stacks = []
    for count, frames in rows:
        named = [{"function": name, "file": file, "line": line} for name, file, line in frames]
        stacks.append({"count": count, "frames": named, "user": next(f for f in named if f["file"] == SCRIPT)})
    looks = sum(count for count, _ in rows)
    return Event(FIRST_STEP_NS, "profile", 100 + rank, rank, {"outside_share": 0.3, "looks": looks, "stacks": stacks})


MAIN = ("<module>", SCRIPT, 99)
BACKWARD = (50, [("Tensor.backward", f"{TORCH}/_tensor.py", 9), ("train", SCRIPT, 30), MAIN])
UPDATE = (
    9,
    [("Optimizer.profile_hook_step.<locals>.wrapper", f"{TORCH}/optim/optimizer.py", 9), ("train", SCRIPT, 34), MAIN],
)
OWN = (30, [("watch", SCRIPT, 7), ("train", SCRIPT, 32), MAIN])
CLIPPING = (10, [CLIPS, ("train", SCRIPT, 31), MAIN])
AFTER = (20, [("watch", SCRIPT, 8), ("train", SCRIPT, 36), MAIN])
FETCH = (5, [("__next__", f"{TORCH}/utils/data/dataloader.py", 9), ("train", SCRIPT, 33), MAIN])


@pytest.mark.parametrize(
    ("rows", "ms"),
    [
        pytest.param([BACKWARD, OWN, UPDATE], 30.0, id="a line between the two"),
        pytest.param([BACKWARD, OWN, CLIPPING, UPDATE], 22.5, id="beside clipping"),
        pytest.param([BACKWARD, CLIPPING, UPDATE, AFTER], 0.0, id="a line after the update"),
        pytest.param([BACKWARD, CLIPPING, AFTER], 20.0, id="no update seen: what is needed came before it"),
        pytest.param([BACKWARD, OWN, UPDATE, FETCH], 30.0, id="the next batch is fetched early"),
        pytest.param([OWN, UPDATE], 0.0, id="no backward seen"),
        pytest.param([(9, [BACKWARD[1][0], ("go_back", SCRIPT, 12), *BACKWARD[1][1:]]), OWN, UPDATE], 30.0, id="in another function"),
        pytest.param([(9, [("Tensor.norm", f"{TORCH}/_tensor.py", 9), ("train", SCRIPT, 35), MAIN]), BACKWARD, OWN, UPDATE], 30.0,
                     id="another method of a tensor is no backward"),
    ],
)  # fmt: skip
def test_a_profile_is_split_by_the_lines_of_the_loop(rows: list[Any], ms: float) -> None:
    assert moved_ms(profile(*rows)) == ms


def test_each_rank_has_its_own_share_and_who_was_not_looked_into_that_of_all() -> None:
    two = {rank: plan(60, **STEP_MS) for rank in (0, 1)}

    def gaps_ms(*events: Event) -> list[float]:
        own = analyse(recording(two, events=events)).model.own  # type: ignore[union-attr]
        return [round(1000 * own[rank]["gap"], 3) for rank in (0, 1)]

    assert gaps_ms(profile(BACKWARD, OWN, UPDATE), profile(BACKWARD, CLIPPING, UPDATE, rank=1)) == [30.0, 0.0]
    assert gaps_ms(profile(BACKWARD, OWN, UPDATE)) == [30.0, 30.0]


CUDA = {100: {"cuda": {"name": "A100"}}}
STREAM = {"input_wait": 10.0, "forward": 30.0, "backward": 50.0, "optimizer": 40.0, "gap": 0.0}


@pytest.mark.parametrize(
    ("stream", "ms"),
    [
        pytest.param(STREAM, 30.0, id="the GPU waits for it"),
        pytest.param({**STREAM, "backward": 80.0, "optimizer": 10.0}, 0.0, id="the GPU is still in the backward pass"),
        pytest.param({**STREAM, "backward": 70.0, "optimizer": 20.0}, 10.0, id="for a part of it"),
        pytest.param({**STREAM, "backward": 80.0, "optimizer": 25.0}, 0.0, id="the update's kernels take long"),
        pytest.param(None, 0.0, id="without events a line that waits for the GPU looks alike"),
    ],
)
def test_on_a_gpu_only_what_it_waits_for_counts(stream: dict[str, float] | None, ms: float) -> None:
    events = {} if stream is None else {0: gpu_steps([stream] * 60)}
    found = seen(*[look(text="seen.append(norm.item())")] * 3, facts=CUDA, gpu_steps=events).budget.critical["gap"]
    assert 1000 * found == pytest.approx(ms * 130 / sum((stream or STREAM).values()))


def verdict(*events: Event) -> tuple[str, str | None, str]:
    found = judge(seen(*events), all_rules(), Config()).verdict
    return found.state, found.rule, found.title + found.summary


def test_the_verdict_names_the_line_before_the_update() -> None:
    assert verdict(*[look(CLIPS)] * 9)[:2] == ("healthy", None)
    state, rule, words = verdict(*[look(text="time.sleep(0.03)")] * 9)
    assert (state, rule) == ("bottleneck", "LOP004")
    assert "between backward and optimizer" in words and f"{SCRIPT}:40" in words
    state, rule, words = verdict(*[look(text="file.write(text)")] * 9, *[look(CLIPS, line=39)] * 3)
    assert (state, rule) == ("bottleneck", "LOP002")
    assert "logging between backward and optimizer" in words and f"{SCRIPT}:40" in words
    assert seen(look(CLIPS), look(phase="gap", line=50)).hot_lines[0].line == 50, "clipping is no line to look at"
    assert seen(look(), look(CLIPS)).get("step.before_update_s", 0) is None
