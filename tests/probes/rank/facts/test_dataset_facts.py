"""Datasets are described without running the job's code: classes, lengths, transforms, what they hold."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torchvision.transforms")

from torch.utils.data import (  # noqa: E402
    ConcatDataset,
    DataLoader,
    IterableDataset,
    Subset,
    TensorDataset,
)

from rn50_advisor.probes.rank.facts import dataset_facts  # noqa: E402
from rn50_advisor.probes.rank.facts.dataset_facts import describe_dataset  # noqa: E402
from rn50_advisor.probes.rank.facts.loader_facts import describe_loader  # noqa: E402
from untouched_data import Pictures  # noqa: E402

pytestmark = pytest.mark.torch


class Stream(IterableDataset):
    def __iter__(self):
        raise AssertionError("data was touched")


class Own:
    """A transform of the user's, whose repr must stay unasked."""

    def __call__(self, picture):
        return picture

    def __repr__(self):
        raise AssertionError("the user's repr was run")


def collate(batch):
    raise AssertionError("data was touched")


def chain(*sizes):
    return transforms.Compose([*(transforms.RandomCrop(size) for size in sizes), Own()])


def library_class(monkeypatch: pytest.MonkeyPatch, cls: type, name: str) -> type:
    monkeypatch.setattr(cls, "__module__", name)
    return cls


def objects(**held: Any) -> list[tuple[str, str, int, str]]:
    return [(o["name"], o["kind"], o["length"], o["of"]) for o in describe_dataset(Rows(**held)).get("objects", [])]


@pytest.mark.parametrize(
    ("wrapped", "lengths"),
    [
        (lambda: Subset(Pictures(), range(3)), (3, 10)),
        (lambda: Subset(Subset(Pictures(), range(5)), range(2)), (2, 5, 10)),
        (lambda: ConcatDataset([Pictures(length=3), Pictures(length=4)]), (7, 3)),
    ],
)
def test_wrappers_are_unwrapped(wrapped, lengths):
    facts, seen = describe_dataset(wrapped()), []
    root = facts["root"]
    while facts:
        seen.append(facts["length"])
        facts = facts.get("inner") or (facts.get("parts") or [None])[0]
    assert tuple(seen) == lengths
    assert root == str(Path("pictures").resolve())


def test_a_stream_is_not_asked_for_its_length():
    asked = []

    class Counted(Stream):
        def __len__(self):
            asked.append(1)
            return 7

    loader = DataLoader(Counted(), batch_size=None)
    assert describe_loader(loader)["dataset"]["length"] is None and not asked


def test_a_data_set_without_length_has_none():
    assert describe_dataset(object())["length"] is None


def test_a_length_that_raises_is_none():
    class Raising(Pictures):
        def __len__(self):
            raise RuntimeError("not yet")

    assert describe_dataset(Raising())["length"] is None


def test_a_slow_length_is_asked_for_once(monkeypatch):
    calls = []

    class Slow(Pictures):
        def __len__(self):
            calls.append(1)
            return 5

    clock = iter(range(0, 10**12, dataset_facts._SLOW_NS + 1))
    monkeypatch.setattr(dataset_facts, "perf_counter_ns", lambda: next(clock))
    monkeypatch.setattr(dataset_facts, "_slow_lengths", set())
    assert [describe_dataset(Slow())["length"] for _ in range(3)] == [5, None, None]
    assert len(calls) == 1


def test_transforms_are_named_and_known_ones_show_their_settings():
    chain = transforms.Compose([transforms.RandomCrop(24), Own(), transforms.Lambda(collate), torch.from_numpy])
    facts = describe_dataset(Pictures(transform=chain))
    assert facts["transforms"] == ["RandomCrop", "Own", "Lambda", "from_numpy"]
    assert facts["transform_settings"][0].startswith("RandomCrop(size=(24, 24)")
    assert facts["transform_settings"][1] is None


