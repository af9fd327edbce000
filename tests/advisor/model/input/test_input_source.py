"""The description of the input of a loop that no torch loader feeds."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.input.input_source import FeedSamples, InputSource

LOOKS = FeedSamples(20, fetching=0.5, waiting=0.2, model=0.1, library="webdataset")


def test_what_is_neither_fetching_nor_waiting_nor_the_model_is_elsewhere() -> None:
    assert LOOKS.elsewhere == pytest.approx(0.2)
    assert FeedSamples(3, fetching=0.7, waiting=0.3, model=0.1).elsewhere == 0.0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (InputSource("", False), "do not come from torch's loaders; fetching"),
        (InputSource("", False, libraries=("ffcv", "datasets")), "loaders (loaded: ffcv, datasets); fetching"),
        (InputSource("", False, another_thread=True), ": a thread of its own runs through a DataLoader; fetching"),
        (InputSource("", False, samples=LOOKS, another_thread=True), ": they come from webdataset; fetching"),
        (InputSource("", False, samples=FeedSamples(9, 0.0, 1.0, 0.0)), "do not come from torch's loaders; fetching"),
    ],
)
def test_the_reason_names_what_is_known_of_the_source(source: InputSource, reason: str) -> None:
    assert reason in source.why_unknown
