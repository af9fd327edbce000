"""From the source of a stream: whether it divides samples among ranks or workers before or after it processes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordings import plan, recording
from rn50_advisor.advisor.analysis.input.stream_source import stream_splits
from rn50_advisor.advisor.model.analysis import StreamSplit
from rn50_advisor.advisor.model.recording import Source
from rule_cases import loader

PARSED = """\
    def parse(self, line):
        return [float(cell) for cell in line.split()]

    def read(self):
        for path in self.files:
            with open(path) as file:
                for line in file:
                    yield self.parse(line)
"""
STATED = """\
    def read(self):
        for line in self.lines:
            row = json.loads(line)
            yield row
"""


def split(text: str) -> StreamSplit | None:
    source = Source("/job/stream.py", "", f"class Stream(IterableDataset):\n{text}")
    made = recording({0: plan(20)}, sources=(source,))
    facts = replace(loader(0, 2), dataset={"class": "stream.Stream", "length": None})
    return stream_splits(made, (facts,)).get("stream.Stream")


def body(text: str) -> str:
    return "    def __iter__(self):\n" + "".join(f"        {line}\n" for line in text.splitlines())


LATE = {
    "every n-th is yielded": (
        "for i, row in enumerate(self.read()):\n    if i % self.world_size == self.rank:\n        yield row",
        (True, False),
    ),
    "others are skipped": (
        "for i, row in enumerate(self.read()):\n    if i % num_workers != part:\n        continue\n    yield row",
        (False, True),
    ),
    "a slice": ("yield from itertools.islice(self.read(), self.rank, None, self.world)", (True, False)),
    "a loop over a slice": (
        "for row in islice(self.read(), part, None, world * workers):\n    yield row",
        (True, True),
    ),
    "processed in the loop": (
        "for i, line in enumerate(self.lines):\n    row = self.encode(line)\n    if i % world == rank:\n        yield row",
        (True, False),
    ),
    "through a buffer that shuffles": (
        "for i, row in enumerate(self.read()):\n    if i % num_workers != part:\n        continue\n    at = rnd.randrange(self.size)\n"
        "    yield buffer[at]\n    buffer[at] = row",
        (False, True),
    ),
    "a mapped stream": (
        "for i, row in enumerate(map(self.encode, self.lines)):\n    if i % world == rank:\n        yield row",
        (True, False),
    ),
}


@pytest.mark.parametrize(("text", "of"), LATE.values(), ids=LATE)
@pytest.mark.parametrize("reads", [PARSED, STATED])
def test_divided_after_processing(text: str, of: tuple[bool, bool], reads: str) -> None:
    found = split(reads + body(text))
    assert found is not None and (found.of_ranks, found.of_workers) == of
    assert found.file == "/job/stream.py" and found.line > len(reads.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "for i, line in enumerate(self.lines):\n    if i % world == rank:\n        yield self.encode(line)",
        "for i, line in enumerate(self.lines):\n    if i % world != rank:\n        continue\n    row = self.encode(line)\n    yield row",
        "for line in islice(self.lines, rank, None, world):\n    yield self.encode(line)",
        "for i in range(100):\n    path = self.paths[i]\n    if i % world != rank:\n        continue\n    row = read(path)\n    yield row",
        "for i, row in enumerate(self.read()):\n    if i % world == rank:\n        yield self.encode(row)",
        "for i, row in enumerate(self.read()):\n    if i % self.every == 0:\n        yield row",  # thinned out
        "for i, row in enumerate(self.read()):\n    if i > world:\n        yield row",
        "for i, row in enumerate(self.read()):\n    if i % self.shard_size == self.offset:\n        yield row",
        "for i, row in enumerate(self.read()):\n    if i % world_size == 0:\n        yield row",
        "yield from self.read()",
    ],
)
def test_divided_before_or_not_at_all(text: str) -> None:
    assert split(PARSED + body(text)) is None


def test_a_data_set_without_a_source_is_unknown() -> None:
    assert stream_splits(recording({0: plan(20)}), (loader(0, 2),)) == {}