@pytest.mark.parametrize(
    "transform",
    [
        lambda: torch.nn.Sequential(transforms.RandomCrop(24), transforms.RandomHorizontalFlip()),
        lambda: pytest.importorskip("torchvision.transforms.v2").Compose(
            [transforms.RandomCrop(24), transforms.RandomHorizontalFlip()]
        ),
    ],
)
def test_chains_of_every_kind_are_taken_apart(transform):
    assert describe_dataset(Pictures(transform=transform()))["transforms"] == ["RandomCrop", "RandomHorizontalFlip"]


class Named(Pictures):
    """Keeps its transforms under names that nobody else knows."""

    def __init__(self, **kept):
        super().__init__()
        self.__dict__.update(kept)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        pytest.param(lambda: Named(tfms=chain(8)), ["RandomCrop", "Own"], id="another name"),
        pytest.param(lambda: Named(aug={"train": chain(8, 9)}), ["RandomCrop", "RandomCrop", "Own"], id="in a dict"),
        pytest.param(lambda: Named(transforms=[Own(), Own()]), ["Own", "Own"], id="a plain list"),
        pytest.param(
            lambda: Named(crop=transforms.RandomCrop(8)), None, id="one that is no list is like any attribute"
        ),
        pytest.param(lambda: Subset(Named(tfms=chain(8)), range(3)), None, id="what it wraps keeps them"),
        pytest.param(lambda: Named(ds=Named(tfms=chain(8))), None, id="so does one that wraps by its own name"),
        pytest.param(lambda: ConcatDataset([Named(tfms=chain(8))]), None, id="and a concatenation"),
        pytest.param(lambda: Named(ds=Named(tfms=chain(8)), aug=chain()), ["Own"], id="both do"),
        pytest.param(lambda: Named(transform=chain(), tfms=chain(8)), ["Own"], id="the usual name comes first"),
    ],
)
def test_transforms_are_found_under_any_name_in_their_own_dataset(dataset, expected):
    assert describe_dataset(dataset()).get("transforms") == expected
    wrapped = describe_dataset(Subset(dataset(), range(2)))
    assert "transforms" not in wrapped and wrapped["inner"].get("transforms") == expected


def test_resources_that_workers_cannot_share_are_named(tmp_path):
    data = Pictures()
    assert "held" not in describe_dataset(data)
    with (tmp_path / "index").open("w") as data.file:
        facts = describe_dataset(Subset(data, range(2)))
        assert facts["inner"]["held"] == ["io.TextIOWrapper"]
    on_device = TensorDataset(torch.zeros(2, device="meta"))
    assert describe_dataset(on_device)["held"] == ["a tensor on meta"]


def test_tensors_are_described_by_shape():
    facts = describe_dataset(TensorDataset(torch.zeros(8, 3), torch.zeros(8, dtype=torch.int64)))
    assert facts["tensors"] == ["float32[8, 3]", "int64[8]"]


def test_of_a_long_concatenation_a_few_parts_are_described():
    facts = describe_dataset(ConcatDataset([Pictures() for _ in range(1000)]))
    assert len(facts["parts"]) < 10 and facts["parts_count"] == 1000


def test_transforms_of_the_users_inside_known_ones_stay_unasked():
    chain = transforms.Compose([transforms.RandomApply([Own()]), transforms.RandomCrop(8)])
    facts = describe_dataset(Pictures(transform=chain))
    assert facts["transforms"] == ["RandomApply", "RandomCrop"]
    assert facts["transform_settings"][0] is None and "8" in facts["transform_settings"][1]


def test_what_a_signal_handler_of_the_jobs_raises_meanwhile_is_the_jobs():
    class Late(Exception):
        pass

    def late(number, frame):
        raise Late

    class Pausing(Pictures):
        def __len__(self):
            signal.raise_signal(signal.SIGUSR1)
            return 1

    before = signal.signal(signal.SIGUSR1, late)
    try:
        with pytest.raises(Late):
            describe_dataset(Pausing())
    finally:
        signal.signal(signal.SIGUSR1, before)


