"""Whether workers or cores are short, for a job that waits for workers that compute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rn50_advisor.rules.data_loading.worker_supply import (
    WORKER_THRESHOLDS,
    cores_idle,
    workers_missing,
    workers_on_idle_cores,
)
from rule_cases import dat004

LIMITS = {name: threshold.value for name, threshold in WORKER_THRESHOLDS.items()}


@pytest.mark.parametrize(
    ("idle", "allowed", "enough"),
    [(2.4, 16.0, True), (2.39, 16.0, False), (0.5, 2.0, True), (0.49, 2.0, False)],
)
def test_half_a_core_is_idle_or_on_larger_hosts_a_share_of_them(idle: float, allowed: float, enough: bool) -> None:
    assert cores_idle(dat004(idle=idle, allowed=allowed), LIMITS) is enough


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        pytest.param({}, True, id="busy workers and idle cores"),
        pytest.param({"busy": 0.84}, False, id="workers that idle themselves"),
        pytest.param({"workers": 0}, False, id="no workers at all are another rule's"),
        pytest.param({"idle": 0.1}, False, id="no core for another one"),
        pytest.param({"values_too": {"loader.lock_share": 0.3}}, False, id="they wait for one another"),
        pytest.param({"values_too": {"loader.lock_share": 0.29}}, True, id="a lock that is hardly taken"),
    ],
)
def test_workers_are_missing_where_those_there_are_work_all_the_time_and_cores_idle(
    given: dict[str, object], missing: bool
) -> None:
    assert workers_missing(dat004(**given), LIMITS) is missing  # type: ignore[arg-type]


def test_on_few_cores_the_forecast_decides() -> None:
    """0.4 of two cores are idle: less than a worker needs, more than the gaps of a saturated host."""
    few = dat004(idle=0.4, allowed=2.0, workers=1, wall=0.9)
    assert few.forecast is not None
    slow, fast = (replace(few.forecast, worst_s=tuple(step_s for _ in few.forecast.worst_s)) for step_s in (0.92, 0.9))
    assert not workers_missing(replace(few, forecast=slow), LIMITS)
    assert workers_missing(replace(few, forecast=fast), LIMITS), "1.1 times as fast even at worst"
    assert not workers_missing(replace(few, forecast=None), LIMITS)
    saturated = dat004(idle=0.29, allowed=2.0, workers=1, wall=0.9)
    assert not workers_missing(replace(saturated, forecast=fast), LIMITS)


@pytest.mark.parametrize(("idle", "workers"), [(0.1, 3), (4.0, 4), (9.9, 6), (10.0, 7)])
def test_idle_cores_have_room_for_one_worker_each_and_rank(idle: float, workers: int) -> None:
    """Two ranks with two workers each, which always compute."""
    assert workers_on_idle_cores(dat004(idle=idle), 2) == workers
