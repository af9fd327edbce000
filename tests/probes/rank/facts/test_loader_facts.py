"""Facts of a DataLoader and its data set: many, by name, and without running any of the user's code."""

from __future__ import annotations

import functools
import gc
import json
import signal
import weakref
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torchvision.transforms")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from rn50_advisor.probes.rank.facts import loader_facts  # noqa: E402
from rn50_advisor.probes.rank.facts.loader_facts import (  # noqa: E402
    batch_bytes,
    batch_tensors,
    describe_dataset,
    describe_loader,
    own,
)
from rn50_advisor.probes.rank.recorder import Recorder  # noqa: E402
from rn50_advisor.probes.rank.workers.batch_size import count_samples  # noqa: E402

pytestmark = pytest.mark.torch


class Pictures(Dataset):
    def __init__(self, root="pictures", length=10, transform=None):
        self.root, self.length, self.transform = root, length, transform

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        raise AssertionError("data was touched")


class Stream(IterableDataset):
    def __iter__(self):
        raise AssertionError("data was touched")


class Own:
    """A transform of the user's, whose repr must stay unasked."""

    def __call__(self, picture):
        return picture

    def __repr__(self):
        raise AssertionError("the user's repr was run")


def first_words(worker):
    pass


def collate(batch):
    raise AssertionError("data was touched")


def test_all_arguments_that_matter_are_described():
    loader = DataLoader(
        Pictures(),
        batch_size=4,
        shuffle=True,
        num_workers=2,
        collate_fn=collate,
        drop_last=True,
        timeout=30,
        worker_init_fn=first_words,
        multiprocessing_context="spawn",
        generator=torch.Generator(),
        prefetch_factor=3,
        persistent_workers=True,
        in_order=False,
    )
    facts = describe_loader(loader)
    expected = {
        "class": "DataLoader",
        "batch_size": 4,
        "shuffle": True,
        "num_workers": 2,
        "collate": "collate",
        "drop_last": True,
        "timeout": 30,
        "worker_init": "first_words",
        "context": "spawn",
        "generator": True,
        "prefetch_factor": 3,
        "persistent_workers": True,
        "in_order": False,
        "sampler": "RandomSampler",
        "batch_sampler": None,
    }
    assert {name: facts[name] for name in expected} == expected
    assert facts["dataset"]["length"] == 10
    json.dumps(facts)


@pytest.mark.parametrize(
    ("given", "expected"), [(np.int64(2), 2), (np.uint8(0), 0), (np.array(3), 3), (np.float64(2.0), None)]
)
def test_numbers_of_numpy_are_described_as_whole_numbers(given, expected):
    loader = DataLoader(Pictures())
    loader.__dict__["num_workers"] = given
    seen = describe_loader(loader)["num_workers"]
    assert seen == expected
    assert type(seen) is type(expected)


def test_an_index_method_of_the_users_is_not_called():
    class Count:
        def __index__(self):
            raise AssertionError("the user's code ran")

    loader = DataLoader(Pictures())
    loader.__dict__["num_workers"] = Count()
    assert describe_loader(loader)["num_workers"] is None


def test_the_place_is_the_call_of_the_users():
    facts = describe_loader(DataLoader(Pictures()))
    assert Path(facts["file"]).name == Path(__file__).name
    assert "DataLoader(Pictures())" in Path(__file__).read_text().splitlines()[facts["line"] - 1]
    assert "through" not in facts


def test_a_package_between_the_user_and_the_loader_is_named(tmp_path):
    code = compile("def make(describe):\n    return describe(None)\n", "/env/site-packages/pack/factory.py", "exec")
    scope = {"__name__": "pack.factory"}
    exec(code, scope)
    facts = scope["make"](describe_loader)
    assert facts["through"] == "pack.factory.make"
    assert Path(facts["file"]).name == Path(__file__).name


@pytest.mark.parametrize(
    ("sampler", "shuffles"),
    [
        (RandomSampler, True),
        (lambda data: DistributedSampler(data, num_replicas=2, rank=0), True),
        (lambda data: DistributedSampler(data, num_replicas=2, rank=0, shuffle=False), False),
        (lambda data: list(range(10)), None),
        (lambda data: None, False),
    ],
)
def test_whether_the_order_is_shuffled_is_read_off_the_sampler(sampler, shuffles):
    data = Pictures()
    assert describe_loader(DataLoader(data, sampler=sampler(data)))["shuffle"] is shuffles


def test_a_batch_sampler_of_the_users_is_named():
    class Buckets(BatchSampler):
        pass

    data = Pictures()
    facts = describe_loader(DataLoader(data, batch_sampler=Buckets(RandomSampler(data), 4, False)))
    assert facts["batch_sampler"].endswith("Buckets") and facts["batch_size"] is None


class Shard(BatchSampler):
    """As accelerate's, around another batch sampler; nobody may ask how long it is."""

    def __init__(self, inner):
        self.batch_sampler = inner

    def __len__(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("drawn", "sampler", "shuffles"),
    [
        (lambda data: BatchSampler(RandomSampler(data), 4, False), "RandomSampler", True),
        (lambda data: Shard(BatchSampler(RandomSampler(data), 4, False)), "RandomSampler", True),
        (lambda data: Shard(BatchSampler(SequentialSampler(data), 4, False)), "SequentialSampler", False),
        (lambda data: [[0, 1], [2, 3]], "list", None),
    ],
)
def test_the_order_of_a_batch_sampler_is_that_of_what_draws_for_it(drawn, sampler, shuffles):
    data = Pictures()
    facts = describe_loader(DataLoader(data, batch_sampler=drawn(data)))
    assert (facts["sampler"], facts["shuffle"]) == (sampler, shuffles)


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

    clock = iter(range(0, 10**12, loader_facts._SLOW_NS + 1))
    monkeypatch.setattr(loader_facts, "perf_counter_ns", lambda: next(clock))
    monkeypatch.setattr(loader_facts, "_slow_lengths", set())
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


