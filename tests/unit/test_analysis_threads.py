"""Threads that want cores, and what DDP's search for unused parameters found: from facts and samples to values."""

from __future__ import annotations

from typing import Any

import pytest
from recordings import plan, recording, steady_counter

from advisor.analysis.analyse import analyse
from advisor.core.analysis import Analysis


def job(facts: dict[int, dict[str, Any]], **more: Any) -> Analysis:
    return analyse(recording({0: plan(90), 1: plan(90)}, facts=facts, **more))


def test_threads_and_those_of_them_that_wait_are_told_by_rank() -> None:
    waiting = {("proc.threads_delay_s", "pid:101"): steady_counter(3.5)}
    analysis = job({100: {"threads": 4}, 101: {"threads": 8}}, samples=waiting)
    assert analysis.by_rank("threads.intra_op") == {0: 4.0, 1: 8.0}
    assert analysis.by_rank("threads.waiting") == pytest.approx({1: 3.5})


@pytest.mark.parametrize(
    ("model", "searched", "unused"),
    [
        ({"find_unused_parameters": 1, "searched_iterations": 40, "iterations_with_unused": 3}, 40.0, 3.0),
        ({"find_unused_parameters": 1}, 0.0, 0.0),
        ({"find_unused_parameters": 0, "searched_iterations": 40}, 0.0, 0.0),
        ({"find_unused_parameters": 1, "static_graph": 1, "searched_iterations": 40}, 0.0, 0.0),
    ],
)
def test_searches_are_those_of_models_that_search_in_each_step(
    model: dict[str, int], searched: float, unused: float
) -> None:
    analysis = job({100: {"ddp": [model]}})
    assert analysis.by_rank("ddp.searched") == {0: searched}
    assert analysis.by_rank("ddp.with_unused") == {0: unused}


def test_without_ddp_nothing_was_looked_at() -> None:
    analysis = job({100: {}})
    assert not analysis.has("ddp.searched") and "DistributedDataParallel" in analysis.missing["ddp.searched"]
