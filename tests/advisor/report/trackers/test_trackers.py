"""Where a report may be sent, and what is said where it cannot be."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.report import trackers
from rn50_advisor.advisor.report.trackers import Destination, check_installed, destination_of


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("wandb", Destination("wandb", "")),
        ("wandb:team/vision", Destination("wandb", "team/vision")),
        ("mlflow:0123", Destination("mlflow", "0123")),
        ("tensorboard:C:/logs", Destination("tensorboard", "C:/logs")),
    ],
)
def test_a_tracker_and_its_place(text: str, destination: Destination) -> None:
    assert destination_of(text) == destination


@pytest.mark.parametrize(
    ("text", "said"), [("comet", "unknown tracker"), ("", "unknown tracker"), ("tensorboard", "needs a folder")]
)
def test_what_is_no_tracker_is_told(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        destination_of(text)


def test_an_absent_library_is_named_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_mlflow(name: str, *more: Any) -> Any:
        return None if name == "mlflow" else find_spec(name, *more)

    monkeypatch.setattr(trackers, "find_spec", without_mlflow)
    check_installed([Destination("tensorboard", "x")])
    with pytest.raises(AdvisorError, match="needs mlflow") as absent:
        check_installed([Destination("tensorboard", "x"), Destination("mlflow", "")])
    assert absent.value.hint == "pip install mlflow"
