"""Finds loops of the user's code in the step that one operation on whole tensors could replace, and measures them by stack samples.

Some handle tensors element by element: every such operation computes one number and costs some microseconds all the same. What samples
found in modules, losses and backward passes within such a loop does not count: these work on whole tensors. Others have iterations that do
not depend on each other: a loss for each column, sample or class. How often they go round, autograd's graph tells, on CPUs: as a block of
nodes of their operations that repeats. In others again each iteration goes on from the result of the one before.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank, ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.avoidable.repeated_lines import users_entries
from rn50_advisor.advisor.analysis.stacks.forward_operations import forward_values
from rn50_advisor.advisor.analysis.stacks.loop_lines import (
    WHOLE_TENSORS,
    longest,
    profiled_values,
    samples_by_rank,
    step_rows,
)
from rn50_advisor.advisor.analysis.stacks.source.element_source import element_loop
from rn50_advisor.advisor.analysis.stacks.source.independent_source import (
    FoundLoop,
    chained_loop,
    graph_names,
    independent_loop,
    operations_at,
    plain_name,
)
from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.analysis.stacks.source.same_values import Entry
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    CallPaths,
    Place,
    SeenStack,
    called,
    in_forward,
    inner,
    place_of,
    starts_backward,
)
from rn50_advisor.advisor.analysis.steps.graph_blocks import RepeatedBlock, repeated_blocks
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine, IndependentLoop
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_ELEMENTS_S, STEP_ITERATIONS_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.documents.model_documents import BackwardNodeTimes
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_Loop = tuple[str, int, str]  # file, line of the loop, function
_Operations = Counter[tuple[str, ...]]  # by their possible names in autograd's graph
_FUNCTIONS, _LAYERS = ("/torch/nn/functional.py", "/torch/functional.py"), "/torch/nn/modules/"
_VIEWS = frozenset(("expand", "permute", "reshapealias", "squeeze", "t", "transpose", "unsqueeze", "view"))
# For a block of autograd's graph to be what a loop computes: kinds of its nodes that the loop writes, and its nodes for each operation
# that is written.
_KINDS_MIN, _NODES_RATIO_MAX = 2, 4.0
# Or for a block of most of the graph to be the loop whose modules take most of the forward pass: shares of both.
_WHOLE_MIN = 0.8


def element_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile. On a GPU, at most the time in which the GPU had nothing queued."""
    return profiled_values(
        recording, steady, values, STEP_ELEMENTS_S, samples_by_rank(_in_loops(recording)), by_source=True
    )


def element_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The loops over all ranks, the longest first."""
    return longest(recording, ((loop, "", count) for _, loop, count in _in_loops(recording)))


def _in_loops(recording: Recording) -> Iterator[tuple[int, _Loop, int]]:
    """Yields (rank, loop, number of samples that found it awake). Output, items of a data set and evaluations are reported elsewhere."""
    for rank, paths, row, count in step_rows(recording):
        loop = _loop_around(row, paths, recording.sources)
        if loop is not None:
            yield rank, loop, count


def _loop_around(row: SeenStack, paths: CallPaths, sources: tuple[Source, ...]) -> _Loop | None:
    """The innermost function's loop of this kind. In functions on the way to the backward pass it is one beside that."""
    for frame in inner(row["frames"]):
        if any(part in frame["file"] for part in WHOLE_TENSORS):
            return None
        if is_user_file(frame["file"]):
            backwards = paths.backwards.get(place_of(frame), frozenset())
            line = element_loop(sources, frame["file"], frame["line"], backwards)
            if line is not None:
                return frame["file"], line, frame["function"]
    return None


