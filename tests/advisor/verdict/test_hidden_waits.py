"""Waits that may hide in what looks like compute: sleep, and untimed waiting for other ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.measures.comm_measures import COMM_WIRE_S
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.step_measures import INTERPRETER_WAITING_SHARE
from rn50_advisor.advisor.verdict.hidden_waits import asleep, unknown_waits
from rule_cases import job, rank, without


def ranks(count: int = 2, **values: Any) -> Analysis:
    """So many ranks, of whose exchange nothing is known but these values."""
    named = {name.replace("__", "."): value for name, value in values.items()}
    return without(job({n: rank() for n in range(count)}, values=named), "comm.wire_s")


def summary(a: Analysis) -> str:
    found = unknown_waits(a, "compute-bound")
    assert found is not None and found[0] == "Wait between ranks not measured"
    assert found[1].startswith("compute-bound; ") and found[1].endswith(".")
    return found[1]


@pytest.mark.parametrize(
    ("count", "values"),
    [
        pytest.param(1, {"collectives__calls": {0: 50.0}}, id="one rank alone"),
        pytest.param(2, {}, id="ranks that joined no group"),
        pytest.param(
            2, {"comm__joined": 2.0, "comm__exposed_s": {0: 0.14, 1: 0.5}}, id="a short wait, which was timed"
        ),
        pytest.param(
            2, {"collectives__calls": {0: 50.0}, "collectives__timed_share": {0: 0.149}}, id="NCCL timed less"
        ),
        pytest.param(2, {"collectives__calls": {0: 50.0}, "kernel__nccl_s": {0: 0.1}}, id="a deep window saw less"),
        pytest.param(
            2,
            {"collectives__calls": {0: 50.0}, "kernel__nccl_s": {0: 0.5}, "kernel__nccl_overlap_share": {0: 0.9}},
            id="most of it hidden behind kernels",
        ),
    ],
)
def test_nothing_hides_where_ranks_exchange_little_or_it_was_timed(count: int, values: dict[str, Any]) -> None:
    assert unknown_waits(ranks(count, **values), "") is None


def test_a_wire_that_is_known_hides_nothing() -> None:
    known = job({0: rank(), 1: rank()}, values={"comm.exposed_s": {0: 0.5, 1: 0.5}, "collectives.calls": {0: 50.0}})
    assert known.has(COMM_WIRE_S) and unknown_waits(known, "") is None


def test_a_timed_exchange_whose_wait_has_no_known_cause_is_reported() -> None:
    waited = ranks(comm__exposed_s={0: 0.4, 1: 0.2})
    assert "20 % of the step is waiting in exchanges with other ranks; whether for the network" in summary(waited)
    partly = replace(waited, reasons={(COMM_WIRE_S, JOB): "2 of 4 ranks are in this recording"})
    assert "other ranks; 2 of 4 ranks are in this recording." in summary(partly)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"collectives__calls": {0: 48.0, 1: 50.0}}, "50 collectives a step run in it"),
        ({"comm__joined": 8.0}, "its 8 ranks have joined one process group"),
        (
            {"collectives__calls": {0: 50.0}, "kernel__nccl_s": {0: 0.2}},
            "was not timed, but for 200 ms of them in the profiler's window",
        ),
        ({"collectives__calls": {0: 50.0}, "collectives__timed_share": {0: 0.15}}, "50 collectives a step"),
    ],
)
def test_untimed_collectives_may_be_what_takes_the_time(values: dict[str, Any], words: str) -> None:
    assert words in summary(ranks(**values))


def test_one_recorded_rank_of_a_job_is_enough() -> None:
    assert "its 4 ranks have joined" in summary(ranks(1, comm__joined=4.0))


@pytest.mark.parametrize(("slept", "share"), [({0: 0.149, 1: 0.1}, 0.0), ({0: 0.05, 1: 0.15}, 0.15), ({}, 0.0)])
def test_a_model_that_sleeps_for_long_is_reported_with_its_rank(slept: dict[int, float], share: float) -> None:
    found, words = asleep(ranks(step__asleep_s=slept))
    assert found == pytest.approx(share) and bool(words) == (share > 0)
    assert not words or words.startswith(
        " In 15 % of the step rank 1's training thread sleeps in them; the reason is not known"
    )


def test_whether_it_waits_for_the_interpreter_is_stated_if_sampled() -> None:
    sleeping = ranks(step__asleep_s={0: 0.2})
    assert asleep(sleeping)[1].endswith("; the reason is not known: it was not sampled.")
    why = replace(sleeping, reasons={(INTERPRETER_WAITING_SHARE, JOB): "py-spy is not permitted"})
    assert asleep(why)[1].endswith("; the reason is not known: py-spy is not permitted.")
    sampled = ranks(step__asleep_s={0: 0.2}, interpreter__waiting_share={0: 0.0})
    assert asleep(sampled)[1].endswith("; not for the interpreter.")


@pytest.mark.parametrize(("count", "replayed", "hidden"), [(2, True, True), (1, True, False), (2, False, False)])
def test_what_ranks_wait_for_within_replayed_graphs_is_not_known(count: int, replayed: bool, hidden: bool) -> None:
    a = job({n: rank() for n in range(count)}, wire_s=0.01, facts={"0": {"replayed_steps": replayed}})
    assert (unknown_waits(a, "") is not None) is hidden
