"""CMP003, the GPU waits for kernel launches: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pace_rule_cases as pace_jobs
from rn50_advisor.advisor.model.findings import Clear, NotMeasured
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules.registry import all_rules
from rule_runs import RULES, all_words, found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "CMP003",
    pace_jobs.cmp003,
    lines={
        "idle": ({"paced_s": 0.10}, {"paced_s": 0.0999}),
    },
    false_alarms={
        "kernels run as long as launching takes": {"resident": 0.95, "active": 0.9},
        "a short part at the host's pace, whose gaps nobody saw": {"resident": 0.98, "paced_s": 0.2},
        "the thread waits for a core": {"delay": 0.55},
        "the host waits for the GPU, and could launch ahead meanwhile": {"blocked": 0.55},
        "a deep window saw no idle time": {"deep": 0.02},
        "its idle time was between the steps": {"deep": 0.35, "gap": 0.3},
        "a loader that just keeps up": {"resident": 0.99, "loads": 1.01},
    },
    severities=(({}, "critical"), ({"paced_s": 0.2}, "high"), ({"paced_s": 0.1}, "medium")),
    best=({"paced_s": 0.2}, 1 / 0.8),
    also_fires={
        "utilisation that counts every kernel is no evidence of a busy GPU": {"resident": 0.99},
        "as a deep window has it": {"deep": 0.3, "resident": 1.0},
        "where waits explain what is between the steps": {"deep": 0.35, "gap": 0.3, "waited": 0.3},
        "compiled already": {"rank_facts": {"compiled_frames": 3, "optimizer": {"fused": True}}},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp003_does_not_guess_how_long_the_gpu_idled() -> None:
    blind = pace_jobs.cmp003(resident=None)
    assert run_rule(RULES["CMP003"], blind, Config()) == NotMeasured("CMP003", ("gpu.util_share",))
    assert run_rule(RULES["CMP003"], pace_jobs.cmp003(paced_s=0.01, resident=None), Config()) == Clear("CMP003")
    assert found("CMP003", TABLE.job(deep=0.3, resident=None)).confidence > found("CMP003", TABLE.job()).confidence


def test_cmp003_says_how_little_utilisation_tells_of_short_gaps() -> None:
    coarse, fine = (found("CMP003", TABLE.job(resident=share)) for share in (0.99, 0.5))
    assert coarse.confidence < fine.confidence and "--deep" in all_words(coarse) and "--deep" not in all_words(fine)
    assert coarse.saving is not None and fine.saving is not None
    assert coarse.saving.speedup[0] < 1.01 < fine.saving.speedup[0], "nothing is certain"
    assert coarse.saving.speedup[1] == pytest.approx(1 / (1 - (2 / 3 * 0.5 + 4 / 5 * 0.1))), (
        "of the layers, of the update"
    )
    bounded = found("CMP003", TABLE.job(resident=0.99, active=0.7)).saving
    assert bounded is not None and bounded.speedup[1] < coarse.saving.speedup[1], "active units bound the idle time"


def test_cmp003_advises_what_is_not_done_yet() -> None:
    assert "torch.compile" in all_words(found("CMP003", TABLE.job())) and "larger batch" in all_words(
        found("CMP003", TABLE.job())
    )
    done = all_words(found("CMP003", TABLE.job(rank_facts={"compiled_frames": 3, "optimizer": {"fused": True}})))
    assert "torch.compile" not in done and "fused optimizer" not in done


def test_cmp003_is_no_root_on_a_host_that_is_held_back() -> None:
    slow = pace_jobs.cmp003()
    held = {
        (name, n): value
        for n in (0, 1)
        for name, value in (("quota.cores", 0.5), ("quota.throttled_share", 0.8), ("quota.throttled_s_per_s", 0.6))
    }
    judgement = judge(replace(slow, values={**slow.values, **held}), all_rules(), Config())
    causes = {finding.rule: finding.explained_by for finding in judgement.findings}
    assert causes["CPU001"] is None and causes["CMP003"] == "CPU001"


def test_a_gpu_held_by_other_ranks_idles_for_no_longer_than_its_own_passes() -> None:
    free, held = TABLE.job(resident=0.99), TABLE.job(resident=0.99)
    assert held.model is not None
    own = {rank: {name: seconds / 2 for name, seconds in phases.items()} for rank, phases in held.model.own.items()}
    held = replace(held, model=replace(held.model, own=own, wire_s=0.5))
    savings = [found("CMP003", a).saving for a in (free, held)]
    assert savings[0] is not None and savings[1] is not None
    assert savings[1].seconds_per_step[1] < savings[0].seconds_per_step[1]


def test_fewer_launches_gain_no_more_than_the_loader_allows() -> None:
    free, held = (found("CMP003", TABLE.job(resident=0.99, loads=loads)).saving for loads in (None, 1.2))
    assert free is not None and held is not None
    assert held.speedup[1] == pytest.approx(1.2) and free.speedup[1] > 1.5
