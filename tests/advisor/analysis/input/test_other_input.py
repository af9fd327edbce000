"""Who feeds a loop without a torch loader, and what stack samples and CPU clocks show of the time before its backward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loops_without_loader import IN_MODEL, IN_QUEUE, JOB, PACKAGES, stack_samples, verdict_of, without_loader
from recordings import plan, rank_process, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED
from rn50_advisor.rules.registry import all_rules


@pytest.mark.parametrize(
    ("events", "title"),
    [
        (stack_samples(20, IN_MODEL), ""),
        (stack_samples(19, IN_MODEL) + stack_samples(1, *IN_QUEUE), ""),  # 5 % of 60 % of the step
        (
            stack_samples(18, IN_MODEL) + stack_samples(2, *IN_QUEUE),
            "The loop waits for something that is not the model",
        ),
        (stack_samples(20, text="batch = self.queue.get()"), "The loop waits for something that is not the model"),
        (stack_samples(20, text="picture = np.roll(picture, 3)"), "The loop does other work before the backward pass"),
        (
            stack_samples(20, *IN_QUEUE, ("__next__", f"{PACKAGES}/nvidia/dali/plugin/pytorch/__init__.py", 9)),
            "The loop spends its time in nvidia.dali",
        ),
        (
            stack_samples(10, ("decode", f"{PACKAGES}/webdataset/autodecode.py", 9)) + stack_samples(10, IN_MODEL),
            "The loop spends its time in webdataset",
        ),
        (
            stack_samples(20, ("load", "/job/datasets/pictures.py", 9)),
            "The loop does other work before the backward pass",
        ),
        (stack_samples(20, IN_MODEL, *IN_QUEUE), ""),  # the model waits by itself
    ],
    ids=[
        "model",
        "just below",
        "just above",
        "a queue in C",
        "own work",
        "a library that waits",
        "a library half of the time",
        "a folder of the user's",
        "a model that waits",
    ],
)
def test_stack_samples_show_where_the_time_before_the_backward_goes(events: list[Any], title: str) -> None:
    found = verdict_of(without_loader(events))
    assert (found.state, found.title) == (("inconclusive", title) if title else ("healthy", "Compute-bound"))


@pytest.mark.parametrize(
    ("cpu_ms", "delay_ms", "state"),
    [(60, 0, "healthy"), (55.5, 0, "healthy"), (54.5, 0, "inconclusive"), (20, 0, "inconclusive"), (50, 8, "healthy")],
)
def test_without_stack_samples_cpu_clocks_bound_what_may_be_a_wait(cpu_ms: float, delay_ms: float, state: str) -> None:
    made = without_loader(stack_samples(7, *IN_QUEUE), forward_cpu=cpu_ms, run_delay=delay_ms)
    assert verdict_of(made).state == state


def test_of_a_profile_only_what_lies_before_the_backward_counts() -> None:
    rows = [
        (300, [("backward", f"{PACKAGES}/torch/_tensor.py", 640)]),
        (50, [("step", f"{PACKAGES}/torch/optim/sgd.py", 80)]),
        (90, [IN_MODEL]),
        (10, list(IN_QUEUE)),
    ]
    profile = stack_samples(1)[0]
    own = profile.data["frames"]
    stacks = [
        {
            "count": n,
            "user": profile.data["user"],
            "frames": [{"function": f, "file": p, "line": at} for f, p, at in above] + own,
        }
        for n, above in rows
    ]
    event = replace(profile, kind="profile", data={"looks": 450, "stacks": stacks})
    found = analyse(without_loader([event])).feed
    assert found is not None and found.samples is not None
    assert (found.samples.count, found.samples.model, found.samples.waiting) == (100, 0.9, 0.1)
    assert verdict_of(without_loader([event])).title == "The loop waits for something that is not the model"


DALI = {
    "id": 0,
    "training": True,
    "class": "DALIClassificationIterator",
    "library": "nvidia.dali",
    "file": JOB,
    "line": 33,
}


def timed(input_ms: float) -> Analysis:
    """A library whose iterator the recorder knows."""
    own = plan(40, input_wait=input_ms, flags=FLAG_CLOCKED, forward_cpu=30, backward_cpu=50, optimizer_cpu=10)
    return analyse(recording({0: own}, processes=(rank_process(0),), facts={100: {"loaders": [DALI]}}))


@pytest.mark.parametrize(("input_ms", "state"), [(200, "inconclusive"), (4.8, "inconclusive"), (4.6, "healthy")])
def test_a_librarys_iterator_is_measured_and_what_is_behind_it_is_not(input_ms: float, state: str) -> None:
    analysis = timed(input_ms)
    assert analysis.value("step.input_wait_s", 0) == pytest.approx(input_ms / 1000)
    assert not analysis.has("loader.workers") and "nvidia.dali" in analysis.missing["loader.workers"]
    judged = judge(analysis, all_rules(), Config())
    assert judged.findings == (), "no rule takes it for a DataLoader without workers"
    assert judged.verdict.state == state
    if state == "inconclusive":
        assert judged.verdict.title == "The loop waits for nvidia.dali"
        assert f"{JOB}:33" in judged.verdict.summary and "not observed" in judged.verdict.summary
