"""Finds stacks that compute what a loss is made of outside torch's modules: distributions, ratios, a function of the user's.

A line belongs to the forward pass if it runs a module, or uses what such a line has computed. What else it calls, such as an environment or
a library that is not torch, does not, nor does a line that makes tensors of other objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rn50_advisor.advisor.analysis.stacks.source.loop_source import computed_of
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    TORCH,
    Frames,
    Place,
    called,
    in_forward,
    inner,
    place_of,
)
from rn50_advisor.advisor.model.recording import Source
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

ENVIRONMENT = ("step", "step_wait")
_MODULES, _OPTIMIZERS, _AUTOGRAD = "/torch/nn/", "/torch/optim/", "/torch/autograd/"
_MAKES_TENSORS = re.compile(r"\b(as_tensor|from_numpy|tensor|stack|numpy|tolist|Tensor)\(")

ModelLines = Mapping[Place, frozenset[int]]


def model_lines(stacks: Iterable[Frames]) -> ModelLines:
    """The lines of the user's functions below which samples found a module, by function."""
    found: dict[Place, set[int]] = {}
    for frames in map(inner, stacks):
        if in_forward(frames):
            module = max(n for n, frame in enumerate(frames) if _MODULES in frame["file"])
            for frame in frames[module + 1 :]:
                if is_user_file(frame["file"]):
                    found.setdefault(place_of(frame), set()).add(frame["line"])
    return {place: frozenset(lines) for place, lines in found.items()}


def computes_loss(stack: Frames, lines: ModelLines, sources: tuple[Source, ...]) -> bool:
    """True for torch's operations, called by such a line, or by a function of the user's to which it gives what the model has computed."""
    within = False  # another function of the user's
    for frame in inner(stack):
        file = frame["file"]
        if not is_user_file(file):
            if TORCH not in file or _OPTIMIZERS in file or _AUTOGRAD in file:
                return False
            continue
        origins = lines.get(place_of(frame), frozenset())
        if origins:
            # what a line calls beside the model may just as well prepare its input
            calls_both = within and frame["line"] in origins
            return not calls_both and computed_of(sources, file, frame["line"], origins, unless=_MAKES_TENSORS)
        if called(frame) in ENVIRONMENT:
            return False
        within = True
    return False
