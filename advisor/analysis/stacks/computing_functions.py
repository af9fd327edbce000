"""Finds the functions of the user's own code whose own operations take most of the step, by stack samples.

Operations are a function's own where none of torch's modules makes them: tensor expressions, sparse products, distributions, other
libraries. What modules compute is the model's, and what the backward pass computes has no line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from rn50_advisor.advisor.analysis.host.node_window import ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.after_update import evaluates, evaluation_lines
from rn50_advisor.advisor.analysis.stacks.loop_lines import waits
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    FETCH,
    LINE_SAMPLES_MIN,
    SeenStack,
    profiles_by_rank,
    user_rows,
)
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.code_places import UserLine
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_OTHERS = ("/torch/nn/", "/torch/autograd/", "/torch/optim/", "/torch/distributed/", "/torch/serialization.py")
_BACKWARD = "/torch/_tensor.py"
_FUNCTIONS_MAX = 5


def computing_functions(recording: Recording) -> tuple[HotLine, ...]:
    """The functions of ranks on CPUs, the longest first, each with its most frequent line; `share`: of all samples."""
    on_gpu = ranks_on_gpus(recording)
    samples = sum(profile["looks"] for rank, profile in profiles_by_rank(recording) if rank not in on_gpu)
    functions, lines = Counter[tuple[str, str]](), Counter[tuple[str, int, str]]()
    for user, count in _own_operations(recording, on_gpu) if samples >= LINE_SAMPLES_MIN else ():
        functions[user["file"], user["function"]] += count
        lines[user["file"], user["line"], user["function"]] += count
    found = []
    for (file, function), count in functions.most_common(_FUNCTIONS_MAX):
        line = max((key for key in lines if (key[0], key[2]) == (file, function)), key=lambda key: lines[key])
        found.append(HotLine(*line, "", count, count / samples, io=False))
    return tuple(found)


def _own_operations(recording: Recording, on_gpu: Set[int]) -> Iterator[tuple[UserLine, int]]:
    """Yields (the user's line, number of samples that found it awake)."""
    evaluations = evaluation_lines(recording)
    for rank, profile in profiles_by_rank(recording):
        for row in user_rows(profile) if rank not in on_gpu else ():
            count = row.get("awake", row["count"])
            if count and _is_own(row) and not evaluates(row, evaluations) and not waits(row, on_gpu=False):
                yield row["user"], count


def _is_own(row: SeenStack) -> bool:
    frames = row["frames"]
    if any(FETCH in frame["file"] for frame in frames):
        return False
    below = frames[: next(n for n, frame in enumerate(frames) if is_user_file(frame["file"]))]
    backward = any(frame["file"].endswith(_BACKWARD) and frame["function"].endswith("backward") for frame in below)
    return not backward and not any(part in frame["file"] for frame in below for part in _OTHERS)
