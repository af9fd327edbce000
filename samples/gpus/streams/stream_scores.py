"""Scores a story: the verdict against its truth, false alarms, and the predicted gain against the one that the simulator measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from samples.faults.scenario import Truth
from samples.faults.score import judge
from samples.gpus.streams.description import Job, Story
from samples.gpus.streams.simulated_runs import play, record


@dataclass(frozen=True, slots=True)
class Score:
    name: str
    story: Story
    step_s: float
    verdict: str
    right: bool
    why: str
    alarms: tuple[str, ...]
    gain: float | None  # measured: the job without the fault, simulated
    low: float | None = None  # predicted by the finding of the truth, if it is there
    high: float | None = None
    likely: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "story"}

    @staticmethod
    def of_json(row: Mapping[str, Any], story: Story) -> Score:
        return Score(**{**row, "alarms": tuple(row["alarms"])}, story=story)

    @property
    def inside(self) -> bool | None:
        """True if the true gain is in the predicted interval; None where there is no fault. No prediction is outside."""
        if self.gain is None:
            return None
        return self.low is not None and self.high is not None and self.low <= self.gain <= self.high

    @property
    def line(self) -> str:
        said = "-" if self.low is None or self.high is None else f"{self.low:.2f}-{self.high:.2f}"
        true = "" if self.gain is None else f"true {self.gain:.2f} said {said}{'' if self.inside else ' OUT'}"
        return f"{'ok ' if self.right else 'NO '} {self.name:<26} {self.verdict:<12} {true} {self.why} {', '.join(self.alarms)}"


def score(name: str, story: Story, folder: Path, *, played: dict[str, float] | None = None) -> Score:
    """Plays and diagnoses the story, whose run lies in `folder` afterwards, and the job without its fault.

    `played`: seconds per step of jobs that were played before, by their description; several stories share one.
    """
    step_s = record(story.job, folder, name=name)
    report = diagnose(read_recording(folder)).as_json()
    judged = judge(
        Truth(roots=() if story.truth == ("healthy",) else story.truth, ranks=story.ranks, also=story.also), report
    )
    gain = None if story.without is None else step_s / _played(story.without, {} if played is None else played)
    findings = {finding["rule"]: finding for finding in report["findings"]}
    named = next(
        (findings[rule] for rule in (judged.verdict, *story.truth) if rule in story.truth and rule in findings), None
    )
    saving = named["saving"] if named else None
    low, high = saving["speedup"] if saving else (None, None)
    return Score(
        name, story, step_s, judged.verdict, judged.right and not judged.false_alarms, judged.why_not, judged.false_alarms,
        gain, low, high, saving["likely"] if saving else None,
    )  # fmt: skip


def _played(job: Job, known: dict[str, float]) -> float:
    key = repr(job)
    if key not in known:
        known[key] = play(job)
    return known[key]


def markdown(tables: Mapping[str, Sequence[Score]], notes: Mapping[str, str]) -> str:
    """The tables by title; `notes` stand below the summary of those with the same title."""
    parts = [_HEAD]
    if len(tables) > 1:
        parts += ["## All together\n", _summary([one for scores in tables.values() for one in scores]), ""]
    for title, scores in tables.items():
        note = [notes[title], ""] if title in notes else []
        parts += [f"## {title}\n", _summary(scores), "", *note, _table(scores), ""]
    return "\n".join(parts)


_HEAD = """# Simulated GPUs

`python -m samples.gpus.streams --held-out --markdown samples/gpus/RESULTS.md` makes this table. A simulator plays each job: hosts that
queue kernels, streams that run them in order, collectives in which ranks meet. The real recorder marks its steps on the simulated clock,
with its tape, its pauses between events and its observed steps; the driver's readings are made up from the kernels that ran. The true gain
is the step's length divided by that of the same job without the fault, from the same simulator. No GPU was used: launch costs, queue depth
and NCCL's behaviour are assumptions, and a right verdict here proves the reasoning, not the numbers of any device.
"""


def _summary(scores: Sequence[Score]) -> str:
    sound = [one for one in scores if one.story.without is None]
    faulty = [one for one in scores if one.story.without is not None]
    alarmed = sum(bool(one.alarms) for one in sound)
    inside = sum(bool(one.inside) for one in faulty)
    return (
        f"{sum(one.right for one in scores)} of {len(scores)} verdicts are right. {alarmed} of {len(sound)} sound jobs have a false alarm. "
        f"The true gain lies in the predicted interval in {inside} of {len(faulty)} faulty ones"
        f"{_errors(faulty)}."
    )


def _errors(faulty: Sequence[Score]) -> str:
    off = sorted(abs(math.log(one.gain / one.likely)) for one in faulty if one.gain and one.likely)
    if not off:
        return ""
    wide = sorted(math.log(one.high / one.low) / 2 for one in faulty if one.low and one.high)
    off_pct, wide_pct = (100 * (math.exp(each[len(each) // 2]) - 1) for each in (off, wide))
    return f"; the likely value is off by {off_pct:.0f} % and the interval ±{wide_pct:.0f} %, both in the median"


def _table(scores: Sequence[Score]) -> str:
    rows = ["| story | truth | verdict | right | true gain | predicted |", "|---|---|---|---|---|---|"]
    for one in scores:
        ranks = "" if one.story.ranks is None else f" rank {', '.join(map(str, one.story.ranks))}"
        gain = "" if one.gain is None else f"{one.gain:.2f}×"
        said = (
            ""
            if one.gain is None
            else "nothing"
            if one.low is None or one.high is None
            else f"{one.low:.2f}–{one.high:.2f}×"
        )
        outside = " (outside)" if one.inside is False else ""
        alarms = f"; false: {', '.join(one.alarms)}" if one.alarms else ""
        wrong = "" if one.right else f"**no** {one.why}{alarms}"
        truth = " or ".join(one.story.truth) + ranks
        rows.append(
            f"| {one.name}: {one.story.title} | {truth} | {one.verdict} | {wrong or 'yes'} | {gain} | {said}{outside} |"
        )
    return "\n".join(rows)