class Rows:
    def __init__(self, **rows: Any) -> None:
        vars(self).update(rows)

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"x": torch.zeros(4, 3), "y": np.zeros(4), "names": list("abcd")}, ["x", "y"]),
        ({"x": torch.zeros(3, 4), "mean": torch.zeros(())}, []),
        ({"x": torch.zeros(4, 3, device="meta")}, []),
        ({"x": np.memmap(__file__, mode="r", shape=(4,))}, []),
    ],
    ids=["rows of each sample", "other shapes", "on a device", "a file"],
)
def test_arrays_with_a_row_for_each_sample_are_named(rows: dict[str, Any], expected: list[str]) -> None:
    assert describe_dataset(Rows(**rows)).get("arrays", []) == expected


def test_the_tensors_of_a_tensor_dataset_are_rows_of_each_sample() -> None:
    data = torch.utils.data.TensorDataset(torch.zeros(4, 2), torch.zeros(4))
    assert describe_dataset(data)["arrays"] == ["tensors"]
    assert "arrays" not in describe_dataset(torch.utils.data.Subset(data, [0, 1]))


class Mapping:
    """The rows of an indices mapping, as `datasets` keeps them."""

    num_rows = 3

    def fast_slice(self, at: int, _length: int) -> Mapping:
        assert at < self.num_rows
        return self

    def column(self, _number: int) -> list[Mapping]:
        return [self]

    def as_py(self) -> int:
        return 0


class Mapped(Pictures):
    def __init__(self, indices: Any, form: str | None = None) -> None:
        super().__init__()
        self._indices, self._format_type = indices, form


@pytest.mark.parametrize(
    "wrap",
    [lambda data: data, lambda data: Rows(ds=data), lambda data: Subset(data, [0]), lambda data: ConcatDataset([data])],
)
def test_a_look_up_in_an_indices_mapping_is_timed(monkeypatch: pytest.MonkeyPatch, wrap: Any) -> None:
    library_class(monkeypatch, Mapped, "datasets.arrow_dataset")
    library_class(monkeypatch, Mapping, "datasets.table")
    described = describe_dataset(wrap(Mapped(Mapping())))
    inside = described.get("inner") or next(iter(described.get("parts", ())), described)
    assert 0 < inside["lookup_ns"] < 1e9 and inside["format"] == "python"


def test_without_a_mapping_of_the_librarys_own_no_look_up_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "lookup_ns" not in describe_dataset(Mapped(Mapping()))
    library_class(monkeypatch, Mapped, "datasets.arrow_dataset")
    plain = describe_dataset(Mapped(None, "torch"))
    assert plain["format"] == "torch" and "lookup_ns" not in plain
    assert "lookup_ns" not in describe_dataset(Mapped(Mapping()))  # its class is the user's
    library_class(monkeypatch, Mapping, "datasets.table")
    monkeypatch.delattr(Mapping, "fast_slice")
    assert "lookup_ns" not in describe_dataset(Mapped(Mapping()))


