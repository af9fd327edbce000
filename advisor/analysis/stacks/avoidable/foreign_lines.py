"""Finds lines of the user's code that compute outside torch in the middle of the step: inside the model, a loss or a hook.

A library shows by its frames, and a call into C that leaves none by the text of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.host.node_window import ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.after_update import evaluation_lines
from rn50_advisor.advisor.analysis.stacks.hot_lines import leaf_of
from rn50_advisor.advisor.analysis.stacks.loop_lines import (
    ModelPath,
    calls_model,
    longest,
    profiled_values,
    samples_by_rank,
    working_rows,
)
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    TORCH,
    SeenStack,
    inner,
    line_of,
    profiles_by_rank,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_FOREIGN_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

# Libraries that compute with arrays, pictures, tables and texts of their own. Others (transformers, einops, kornia) call torch.
_FOREIGN = re.compile(
    r"/(?:site|dist)-packages/(?:numpy|scipy|cv2|pandas|polars|sklearn|skimage|PIL|librosa|networkx|shapely|pycocotools|numba|nltk"
    r"|spacy|sentencepiece|statsmodels|lap|lapx|pywt|matplotlib)/"
    r"|/lib(?:64)?/python3\.\d+/(?!site-packages|dist-packages)"
)
_FOREIGN_CALL = re.compile(r"\b(?:np|numpy|scipy|cv2|pd)\.\w+(?:\.\w+)*\(")
# What a line computes with tensors leaves no frame either.
OF_TORCH = re.compile(r"\btorch\.|\bF\.|\bnn\.|@|\.(?:backward|expand|matmul|permute|softmax|to|transpose|view)\(")
_BACKWARD = ("/torch/_tensor.py", "/torch/autograd/")


def foreign_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile. On a GPU, at most the time in which the GPU had nothing queued."""
    return profiled_values(recording, steady, values, STEP_FOREIGN_S, samples_by_rank(_foreign(recording)))


def foreign_lines(recording: Recording) -> tuple[HotLine, ...]:
    """These lines over all ranks, the longest first."""
    return longest(
        recording,
        (
            (
                line_of(row["user"]),
                leaf_of(row),
                count,
            )
            for _, row, count in _foreign(recording)
        ),
    )


def _foreign(recording: Recording) -> Iterator[tuple[int, SeenStack, int]]:
    """Yields (rank, stack, number of samples that found it awake)."""
    on_gpu, evaluations = ranks_on_gpus(recording), evaluation_lines(recording)
    for rank, profile in profiles_by_rank(recording):
        rows = user_rows(profile)
        path = ModelPath(rows, recording.sources)
        for row, count in working_rows(rows, evaluations, on_gpu=rank in on_gpu):
            off = path.off(row)
            inside = off[0] == "loss" if off is not None else _in_step(row)
            if inside and _outside_torch(row):
                yield rank, row, count


def _in_step(row: SeenStack) -> bool:
    """True if torch has called the user's line: a module's forward, a hook, or a function of autograd."""
    frames = inner(row["frames"])
    own = next(n for n, frame in enumerate(frames) if is_user_file(frame["file"]))
    return any(calls_model(frame) or any(part in frame["file"] for part in _BACKWARD) for frame in frames[own:])


def _outside_torch(row: SeenStack) -> bool:
    frames = inner(row["frames"])
    below = frames[: next(n for n, frame in enumerate(frames) if is_user_file(frame["file"]))]
    if below:
        return bool(_FOREIGN.search(below[-1]["file"])) and not any(TORCH in frame["file"] for frame in below)
    text = row["user"].get("text", "")
    return bool(_FOREIGN_CALL.search(text)) and not OF_TORCH.search(text)
