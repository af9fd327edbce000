"""Finds loops in autograd's graph: blocks of nodes that a forward pass has made again and again, one right after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.probes.documents.model_documents import BackwardNodeTimes

TIMES_MIN = 8
NODES_MAX = 400  # of an iteration: eight layers of a transformer have about as many
_OVERLAP_MAX = 0.5  # of a block, with one that covers more


@dataclass(frozen=True, slots=True)
class RepeatedBlock:
    """`nodes`: of one repetition, by their classes, such as MulBackward0. `backward_s`: of all of them in a backward pass, by the median
    time of each class: a few others may be much larger. `differing_s`: by the mean, for iterations that differ in size.
    """

    nodes: tuple[str, ...]
    times: int
    backward_s: float
    differing_s: float


@dataclass(frozen=True, slots=True)
class _Stretch:
    first: int
    nodes: int  # of one repetition
    covers: int


def repeated_blocks(timed: BackwardNodeTimes) -> tuple[RepeatedBlock, ...]:
    """Those that cover most nodes first. Empty where an older recorder kept no order."""
    order = timed.get("order", "")
    codes = np.array([ord(letter) for letter in order], np.int32)
    names = [timed.get("names", [])[code - ord("A")] for code in codes]
    means = {each["name"]: each["ns"] / max(1, each["count"]) / 1e9 for each in timed["classes"]}
    medians = {each["name"]: each.get("median_ns", 1e9 * means[each["name"]]) / 1e9 for each in timed["classes"]}
    found = list[_Stretch]()
    for stretch in sorted(_stretches(codes), key=lambda each: (-each.covers, each.nodes)):
        if all(_shared(stretch, other) <= _OVERLAP_MAX * stretch.covers for other in found):
            found.append(stretch)
    blocks = list[RepeatedBlock]()
    for stretch in found:
        nodes = tuple(sorted(names[stretch.first : stretch.first + stretch.nodes]))
        times = stretch.covers // stretch.nodes
        by_median, by_mean = (times * sum(of.get(name, 0.0) for name in nodes) for of in (medians, means))
        blocks.append(RepeatedBlock(nodes, times, by_median, by_mean))
    return tuple(blocks)


def _stretches(codes: NDArray[np.int32]) -> Iterator[_Stretch]:
    """Wherever nodes equal those `nodes` before them, for long enough."""
    for nodes in range(1, min(NODES_MAX, len(codes) // TIMES_MIN) + 1):
        edges = np.diff((codes[nodes:] == codes[:-nodes]).astype(np.int8), prepend=0, append=0)
        for first, last in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
            covers = int(last - first) + nodes
            if covers >= TIMES_MIN * nodes:
                yield _Stretch(int(first), nodes, covers)


def _shared(one: _Stretch, other: _Stretch) -> int:
    return min(one.first + one.covers, other.first + other.covers) - max(one.first, other.first)
