"""The advisor's own cost: its recorder in each step, its agent, its workers, and asking the GPU driver."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_recordings import on_gpus
from recordings import plan, recording, series
from rn50_advisor.advisor.analysis.steps.recorder_cost import own_cost
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps
from rn50_advisor.advisor.model.recording import Recording, happened
from rn50_advisor.advisor.model.report import Overhead
from rn50_advisor.probes.documents.event_documents import ShedProbe


def test_what_asking_the_driver_took_is_part_of_the_cost() -> None:
    read = {("gpu.probe_s", "host"): series(*((t, 0.5 + 0.004 * t) for t in range(10)))}
    assert on_gpus(read).overhead.driver_share == pytest.approx(0.004), "opening it aside"
    assert on_gpus({}).overhead.driver_share is None


def cost(made: Recording) -> Overhead:
    return own_cost(made, all_steps(made))


def ran(agent: dict[str, float] | None = None, **more: Any) -> Recording:
    return recording({0: plan(40, self=0.02), 1: plan(40, self=0.05)}, meta={"agent": agent or {}}, **more)


def test_the_recorder_costs_what_it_takes_of_a_step_on_the_rank_where_it_takes_most() -> None:
    found = cost(ran())
    assert found.us_per_step == pytest.approx(50.0) and found.step_share == pytest.approx(0.0005)


def test_marks_read_in_one_of_many_steps_count_and_rare_moments_do_not() -> None:
    """Each twentieth of short steps reads the marks of all; in one step the facts are written."""
    steps = [{**row, "self": 1.0 if n % 20 == 0 else 0.0} for n, row in enumerate(plan(400))]
    steps[7]["self"] = 500.0
    assert cost(recording({0: steps})).us_per_step == pytest.approx(50.0)


def test_a_run_that_reads_its_marks_after_its_last_step_does_not_cost_nothing() -> None:
    """A hundred short steps: the first are marked one by one, all others are buffered."""
    steps = [{**row, "self": 0.5 if n < 16 else 0.0} for n, row in enumerate(plan(100))]
    assert cost(recording({0: steps})).us_per_step == pytest.approx(1000 * 8 / 100)


def test_thinned_steps_weigh_as_many_as_they_are() -> None:
    """A thousand steps were marked before marks were thinned; of the next nine thousand, hundreds share a row."""
    marked = [{**row, "self": 0.02} for row in plan(1000)]
    counted = [{**row, "self": 0.9, "count": 450, "step": 1000 + 450 * n} for n, row in enumerate(plan(20))]
    assert cost(recording({0: [*marked, *counted]})).us_per_step == pytest.approx(2.0)


def test_the_agents_share_is_reported_if_it_was_measured() -> None:
    agent = {"cpu_s": 2.0, "wall_s": 100.0, "startup_s": 0.3, "workers_wall_s": 50.0, "workers_self_s": 0.5}
    found = cost(ran(agent))
    assert (found.agent_cpu_share, found.startup_s, found.worker_share) == (0.02, 0.3, 0.01)
    nothing = cost(ran())
    assert (nothing.agent_cpu_share, nothing.startup_s, nothing.worker_share) == (None, None, None)
    assert cost(ran({"wall_s": 0.0, "cpu_s": 1.0})).agent_cpu_share is None


def test_probes_that_were_shed_are_named_also_before_the_first_step() -> None:
    shed = tuple(happened(ShedProbe, {"probe": name}, t_ns=n) for n, name in enumerate(("gpu", "stacks")))
    found = cost(recording({0: []}, events=shed))
    assert found.shed == ("gpu", "stacks") and found.us_per_step is None and found.step_share is None
