"""Whole plain steps are taken at once, and only where they are plain."""

from __future__ import annotations

import random

import pytest

from buffered_ranks import ADAM, LOADER, Rank, count, counted, loop
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED
from rn50_advisor.probes.rank.steps.plain_steps import may_be_counted, take_plain_steps
from rn50_advisor.probes.rank.steps.step_account import TRAINING
from rn50_advisor.probes.rank.steps.step_phases import GAP
from step_loops import MS


def test_a_usual_step_is_none_where_its_optimizer_is_another() -> None:
    rank = Rank(buffered=False)
    rank.play(loop(random.Random(0), 5, odd=0.0))
    account = rank.account
    times = [account.since + i for i in range(1, 13)]
    account.loaders[LOADER] = TRAINING
    account.last_optimizer = ADAM + 9
    assert take_plain_steps(account, times, [4, 4], []) == 0
    account.last_optimizer = ADAM
    before = account.step
    assert take_plain_steps(account, times, [4, 4], []) == 2
    assert account.step == before + 2
    assert rank.paper.flags[-1] & FLAG_CLOCKED == 0
    account.phase = GAP
    assert take_plain_steps(account, [time + 12 for time in times], [4, 4], []) == 0


def test_steps_of_another_optimizer_are_not_counted() -> None:
    rank = counted(fed=True)
    rank.buffer.forget()
    account = rank.account
    assert may_be_counted(account)
    account.last_optimizer = ADAM + 1
    assert not may_be_counted(account)
    account.last_optimizer, account.fewest_marks = ADAM, 9
    assert not may_be_counted(account)


@pytest.mark.parametrize("fed", [True, False])
def test_counted_steps_are_one_row_whose_phases_are_split_as_usual(fed: bool) -> None:
    rank = counted(fed=fed)
    account, began = rank.account, rank.now
    before = account.step, account.optimizers
    count(rank, 5)
    rank.read()
    (row,) = rank.paper.steps
    assert rank.paper.more[-1] == 4 and row["step"] == before[0]
    assert (account.step - before[0], account.optimizers - before[1]) == (5, 5)
    assert (row["t_start_ns"], row["t_end_ns"]) == (began, rank.now) and account.t_start == rank.now
    parts = {
        name: row[f"{name}_ns"] // MS for name in ("input_wait", "forward", "backward", "clip", "optimizer", "gap")
    }
    usual = {"backward": 10, "clip": 5, "optimizer": 5}
    assert parts == usual | (
        {"input_wait": 10, "forward": 10, "gap": 10} if fed else {"input_wait": 0, "forward": 20, "gap": 0}
    )
    assert (row["samples"], row["micro_batches"]) == ((20, 5) if fed else (0, 0))
