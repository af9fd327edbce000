"""Facts of a DataLoader and its data set: many, by name, and without running any of the user's code."""

from __future__ import annotations

import functools
import gc
import json
import weakref
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torchvision.transforms")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from rn50_advisor.probes.rank.facts.dataset_facts import describe_dataset, own  # noqa: E402
from rn50_advisor.probes.rank.facts.loader_facts import describe_loader  # noqa: E402
from rn50_advisor.probes.rank.recorder import Recorder  # noqa: E402
from rn50_advisor.probes.rank.workers.batch_size import count_samples  # noqa: E402
from untouched_data import Pictures  # noqa: E402

pytestmark = pytest.mark.torch


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


def test_nothing_is_kept_alive():
    loader = DataLoader(Pictures(transform=transforms.RandomCrop(24)))
    facts, dead = describe_loader(loader), weakref.ref(loader.dataset)
    del loader
    gc.collect()
    assert dead() is None and facts["dataset"]["length"] == 10


def test_the_line_of_the_users_collate_function_is_described():
    def at(**more):
        facts = describe_loader(DataLoader(Pictures(), **more))
        return facts.get("collate_file"), facts.get("collate_line")

    line = collate.__code__.co_firstlineno
    assert at(collate_fn=collate) == (__file__, line) == at(collate_fn=functools.partial(collate))
    assert at() == (None, None), "torch's own"


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
