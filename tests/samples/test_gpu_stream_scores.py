"""Scores of simulated stories: a sound job is judged by its alarms, a faulty one also by its gain; and the table that is published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from samples.gpus.streams import __main__ as streams
from samples.gpus.streams.__main__ import HELD_OUT_SETS, OWN_SETS
from samples.gpus.streams.description import Job, Loader
from samples.gpus.streams.everyday_stories import EVERYDAY
from samples.gpus.streams.fresh_stories import FRESH
from samples.gpus.streams.held_out_stories import HELD_OUT
from samples.gpus.streams.mixed_stories import MIXED
from samples.gpus.streams.stream_scores import Score, markdown, score
from samples.gpus.streams.stream_stories import STORIES, sound, with_fault
from samples.gpus.streams.uncommon_stories import UNCOMMON

ONE = Job(seconds=9.0)
STARVED = replace(ONE, loader=Loader(batch_ms=700.0, workers=4))


def scored(gain: float | None, low: float | None = None, high: float | None = None, *, right: bool = True) -> Score:
    story = sound("sound", ONE) if gain is None else with_fault("starved", STARVED, ("DAT004",), ONE)
    return Score("x", story, 0.1, "healthy", right, "", (), gain, low, high, low)


def test_a_sound_job_is_right_without_any_gain(tmp_path: Path) -> None:
    one = score("sound", sound("nothing wrong", ONE), tmp_path / "run")
    assert (one.right, one.verdict, one.gain, one.inside) == (True, "healthy", None, None)


def test_a_faulty_job_is_right_by_its_rule_and_its_gain_is_the_simulators(tmp_path: Path) -> None:
    one = score("starved", with_fault("few workers", STARVED, ("DAT004",), ONE), tmp_path / "run")
    assert one.right and one.inside and one.gain == pytest.approx(1.5, rel=0.1)


def test_the_job_without_the_fault_is_played_once_for_several_stories(tmp_path: Path) -> None:
    played = {repr(ONE): 1.0}
    story = with_fault("few workers", replace(STARVED, seconds=5.0), ("DAT004",), ONE)
    one = score("starved", story, tmp_path / "run", played=played)
    assert one.gain == one.step_s and played == {repr(ONE): 1.0}


def test_another_rule_than_the_truth_is_wrong_and_predicts_nothing(tmp_path: Path) -> None:
    one = score("starved", with_fault("few workers", STARVED, ("CMP001",), ONE), tmp_path / "run")
    assert not one.right and one.low is None and one.inside is False and "DAT004 instead of CMP001" in one.why


@pytest.mark.parametrize(
    ("low", "high", "inside"), [(1.1, 1.4, True), (1.3, 1.4, False), (1.0, 1.2, False), (None, None, False)]
)
def test_a_gain_without_a_prediction_is_outside(low: float | None, high: float | None, inside: bool) -> None:
    assert scored(1.25, low, high).inside is inside


def test_the_table_counts_what_is_wrong() -> None:
    text = markdown({"Some": [scored(None), scored(1.2, 1.1, 1.3), scored(1.5, right=False)]}, {"Some": "A note."})
    assert "A note." in text
    assert "2 of 3 verdicts are right" in text and "0 of 1 sound jobs" in text and "in 1 of 2 faulty" in text
    assert text.count("| x:") == 3 and "**no**" in text
    assert "the interval ±9 %" in text, "from 1.1 to 1.3"
    assert "All together" not in text
    both = markdown({"Some": [scored(None)], "Others": [scored(1.5, right=False)]}, {})
    assert "1 of 2 verdicts are right" in both.partition("## All together")[2].partition("## Some")[0]


def test_there_are_enough_stories_and_no_held_out_one_is_among_them() -> None:
    assert len(STORIES) >= 40 and sum(story.is_sound for story in STORIES.values()) >= 12
    assert len(HELD_OUT) >= 8 and len(MIXED) >= 10 and len(EVERYDAY) >= 14 and len(FRESH) >= 6
    assert sum(story.is_sound for story in EVERYDAY.values()) >= 4
    assert len(UNCOMMON) >= 10 and sum(story.is_sound for story in UNCOMMON.values()) >= 4
    held_out = [story for stories in (HELD_OUT, MIXED, EVERYDAY, FRESH, UNCOMMON) for story in stories.values()]
    assert not any(one.job == other.job for one in held_out for other in STORIES.values())


def test_the_published_table_has_every_story() -> None:
    text = (Path(__file__).parents[2] / "samples" / "gpus" / "RESULTS.md").read_text()
    rows = [
        line.removeprefix("| ").partition(":")[0]
        for line in text.splitlines()
        if line.startswith("| ") and ": " in line
    ]
    assert rows == [name for sets in (OWN_SETS, HELD_OUT_SETS) for stories, _ in sets.values() for name in stories]


def test_a_run_that_was_interrupted_goes_on_with_the_scores_that_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []

    def scored_once(name: str, *_: object, **__: object) -> Score:
        names.append(name)
        return replace(scored(1.2, 1.1, 1.3), name=name, alarms=("LOP004",))

    monkeypatch.setattr(streams, "score", scored_once)
    stories = {name: with_fault(name, STARVED, ("DAT004",), ONE) for name in ("one", "two")}
    first = streams.scored({"one": stories["one"]}, {}, tmp_path / "kept.jsonl")
    both = streams.scored(stories, {}, tmp_path / "kept.jsonl")
    assert names == ["one", "two"]
    assert both[0] == replace(first[0], story=stories["one"]) and both[0].alarms == ("LOP004",)
