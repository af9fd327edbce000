"""Measures attention that the user's own modules compute in parts, from stack samples of the forward pass, and finds its lines.

On a GPU the host's samples show the lines alone: there a deep window measures it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.analysis.stacks.after_update import evaluates, evaluation_lines
from rn50_advisor.advisor.analysis.stacks.forward_operations import forward_values
from rn50_advisor.advisor.analysis.stacks.loop_lines import samples_by_rank
from rn50_advisor.advisor.analysis.stacks.source.attention_source import attention_in_parts
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    CodeLine,
    Frames,
    SeenStack,
    called,
    in_forward,
    inner,
    line_of,
    profiles_by_rank,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import AttentionLines
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_ATTENTION_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_LINEAR, _DROPOUT = "/torch/nn/modules/linear.py", "/torch/nn/modules/dropout.py"
# transformers' models call this function where `attn_implementation` is none of the fused ones.
_EAGER, _TRANSFORMERS = "eager_attention_forward", "/transformers/"
# nn.MultiheadAttention calls softmax where it has to return the weights (`need_weights`), and a fused function elsewhere. The products are
# in lines around it, as far away as in torch 2.5 to 2.14:
_MULTIHEAD, _FUNCTIONAL = "multi_head_attention_forward", "/torch/nn/functional.py"
_BEFORE_SOFTMAX, _AFTER_SOFTMAX = 8, 4
_DROPPING_MIN = 0.05  # of the samples in attention: dropout with a probability of zero only returns what it is given

By = Literal["own", "transformers", "multihead"]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Samples in one piece of attention. `place`: file, line and function of the user's code, as in `AttentionLines`."""

    rank: int
    count: int
    place: CodeLine
    by: By
    keeps: bool
    drops: bool


def attention_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds of the forward pass per step, for each rank on a CPU with a profile and with the source of its model."""
    seen = samples_by_rank((one.rank, one.count) for one in _seen(recording))
    return forward_values(recording, steady, values, STEP_ATTENTION_S, seen)


def attention_lines(recording: Recording) -> tuple[AttentionLines, ...]:
    """Where attention is computed in parts, the longest first."""
    samples = Counter[tuple[CodeLine, By]]()
    seen: dict[tuple[CodeLine, By], list[_Seen]] = {}
    for one in _seen(recording):
        samples[one.place, one.by] += one.count
        seen.setdefault((one.place, one.by), []).append(one)
    return tuple(
        AttentionLines(*place, count, by, any(one.keeps for one in ones), _drop(ones) >= _DROPPING_MIN * count)
        for (place, by), count in samples.most_common(5)
        for ones in [seen[place, by]]
    )


def _drop(ones: Iterable[_Seen]) -> int:
    return sum(one.count for one in ones if one.drops)


def _seen(recording: Recording) -> Iterator[_Seen]:
    evaluations = evaluation_lines(recording)
    for rank, profile in profiles_by_rank(recording):
        rows = [row for row in user_rows(profile) if in_forward(row["frames"]) and not evaluates(row, evaluations)]
        softmaxes = frozenset(line for row in rows if (line := _multihead_softmax(inner(row["frames"]))) is not None)
        for row in rows:
            if (one := _in_attention(recording, rank, row, softmaxes)) is not None:
                yield one


def _in_attention(recording: Recording, rank: int, row: SeenStack, softmaxes: Set[int]) -> _Seen | None:
    frames = inner(row["frames"])
    own = next(n for n, frame in enumerate(frames) if is_user_file(frame["file"]))
    below, user = frames[:own], frames[own]
    place = line_of(user)
    drops = any(called(frame) == "dropout" or frame["file"].endswith(_DROPOUT) for frame in below)
    if any(called(frame) == _EAGER and _TRANSFORMERS in frame["file"] for frame in below):
        return _Seen(rank, row["count"], place, "transformers", keeps=False, drops=drops)
    if (multihead := next((frame for frame in below if _is_multihead(frame)), None)) is not None:
        inside = any(-_BEFORE_SOFTMAX <= multihead["line"] - line <= _AFTER_SOFTMAX for line in softmaxes)
        return _Seen(rank, row["count"], place, "multihead", keeps=True, drops=drops) if inside else None
    if any(frame["file"].endswith(_LINEAR) for frame in below):
        return None
    found = attention_in_parts(recording.sources, user["file"], user["line"])
    if found is None or not found.first <= user["line"] <= found.last:
        return None
    place = user["file"], found.first, user["function"]
    return _Seen(rank, row["count"], place, "own", keeps=found.keeps_weights, drops=drops)


def _multihead_softmax(frames: Frames) -> int | None:
    """The line of nn.MultiheadAttention that calls softmax, if the stack is in it."""
    pairs = zip(frames[1:], frames, strict=False)
    return next((at["line"] for at, below in pairs if _is_multihead(at) and called(below) == "softmax"), None)


def _is_multihead(frame: StackFrame) -> bool:
    return called(frame) == _MULTIHEAD and frame["file"].endswith(_FUNCTIONAL)
