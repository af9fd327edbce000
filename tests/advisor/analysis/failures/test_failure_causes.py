"""Why a job failed: causes are separated from symptoms, and the rank that came first is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from failure_messages import FOLLOWING
from recordings import FIRST_STEP_NS, SECOND, plan, rank_process, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Failure
from rn50_advisor.advisor.model.recording import Event, Recording

MISMATCH = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint("
    "SequenceNumber=3104, OpType=ALLREDUCE, TensorShape=[195812480], TensorDtypes=BFloat16), but Rank 0 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=3104, OpType=ALLREDUCE, TensorShape=[51123456], TensorDtypes=BFloat16).Collectives "
    "differ in the following aspects:   Tensor Tensor shapes: 195812480vs 51123456"
)


def failed(
    *exceptions: tuple[int, str, str],
    lines: tuple[str, ...] = (),
    steps: int = 30,
    signals: dict[int, int] | None = None,
) -> Recording:
    """Ranks that ended one second after the other, each by this exception (type, message); and what the job printed."""
    ranks = {rank: plan(steps) for rank in (0, 1)} if steps else {}
    order = [rank for rank, *_ in exceptions] or sorted(signals or {})
    processes = [
        rank_process(
            rank,
            ended_ns=FIRST_STEP_NS + (20 + order.index(rank)) * SECOND,
            exit_code=None if (signals or {}).get(rank) else 1,
            exit_signal=(signals or {}).get(rank),
            **({} if steps else {"role": "other"}),
        )
        for rank in order
    ]
    facts: dict[int, Any] = {100 + r: {"rank": r, "exception": {"type": t, "message": m}} for r, t, m in exceptions}
    event = Event(FIRST_STEP_NS, "output", None, None, {"lines": list(lines)})
    made = recording(ranks, meta={"exit_code": 1}, facts=facts, events=(event,) if lines else ())
    return replace(made, processes=tuple(processes))


def failure(made: Recording) -> Failure:
    found = analyse(made).failure
    assert found is not None
    return found


def test_the_rank_whose_exception_is_a_cause_is_named_whoever_ended_first() -> None:
    gone = (0, "RuntimeError", "[pair.cc:598] Connection closed by peer [127.0.0.1]:10895")
    cause = (1, "OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")
    made = failed(gone, cause)
    assert (failure(made).kind, failure(made).rank) == ("GPU memory", 1)
    assert [(d.rank, d.follows) for d in analyse(made).deaths] == [(0, True), (1, False)]


@pytest.mark.parametrize(("left_s", "first"), [(19, 1), (21, 0)])
def test_a_rank_that_ended_in_order_before_all_that_follow_left_them_behind(left_s: int, first: int) -> None:
    made = failed((0, "RuntimeError", "[pair.cc:598] Connection closed by peer [127.0.0.1]:10895"))
    leaver = rank_process(1, ended_ns=FIRST_STEP_NS + left_s * SECOND, exit_code=0)
    deaths = analyse(replace(made, processes=(*made.processes, leaver))).deaths
    assert deaths[0].rank == first and [death.first for death in deaths].count(True) == 1


def test_who_ended_in_order_left_nobody_behind_where_another_died_of_itself() -> None:
    made = failed((0, "ValueError", "record 40 is damaged"))
    leaver = rank_process(1, ended_ns=FIRST_STEP_NS + 19 * SECOND, exit_code=0)
    assert [d.rank for d in analyse(replace(made, processes=(*made.processes, leaver))).deaths] == [0]


def test_any_exception_of_the_first_rank_is_the_failure() -> None:
    found = failure(failed((1, "ValueError", "record 40 is damaged\nsecond line")))
    assert (found.kind, found.title, found.rank) == ("exception", "ValueError: record 40 is damaged", 1)


def test_a_job_that_never_trained_fails_with_the_exception_of_the_process_that_raised() -> None:
    taken = "The server socket has failed to listen on any local network address. port: 29500, name: EADDRINUSE"
    made = failed((0, "DistNetworkError", taken), steps=0)
    assert (failure(made).kind, failure(made).rank) == ("address in use", 0)
    launcher = {200: {"rank": -1, "exception": {"type": "ChildFailedError", "message": "\n====\ntrain.py FAILED"}}}
    assert analyse(replace(made, facts=launcher)).failure is None, "the launcher only passes it on"


@pytest.mark.parametrize(
    ("last", "kind", "title"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "GPU memory", "asked for 2.00 GiB"),
        ("KeyError: 'label'", "exception", "KeyError: 'label'"),
    ],
)
def test_what_a_spawned_rank_raised_is_read_from_its_parent(last: str, kind: str, title: str) -> None:
    message = f'\n\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n  File "t.py"\n{last}\n'
    made = failed(signals={1: 0})
    parent = {200: {"rank": -1, "exception": {"type": "ProcessRaisedException", "message": message}}}
    found = failure(replace(made, facts=parent))
    assert (found.kind, found.rank) == (kind, 1) and title in found.title


TORCHRUN_END = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "train.py FAILED",
    "Failures:",
    "[1]:",
    "  time      : 2025-07-10_21:46:37",
    "  rank      : 1 (local_rank: 1)",
    "  exitcode  : -6 (pid: 32051)",
    "Root Cause (first observed failure):",
    "[0]:",
    "  time      : 2025-07-10_21:46:37",
    "  host      : node",
    "  rank      : 3 (local_rank: 3)",
    "  exitcode  : -6 (pid: 32050)",
)


@pytest.mark.parametrize(
    ("lines", "kind", "rank"),
    [
        ((f"[rank1]: {MISMATCH}",), "mismatched collectives", 1),
        (("[default5]:RuntimeError: CUDA error: device-side assert triggered",), "device assertion", 5),
        (("RuntimeError: CUDA error: device-side assert triggered", *TORCHRUN_END), "device assertion", 3),
        (("Traceback (most recent call last):", "KeyError: 'label'", *TORCHRUN_END), "exception", 3),
        ((*FOLLOWING[:3], "[rank0]: mypackage.errors.BadShard: shard 3"), None, None),
        ((*FOLLOWING[:3], "[rank0]: mypackage.errors.BadShardError: shard 3", *FOLLOWING[3:]), "exception", 0),
    ],
)
def test_kept_output_shows_the_first_failure_and_its_rank(
    lines: tuple[str, ...], kind: str | None, rank: int | None
) -> None:
    found = analyse(failed(lines=lines, signals={1: 6})).failure
    assert (found.kind, found.rank) == (kind, rank) if found else (kind, rank) == (None, None)


FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
GOES_ON = [f"epoch {n} failed batches: 0" for n in range(30)]


@pytest.mark.parametrize(
    ("lines", "by", "kind"),
    [
        pytest.param((FULL,), 0, "GPU memory", id="uncaught"),
        pytest.param((FULL,), 6, "GPU memory", id="uncaught, and aborted at the end"),
        pytest.param((FULL,), 11, None, id="nobody crashes of it"),
        pytest.param((f"{FULL[7:]}; retrying with batch 128", *GOES_ON), 11, None, id="caught, and crashed later"),
        pytest.param((f"{FULL[23:]}; retrying with batch 128", *GOES_ON), 0, None, id="caught, and failed later"),
        pytest.param((FULL, *GOES_ON, "ValueError: no such class"), 0, "exception", id="logged, and another raised"),
        pytest.param((FULL, *GOES_ON, *FOLLOWING), 0, "GPU memory", id="raised, and others follow"),
        pytest.param(
            (*GOES_ON, f"giving up: {FULL[23:]}", *GOES_ON[:5]), 0, "GPU memory", id="the job's own last words"
        ),
        pytest.param((FULL, "device-side assert triggered"), 11, "device assertion", id="another cause"),
    ],
)
def test_a_full_gpu_that_the_job_survived_is_no_reason_of_its_end(lines: tuple[str, ...], by: int, kind: str) -> None:
    found = analyse(failed(lines=lines, signals={1: by})).failure
    assert (found.kind if found else None) == kind


PINNING = (
    "torch.AcceleratorError: Caught AcceleratorError in pin memory thread for device 0.",
    "Original Traceback (most recent call last):",
    '  File "torch/utils/data/_utils/pin_memory.py", line 41, in do_one_step',
    "torch.AcceleratorError: CUDA error: out of memory",
)
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, unhandled cuda error, NCCL version 2.21.5",
    "ncclUnhandledCudaError: Call to CUDA function failed.",
    "Last error:",
    "Cuda failure 2 'out of memory'",
)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [(PINNING, "host memory"), (NCCL, "GPU memory"), (NCCL[:3], "NCCL")],
    ids=["pinned", "NCCL", "NCCL alone"],
)
def test_the_kind_of_memory_that_ran_out_is_read_from_exception_and_output(lines: tuple[str, ...], kind: str) -> None:
    name, _, message = "\n".join(lines).partition(": ")
    assert failure(failed((1, name, message))).kind == kind
    assert failure(failed(lines=lines, signals={1: 0})).kind == kind


def watchdogs(*enqueued: int) -> tuple[str, ...]:
    """Each rank gives up on collective 1580 at about the same time, and says what it has called since."""
    gave_up = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 ms"
    seen = "Exception (either an error or timeout) detected by watchdog at work: 1580, last enqueued NCCL work:"
    lines = [f"[rank{rank}]:[E321 ProcessGroupNCCL.cpp:607] [Rank {rank}] {gave_up}" for rank in range(len(enqueued))]
    lines += [
        f"[rank{r}]:[E321 ProcessGroupNCCL.cpp:1664] [PG 1 Rank {r}] {seen} {n}, last completed NCCL work: 1579."
        for r, n in enumerate(enqueued)
    ]
    return tuple(lines)


@pytest.mark.parametrize(
    ("enqueued", "rank"), [((1582, 1582, 1580, 1582), 2), ((1582, 1582, 1582), None), ((1580, 1580, 1582), None)]
)
def test_the_rank_that_is_behind_is_named_and_not_the_first_to_give_up(
    enqueued: tuple[int, ...], rank: int | None
) -> None:
    found = failure(failed(lines=watchdogs(*enqueued), signals={0: 6}))
    assert (found.kind, found.rank) == ("watchdog", rank)


def test_dumps_of_the_watchdogs_name_the_rank_that_their_lines_do_not() -> None:
    def dump(last: int) -> dict[str, Any]:
        entry = {"process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce", "input_sizes": [[8]]}
        return {"entries": [{**entry, "collective_seq_id": n} for n in range(1570, last + 1)]}

    made = failed(lines=watchdogs(1582, 1582), signals={0: 6})
    flight = Event(FIRST_STEP_NS, "flight", None, None, {"ranks": {"0": dump(1582), "1": dump(1579), "2": dump(1582)}})
    found = failure(replace(made, events=(*made.events, flight)))
    assert (found.kind, found.rank) == ("watchdog", 1) and "all_reduce of 8 elements, number 1580" in found.line
    assert failure(made).rank is None
    unheard = replace(failed(signals={0: 6}), events=(flight,))
    found = failure(unheard)
    assert (found.kind, found.rank) == ("watchdog", 1) and found.line.startswith("torch's flight recorder: all_reduce")
    killed = replace(failed(signals={0: 9}), events=(flight,))
    assert analyse(killed).failure is None, "that dumps lie there does not say that a watchdog ended it"


def test_a_job_that_ended_well_has_not_failed() -> None:
    made = recording(
        {0: plan(30)}, facts={100: {"exception": {"type": "ValueError", "message": "caught, and retried"}}}
    )
    assert analyse(made).failure is None
