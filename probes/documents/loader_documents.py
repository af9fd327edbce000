"""A rank's facts about its DataLoaders and their datasets."""

from __future__ import annotations

from typing import TypedDict

from .bounded_numbers import Whole
from .code_places import CodePlace

Setting = bool | int | float | str | None  # a plain value, or the name of its class

_Classed = TypedDict("_Classed", {"class": str}, total=False)


class DescribedObjects(TypedDict):
    """A list, tuple or dict of many Python objects. `bytes`: of the pages that reading all of them writes to, estimated from a few."""

    name: str
    kind: str
    length: Whole
    of: str  # the class of the first one
    bytes: Whole


class NumberColumn(TypedDict):
    """A column of lists of numbers in an Arrow table: lists inside the row's own, and numbers, of a row on average, from a few rows."""

    name: str
    lists: float
    numbers: float


class DescribedDataset(_Classed, total=False):
    """`length` None: unknown, or too costly to read. `inner`: the wrapped dataset; `parts`: the first parts of a concatenation."""

    length: Whole | None
    root: str
    transforms: list[str | None]
    transform_settings: list[str | None]
    transform_files: list[str]  # of the job's modules that can have built them
    held: list[str]
    tensors: list[str]
    arrays: list[str]  # attributes that hold one row for each sample, in the process's memory
    objects: list[DescribedObjects]
    format: str  # in which Hugging Face datasets return their items
    columns: list[NumberColumn]  # that Hugging Face datasets decode from Arrow, with the most numbers first
    other_columns: Whole  # that they return besides, if not single numbers: texts, images, structures
    lookup_ns: Whole  # time of one lookup in their indices mapping; absent without a mapping
    divided_among: Whole  # ranks, each of which makes all samples of a stream of Hugging Face and keeps its own
    name: str
    split: str
    inner: DescribedDataset
    parts: list[DescribedDataset]
    parts_count: Whole


class DescribedLoader(_Classed, CodePlace, total=False):
    """A loader's settings when it was created. `library`: the loader's library unless torch; `through`: the library function that
    created it for the user's line. `fetch_file`, `fetch_line`: the user's line that takes its batches, which a profiler's trace shows.
    """

    library: str
    through: str
    fetch_file: str
    fetch_line: Whole
    batch_size: Setting
    num_workers: Whole | None
    pin_memory: Setting
    prefetch_factor: Whole | None
    persistent_workers: Setting
    drop_last: Setting
    timeout: Setting
    in_order: Setting
    sampler_batch_size: Whole | None
    sampler: str
    shuffle: bool | None
    batch_sampler: str | None
    collate: str | None
    collate_file: str  # absent unless the function is the user's
    collate_line: Whole
    worker_init: str | None
    context: str | None
    generator: bool
    dataset: DescribedDataset


class RecordedLoader(DescribedLoader, total=False):
    """A loader's settings and its use. `training` None: not used yet. `dispatches`: rank 0 loads the batches of all ranks and sends them;
    absent otherwise. `split_batches`: it then divides each batch among them.
    """

    id: Whole
    training: bool | None
    batch_bytes: Whole | None  # tensors of its first batch
    batch_tensors: Whole | None  # their number
    made: Whole | None  # number of times
    dispatches: bool
    split_batches: bool


class PartName(CodePlace, total=False):
    """A part of sample loading; rings give its time under its number."""

    kind: str
    name: str
