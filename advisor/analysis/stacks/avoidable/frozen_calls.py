"""Measures calls of networks that do not learn and get the inputs of earlier epochs again, from stack samples, and finds their lines.

The recorder compares the inputs of such a network's calls. The data sets of the rank's loaders tell whether they repeat from epoch to
epoch: there are no more different inputs than samples, and most samples were inputs already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank, ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.loop_lines import (
    calls_model,
    longest,
    profiled_values,
    samples_by_rank,
    step_rows,
)
from rn50_advisor.advisor.analysis.stacks.stack_profiles import CodeLine, Frames, inner, line_of, starts_backward
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import FrozenCall
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_FROZEN_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.model_documents import FrozenNetwork
from rn50_advisor.probes.documents.rank_documents import RankFacts

# Random flips double the different inputs, random crops multiply them. Data sets may hold a few samples that no loader draws.
_DIFFERENT_MAX = 1.05  # of the samples of all data sets: an evaluation may call the network as well
# Of the training data, shared by the ranks: inputs that repeat within an epoch say nothing about the next one.
_SAMPLES_SEEN_MIN = 0.5
_ALIKE_MAX = 0.1  # of the inputs
_TORCH = "/torch/nn/"
# a call within the call: of two containers of torch on a line, samples do not tell which one they found
_NESTED = re.compile(r"\w\(\s*[\w.]+\(")


def frozen_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank on a CPU with a profile."""
    on_cpu = {rank: steps for rank, steps in steady.items() if rank not in ranks_on_gpus(recording)}
    seen = samples_by_rank((rank, count) for rank, _, _, count in _frozen(recording))
    return profiled_values(recording, on_cpu, values, STEP_FROZEN_S, seen)


def frozen_calls(recording: Recording) -> tuple[FrozenCall, ...]:
    """These lines over all ranks, the longest first."""
    found = list(_frozen(recording))
    of: dict[CodeLine, FrozenNetwork] = {line: network for _, line, network, _ in found}
    lines = longest(recording, ((line, "", count) for _, line, _, count in found))
    networks = [of[line.file, line.line, line.function] for line in lines]
    return tuple(
        FrozenCall(line, each["class"], each["rows"], each["seen"]) for line, each in zip(lines, networks, strict=True)
    )


def _frozen(recording: Recording) -> Iterator[tuple[int, CodeLine, FrozenNetwork, int]]:
    """Yields (rank, the user's line that calls it, network, number of samples that found it awake)."""
    on_gpu = ranks_on_gpus(recording)
    networks = {rank: _repeated(facts) for rank, facts in facts_by_rank(recording).items() if rank not in on_gpu}
    if not any(networks.values()):
        return
    for rank, _, row, count in step_rows(recording):
        frames = inner(row["frames"])
        if any(starts_backward(frame) for frame in frames):
            continue
        for network in networks.get(rank, ()):
            line = _called_at(frames, network, row["user"].get("text", ""))
            if line is not None:
                yield rank, line, network, count
                break


def _repeated(facts: RankFacts) -> list[FrozenNetwork]:
    """Those whose inputs repeat from epoch to epoch."""
    loaders = facts.get("loaders", [])
    sizes = [(loader.get("dataset", {}).get("length"), loader.get("training")) for loader in loaders]
    training = max((size for size, trains in sizes if trains and size), default=0)
    if not training or any(size is None for size, _ in sizes):
        return []
    most = _DIFFERENT_MAX * sum(size for size, _ in sizes if size)
    least = _SAMPLES_SEEN_MIN * training / max(1, facts.get("world_size", 1))
    return [
        network
        for network in facts.get("frozen_networks", [])
        if network.get("repeats") and network["alike"] <= _ALIKE_MAX and least <= network["different"] <= most
    ]


def _called_at(frames: Frames, network: FrozenNetwork, text: str) -> CodeLine | None:
    """The user's line of this stack that calls this network. `text`: of the user's innermost line."""
    file, _, name = network["forward"].rpartition(":")
    for n in reversed(range(len(frames))):
        frame = frames[n]
        if (frame["file"], frame["line"]) != (network.get("file"), network.get("line")):
            continue
        if _TORCH in file and _NESTED.search(text):
            return None
        inside = [each for each in frames[:n] if not calls_model(each)]
        if len(inside) < n and inside and inside[-1]["file"] == file and _is_same(inside[-1]["function"], name):
            return line_of(frame)
    return None


def _is_same(function: str, name: str) -> bool:
    """True if a frame's function, which has its class from Python 3.11 on, has this qualified name."""
    return name == function or name.endswith("." + function)
