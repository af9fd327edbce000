"""The steps of a story in the form in which the recorder writes jobs on GPUs: two clocks per rank, the host's and the stream's.

The host queues kernels and runs ahead of the GPU, until the queue is full or it waits for the GPU. Ranks leave the backward together on
their streams, once the last has arrived and the transfer is done; NCCL does not block the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rn50_advisor.probes.rank.layout import (
    COMM_FIELDS,
    FLAG_COMM_SAMPLED,
    GPU_STEP_FIELDS,
    KIND_COMM,
    KIND_GPU_STEP,
    KIND_STEP,
    STEP_FIELDS,
)
from samples.gpus.stories import Story

SECOND, MS = 1_000_000_000, 1_000_000
STAMPED_FIRST, STAMPED_EVERY = 10, 20  # DDP times its first iterations; the recordings have every 20th of the rest
SHARES = {"forward": 0.33, "backward": 0.55, "optimizer": 0.12}
QUEUED_STEPS = 1.5  # how far the host may run ahead of the GPU
HIDDEN_SHARE = 0.4  # of the backward, which overlaps with the exchange of the first gradients

Record = tuple[int, int, int, tuple[int, ...]]  # kind, rank, flags, payload


@dataclass
class _Rank:
    """State of one rank; times are milliseconds since the first step."""

    story: Story
    rank: int
    host: float = 0.0
    stream: float = 0.0
    gap: float = 0.0  # stream time between the previous step and this step's fetch
    exchanged: float | None = None  # end of an exchange timed by DDP, for which the next forward waits
    marks: dict[str, float] = field(default_factory=dict)  # host times of the current step
    spent: dict[str, float] = field(default_factory=dict)  # stream times of the current step

    def mark(self, phase: str, kernels_ms: float, host_ms: float) -> None:
        """Ends the phase. Its event passes when the queued work is done, and not before it was recorded."""
        before = self.stream
        self.host += host_ms
        self.stream = max(self.stream + kernels_ms, self.host)
        self.host = max(self.host, self.stream - QUEUED_STEPS * self.story.compute_ms)
        self.marks[phase], self.spent[phase] = self.host, self.stream - before

    def own_part(self, ms: float) -> None:
        """Advances from the fetch to the last gradient."""
        self.marks, self.spent = {"begin": self.host}, {"gap": self.gap}
        self.mark("input_wait", 0.0, self.story.input_ms)
        if self.exchanged is not None:
            self.host, self.exchanged = max(self.host, self.exchanged), None
        for phase in ("forward", "backward"):
            self.mark(phase, SHARES[phase] * ms, SHARES[phase] * self.story.launch_ms)

    def rest(self, number: int, left: float, ms: float) -> None:
        """Advances from the end of the exchange to the next fetch."""
        story = self.story
        self.spent["backward"] += left - self.stream
        self.stream = left
        self.mark("optimizer", SHARES["optimizer"] * ms, SHARES["optimizer"] * story.launch_ms)
        before, evaluates = self.stream, _every(story.evaluates_every, number)
        if evaluates or _every(story.waits_every, number):
            self.host = max(self.host, self.stream)
        if evaluates:
            self.host += story.evaluation_ms
        self.marks["evaluation"] = self.host if evaluates else self.marks["optimizer"]
        self.host += story.gap_ms
        self.stream = max(self.stream, self.host)
        self.marks["gap"], self.gap = self.host, self.stream - before


def _every(steps: int, number: int) -> bool:
    return steps > 0 and number % steps == steps - 1


def steps_of(story: Story, first_ns: int, until_ns: int) -> Iterator[tuple[int, list[Record]]]:
    """Yields (end on the host, records) of each step."""
    ranks = [_Rank(story, rank) for rank in range(story.ranks)]
    number, end, memory_at = 0, first_ns, -SECOND
    while end < until_ns:
        samples, ms = _batch(story, number)
        for own in ranks:
            own.own_part(ms * story.slow.get(own.rank, 1.0) * _wobble(number, own.rank))
        left = max(own.stream for own in ranks) + (story.wire_ms if story.ranks > 1 else 0.0)
        stamped = story.ranks > 1 and (number < STAMPED_FIRST or number % STAMPED_EVERY == 0)
        memory = _memory(story, number) if end - memory_at >= SECOND else {}
        records: list[Record] = []
        for own in ranks:
            if stamped:
                records.append((KIND_COMM, own.rank, 0, _stamp(number, first_ns, own, left)))
                own.exchanged = left
            own.rest(number, left, ms)
            records.append((KIND_STEP, own.rank, FLAG_COMM_SAMPLED * stamped, _step(number, first_ns, own, samples)))
            if number and not story.on_cpu:  # the first step's start is not marked
                records.append((KIND_GPU_STEP, own.rank, 0, _gpu_step(number, own.spent, memory)))
        end = first_ns + round(max(own.host for own in ranks) * MS)
        if memory:
            memory_at = end
        yield end, records
        number += 1


def _batch(story: Story, number: int) -> tuple[int, float]:
    """Returns (samples of a step, milliseconds that the GPU computes on them)."""
    if not _every(story.halves_every, number):
        return story.samples, story.compute_ms
    return story.samples // 2, story.compute_ms * (1.0 + story.fixed_share) / 2


def _wobble(number: int, rank: int) -> float:
    """A factor from 1 to 1.02, the same in every recording."""
    return 1.0 + 0.02 * ((number * 7919 + rank * 104_729) % 1000) / 1000


def _row(fields: tuple[str, ...], values: Mapping[str, float]) -> tuple[int, ...]:
    return tuple(round(values.get(name, 0)) for name in fields)


def _step(number: int, first_ns: int, own: _Rank, samples: int) -> tuple[int, ...]:
    at = {name: first_ns + round(ms * MS) for name, ms in own.marks.items()}
    names = list(at)
    times = {f"{name}_ns": at[name] - at[before] for before, name in itertools.pairwise(names)}
    about = {"step": number, "t_start_ns": at["begin"], "t_end_ns": at["gap"], "samples": samples}
    return _row(STEP_FIELDS, {**about, **times, "micro_batches": 1, "self_ns": 30_000})


def _stamp(number: int, first_ns: int, own: _Rank, left: float) -> tuple[int, ...]:
    """Fields of DDP's stamp: starts and ends are the host's, one right after the other; durations are the device's."""
    host = {name: first_ns + round(own.marks[name] * MS) for name in ("forward", "backward")}
    stamps = {"backward_start_ns": host["forward"], "compute_end_ns": host["backward"] - MS // 10}
    stamps |= {"comm_start_ns": host["forward"] + MS, "comm_end_ns": host["backward"]}
    hidden = round(HIDDEN_SHARE * own.spent["backward"] * MS)
    durations = {"comm_ns": hidden + round((left - own.stream) * MS), "overlap_ns": hidden}
    return _row(COMM_FIELDS, {"step": number, "iteration": number, **durations, **stamps})


def _gpu_step(number: int, phases: Mapping[str, float], memory: Mapping[str, float]) -> tuple[int, ...]:
    times = {f"{name}_ns": ms * MS for name, ms in phases.items()}
    unknown = dict.fromkeys(GPU_STEP_FIELDS[GPU_STEP_FIELDS.index("allocated_bytes") :], -1)
    return _row(GPU_STEP_FIELDS, {"step": number, **times, **unknown, **memory})


def _memory(story: Story, number: int) -> dict[str, float]:
    held = story.memory_gb * 1e9 + number * story.creep_mb * 1e6
    retries = number // story.retry_every if story.retry_every else 0
    return {"allocated_bytes": 0.6 * held, "reserved_bytes": held, "peak_bytes": 0.95 * held, "alloc_retries": retries}
