"""Where a step's time goes in the job's own code: lines by stack samples of the training threads, and classes of backward operations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank, ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    FETCH,
    LINE_SAMPLES_MIN,
    SeenStack,
    called,
    inner,
    line_of,
    profiles_by_rank,
    starts_backward,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.wording.quantities import duration, share
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file
from rn50_advisor.probes.host.stacks.stack_profile import RATE_HZ

FACT = "lines"
_LINES_MAX, _CLASSES_MAX = 8, 4
_SHARE_MIN = 0.02
_LOADER, _NEXT_INDEX = f"{FETCH}dataloader.py", "_next_index"
_STEPS_MIN = 3  # that the samples of the profiles cover

_Line = tuple[str, int]  # file, line


def line_facts(recording: Recording, steady: Mapping[int, RankSteps]) -> dict[str, dict[str, str]]:
    """Rows of a table, label and text, the longest first; empty without enough stack samples.

    Times are those that the training thread spent there, waits included: on a GPU, those of the host.
    """
    rows = {**_lines(recording, steady), **_backward_classes(recording, steady)}
    return {FACT: rows} if rows else {}


def drawing_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The lines of the job's own samplers that draw indices, over all ranks, the longest first."""
    return longest(
        recording,
        (
            (line_of(row["user"]), "", row["count"])
            for _, profile in profiles_by_rank(recording)
            for row in user_rows(profile)
            if _draws(row)
        ),
    )


def _draws(row: SeenStack) -> bool:
    """True if a loader asks the user's code for the next indices, or for an iterator over those of an epoch."""
    frames = inner(row["frames"])
    asked = next((n for n, frame in enumerate(frames) if frame["file"].endswith(_LOADER)), 0)
    if not any(is_user_file(frame["file"]) for frame in frames[:asked]):
        return False
    asking, sampler = frames[asked], frames[asked - 1]
    begins = is_user_file(sampler["file"]) and called(sampler) == "__iter__"
    return begins or called(asking) == _NEXT_INDEX


def _lines(recording: Recording, steady: Mapping[int, RankSteps]) -> dict[str, str]:
    seen, inside = Counter[_Line](), dict[_Line, Counter[str]]()
    functions: dict[_Line, str] = {}
    samples = 0
    for rank, profile in profiles_by_rank(recording):
        if rank not in steady:
            continue
        samples += profile["looks"]
        for row in user_rows(profile):
            user = row["user"]
            line = user["file"], user["line"]
            seen[line] += row["count"]
            functions[line] = user["function"]
            inside.setdefault(line, Counter())[_inside(row)] += row["count"]
    step_s = sum(steps.per_step_s for steps in steady.values()) / max(len(steady), 1)
    if samples < max(LINE_SAMPLES_MIN, _STEPS_MIN * step_s * RATE_HZ):
        return {}
    where = "of the host's time" if ranks_on_gpus(recording) else "of the step"
    found = [(line, count / samples) for line, count in seen.most_common(_LINES_MAX) if count >= _SHARE_MIN * samples]
    labels = _labels([line for line, _ in found])
    return {
        labels[line]: ", ".join(
            filter(None, (f"{share(part)} {where}", duration(part * step_s), functions[line], _mostly(inside[line])))
        )
        for line, part in found
    }


def _inside(row: SeenStack) -> str:
    """The innermost function that the line calls; empty if its own code runs, or C code that has no frame."""
    below = []
    for frame in row["frames"]:
        if (frame["file"], frame["line"]) == (row["user"]["file"], row["user"]["line"]):
            break
        below.append(frame)
    if any(starts_backward(frame) for frame in below):
        return "backward pass"
    return below[0]["function"] if below else ""


def _mostly(inside: Counter[str]) -> str:
    name, count = inside.most_common(1)[0]
    return f"mostly in {name}" if name and 2 * count > inside.total() else ""


def _labels(lines: list[_Line]) -> dict[_Line, str]:
    """`train.py:34`; the whole path where two files have the same name."""
    files = {file for file, _ in lines}
    names = Counter(file.rpartition("/")[2] for file in files)
    return {
        (file, line): f"{name if names[name] == 1 else file}:{line}"
        for file, line in lines
        for name in [file.rpartition("/")[2]]
    }


def _backward_classes(recording: Recording, steady: Mapping[int, RankSteps]) -> dict[str, str]:
    """Classes of autograd's nodes with most of the backward pass, where passes were timed node by node; mean over the ranks."""
    spent = defaultdict[str, float](float)
    ranks = 0
    for rank, facts in facts_by_rank(recording).items():
        timed = facts.get("backward_nodes")
        if rank not in steady or not timed or not timed["ns"]:
            continue
        ranks += 1
        for each in timed["classes"]:
            spent[each["name"]] += each["ns"] / timed["ns"] * steady[rank].per_step("backward")
    step_s = sum(steps.per_step_s for steps in steady.values()) / max(len(steady), 1)
    return {
        name: f"{share(seconds / ranks / step_s)} of the step, {duration(seconds / ranks)}, in the backward pass"
        for name, seconds in sorted(spent.items(), key=lambda each: -each[1])[:_CLASSES_MAX]
        if seconds >= _SHARE_MIN * ranks * step_s
    }
