"""Batches that met no backward pass: what the account tells of them, on a loop with a clock of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.layout import KIND_SPAN, SPAN_FIELDS, SPAN_LABELS
from rn50_advisor.probes.rank.steps.untrained_batches import REPORTED_FROM, shows_evaluation
from step_loops import EVAL, MS, OTHER, TRAIN, Loop


class Watched(Loop):
    """With what it tells of such batches: (what, how many, ms)."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[tuple[str, int, float]] = []
        self.evaluating = False
        self.asked = 0
        write = self.paper.write

        def keep(kind: int, flags: int, values: tuple[int, ...]) -> None:
            write(kind, flags, values)
            row = dict(zip(SPAN_FIELDS, values, strict=False))
            if kind == KIND_SPAN and (label := SPAN_LABELS[row["label"]]) in ("unseen", "skipped"):
                self.reported.append((label, row["count"], (row["t_end_ns"] - row["t_start_ns"]) / MS))

        self.paper.write = keep
        self.account.untrained.evaluates = self._evaluates

    def _evaluates(self) -> bool:
        self.asked += 1
        return self.evaluating

    def train(self, steps: int = 5) -> None:
        for _ in range(steps):
            self.step()

    def untrained(
        self, batches: int, loader: int = TRAIN, *, body: float = 5, fetch: float = 10, first: bool = False
    ) -> None:
        for number in range(batches):
            self.fetch(loader, fetch, first=first and number == 0)
            self.spend(body)


@pytest.fixture
def loop() -> Watched:
    return Watched()


@pytest.mark.parametrize("loader", [TRAIN, OTHER])
def test_batches_after_training_that_meet_nothing_are_told_while_they_come_and_when_the_process_ends(
    loop: Watched, loader: int
) -> None:
    loop.train()
    loop.untrained(100, loader)
    assert [count for _, count, _ in loop.reported] == [8, 16, 32, 64]  # of a process that is killed this is known
    loop.account.leave()
    what, count, ms = loop.reported[-1]
    assert what == "unseen" and count in (99, 98) and ms == pytest.approx(15 * count, abs=30)


def test_it_is_asked_ever_more_rarely_whether_this_is_an_evaluation(loop: Watched) -> None:
    loop.train()
    loop.untrained(1000)
    assert loop.asked == 7


def test_an_evaluation_on_the_training_loader_is_one_once_it_shows(loop: Watched) -> None:
    loop.train()
    loop.evaluating = True
    loop.untrained(50)
    assert loop.reported == [] and loop.asked == 1
    loop.train(3)
    evaluated = next(step for step in loop.paper.steps[5:] if step["evaluation_ns"])
    assert evaluated["evaluation_ns"] >= 48 * 15 * MS and evaluated["forward_ns"] <= 10 * MS
    assert loop.phases(-1) == {
        "input_wait": 10,
        "forward": 5,
        "backward": 7,
        "optimizer": 2,
        "gap": 1,
    }  # it trains again


def test_batches_under_no_grad_are_an_evaluation_without_being_looked_at(loop: Watched) -> None:
    loop.train()
    for _ in range(50):
        loop.fetch(EVAL, evaluating=True)
    loop.account.leave()
    assert loop.reported == [] and loop.asked == 0


def test_plain_steps_accumulation_and_pairs_of_loaders_ask_nothing(loop: Watched) -> None:
    loop.train(20)
    for _ in range(10):
        for _ in range(8):
            loop.fetch()
            loop.backward()
        loop.optimize()
    for _ in range(20):
        loop.fetch(TRAIN)
        loop.fetch(OTHER)
        loop.backward()
        loop.optimize()
    loop.account.leave()
    assert loop.reported == [] and loop.asked == 0


def test_batches_that_are_gathered_for_each_backward_are_how_the_job_trains(loop: Watched) -> None:
    for _ in range(50):
        loop.untrained(REPORTED_FROM + 4)
        loop.backward()
        loop.optimize()
    assert loop.asked == 1


def test_batches_thrown_away_on_the_way_to_where_training_goes_on_are_input(loop: Watched) -> None:
    loop.untrained(100, body=0, first=True)
    loop.train(2)
    assert [(what, count) for what, count, _ in loop.reported if what == "skipped"] == [("skipped", 100)]
    assert loop.paper.steps[0]["evaluation_ns"] == 0 and loop.paper.steps[0]["input_wait_ns"] >= 1000 * MS


@pytest.mark.parametrize("case", ["work", "another pass", "mid-epoch"])
def test_other_batches_before_a_backward_are_not_thrown_away(loop: Watched, case: str) -> None:
    if case == "work":  # done with each of them
        loop.untrained(100, body=20, first=True)
    elif case == "another pass":  # a mean over the data, then the first epoch
        loop.untrained(100, body=0, first=True)
        loop.fetch(first=True)
    else:
        loop.train()
        loop.untrained(100, body=0)
    loop.train(2)
    assert {what for what, _, _ in loop.reported} == {"unseen"}


class Model:
    def __init__(self, *, training: bool, **modules: Any) -> None:
        self.training, self._modules = training, modules


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        (None, False),
        (Model(training=True), False),
        (Model(training=False), True),
        (Model(training=True, module=Model(training=False)), True),  # DistributedDataParallel's
        (Model(training=True, head=Model(training=False)), False),  # a part that is frozen
        (SimpleNamespace(), False),
    ],
)
def test_a_model_in_eval_shows_an_evaluation(model: Any, shown: bool) -> None:
    def fetches() -> bool:
        return shows_evaluation(model)

    assert fetches() is shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("validate", True),
        ("run_eval_epoch", True),
        ("test", True),
        ("test_epoch", True),
        ("predict", True),
        ("calibrate_ranges", True),
        ("_run_inference", True),
        ("train", False),
        ("test_training_step", False),
        ("main", False),
        ("latest", False),
        ("interval", False),
    ],
)
def test_a_function_that_is_called_so_shows_an_evaluation(name: str, shown: bool) -> None:
    made: dict[str, Any] = {"shows_evaluation": shows_evaluation}
    exec(compile(f"def {name}():\n    return shows_evaluation(None)\n", "/job/train.py", "exec"), made)
    assert made[name]() is shown
