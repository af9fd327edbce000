"""Where a report may be sent, and what is said where it cannot be."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from report_samples import bottleneck
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.report import trackers
from rn50_advisor.advisor.report.trackers import Destination, check_installed, destination_of, send
from rn50_advisor.advisor.report.trackers.parcel import parcel_of


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
    ("text", "said"),
    [
        ("comet", "unknown tracker"),
        ("", "unknown tracker"),
        ("tensorboard", "needs a folder"),
        ("tensorboard:gs://bucket/logs", "is no folder of this machine"),
    ],
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


def test_what_a_library_prints_does_not_mix_with_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def talkative(place: str, parcel: Any) -> str:
        print("view run")
        return place

    monkeypatch.setattr("rn50_advisor.advisor.report.trackers.to_mlflow.send", talkative)
    made = parcel_of(bottleneck(), started_unix_s=1.0, identity="one")
    assert send(Destination("mlflow", "here"), made) == "here"
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "view run\n")
