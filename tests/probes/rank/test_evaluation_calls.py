"""Whose `eval()` begins an evaluation, and which line of the job is named for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from rn50_advisor.probes.rank.evaluation_calls import Evaluations

HERE = __file__


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2)))


def evaluations(trained: nn.Module) -> Evaluations:
    found = Evaluations()
    found.trains(torch.optim.SGD(trained.parameters(), lr=0.1))
    return found


def begins(found: Evaluations, module: nn.Module) -> bool:
    return found.starts(module)


def rollout_of(found: Evaluations, module: nn.Module) -> bool:
    return found.starts(module)


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("itself", True),
        ("its wrapper", True),
        ("its larger part", True),
        ("its smaller part", False),
        ("another model", False),
    ],
)
def test_an_evaluation_begins_with_the_model_that_is_trained(which: str, expected: bool) -> None:
    trained = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2), nn.Linear(2, 2)))
    found = evaluations(trained)
    given = {
        "itself": trained,
        "its wrapper": nn.Sequential(trained),
        "its larger part": trained[1],
        "its smaller part": trained[0],
        "another model": model(),
    }
    assert begins(found, given[which]) is expected


def test_nothing_begins_before_an_optimizer_has_stepped() -> None:
    assert not begins(Evaluations(), model())


@pytest.mark.parametrize("name", ["rollout", "collect_episodes", "_generate_samples", "self_play", "pseudo_labels"])
def test_playing_is_no_evaluation(name: str) -> None:
    trained = model()
    found = evaluations(trained)
    scope: dict[str, object] = {}
    exec(compile(f"def {name}(found, module):\n    return found.starts(module)\n", "/job/play.py", "exec"), scope)
    assert scope[name](found, trained) is False  # type: ignore[operator]


def line_of(words: str) -> int:
    return next(n for n, text in enumerate(Path(HERE).read_text().splitlines(), 1) if text.endswith(words))


def test_the_place_is_where_the_function_with_eval_is_called() -> None:
    trained = model()
    found = evaluations(trained)
    found.loop_runs()
    for _ in range(3):
        begins(found, trained)  # the call
    assert found.facts() == [{"file": HERE, "line": line_of("  # the call"), "count": 3}]


def test_where_the_loop_itself_calls_eval_the_place_is_that_line() -> None:
    trained = model()
    found = evaluations(trained)
    found.loop_runs()
    found.starts(trained)  # by the loop
    assert found.facts() == [{"file": HERE, "line": line_of("  # by the loop"), "count": 1}]


def test_a_model_trained_in_eval_mode_is_given_up() -> None:
    trained = model()
    found = evaluations(trained)
    assert begins(found, trained)
    trained.eval()
    assert found.goes_on()
    found.trains_so()
    assert not found.facts() and not begins(found, trained)


def test_it_goes_on_until_train_mode_or_the_models_end() -> None:
    trained = model()
    found = evaluations(trained)
    assert not found.goes_on()
    begins(found, trained)
    trained.eval()
    assert found.goes_on()
    trained.train()
    assert not found.goes_on()
    trained.eval()
    assert sys.getrefcount(trained) <= 3, "nothing keeps the model alive"
    del trained
    assert not found.goes_on()


def test_each_model_of_several_optimizers_is_trained() -> None:
    models = [model(), model()]
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in models]
    found = Evaluations()
    found.trains(optimizers[0])
    assert [begins(found, each) for each in models] == [True, False]
    found.trains(optimizers[1])
    assert [begins(found, each) for each in models] == [True, True]


def test_the_oldest_of_many_optimizers_is_forgotten() -> None:
    models = [model() for _ in range(6)]
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in models]
    found = Evaluations()
    for optimizer in optimizers:
        found.trains(optimizer)
    assert [begins(found, each) for each in models] == [False, False, True, True, True, True]
