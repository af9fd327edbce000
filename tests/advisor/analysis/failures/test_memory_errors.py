"""The GPU's memory ran out: the numbers of torch's own message, and what the recorder knew of what held the memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from full_gpus import ALONE, GIB, HELD, NEW, died
from rn50_advisor.advisor.analysis.failures.memory_errors import sizes
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.diagnose import diagnose

MIB = 2.0**20
OLD = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total capacity; 14.35 GiB already allocated; "
    "19.75 MiB free; 14.42 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb"
)
OLDEST = (
    "CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 GiB total capacity; 10.90 GiB already allocated; "
    "576.00 KiB free; 30.96 MiB cached)"
)
MISSPELT = (
    "CUDA out of memory. Tried to allocate 55.57 GiB. GPU 0 has a total capacty of 12.00 GiB of which 0 bytes is free."
)
CONTAINED = (
    "CUDA out of memory. Tried to allocate 160.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which 57.06 MiB is free. "
    "Process 5138 has 14.68 GiB memory in use. Of the allocated memory 14.32 GiB is allocated by PyTorch, and 228.27 MiB is "
    "reserved by PyTorch but unallocated."
)
PREEMPTED = (
    "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. "
    "Requested size: 2.00 GiB"
)
ASYNC = """Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 14.00 GiB
Requested               : 2.00 GiB
Device limit            : 15.00 GiB
Free (according to CUDA): 20.00 MiB
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            NEW,
            {"asked": 2 * GIB, "total": 80 * GIB, "free": GIB, "others": 10 * GIB, "own": 69 * GIB, "allocated": 66 * GIB,
             "unallocated": 1.5 * GIB},
        ),
        (
            OLD,
            {"asked": 20 * MIB, "total": 15.78 * GIB, "free": 19.75 * MIB, "allocated": 14.35 * GIB, "reserved": 14.42 * GIB,
             "unallocated": 0.07 * GIB},
        ),
        (MISSPELT, {"asked": 55.57 * GIB, "total": 12 * GIB, "free": 0.0}),
        (ASYNC, {"asked": 2 * GIB, "total": 15 * GIB, "free": 20 * MIB, "allocated": 14 * GIB}),
        (ASYNC.replace("17179869184.00", "14.50"), {"asked": 2 * GIB, "total": 15 * GIB, "free": 20 * MIB, "allocated": 14 * GIB,
          "allowed": 14.5 * GIB}),
        (PREEMPTED, {"asked": 2 * GIB}),
        ("CUDA out of memory.", {}),
        ("loss 2.00 GiB free", {}),
    ],
)  # fmt: skip
def test_the_numbers_of_the_message_in_all_its_versions(text: str, expected: dict[str, float]) -> None:
    assert sizes(text) == pytest.approx(expected, rel=1e-6)
    assert sizes(OLDEST)["allocated"] == 10.9 * GIB


def test_state_that_was_not_made_yet_is_counted_as_it_will_be() -> None:
    adam = {**HELD, "class": "AdamW", "state_bytes": 0}
    full = analyse(died(ALONE, facts={"optimizer": adam})).out_of_memory
    assert full.state == 2 * GIB and full.state_held == 0 and full.activations == 65 * GIB
    # 67.5 - 4 that will stay, over 67/256 a sample
    assert full.fits == 242
    momentum = {**HELD, "momentum": 1, "state_bytes": 0}
    assert analyse(died(ALONE, facts={"optimizer": momentum})).out_of_memory.state == GIB


def test_the_phase_is_that_of_the_exception_where_the_rank_has_marked_its_end() -> None:
    error = {"type": "OutOfMemoryError", "message": ALONE, "phase": "optimizer"}
    assert analyse(died(ALONE, phase="ended", facts={"exception": error})).out_of_memory.phase == "optimizer"
    without_phase = analyse(died(ALONE, phase="ended")).out_of_memory
    assert without_phase.phase == "" and "so far, so at most" in without_phase.arithmetic


def test_what_the_last_frames_knew_counts_before_the_first_steps() -> None:
    facts = {"optimizer": None, "held_at_end": {**HELD, "parameter_bytes": int(2 * GIB)}}
    assert analyse(died(ALONE, facts=facts)).out_of_memory.parameters == 2 * GIB


