"""Loops that no loader of torch feeds: what is said of them, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, SECOND, plan, rank_process, recording, series, stack, steady_counter
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event, Recording
from rn50_advisor.advisor.model.report import Verdict
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, FLAG_NO_LOADER
from rn50_advisor.rules.registry import all_rules

JOB = "/job/train.py"
PACKAGES = "/env/lib/python3.11/site-packages"
IN_MODEL = ("_call_impl", f"{PACKAGES}/torch/nn/modules/module.py", 1775)
IN_QUEUE = (("wait", "/usr/lib/python3.11/threading.py", 320), ("get", "/usr/lib/python3.11/queue.py", 171))


def looks(count: int, *callees: tuple[str, str, int], text: str = "", line: int = 30) -> list[Any]:
    """Stack samples that found the training thread at one line of the user's, and in what that had called."""
    found = [stack(JOB, line, "batches", *callees) for _ in range(count)]
    for event in found:
        event.data["user"]["text"] = text  # type: ignore[index]
    return found


AFTER = {"backward_cpu": 30, "optimizer_cpu": 10}


def unfed(events: list[Any] | None = None, *, facts: dict[str, Any] | None = None, **phases: float) -> Recording:
    """100 ms steps of which 60 lie between optimizer and backward, computing unless `forward_cpu` says otherwise."""
    own = {"input_wait": 0, "forward": 60, "backward": 30, "optimizer": 10, "forward_cpu": 60, **AFTER, **phases}
    steps = plan(40, flags=FLAG_NO_LOADER | FLAG_CLOCKED, **own)
    return recording({0: steps}, events=tuple(events or ()), facts={100: facts or {}})


def verdict_of(made: Recording) -> Verdict:
    return diagnose(made).verdict


def test_batches_from_nowhere_are_neither_healthy_nor_blamed_on_the_loop() -> None:
    report = diagnose(unfed(looks(20, *IN_QUEUE)))
    assert report.verdict.state == "inconclusive" and report.verdict.rule is None
    assert report.verdict.title == "The loop waits for something that is not the model"
    assert "100 % waiting for another thread" in report.verdict.summary and f"{JOB}:30" in report.verdict.summary
    assert report.findings == ()
    assert [o.state for o in report.outcomes if o.rule == "LOP004"] == ["not_measured"]
    assert "not measured" in report.verdict.summary
    assert any(gap.metric == "step.input_wait_s" for gap in report.gaps)


