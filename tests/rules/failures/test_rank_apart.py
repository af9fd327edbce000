"""The rank that did something else than the others when the job ended is named, with what it did and where."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from ending_rule_cases import death, unjudged
from rn50_advisor.advisor.model.analysis import Death, Failure
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.incidents import RaisedError
from rn50_advisor.rules.failures.rank_apart import RankApart, rank_apart
from rule_cases import SCRIPT

TIMEOUT = "RuntimeError: Application timeout caused pair closure"
GONE = "RuntimeError: Connection closed by peer"
SITE = {"file": SCRIPT, "line": 71, "count": 3}
WATCHDOG = Failure("watchdog", "NCCL gave up", "", None, "")
DDP = {"facts": {"0": {"ddp": [{"file": SCRIPT, "line": 9}]}}}


def waiter(rank: int, **more: Any) -> Death:
    return death(rank, **{"phase": "forward", "exception": TIMEOUT, "follows": True, "t_s": 17.0, **more})


def late(**more: Any) -> Death:
    return death(0, **{"exit_code": None, "signal": signal.SIGTERM, "phase": "evaluation", "t_s": 18.0, **more})


def alone(**more: Any) -> Death:
    raised = RaisedError(GONE, "", SCRIPT, 33, "validate")
    return death(0, **{"phase": "evaluation", "exception": GONE, "follows": True, "raised": raised, **more})


def left() -> Death:
    return death(1, exit_code=0, phase="ended", t_s=9.0)


def apart(*ranks: Death, **more: Any) -> RankApart | None:
    return rank_apart(unjudged(**{"world_size": len(ranks), "evaluation_sites": (SITE,), **more}), ranks)


@pytest.mark.parametrize(
    ("phase", "does", "fix"),
    [
        ("evaluation", "it evaluates", "distribute the evaluation across the ranks"),
        ("checkpoint", "it writes a checkpoint", "save asynchronously"),
        ("input_wait", "it waits for its input", "find what rank 0 does there"),
        ("gap", "it is between two steps", "find what rank 0 does there"),
    ],
)
def test_a_rank_that_others_gave_up_waiting_for_is_named_with_its_phase(phase: str, does: str, fix: str) -> None:
    found = apart(waiter(1), late(phase=phase))
    assert found is not None and found.rank == 0
    assert found.title == f"Rank 1 gave up waiting for rank 0: {does}"
    assert found.fix.title.startswith(fix) and "init_process_group(timeout=" in found.fix.change
    assert (found.fix.where == Where(SCRIPT, 71)) == (phase == "evaluation")


def test_of_many_ranks_those_that_gave_up_are_the_others() -> None:
    found = apart(waiter(1), waiter(2), late())
    assert found is not None and found.title.startswith("The others gave up waiting for rank 0")


def test_an_abort_by_the_watchdog_is_giving_up_too() -> None:
    aborted = death(1, exit_code=None, signal=signal.SIGABRT, phase="backward", t_s=17.0)
    assert apart(aborted, late(), failure=WATCHDOG) is not None
    assert apart(aborted, late()) is None


def test_a_rank_that_exchanges_in_an_evaluation_of_its_own_is_named_where_it_does() -> None:
    for ddp, fix in ((DDP, "model.module(x)"), ({}, "on all ranks, or on none")):
        found = apart(left(), alone(), **ddp)
        assert found is not None and found.rank == 0 and fix in found.fix.title
        assert found.fix.where == Where(SCRIPT, 33)


@pytest.mark.parametrize(
    ("ranks", "more"),
    [
        ((waiter(1), late(t_s=16.0)), {}),
        ((waiter(1), late(signal=signal.SIGSEGV)), {}),
        ((waiter(1), late(phase="forward")), {}),
        ((waiter(1), late()), {"world_size": 4}),
        ((waiter(0), waiter(1)), {}),
        ((death(1), late()), {}),
        ((alone(follows=False), left()), {}),
        ((alone(), alone(), left()), {}),
        ((alone(),), {}),
    ],
    ids=[
        "ended before they gave up",
        "crashed",
        "in the same collective",
        "unobserved ranks",
        "all gave up",
        "no rank waited",
        "an error of its own",
        "several evaluate",
        "one rank",
    ],
)
def test_otherwise_no_rank_is_named(ranks: tuple[Death, ...], more: dict[str, Any]) -> None:
    assert apart(*ranks, **more) is None


MISMATCH = Failure("mismatched collectives", "ranks called different collectives", "", None, "")


def at(*phases: str, **more: Any) -> RankApart | None:
    """Ranks that died of a mismatch, each in its phase."""
    ranks = [death(n, exit_code=None, signal=signal.SIGABRT, phase=phase) for n, phase in enumerate(phases)]
    return apart(*ranks, **{"failure": MISMATCH, **more})


@pytest.mark.parametrize(
    ("phases", "rank", "note"),
    [
        (("gap", "backward"), 0, "rank 0 is between two steps while rank 1 is in its backward pass"),
        (("backward", "forward"), 1, "rank 1 is in its forward pass while rank 0 is in its backward pass"),
        (("gap", "gap", "evaluation"), 2, "rank 2 evaluates while the others are between two steps"),
        (("evaluation", "checkpoint", "evaluation"), 1, "rank 1 writes a checkpoint while the others evaluate"),
    ],
)
def test_the_rank_that_called_another_collective_is_named_with_where_it_was(
    phases: tuple[str, ...], rank: int, note: str
) -> None:
    found = at(*phases)
    assert found is not None and (found.rank, found.evidence.note) == (rank, note)
    assert found.fix.title.endswith(f"only rank {rank} reaches")


@pytest.mark.parametrize(
    ("phases", "more"),
    [
        (("gap", "backward"), {"failure": WATCHDOG}),
        (("gap", "backward"), {"world_size": 3}),
        (("gap", "gap"), {}),
        (("gap", "evaluation"), {}),
        (("gap", "gap", "evaluation", "evaluation"), {}),
        (("gap", "ended"), {}),
    ],
    ids=["no mismatch", "a rank lives", "in one place", "no exchange by DDP", "two and two", "one has ended"],
)
def test_no_rank_is_named_if_it_is_unknown_which_called_another_collective(
    phases: tuple[str, ...], more: dict[str, Any]
) -> None:
    assert at(*phases, **more) is None
