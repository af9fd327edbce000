"""Verdicts on loops without a DataLoader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loops_without_loader import IN_MODEL, IN_QUEUE, JOB, stack_samples, verdict_of, without_loader
from recordings import FIRST_STEP_NS, SECOND, series, steady_counter
from rn50_advisor.advisor.model.recording import Event, Recording
from rn50_advisor.advisor.verdict.diagnose import diagnose


def test_batches_from_nowhere_are_neither_healthy_nor_blamed_on_the_loop() -> None:
    report = diagnose(without_loader(stack_samples(20, *IN_QUEUE)))
    assert report.verdict.state == "inconclusive" and report.verdict.rule is None
    assert report.verdict.title == "The loop waits for something that is not the model"
    assert "100 % waiting for another thread" in report.verdict.summary and f"{JOB}:30" in report.verdict.summary
    assert report.findings == ()
    assert [o.state for o in report.outcomes if o.rule == "LOP004"] == ["not_measured"]
    assert "not measured" in report.verdict.summary
    assert any(gap.metric == "step.input_wait_s" for gap in report.gaps)


def test_a_thread_that_fetches_unobserved_is_named() -> None:
    found = verdict_of(without_loader(stack_samples(20, *IN_QUEUE), facts={"fetches_in_another_thread": True}))
    assert "a thread of its own runs through a DataLoader" in found.summary


def test_a_host_that_may_wait_for_its_gpu_has_no_such_bound() -> None:
    found = verdict_of(without_loader(facts={"cuda": {"name": "H200"}}))
    assert (found.state, found.title) == ("inconclusive", "How long the loop waits for input is unknown")


def test_healthy_without_a_loader_says_what_was_not_measured() -> None:
    found = verdict_of(without_loader(stack_samples(20, IN_MODEL), facts={"input_libraries": ["webdataset"]}))
    assert found.state == "healthy"
    assert "How long it waits for input is not measured" in found.summary and "webdataset" in found.summary


DISK = {"mount_point": "/data", "fs_type": "ext4", "device": "/dev/dm-0", "network": False, "disk": "dm-0"}
GPUS = [{"index": n, "name": "NVIDIA A100", "uuid": f"GPU-0000000{n}-aaaa", "mem_total_bytes": 40e9} for n in (0, 1)]


def watched(busy: float, resident: float, samples: dict[Any, Any] | None = None) -> str:
    """The verdict for four seconds of steps with a disk and a GPU this busy, followed by six seconds."""
    mount = Event(FIRST_STEP_NS, "data_mount", None, None, DISK)
    on_gpu = {"cuda": {"device": 0, "uuid": "00000000-aaaa", "visible": None, "memory_bytes": 40e9}}
    made = without_loader([mount, *stack_samples(20, *IN_QUEUE)], facts=on_gpu)
    used = [*((t, resident) for t in range(5)), *((t, 100.0 - resident) for t in range(5, 11))]
    recorded = {
        ("data.files", "mount:/data"): series((0, 9)),
        ("disk.read_bytes", "disk:dm-0"): steady_counter(1e6),
        ("disk.busy_s", "disk:dm-0"): series((0, 0.0), (4, 4 * busy), (10, 4 * busy + 6 * (1.0 - busy))),
        ("disk.busy_s", "disk:sdb"): steady_counter(1.0),
        ("gpu.util_pct", "gpu:0"): series(*used),
        ("gpu.util_pct", "gpu:1"): series(*((t, 0.0) for t in range(11))),
    }
    end_ns = FIRST_STEP_NS + 10 * SECOND
    meta = replace(made.meta, environment={"gpus": GPUS}, last_ns=end_ns, ended_ns=end_ns)
    return verdict_of(replace(made, meta=meta, samples={**recorded, **(samples or {})})).summary


def test_the_state_of_the_host_is_described() -> None:
    cores = {("cpu.allowed_cores", "job"): series((0, 2.0), (4, 2.0)), ("job.cpu_s", "job"): steady_counter(1.9)}
    text = watched(busy=0.97, resident=35.0, samples=cores)
    assert "1.9 of 2 allowed cores were busy, 1.9 by this job: the CPUs are exhausted" in text
    assert "the disk of its data (/data (ext4 on dm-0)) was busy 97 % of the time" in text
    assert "GPU 0 was busy 35 % of the time" in text


def test_values_after_the_steps_and_of_other_devices_are_left_out() -> None:
    text = watched(busy=0.05, resident=97.0)
    assert "disk" not in text and "GPU" not in text, text


def test_neighbours_on_the_rest_of_a_large_host_exhaust_no_quota() -> None:
    samples = {
        ("cpu.allowed_cores", "job"): series((0, 4.0), (4, 4.0)),
        ("cpu.cores", "host"): series((0, 64.0), (4, 64.0)),
        ("cpu.busy_s", "host"): steady_counter(42.0),
        ("job.cpu_s", "job"): steady_counter(2.0),
    }
    text = verdict_of(recording_with(without_loader(stack_samples(20, *IN_QUEUE)), samples)).summary
    assert "2.0 of 4 allowed cores were busy, 2.0 by this job" in text and "exhausted" not in text


def recording_with(made: Recording, samples: dict[Any, Any]) -> Recording:
    return replace(made, samples=samples)
