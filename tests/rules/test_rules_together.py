"""All rules over one job: the cause is the verdict, what it causes is listed under it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import gpu_rule_cases as gpu_jobs
import host_rule_cases as host_jobs
import input_rule_cases as input_jobs
import rule_cases as jobs
from ending_rule_cases import death
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.verdict.rule_engine import Judgement
from rule_cases import rank
from rule_runs import judged


def causes(judgement: Judgement) -> dict[str, str | None]:
    return {finding.rule: finding.explained_by for finding in judgement.findings}


QUOTA = {"quota.cores": 0.35, "quota.throttled_share": 0.6, "quota.throttled_s_per_s": 0.5}


def test_a_throttled_rank_is_the_root_of_its_slow_compute_and_of_the_waiting() -> None:
    own = {0: rank(0.5), 1: rank(1.0)}
    values = {name: {1: value} for name, value in QUOTA.items()}
    judgement = judged(jobs.job(own, late={1: 0.95}, values={**values, "comm.skew_s": 0.5}))
    assert causes(judgement) == {"CPU001": None, "CMP007": "CPU001", "COM002": "CPU001"}
    assert judgement.verdict.rule == "CPU001" and judgement.findings[0].scope.ranks == (1,)


def test_a_quota_that_runs_out_ten_times_a_second_is_the_root_of_stalls_as_often() -> None:
    values = {name: {1: value} for name, value in QUOTA.items()}
    held = jobs.job({0: rank(0.5), 1: rank(1.0)}, values=values, pulse=jobs.run004(phase="forward", share=0.4).pulse)
    assert causes(judged(held))["RUN004"] == "CPU001"


def test_slow_storage_is_the_root_of_busy_workers_beside_idle_cores() -> None:
    busy = jobs.dat004().values
    analysis = jobs.dat002(blocked=0.9)
    judgement = judged(replace(analysis, values={**busy, **analysis.values}))
    assert causes(judgement) == {"DAT002": None, "DAT004": "DAT002"}


def test_a_late_rank_with_slow_samples_is_short_of_data_and_the_others_wait_for_it() -> None:
    judgement = judged(jobs.dat008(wait=0.4, values={"comm.skew_s": 0.4}))
    assert causes(judgement) == {"DAT008": None, "COM002": "DAT008"}


def test_a_wire_finding_of_waiting_ranks_is_no_root() -> None:
    judgement = judged(jobs.cmp007(usual=0.5, values={"comm.skew_s": 0.5, "comm.wire_s": 0.17}))
    assert causes(judgement) == {"CMP007": None, "COM001": "CMP007", "COM002": "CMP007"}


SLOW_RANKS = {
    "CMP007": lambda wire_s: jobs.job(
        {0: rank(0.35), 1: rank(0.5)}, late={1: 0.95}, wire_s=wire_s, values={"comm.skew_s": 0.15}
    ),
    "DAT008": lambda wire_s: jobs.job(
        {0: rank(0.35), 1: rank(0.5, input_wait=0.15)}, late={1: 0.95}, wire_s=wire_s, values={"comm.skew_s": 0.15}
    ),
    "CPU001": lambda wire_s: jobs.job(
        {0: rank(0.3), 1: rank(0.5)},
        late={1: 0.95},
        wire_s=wire_s,
        values={"comm.skew_s": 0.2, **{name: {1: value} for name, value in QUOTA.items()}},
    ),
}


@pytest.mark.parametrize("rule", SLOW_RANKS)
@pytest.mark.parametrize(("wire_s", "explained"), [(0.5, False), (0.16, True)])
def test_a_wire_that_costs_more_by_itself_than_a_slow_rank_is_no_consequence_of_it(
    rule: str, wire_s: float, *, explained: bool
) -> None:
    judgement = judged(SLOW_RANKS[rule](wire_s))
    found = causes(judgement)
    # an end of the quota spares as much as half of the gradients' bytes, and possibly more
    assert judgement.verdict.rule == (rule if explained or rule == "CPU001" else "COM001")
    assert found["COM001"] == (rule if explained else None) and found[rule] is None and found["COM002"] == rule


@pytest.mark.parametrize(("on_rank_0", "cause"), [(0, "CMP010"), (10, None)])
def test_a_debugging_aid_that_is_on_on_one_rank_is_why_that_rank_is_slow(on_rank_0: int, cause: str | None) -> None:
    facts = {
        "0": {"debugging": {"looks": 10, "on": {"anomaly detection": on_rank_0}}},
        "1": {"debugging": {"looks": 10, "on": {"anomaly detection": 10}}},
    }
    judgement = judged(jobs.cmp007(usual=0.5, values={"comm.skew_s": 0.5}, facts=facts))
    assert causes(judgement) == {"CMP010": None, "CMP007": cause, "COM002": cause or "CMP007"}


def test_small_checkpoints_do_not_hide_a_large_gap() -> None:
    analysis = jobs.lop004(spent=0.3)
    own = {number: rank(**{"gap": 0.3, "gap.checkpoint": 0.04}) for number in (0, 1)}
    merged = replace(jobs.job(own, values={"gap.io_share": 0.1}), hot_lines=analysis.hot_lines)
    assert judged(merged).verdict.rule == "LOP004"


def test_own_threads_are_not_other_processes() -> None:
    crowded = host_jobs.cpu005(others=5.0)
    values = {**crowded.values, ("cpu.host_busy_cores", "job"): 15.9}
    judgement = judged(replace(crowded, values=values))
    assert causes(judgement) == {"CPU005": None, "CPU003": "CPU005"}


def test_a_rank_that_waits_for_its_own_threads_is_no_slow_rank() -> None:
    crowded = host_jobs.cpu005(own={0: rank(0.5), 1: rank(1.0)}, late={1: 0.95})
    judgement = judged(replace(crowded, values={**crowded.values, **KEPT_WAITING}))
    assert causes(judgement) == {"CPU005": None, "CMP007": "CPU005", "COM002": "CPU005"}


def test_ranks_that_collect_in_turns_keep_each_other_waiting_for_that_reason() -> None:
    judgement = judged(host_jobs.cpu006(lost=0.3, own=0.15, values={"comm.skew_s": 0.28}, late={0: 0.5, 1: 0.5}))
    assert causes(judgement) == {"CPU006": None, "COM002": "CPU006"}


def test_a_rank_that_alone_collects_is_no_slow_rank() -> None:
    own = {0: rank(0.7), 1: rank(1.0)}
    judgement = judged(host_jobs.cpu006(lost=0.3, own=0.3, only=1, own_s=own, late={1: 0.9}))
    assert causes(judgement) == {"CPU006": None, "CMP007": "CPU006"}


@pytest.mark.parametrize(("between", "cause"), [(0.2, "CPU006"), (0.1, None)])
def test_a_loop_that_collects_between_steps_spends_its_time_on_that(between: float, cause: str | None) -> None:
    own = {n: rank(gap=0.25) for n in (0, 1)}
    judgement = judged(host_jobs.cpu006(lost=0.2, own=0.2, between=between, own_s=own))
    assert causes(judgement)["LOP004"] == cause


def test_memory_that_grew_until_the_oom_killer_came_is_the_cause_of_the_death() -> None:
    killed = host_jobs.mem002(deaths=(death(0, signal=9, exit_code=None, oom_killed=True),))
    judgement = judged(killed)
    assert causes(judgement) == {"MEM002": None, "RUN002": "MEM002"}
    assert (judgement.verdict.state, judgement.verdict.rule) == ("failed", "MEM002")
    other = judged(host_jobs.mem002(deaths=(death(0, signal=9, exit_code=None),)))
    assert causes(other)["RUN002"] is None and other.verdict.rule == "RUN002"


def test_mild_growth_is_no_verdict_beside_lost_time_and_the_last_minutes_are() -> None:
    slow = jobs.dat003()
    growing = host_jobs.trend()
    for headroom, first in ((3000.0, "DAT003"), (500.0, "MEM002")):
        values = {**slow.values, ("memory.watched_s", "job"): 300.0, ("memory.headroom_mb", "job"): headroom}
        judgement = judged(replace(slow, values=values, memory=(growing,)))
        assert judgement.verdict.rule == first and judgement.verdict.state == "bottleneck"


def test_a_worker_out_of_shared_memory_is_the_cause_of_the_ranks_death() -> None:
    words = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error."
    worker = death(1, role="worker", signal=7, exit_code=None)
    judgement = judged(input_jobs.dat012(full=0.5, deaths=(worker, death(1, exception=words))))
    assert causes(judgement) == {"DAT012": None, "RUN002": "DAT012"}
    assert (judgement.verdict.state, judgement.verdict.rule) == ("failed", "DAT012")


def test_a_slow_batch_is_the_cause_of_busy_workers_and_of_the_waiting_ranks() -> None:
    slow, busy = input_jobs.dat009(), jobs.dat004(workers=2)
    values = {**busy.values, **slow.values, ("comm.skew_s", "job"): 0.3}
    judgement = judged(replace(slow, values=values))
    assert causes(judgement)["DAT009"] is None and causes(judgement)["DAT004"] == "DAT009"


def test_workers_that_cost_more_than_they_save_are_no_fewer_for_being_kept() -> None:
    both = input_jobs.dat007(values={**_plain(input_jobs.dat006(start=0.1)), **_plain(input_jobs.dat007())})
    judgement = judged(both)
    assert causes(judgement) == {"DAT007": None, "DAT006": "DAT007"}


def _plain(analysis: Analysis) -> dict[str, dict[int, float]]:
    """Values of the ranks, as cases take them."""
    found: dict[str, dict[int, float]] = {}
    for (name, scope), value in analysis.values.items():
        if isinstance(scope, int) and not name.startswith("gpu."):
            found.setdefault(name, {})[scope] = value
    return found


KEPT_WAITING = {
    ("comm.skew_s", "job"): 0.5,
    ("comm.kept_waiting_s", 0): 0.0,
    ("comm.kept_waiting_s", 1): 0.5,
}


def test_a_throttled_gpu_is_the_root_of_its_slow_rank_and_of_the_waiting() -> None:
    hot = gpu_jobs.gpu001(clock=600.0, slow=0.5, late={0: 0.0, 1: 0.95})
    judgement = judged(replace(hot, values={**hot.values, **KEPT_WAITING}))
    assert causes(judgement) == {"GPU001": None, "CMP007": "GPU001", "COM002": "GPU001"}
    assert judgement.verdict.rule == "GPU001" and judgement.findings[0].scope.gpus == (1,)


def test_another_process_on_a_gpu_is_the_root_of_its_slow_rank() -> None:
    judgement = judged(gpu_jobs.gpu005(sm=0.5, slow=0.5, late={0: 0.0, 1: 0.95}))
    assert causes(judgement) == {"GPU005": None, "CMP007": "GPU005"}


def test_a_broken_gpu_is_the_cause_of_the_ranks_death() -> None:
    judgement = judged(gpu_jobs.gpu007(xids=(79,), lost=1, deaths=(death(1, exception="CUDA error: unspecified"),)))
    assert causes(judgement) == {"GPU007": None, "RUN002": "GPU007"}
    assert (judgement.verdict.state, judgement.verdict.rule) == ("failed", "GPU007")


def test_memory_that_grew_until_an_allocation_failed_is_the_cause_of_the_death() -> None:
    full = gpu_jobs.gpu004(deaths=(death(1, exception="torch.OutOfMemoryError: CUDA out of memory."),))
    assert causes(judged(full)) == {"GPU004": None, "RUN002": "GPU004"}


def test_errors_that_cost_no_time_keep_a_run_from_being_healthy() -> None:
    judgement = judged(gpu_jobs.gpu007(xids=(94,)))
    assert (judgement.verdict.state, judgement.verdict.rule) == ("bottleneck", "GPU007")


def test_the_transform_that_dominates_is_why_the_cores_do_not_suffice() -> None:
    judgement = judged(input_jobs.dat011())
    assert causes(judgement) == {"DAT011": None, "DAT001": "DAT011"}
    assert judgement.verdict.rule == "DAT011"


IDLE = {"busy": 4.5, "workers": 2, "wall": 1.9, "delay": 0.0}


BUSY = {"loader.busy_share": {0: 0.95, 1: 0.95}}


@pytest.mark.parametrize(
    ("share", "given", "root"),
    [
        (0.5, {}, "DAT004"),  # another worker gives more than half the transform would
        (0.98, {"allowed": 6.0, "wait": 0.8, "cpu": 1.0}, "DAT011"),  # there is room for one more at most
    ],
)
def test_of_more_workers_and_a_cheaper_transform_the_better_fix_is_the_root(
    share: float, given: dict[str, Any], root: str
) -> None:
    made = input_jobs.dat011(share, **{**IDLE, **given})
    judgement = judged(
        replace(made, values={**made.values, **{(n, r): v for n, by in BUSY.items() for r, v in by.items()}})
    )
    assert causes(judgement) == {rule: None if rule == root else root for rule in ("DAT004", "DAT011")}


def test_loading_in_the_training_process_comes_before_its_transforms() -> None:
    judgement = judged(input_jobs.dat011(workers=0, wall=0.4, busy=4.0))
    assert causes(judgement) == {"DAT003": None, "DAT011": "DAT003"}


def test_slow_storage_comes_before_what_the_workers_compute_meanwhile() -> None:
    made = input_jobs.dat011(0.9, cpu=0.4, delay=0.0)
    starved = jobs.dat002(blocked=0.6).values
    judgement = judged(replace(made, values={**starved, **made.values}))
    assert causes(judgement) == {"DAT002": None, "DAT011": "DAT002"}