def independent_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step outside the backward pass in such loops with known iterations, for each rank on a CPU with a profile."""
    facts, on_gpu = facts_by_rank(recording), ranks_on_gpus(recording)
    ordered = {r: steps for r, steps in steady.items() if r in on_gpu or _timed(facts.get(r, RankFacts())).get("order")}
    seen = {rank: sum(loop.samples for loop in loops) for rank, loops in _independent(recording).items()}
    found = forward_values(recording, ordered, values, STEP_ITERATIONS_S, seen)
    for rank in steady.keys() - ordered.keys():
        found.missing[STEP_ITERATIONS_S, rank] = (
            "the order of autograd's nodes is not known: no backward pass was timed"
        )
    return found


def independent_loops(recording: Recording) -> tuple[IndependentLoop, ...]:
    """These loops of the rank that has most samples in them, the longest first."""
    return max(_independent(recording).values(), key=lambda loops: sum(loop.samples for loop in loops), default=())


def chained_loops(recording: Recording) -> tuple[HotLine, ...]:
    """Loops of ranks on CPUs whose iterations need the result of the one before and nothing else, the longest first.

    `share`: of the samples that found the steps awake outside their backward passes.
    """
    loops, every, on_gpu = Counter[_Loop](), 0, ranks_on_gpus(recording)
    for rank, paths, row, count in step_rows(recording):
        if rank in on_gpu or any(map(starts_backward, row["frames"])):
            continue
        every += count
        loop = _chained_loop(recording.sources, users_entries(row), frozenset(paths.backwards.items()))
        loops += Counter({loop: count}) if loop is not None else Counter()
    return tuple(HotLine(*loop, "", count, count / every, io=False) for loop, count in loops.most_common(5))


# A live job is analysed each second, with the same stacks.
@functools.lru_cache(maxsize=4096)
def _chained_loop(
    sources: tuple[Source, ...], entries: tuple[Entry, ...], backwards: frozenset[tuple[Place, Set[int]]]
) -> _Loop | None:
    return chained_loop(sources, entries, dict(backwards))


def _independent(recording: Recording) -> dict[int, tuple[IndependentLoop, ...]]:
    """By rank, longest first."""
    on_cpu = facts_by_rank(recording).keys() - ranks_on_gpus(recording)
    blocks = {
        rank: [*repeated_blocks(_timed(facts))] for rank, facts in facts_by_rank(recording).items() if rank in on_cpu
    }
    rows: dict[tuple[int, FoundLoop], list[tuple[SeenStack, int]]] = {}
    forward = Counter[int]()
    for rank, paths, row, count in step_rows(recording) if any(blocks.values()) else ():
        if not blocks.get(rank) or not paths.backwards or any(map(starts_backward, row["frames"])):
            continue
        forward[rank] += count if in_forward(row["frames"]) else 0
        loop = _independent_loop(recording.sources, users_entries(row), frozenset(paths.backwards.items()))
        if loop is not None:
            rows.setdefault((rank, loop), []).append((row, count))
    found: dict[int, tuple[IndependentLoop, ...]] = {}
    for (rank, loop), of_loop in sorted(rows.items(), key=lambda each: -_samples(each[1])):
        block = _block_of(recording.sources, of_loop, blocks[rank])
        differing = loop.over in ("parameters", "squares")
        share, backward_s = 0.0, 0.0 if block is None else block.differing_s if differing else block.backward_s
        if block is None and _samples(row for row in of_loop if _calls_module(row[0])) >= _WHOLE_MIN * forward[rank]:
            share, timed = _samples(of_loop) / forward[rank], _timed(facts_by_rank(recording)[rank])
            block, backward_s = _most_of(blocks[rank], timed)
        if block is not None:
            blocks[rank].remove(block)
            place = loop.file, loop.line, loop.function, loop.over
            size = _samples(of_loop), block.times, len(block.nodes), backward_s
            found[rank] = (*found.get(rank, ()), IndependentLoop(*place, *size, loop.grows, share))
    return found


def _samples(rows: Iterable[tuple[SeenStack, int]]) -> int:
    return sum(count for _, count in rows)


def _calls_module(row: SeenStack) -> bool:
    """True if the user's innermost line has called a module of torch."""
    below = itertools.takewhile(lambda frame: not is_user_file(frame["file"]), row["frames"])
    return any(_LAYERS in frame["file"] for frame in below)


def _timed(facts: RankFacts) -> BackwardNodeTimes:
    return facts.get("backward_nodes", BackwardNodeTimes(passes=0, ns=0, classes=[]))


# A live job is analysed each second, with the same stacks.
@functools.lru_cache(maxsize=4096)
def _independent_loop(
    sources: tuple[Source, ...], entries: tuple[Entry, ...], backwards: frozenset[tuple[Place, Set[int]]]
) -> FoundLoop | None:
    return independent_loop(sources, entries, dict(backwards))


def _block_of(
    sources: tuple[Source, ...], rows: Sequence[tuple[SeenStack, int]], blocks: Sequence[RepeatedBlock]
) -> RepeatedBlock | None:
    """What repeats in autograd's graph and is what the loop's lines write; None if nothing is."""
    written: dict[tuple[str, int], _Operations] = {}
    for row, _ in rows:
        own = next(frame for frame in row["frames"] if is_user_file(frame["file"]))
        line = own["file"], own["line"]
        written[line] = written.get(line, Counter()) | _of_line(sources, row, own)
    everywhere = sum(written.values(), _Operations())
    best = max(blocks, key=lambda block: _alike(block, everywhere), default=None)
    return best if best is not None and _alike(best, everywhere) else None


def _most_of(blocks: Sequence[RepeatedBlock], timed: BackwardNodeTimes) -> tuple[RepeatedBlock | None, float]:
    """The block that makes up most of the graph, and its part of the backward pass by its nodes: operations of all sizes are among them."""
    nodes = len(timed.get("order", ""))
    for block in blocks:
        share = block.times * len(block.nodes) / max(nodes, 1)
        if share >= _WHOLE_MIN:
            return block, share * timed["ns"] / max(timed["passes"], 1) / 1e9
    return None, 0.0


def _alike(block: RepeatedBlock, written: _Operations) -> int:
    """How many kinds of a block's nodes the lines write; zero if these are too few to tell, or the block has far more nodes."""
    kinds = {plain_name(name.partition("Backward")[0]) for name in block.nodes} - _VIEWS
    same = sum(bool(kinds.intersection(names)) for names in written)
    enough = same >= max(1, min(_KINDS_MIN, len(kinds))) and len(block.nodes) <= _NODES_RATIO_MAX * written.total()
    return same if enough else 0


def _of_line(sources: tuple[Source, ...], row: SeenStack, own: StackFrame) -> _Operations:
    """What the line writes, and which of torch's functions it has reached through a module or a function of torch."""
    function = function_at(sources, own["file"], own["line"])
    written = Counter[tuple[str, ...]]() if function is None else operations_at(function, own["line"])
    below = itertools.takewhile(lambda frame: frame is not own, row["frames"])
    return written | Counter({graph_names(plain_name(name)) for frame in below if (name := _torchs_name(frame))})


def _torchs_name(frame: StackFrame) -> str:
    """The name of a function of torch, or of a layer by the file of its class; empty for other frames."""
    if frame["file"].endswith(_FUNCTIONS):
        return called(frame)
    if _LAYERS not in frame["file"] or called(frame) != "forward":
        return ""
    layer, named, _ = frame["function"].rpartition(".")
    return layer if named else frame["file"].rpartition("/")[2].removesuffix(".py")