def chain(*sizes):
    return transforms.Compose([*(transforms.RandomCrop(size) for size in sizes), Own()])


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


def test_no_property_and_no_getattr_of_the_users_runs():
    class Lazy(Pictures):
        @property
        def data_dir(self):
            raise AssertionError("a property was run")

        def __getattr__(self, name):
            raise AssertionError(f"__getattr__({name!r}) was run")

    lazy = Lazy()
    del lazy.__dict__["root"]
    assert "root" not in describe_dataset(lazy)
    assert own(lazy, "data_dir") is None


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


def test_nothing_is_kept_alive():
    loader = DataLoader(Pictures(transform=transforms.RandomCrop(24)))
    facts, dead = describe_loader(loader), weakref.ref(loader.dataset)
    del loader
    gc.collect()
    assert dead() is None and facts["dataset"]["length"] == 10


def test_the_bytes_of_a_batch_are_those_of_its_tensors():
    batch = [torch.zeros(4, 3, 8, 8), {"label": torch.zeros(4, dtype=torch.int64), "names": ["a"] * 4}]
    assert batch_bytes(batch) == 4 * 3 * 8 * 8 * 4 + 4 * 8
    assert batch_bytes("text") == 0


def test_the_tensors_of_a_batch_are_counted_as_deep_as_detection_nests_them():
    targets = [{"boxes": torch.zeros(3, 4), "labels": torch.zeros(3), "file": "a.jpg"} for _ in range(5)]
    assert batch_tensors((torch.zeros(5, 3, 8, 8), targets)) == 11
    assert batch_tensors(torch.zeros(3)) == 1 and batch_tensors([1, "text", None]) == 0


def test_the_line_of_the_users_collate_function_is_described():
    def at(**more):
        facts = describe_loader(DataLoader(Pictures(), **more))
        return facts.get("collate_file"), facts.get("collate_line")

    line = collate.__code__.co_firstlineno
    assert at(collate_fn=collate) == (__file__, line) == at(collate_fn=functools.partial(collate))
    assert at() == (None, None), "torch's own"


def test_of_a_long_concatenation_a_few_parts_are_described():
    facts = describe_dataset(ConcatDataset([Pictures() for _ in range(1000)]))
    assert len(facts["parts"]) < 10 and facts["parts_count"] == 1000


def test_how_often_a_loader_was_made_is_counted_and_its_first_batch_weighed(tmp_path):
    recorder = Recorder(torch, str(tmp_path))
    account = recorder.own_account()
    tensors = TensorDataset(torch.zeros(8, 3))
    training = DataLoader(tensors, batch_size=4)
    recorder.loading.loaders.add(training)
    for _ in range(3):
        recorder.loading.loaders.add(DataLoader(Pictures()))
    recorder.loading.fetch_end((account, False, recorder.loading.loaders.numbers.get(training)), [torch.zeros(4, 3)])
    recorder.loading.fetch_end((account, False, recorder.loading.loaders.numbers.get(training)), [torch.zeros(1, 3)])
    facts = recorder.loading.loaders.facts(account)
    assert [(loader["made"], loader["batch_bytes"]) for loader in facts] == [(1, 48), (3, None)]
    assert [loader["batch_tensors"] for loader in facts] == [1, None]


def test_samples_are_counted_by_the_samplers_batch_where_the_loader_was_given_none(tmp_path):
    sampler = BatchSampler(SequentialSampler(range(10)), batch_size=2, drop_last=True)
    loader = DataLoader(Pictures(), batch_sampler=sampler)
    facts = describe_loader(loader)
    assert (facts["batch_size"], facts["sampler_batch_size"]) == (None, 2)
    recorder = Recorder(torch, str(tmp_path))
    recorder.loading.loaders.add(loader)
    pictures, targets = (torch.zeros(3, 5, 7), torch.zeros(3, 6, 8)), ({}, {})  # as detection collates them
    assert count_samples((pictures, targets), recorder.loading.loaders.batch_size(0)) == 2


def test_a_tensor_without_byte_count_counts_none():
    sparse = torch.eye(3).to_sparse()
    assert batch_bytes([sparse, torch.zeros(4)]) == 16


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


def test_a_loader_that_a_library_makes_anew_keeps_the_line_of_the_one_it_was_given(tmp_path):
    recorder = Recorder(torch, str(tmp_path))
    text = "made = DataLoader(given.dataset, batch_size=7); record(made)"
    code = compile(text, "/env/site-packages/accelerate/data_loader.py", "exec")
    for data, kept in ((Pictures(), True), ([1, 2], False)):  # a list has no weak reference
        given = DataLoader(data)
        recorder.loading.loaders.add(given)
        names = {"__name__": "accelerate.data_loader", "DataLoader": DataLoader, "record": recorder.loading.loaders.add}
        names["given"] = given
        exec(code, names)
        first, anew = (
            recorder.loading.loaders.described[recorder.loading.loaders.numbers.get(loader)]
            for loader in (given, names["made"])
        )
        assert (anew["batch_size"], first["batch_size"]) == (7, 1)
        assert (anew["line"] == first["line"]) is kept and ("through" in anew) is not kept
    assert recorder.errors == 0


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


def library_class(monkeypatch: pytest.MonkeyPatch, cls: type, name: str) -> type:
    monkeypatch.setattr(cls, "__module__", name)
    return cls


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


def objects(**held: Any) -> list[tuple[str, str, int, str]]:
    return [(o["name"], o["kind"], o["length"], o["of"]) for o in describe_dataset(Rows(**held)).get("objects", [])]


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
