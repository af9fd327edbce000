"""How often stacks may be taken."""

from __future__ import annotations

from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget


def looks(budget: StackBudget, seconds: float, *, cpu_s: float, hit: bool = True, ranks: int = 1) -> list[float]:
    taken, now_s = [], 0.0
    while now_s < seconds:
        for rank in range(ranks):
            if budget.allows(rank, now_s):
                budget.spent(rank, now_s, cpu_s, hit=hit)
                taken.append(now_s)
        now_s += 0.25
    return taken


def new_budget(first: int = 30) -> StackBudget:
    return StackBudget(now_s=0.0, share=0.005, period_s=2.0, first=first, dense_s=60.0)


def test_a_short_run_gets_evidence_quickly() -> None:
    assert len(looks(new_budget(), 10.0, cpu_s=0.01)) >= 10


def test_beyond_the_first_looks_the_share_holds() -> None:
    taken = looks(new_budget(), 3600.0, cpu_s=0.05)
    later = [t for t in taken if t > 100]
    assert len(later) * 0.05 / 3500 <= 0.0055
    assert later


def test_many_ranks_cost_no_more_at_the_start_than_one() -> None:
    assert len(looks(new_budget(), 30.0, cpu_s=0.01, ranks=8)) <= 31


def test_every_second_look_in_vain_costs_few_hits_of_the_first_ones() -> None:
    budget, hits, now_s = new_budget(first=10), 0, 0.0
    for _ in range(120):
        if budget.allows(0, now_s):
            hit = int(now_s) % 2 == 0
            budget.spent(0, now_s, 1.0, hit=hit)
            hits += hit
        now_s += 0.25
    assert hits >= 7


def test_looking_in_vain_becomes_rare() -> None:
    assert len(looks(new_budget(), 300.0, cpu_s=0.01, hit=False)) < len(looks(new_budget(), 300.0, cpu_s=0.01)) / 2