@pytest.mark.parametrize(
    ("events", "title"),
    [
        (looks(20, IN_MODEL), ""),
        (looks(19, IN_MODEL) + looks(1, *IN_QUEUE), ""),  # 5 % of 60 % of the step
        (looks(18, IN_MODEL) + looks(2, *IN_QUEUE), "The loop waits for something that is not the model"),
        (looks(20, text="batch = self.queue.get()"), "The loop waits for something that is not the model"),
        (looks(20, text="picture = np.roll(picture, 3)"), "The loop does more than train before the backward"),
        (
            looks(20, *IN_QUEUE, ("__next__", f"{PACKAGES}/nvidia/dali/plugin/pytorch/__init__.py", 9)),
            "The loop spends its time in nvidia.dali",
        ),
        (
            looks(10, ("decode", f"{PACKAGES}/webdataset/autodecode.py", 9)) + looks(10, IN_MODEL),
            "The loop spends its time in webdataset",
        ),
        (looks(20, ("load", "/job/datasets/pictures.py", 9)), "The loop does more than train before the backward"),
        (looks(20, IN_MODEL, *IN_QUEUE), ""),  # the model waits by itself
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
def test_stack_samples_tell_where_the_time_before_the_backward_goes(events: list[Any], title: str) -> None:
    found = verdict_of(unfed(events))
    assert (found.state, found.title) == (("inconclusive", title) if title else ("healthy", "Compute takes the time"))


@pytest.mark.parametrize(
    ("cpu_ms", "delay_ms", "state"),
    [(60, 0, "healthy"), (55.5, 0, "healthy"), (54.5, 0, "inconclusive"), (20, 0, "inconclusive"), (50, 8, "healthy")],
)
def test_without_stack_samples_cpu_clocks_bound_what_may_be_a_wait(cpu_ms: float, delay_ms: float, state: str) -> None:
    made = unfed(looks(7, *IN_QUEUE), forward_cpu=cpu_ms, run_delay=delay_ms)
    assert verdict_of(made).state == state


def test_of_a_profile_only_what_lies_before_the_backward_counts() -> None:
    rows = [
        (300, [("backward", f"{PACKAGES}/torch/_tensor.py", 640)]),
        (50, [("step", f"{PACKAGES}/torch/optim/sgd.py", 80)]),
        (90, [IN_MODEL]),
        (10, list(IN_QUEUE)),
    ]
    profile = looks(1)[0]
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
    found = analyse(unfed([event])).feed
    assert found is not None and found.looks is not None
    assert (found.looks.count, found.looks.model, found.looks.waiting) == (100, 0.9, 0.1)
    assert verdict_of(unfed([event])).title == "The loop waits for something that is not the model"


def test_a_thread_that_fetches_out_of_sight_is_named() -> None:
    found = verdict_of(unfed(looks(20, *IN_QUEUE), facts={"fetches_in_another_thread": True}))
    assert "a thread of its own runs through a DataLoader" in found.summary


def test_a_host_that_may_wait_for_its_gpu_has_no_such_bound() -> None:
    found = verdict_of(unfed(facts={"cuda": {"name": "H200"}}))
    assert (found.state, found.title) == ("inconclusive", "How long the loop waits for input is unknown")


def test_healthy_without_a_loader_says_what_was_not_measured() -> None:
    found = verdict_of(unfed(looks(20, IN_MODEL), facts={"input_libraries": ["webdataset"]}))
    assert found.state == "healthy"
    assert "How long it waits for input is not measured" in found.summary and "webdataset" in found.summary


DISK = {"mount_point": "/data", "fs_type": "ext4", "device": "/dev/dm-0", "network": False, "disk": "dm-0"}
GPUS = [{"index": n, "name": "NVIDIA A100", "uuid": f"GPU-0000000{n}-aaaa", "mem_total_bytes": 40e9} for n in (0, 1)]


def watched(busy: float, resident: float, samples: dict[Any, Any] | None = None) -> str:
    """What is said of four seconds of steps beside a disk and a GPU that were so busy, and of six seconds after them."""
    mount = Event(FIRST_STEP_NS, "data_mount", None, None, DISK)
    on_gpu = {"cuda": {"device": 0, "uuid": "00000000-aaaa", "visible": None, "memory_bytes": 40e9}}
    made = unfed([mount, *looks(20, *IN_QUEUE)], facts=on_gpu)
    used = [*((t, resident) for t in range(5)), *((t, 100.0 - resident) for t in range(5, 11))]
    seen = {
        ("data.files", "mount:/data"): series((0, 9)),
        ("disk.read_bytes", "disk:dm-0"): steady_counter(1e6),
        ("disk.busy_s", "disk:dm-0"): series((0, 0.0), (4, 4 * busy), (10, 4 * busy + 6 * (1.0 - busy))),
        ("disk.busy_s", "disk:sdb"): steady_counter(1.0),
        ("gpu.util_pct", "gpu:0"): series(*used),
        ("gpu.util_pct", "gpu:1"): series(*((t, 0.0) for t in range(11))),
    }
    end_ns = FIRST_STEP_NS + 10 * SECOND
    meta = replace(made.meta, environment={"gpus": GPUS}, last_ns=end_ns, ended_ns=end_ns)
    return verdict_of(replace(made, meta=meta, samples={**seen, **(samples or {})})).summary


def test_what_the_host_shows_is_said() -> None:
    cores = {("cpu.allowed_cores", "job"): series((0, 2.0), (4, 2.0)), ("job.cpu_s", "job"): steady_counter(1.9)}
    text = watched(busy=0.97, resident=35.0, samples=cores)
    assert "1.9 of 2 allowed cores were busy, 1.9 by this job: the CPUs are exhausted" in text
    assert "the disk of its data (/data (ext4 on dm-0)) was busy 97 % of the time" in text
    assert "GPU 0 was busy 35 % of the time" in text


def test_what_came_after_the_steps_and_what_is_of_others_is_not_said() -> None:
    text = watched(busy=0.05, resident=97.0)
    assert "disk" not in text and "GPU" not in text, text


def test_neighbours_on_the_rest_of_a_large_host_exhaust_no_quota() -> None:
    samples = {
        ("cpu.allowed_cores", "job"): series((0, 4.0), (4, 4.0)),
        ("cpu.cores", "host"): series((0, 64.0), (4, 64.0)),
        ("cpu.busy_s", "host"): steady_counter(42.0),
        ("job.cpu_s", "job"): steady_counter(2.0),
    }
    text = verdict_of(recording_with(unfed(looks(20, *IN_QUEUE)), samples)).summary
    assert "2.0 of 4 allowed cores were busy, 2.0 by this job" in text and "exhausted" not in text


def recording_with(made: Recording, samples: dict[Any, Any]) -> Recording:
    return replace(made, samples=samples)


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
        assert f"{JOB}:33" in judged.verdict.summary and "out of sight" in judged.verdict.summary