class FloatArray:
    """A part of a table as Arrow shows it: equally long lists, or numbers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]


class ListArray(FloatArray):
    def flatten(self) -> FloatArray:
        inner = (self.shape[0] * self.shape[1], *self.shape[2:])
        return ListArray(inner) if len(inner) > 1 else FloatArray(inner)


class StringArray(FloatArray):
    pass


class Arrow:
    """Rows whose lists grow from row to row."""

    column_names = ("sound", "ids", "label", "text")

    def __init__(self, row: int = 0) -> None:
        self.row, self.num_rows = row, 8

    def fast_slice(self, row: int, _length: int) -> Arrow:
        return Arrow(row)

    def column(self, name: str) -> Arrow:
        assert name in self.column_names
        self.name = name
        return self

    def chunk(self, _number: int) -> FloatArray:
        n = self.row + 1
        shapes = {"sound": (1, n, 2, 3), "ids": (1, n)}
        if self.name in shapes:
            return ListArray(shapes[self.name])
        return (Int64Array if self.name == "label" else StringArray)((1,))


class Int64Array(FloatArray):
    pass


def columns_of(chosen: Any = None, *, table: Any = None) -> Any:
    data = Mapped(None)
    data._data, data._format_columns = Arrow() if table is None else table, chosen
    described = describe_dataset(data)
    return (described["columns"], described["other_columns"]) if "columns" in described else None


def test_columns_of_lists_are_measured_by_the_lengths_in_a_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    library_class(monkeypatch, Mapped, "datasets.arrow_dataset")
    assert columns_of() is None, "its table is the user's"
    library_class(monkeypatch, Arrow, "datasets.table")
    # rows 0, 2, 4 and 6: 1, 3, 5 and 7 lists of two lists of three numbers
    sound, ids = {"name": "sound", "lists": 4.0 + 8.0, "numbers": 24.0}, {"name": "ids", "lists": 0.0, "numbers": 4.0}
    assert columns_of() == ([sound, ids], 1), "text is none of numbers"
    assert columns_of(["ids", "label"]) == ([ids], 0)
    assert columns_of(["text"]) is None
    assert columns_of(["gone"]) is None


def test_an_empty_table_has_no_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    library_class(monkeypatch, Mapped, "datasets.arrow_dataset")
    library_class(monkeypatch, Arrow, "datasets.table")
    empty = Arrow()
    empty.num_rows = 0
    assert columns_of(table=empty) is None


def test_large_lists_and_dicts_of_objects_are_named() -> None:
    records = [{"file": f"{n:06}.jpg", "label": n} for n in range(10_000)]
    assert objects(records=records, again=records, few=records[1:]) == [("records", "list", 10_000, "dict")]
    assert objects(by_name={f"{n:06}": n for n in range(20_000)}) == [("by_name", "dict", 20_000, "int")]
    assert objects(rows=np.zeros((20_000, 4)), column=torch.zeros(20_000)) == []


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("x" * 51, 95, 105),
        (b"x" * 100_000, 4096, 4096),
        (7, 0, 0),
        (True, 0, 0),
        ({"a": "x" * 51, "b": 1000}, 250, 420),
    ],
    ids=["a string", "a large one, of which a page is written", "a number that Python keeps", "a constant", "a dict"],
)
def test_what_reading_writes_to_is_estimated(value: Any, least: int, most: int) -> None:
    (described,) = describe_dataset(Rows(held=[value] * 10_000))["objects"]
    assert least * 10_000 <= described["bytes"] <= most * 10_000


def test_the_size_of_a_users_object_is_not_asked_for() -> None:
    class Sized:
        def __sizeof__(self) -> int:
            raise AssertionError("the user's code was run")

    (described,) = describe_dataset(Rows(held=[Sized()] * 10_000))["objects"]
    assert described["bytes"] == 640_000


@pytest.mark.parametrize(
    ("shards", "strategy", "among"),
    [(1, "auto", 2), (3, "auto", 2), (4, "auto", None), (1, "shards", None), (4, "examples", 2), (1, None, 2)],
)
def test_a_stream_whose_samples_are_divided_and_not_its_shards(
    monkeypatch: pytest.MonkeyPatch, shards: int, strategy: str | None, among: int | None
) -> None:
    class Examples:
        num_shards = shards

    class Stream:
        def __init__(self) -> None:
            self._ex_iterable = Examples()
            self._distributed = SimpleNamespace(rank=0, world_size=2)
            if strategy is not None:  # older versions have none
                self._distributed.strategy = strategy

    assert "divided_among" not in describe_dataset(Stream())  # a class of the user's
    Stream.__module__ = "datasets.iterable_dataset"
    assert describe_dataset(Stream()).get("divided_among") == among
    monkeypatch.setattr(Examples, "num_shards", property(lambda self: 1 / 0))
    assert "divided_among" not in describe_dataset(Stream())