def test_frames_that_know_only_the_model_leave_the_state_to_an_earlier_look() -> None:
    adam = {**HELD, "class": "Adam", "state_bytes": int(2 * GIB)}
    module = {"parameter_bytes": int(GIB), "gradient_bytes": int(GIB // 2), "state_bytes": 0}
    full = analyse(died(ALONE, steps=4, facts={"optimizer": adam, "held_at_end": module})).out_of_memory
    assert (full.parameters, full.gradients, full.state) == (GIB, GIB, 2 * GIB)
    assert full.activations == (66 - 1 - 0.5 - 2) * GIB
    # looked at before its first step, which was made since
    early = analyse(died(ALONE, steps=4, facts={"optimizer": {**adam, "state_bytes": 0}, "held_at_end": module}))
    assert early.out_of_memory.state_held == 2 * GIB
    alone = analyse(died(ALONE, facts={"optimizer": None, "held_at_end": module})).out_of_memory
    assert (alone.parameters, alone.gradients, alone.gradients_held, alone.state) == (GIB, GIB, GIB / 2, None)


@pytest.mark.parametrize("known", ["at the end", "from a step"])
def test_frozen_weights_are_fixed_and_no_activations(known: str) -> None:
    lora = {**HELD, "parameter_bytes": int(GIB // 8), "gradient_bytes": int(GIB // 8), "state_bytes": int(GIB // 4)}
    if known == "at the end":
        facts = {"held_at_end": {**lora, "model_bytes": int(12 * GIB), "device": "cuda:0"}, "optimizer": None}
    else:
        facts = {"optimizer": lora, "model": {"bytes": {"cuda:0": int(12 * GIB), "cpu": 7}}}
    full = analyse(died(ALONE, phase="forward", facts=facts)).out_of_memory
    assert full.frozen == 11.875 * GIB and full.fixed == 12.375 * GIB
    assert full.activations == (66 - 12 - 0.25 - (0.125 if known == "at the end" else 0)) * GIB
    assert ("frozen weights", 11.875 * GIB) in [row[:2] for row in full.rows]


def test_what_lies_on_another_device_does_not_count() -> None:
    """A pipeline over two GPUs: the second one is full, and what was seen of the optimizer is of the first."""
    text = ALONE.replace("GPU 0", "GPU 1")
    seen = {"optimizer": {**HELD, "device": "cuda:0"}, "model": {"bytes": {"cuda:0": int(GIB)}}}
    assert analyse(died(text, facts=seen)).out_of_memory.parameters is None
    end = {**HELD, "device": "cuda:1", "parameter_bytes": int(3 * GIB)}
    assert analyse(died(text, facts={**seen, "held_at_end": end})).out_of_memory.parameters == 3 * GIB
    none_there = {**end, "parameter_bytes": 0, "model_bytes": 0}
    assert analyse(died(text, facts={**seen, "held_at_end": none_there})).out_of_memory.parameters is None


def test_without_optimizer_facts_the_parameters_come_from_ddp() -> None:
    full = analyse(
        died(ALONE, facts={"optimizer": None, "ddp": [{"total_parameter_size_bytes": int(GIB)}]})
    ).out_of_memory
    assert full.parameters == full.gradients == GIB and full.state is None


def test_without_any_the_tensors_are_one_part() -> None:
    full = analyse(died(ALONE, facts={"optimizer": None})).out_of_memory
    assert full.rows[0][:2] == ("tensors", 66 * GIB) and full.activations is None
    assert full.fits == 254  # of which 68 GiB / 256 are a sample's


def test_tensors_that_grew_are_no_matter_of_the_batch() -> None:
    full = analyse(died(ALONE, steps=40, held=[4, 5, 10, 20, 30, 40, 50, 60])).out_of_memory
    assert full.grew and full.fits is None and not full.arithmetic
    assert "they grew from 15.0 GiB to 55.0 GiB" in full.advice


@pytest.mark.parametrize(
    "held",
    [
        pytest.param([10 + n / 10 for n in range(12)], id="a little"),
        pytest.param([10, 20, 30, 40, 50], id="too few looks"),
        pytest.param([4, 8, 8.001], id="warm-up"),
        pytest.param([4, 8, 7.9, 8.1, 7.9, 8.2, 7.8, 8.05], id="warm-up, then odd batches"),
        pytest.param([3, 9, 5, 8, 4, 9.5, 3, 10, 4, 8, 9.9], id="larger and smaller batches"),
        pytest.param([10, 20, 30, 40, 50, 60, 60, 60, 60, 60, 60, 60], id="what settles"),
        pytest.param([10, 10, 10, 10, 10, 10, 10, 10, 30, 30, 30, 30], id="one jump"),
    ],
)
def test_what_comes_and_goes_did_not_grow(held: list[float]) -> None:
    assert not analyse(died(ALONE, steps=40, held=held)).out_of_memory.grew


def test_another_process_on_the_gpu_comes_first() -> None:
    full = analyse(died(NEW)).out_of_memory
    assert full.crowded and full.advice == "another process holds 10.0 GiB of this GPU: end it, or use another GPU"
    little = NEW.replace("Process 4711 has 10.00 GiB", "Process 4711 has 3.00 GiB")
    assert not analyse(died(little)).out_of_memory.crowded


def listed(*gibs: float) -> str:
    """An 80-GiB GPU in a container: torch holds 30 GiB and lists processes of which none is known to be this one."""
    processes = "".join(f"Process {4711 + n} has {gib:.2f} GiB memory in use. " for n, gib in enumerate(gibs))
    return CONTAINED.replace("Process 5138 has 14.68 GiB memory in use. ", processes).replace(
        "total capacity of 14.75 GiB", "total capacity of 80.00 GiB"
    ).replace("14.32 GiB is", "30.00 GiB is")  # fmt: skip


@pytest.mark.parametrize(
    ("gibs", "others"),
    [
        ((30.6,), None),
        ((30.6, 40.0), 40.0),
        ((48.0, 30.6), 48.0),
        ((10.0,), 10.0),
        ((20.0, 30.6, 17179869184.0), 20.0),
        ((45.0, 30.6, 45.0), 80 - 57.06 / 1024 - 30.6),
    ],
    ids=["itself", "another", "in any order", "not itself", "one not reported", "no more than there is"],
)
def test_in_a_container_the_job_is_not_taken_for_another_process(gibs: tuple[float, ...], others: float | None) -> None:
    found = sizes(listed(*gibs)).get("others")
    assert found == (others and pytest.approx(others * GIB))


def test_whose_a_process_is_stays_open_where_torch_does_not_say_what_it_holds() -> None:
    assert "others" not in sizes(CONTAINED.partition("Of the allocated")[0])
    assert "others" not in sizes(
        "CUDA out of memory. Process 1 has 2.00 GiB memory in use. this process has 1.00 GiB memory in use."
    )


def test_a_job_alone_in_its_container_is_not_advised_to_end_itself() -> None:
    full = analyse(died(CONTAINED)).out_of_memory
    assert not full.crowded and "another process" not in full.advice
    assert "other processes" not in [what for what, *_ in full.rows]


def test_the_report_of_the_death_holds_it_all() -> None:
    report = diagnose(died(ALONE), Config())
    finding = next(f for f in report.findings if f.rule == "RUN002")
    rows = {row.metric: row for row in finding.evidence}
    assert rows["activations"].value == 64 * GIB and rows["activations"].unit == "bytes"
    assert rows["batch that fits"].value == 250 and "256 were in it" in rows["batch that fits"].note
    assert finding.fixes[0].title.startswith("a micro-batch of 128")


def test_a_message_without_numbers_keeps_the_plain_advice() -> None:
    report = diagnose(died("CUDA out of memory."), Config())
    finding = next(f for f in report.findings if f.rule == "RUN002")
    assert "activation checkpointing" in finding.fixes[0].title
    assert analyse(died("CUDA out of memory.")).out_of_memory is None


def test_a_process_that_never_reached_a_backward_pass_is_reported_too() -> None:
    made = died(ALONE)
    other = replace(made.processes[0], role="other", rank=None)
    full = analyse(replace(made, processes=(other,), positions={}, steps={})).out_of_memory
    assert full is not None and full.phase == "forward" and full.batch == 256 and full.parameters == GIB


@pytest.mark.parametrize(("number", "rank"), [(0, 0), (1, 1)])
def test_what_a_spawned_rank_raised_is_explained_by_that_ranks_own_facts(number: int, rank: int) -> None:
    made = died(ALONE, facts={"exception": None})
    text = (
        f"\n\n-- Process {number} terminated with the following error:\nTraceback …\ntorch.OutOfMemoryError: {ALONE}\n"
    )
    parent = {"rank": -1, "exception": {"type": "ProcessRaisedException", "message": text}}
    full = analyse(replace(made, facts={**made.facts, 200: parent})).out_of_memory
    assert (full.rank, full.asked) == (rank, 2 * GIB)
    assert full.parameters == (GIB if rank == 0 else None), "the other one's facts say nothing of it"


def test_other_failures_have_no_such_numbers() -> None:
    assert analyse(died("device-side assert triggered")).out_of_memory is None
    assert np.isfinite(sizes(NEW)["asked"])
