"""Profiling the making of a batch: each part has its name, and the job's objects, order, errors and random numbers stay unchanged."""

from __future__ import annotations

import copy
import json
import pickle
import random
import signal
import traceback
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pytest

from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.probes.rank.layout import (
    BATCH_FIELDS,
    KIND_BATCH,
    KIND_PART,
    KIND_PROFILED,
    PART_FIELDS,
    PROFILED_FIELDS,
)
from rn50_advisor.probes.rank.workers.sample_parts import Names

torch = pytest.importorskip("torch", reason="torch not installed: pip install '.[train]'")
pytestmark = pytest.mark.torch

from time import perf_counter_ns, thread_time_ns  # noqa: E402

from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher  # noqa: E402

from rn50_advisor.probes.rank.ring import Ring  # noqa: E402
from rn50_advisor.probes.rank.steps.step_account import Account  # noqa: E402
from rn50_advisor.probes.rank.workers.sample_profiles import (  # noqa: E402
    BUDGET,
    FIRST_EVERY_NS,
    LAST_EVERY_NS,
    BatchProfile,
    ProfileSchedule,
)
from rn50_advisor.probes.rank.workers.worker_batches import (  # noqa: E402
    InProcess,
    WorkerLog,
    timed_fetch,
)

BATCH = [3, 1, 2, 0]


def burn(ms: float) -> None:
    end_ns = thread_time_ns() + ms * 1e6
    while thread_time_ns() < end_ns:
        pass


class Short:
    def __call__(self, x: Any) -> Any:
        return x


class Long:
    def __call__(self, x: Any) -> Any:
        burn(3)
        return x


class Failing:
    def __call__(self, x: Any) -> Any:
        raise ValueError(f"cannot transform {x}")


class Chain:
    def __init__(self, *steps: Any, kind: Callable[[Any], Any] = list) -> None:
        self.transforms = kind(steps)

    def __call__(self, x: Any) -> Any:
        for step in self.transforms:
            x = step(x)
        return x


class Shrinking(Chain):
    """A container that changes its own list while it is walked."""

    def __call__(self, x: Any) -> Any:
        x = super().__call__(x)
        self.transforms.append(Short())
        return x


class Numbers(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        return self.transform(index)


class Together(Numbers):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        assert type(indices) is list
        return [self[index] for index in indices]


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __iter__(self) -> Any:
        return (self.transform(n) for n in range(4))


def collate(batch: list[Any]) -> Any:
    burn(2)
    return torch.tensor(batch)


def profile_batch(
    folder: Path, dataset: Any, *, fetcher: Any = _MapDatasetFetcher
) -> tuple[Any, dict[str, int], dict[str, float]]:
    """The batch, the profile's record, and CPU milliseconds by the parts' names."""
    ring = Ring(str(folder / "worker-1.ring"), slots=64, role=2)
    profile = BatchProfile(Names(str(folder)), dataset, BATCH, 7)
    profile.begin()
    began = perf_counter_ns()
    batch = fetcher(dataset, True, collate, False).fetch(profile.index)
    profile.finish(ring, began, len(BATCH), batch, worker=0, loader=5)
    rows = RingReader(folder / "worker-1.ring").drain().rows
    [(_, values)] = rows[KIND_PROFILED]
    parts = [dict(zip(PART_FIELDS, part, strict=True)) for _, part in rows[KIND_PART]]
    named = {part["part"]: json.loads((folder / f"part-{part['part']}.json").read_text())["name"] for part in parts}
    return batch, dict(zip(PROFILED_FIELDS, values, strict=True)), {named[p["part"]]: p["cpu_ns"] / 1e6 for p in parts}


CHAINS = {
    "list": lambda: Chain(Short(), Long()),
    "tuple": lambda: Chain(Short(), Long(), kind=tuple),
    "nested": lambda: Chain(Short(), Chain(Long())),
    "sequential": lambda: torch.nn.Sequential(*map(Module, (Short(), Long()))),
    "single": Long,
}


class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)


@pytest.mark.parametrize("style", CHAINS)
def test_the_long_transform_is_named_and_the_order_is_kept(tmp_path: Path, style: str) -> None:
    transform = CHAINS[style]()
    classes = {owner: dict(vars(owner)) for owner in (type(transform), Chain, Numbers, torch.nn.Sequential)}
    held = [id(step) for step in getattr(transform, "transforms", ())]
    batch, profile, parts = profile_batch(tmp_path, Numbers(transform))
    assert batch.tolist() == BATCH
    name = "Module" if style == "sequential" else "Long"
    assert max(parts, key=lambda part: parts[part]) == name and parts[name] >= 3
    assert (profile["loader"], profile["samples"], profile["covered"]) == (5, 4, 1)
    assert profile["collate_cpu_ns"] >= 2e6 and profile["batch_bytes"] == 32
    assert {owner: dict(vars(owner)) for owner in classes} == classes
    assert held == [id(step) for step in getattr(transform, "transforms", ())]


@pytest.mark.parametrize(
    "wrap", [lambda d: torch.utils.data.Subset(d, range(50)), lambda d: torch.utils.data.ConcatDataset([d, d])]
)
def test_transforms_are_found_in_data_sets_inside_data_sets(tmp_path: Path, wrap: Callable[[Any], Any]) -> None:
    batch, profile, parts = profile_batch(tmp_path, wrap(Numbers(Chain(Short(), Long()))))
    assert batch.tolist() == BATCH and profile["covered"] == 1
    assert set(parts) == {"Numbers.__getitem__", "Short", "Long"}


def test_a_data_set_that_makes_its_batch_at_once_is_profiled_as_a_whole(tmp_path: Path) -> None:
    batch, profile, parts = profile_batch(tmp_path, Together(Chain(Short(), Long())))
    assert batch.tolist() == BATCH
    assert (profile["covered"], profile["collate_ns"]) == (4, -1) and parts["Long"] >= 12


def test_a_stream_is_profiled(tmp_path: Path) -> None:
    batch, profile, parts = profile_batch(tmp_path, Stream(Chain(Short(), Long())), fetcher=_IterableDatasetFetcher)
    assert batch.tolist() == [0, 1, 2, 3] and profile["covered"] == 1
    assert parts["Long"] >= 3 and "Stream.__iter__" in parts


def test_a_stream_that_makes_batches_itself_makes_as_many_samples_as_they_hold(tmp_path: Path) -> None:
    dataset, log = Stream(lambda n: (torch.full((16, 2), n), n)), WorkerLog(str(tmp_path), 1, 0, 0)
    fetcher = _IterableDatasetFetcher(dataset, False, lambda batch: batch, False)
    fetch = timed_fetch(_IterableDatasetFetcher.fetch, log, pytest.fail)
    for _ in range(2):
        fetch(fetcher, None)
    rows = RingReader(tmp_path / "worker-1.ring").drain().rows
    assert [payload[BATCH_FIELDS.index("samples")] for _, payload in rows[KIND_BATCH]] == [16, 16]
    [(_, values)] = rows[KIND_PROFILED]
    profile = dict(zip(PROFILED_FIELDS, values, strict=True))
    assert (profile["samples"], profile["covered"]) == (16, 16), "they cannot be separated"


def test_the_users_own_transform_is_described_with_its_place(tmp_path: Path) -> None:
    profile_batch(tmp_path, Numbers(Chain(Long(), burn_nothing)))
    described = {part["name"]: part for part in (json.loads(path.read_text()) for path in tmp_path.glob("part-*.json"))}
    lines = Path(__file__).read_text().splitlines()
    assert described["Long"]["file"] == described["burn_nothing"]["file"] == __file__
    assert lines[described["Long"]["line"] - 1].strip().startswith("def __call__")
    assert lines[described["burn_nothing"]["line"] - 1].startswith("def burn_nothing")


def burn_nothing(x: Any) -> Any:
    return x


@pytest.mark.parametrize("style", ["list", "tuple", "nested", "single"])
def test_a_failing_transform_shows_the_traceback_it_would_have_shown(tmp_path: Path, style: str) -> None:
    failing = {
        "list": Chain(Short(), Failing()),
        "tuple": Chain(Failing(), kind=tuple),
        "nested": Chain(Chain(Failing())),
        "single": Failing(),
    }
    dataset = Numbers(failing[style])
    before = {owner: dict(vars(owner)) for owner in (Chain, Failing)}
    profile = BatchProfile(Names(str(tmp_path)), dataset, [9], 0)
    texts = []
    for index in ([9], profile.index):
        try:
            _MapDatasetFetcher(dataset, True, collate, False).fetch(index)
        except ValueError:
            texts.append(traceback.format_exc())
    profile.abandon()
    assert texts[0] == texts[1] and "cannot transform 9" in texts[0]
    assert {owner: dict(vars(owner)) for owner in before} == before


def test_a_container_that_changes_its_own_list_has_changed_it(tmp_path: Path) -> None:
    transform = Shrinking(Short())
    profile_batch(tmp_path, Numbers(transform))
    assert len(transform.transforms) == 1 + len(BATCH) and type(transform.transforms) is list


class Curious:
    """A step that reads its own container."""

    def __init__(self) -> None:
        self.chain: Any = None
        self.seen: list[Any] = []

    def __call__(self, x: Any) -> Any:
        copied, pickled = copy.deepcopy(self.chain.transforms[:1]), pickle.loads(pickle.dumps(self.chain.transforms))
        self.seen.append(
            (type(copied), type(pickled), isinstance(self.chain.transforms, list), "transforms" in vars(self.chain))
        )
        return x


def test_a_step_that_copies_its_container_gets_plain_lists(tmp_path: Path) -> None:
    curious = Curious()
    curious.chain = Chain(Short(), Short())
    profile_batch(tmp_path, Numbers(Chain(curious)))
    assert set(curious.seen) == {(list, list, True, True)}


def test_profiles_are_rare_and_rarer_in_long_jobs(tmp_path: Path) -> None:
    schedule, dataset, times = ProfileSchedule(str(tmp_path)), Numbers(Short()), []
    for now in range(0, 3_600_000_000_000, 20_000_000):
        if schedule.due(now):
            schedule.start(now, dataset, BATCH)
            times.append(now)
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps[0] == FIRST_EVERY_NS and gaps[-1] == LAST_EVERY_NS and gaps == sorted(gaps)
    assert len(times) < 1200


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("allowed", "took_ms", "apart_ms"),
    [
        pytest.param(None, 0.2, [100, 100, 100], id="a usual profile is far within the usual budget"),
        pytest.param(None, 10, [1000, 500, 500], id="dear ones are as seldom as they must, the first two pay for two"),
        pytest.param("0.1", 10, [200, 100, 100], id="the user allows more"),
        pytest.param("0.001", 10, [20_000, 10_000, 10_000], id="or less, beyond the interval in long jobs"),
        pytest.param("much", 10, [1000, 500, 500], id="nobody knows what"),
    ],
)
def test_profiles_keep_within_the_budget(
    tmp_path: Path, allowed: str | None, took_ms: float, apart_ms: list[int]
) -> None:
    if allowed is not None:
        (tmp_path / BUDGET).write_text(allowed)
    schedule, dataset, times = ProfileSchedule(str(tmp_path)), Numbers(Short()), []
    for now in range(SECOND, 60 * SECOND, 20_000_000):
        if schedule.due(now) and len(times) < 4:
            times.append(now)
            schedule.start(now, dataset, BATCH)
            schedule.add_cost(round(took_ms * 1e6))
    assert [(b - a) / 1e6 for a, b in pairwise(times)] == apart_ms


def test_the_time_of_marks_between_parts_is_the_profiles_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = Names.number

    def slow(self: Names, item: Any, kind: str) -> int:
        burn(5)
        return number(self, item, kind)

    monkeypatch.setattr(Names, "number", slow)
    _, profile, parts = profile_batch(tmp_path, Numbers(Chain(Short(), Short())))
    assert profile["self_ns"] >= 15e6, "the rest and two steps were named"
    assert sum(parts.values()) < 5


def test_loading_in_the_training_process_is_recorded_without_the_profiles_own_time(tmp_path: Path) -> None:
    account = Account(thread=0)
    account.ring = Ring(str(tmp_path / "rank-1.ring"), slots=64, role=1)
    account.unconsumed = (3, 0, 0, 0, 0)
    clock, dataset = InProcess(account, str(tmp_path), lambda: None), Numbers(Chain(Short(), Short()))
    profile = clock.next_profile(dataset, BATCH)
    began = clock.begin()
    assert profile is not None and clock.next_profile(dataset, BATCH) is None
    profile.begin()
    batch = _MapDatasetFetcher(dataset, True, collate, False).fetch(profile.index)
    clock.end(began, len(BATCH))
    before = account.fetching.wall_ns, account.fetching.cpu_ns
    clock.write_profile(profile, began, len(BATCH), batch)
    assert profile.self_ns > 0
    assert (
        account.fetching.wall_ns == before[0] - profile.self_ns
        and account.fetching.cpu_ns == before[1] - profile.self_ns
    )
    [(_, values)] = RingReader(tmp_path / "rank-1.ring").drain().rows[KIND_PROFILED]
    row = dict(zip(PROFILED_FIELDS, values, strict=True))
    assert (row["worker"], row["loader"], row["self_ns"]) == (-1, 3, profile.self_ns)


@pytest.mark.parametrize(
    "picture",
    [
        numpy.zeros((40, 60, 3), numpy.uint8),
        torch.zeros(3, 40, 60),
        torch.zeros(40, 60),
        (torch.zeros(3, 40, 60), 7),
        {"image": numpy.zeros((40, 60, 3)), "label": 7},
    ],
)
def test_the_size_of_a_picture_is_read_before_its_first_transform(tmp_path: Path, picture: Any) -> None:
    class Pictures(Numbers):
        def __getitem__(self, index: int) -> Any:
            self.transform(picture)
            return index

    _, profile, _ = profile_batch(tmp_path, Pictures(Chain(Short())))
    assert (profile["width"], profile["height"]) == (60, 40)


def test_functions_written_in_c_have_their_own_names(tmp_path: Path) -> None:
    _, _, parts = profile_batch(tmp_path, Numbers(Chain(abs, torch.tensor, int)))
    assert {"abs", "tensor", "int"} <= set(parts)


class Picky(Chain):
    """Looks for a step first, and breaks that walk off; then walks all, and works on by itself."""

    def __call__(self, x: Any) -> Any:
        assert any(isinstance(step, Short) for step in self.transforms)
        x = super().__call__(x)
        burn(5)
        return x


def test_a_walk_that_is_broken_off_claims_nothing_of_what_follows(tmp_path: Path) -> None:
    _, _, parts = profile_batch(tmp_path, Numbers(Picky(Short(), Long())))
    assert parts["Long"] >= 3 and parts["Numbers.__getitem__"] >= 5
    assert max(parts, key=lambda part: parts[part]) == "Numbers.__getitem__"


class Touchy(torch.Tensor):  # type: ignore[misc, name-defined]
    """A tensor whose shape is the job's own code."""

    @property
    def shape(self) -> Any:
        raise RuntimeError("not yet computed")


def test_a_picture_that_cannot_be_asked_for_its_size_is_nothing_to_the_job(tmp_path: Path) -> None:
    class Pictures(Numbers):
        def __getitem__(self, index: int) -> Any:
            self.transform(torch.zeros(3, 40, 60).as_subclass(Touchy))
            return index

    batch, profile, _ = profile_batch(tmp_path, Pictures(Chain(Short())))
    assert batch.tolist() == BATCH and (profile["width"], profile["height"]) == (-1, -1)


class Shuffling(Chain):
    """Puts its own list in another order, and then walks it."""

    def __call__(self, x: Any) -> Any:
        random.shuffle(self.transforms)
        return super().__call__(x)


def noting(name: str, done: list[str]) -> Callable[[Any], Any]:
    return lambda x: done.append(name) or x  # type: ignore[func-returns-value]


def test_a_container_that_shuffles_its_list_does_its_steps_in_that_order(tmp_path: Path) -> None:
    results = []
    for watched in (False, True):
        random.seed(1)
        done: list[str] = []
        steps = [noting(name, done) for name in "abcdef"]
        transform = Shuffling(*steps)
        if watched:
            profile_batch(tmp_path, Numbers(transform))
        else:
            _MapDatasetFetcher(Numbers(transform), True, collate, False).fetch(BATCH)
        results.append(("".join(done), [steps.index(step) for step in transform.transforms]))
    assert results[0] == results[1]


def test_a_list_changed_by_another_name_is_changed(tmp_path: Path) -> None:
    class Twice(Chain):
        def __call__(self, x: Any) -> Any:
            steps = list(self.transforms)
            self.same.clear()
            self.same.extend(reversed(steps))
            for step in self.same:
                x = step(x)
            return x

    transform = Twice(abs, int)
    transform.same = transform.transforms  # type: ignore[attr-defined]
    profile_batch(tmp_path, Numbers(transform))
    assert transform.transforms == [abs, int] and type(transform.transforms) is list, "four times turned round"


class Handed(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """A wrapper that passes on what it does not know to the data set inside."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def __getitem__(self, index: Any) -> Any:
        assert type(index) is list
        return [self.inner[each] for each in index]


@pytest.mark.parametrize("batched", [True, False])
def test_indices_that_are_the_data_sets_own_business_are_the_jobs(tmp_path: Path, batched: bool) -> None:
    dataset = Handed(Together(Chain(Short()))) if batched else Handed([5, 6, 7, 8])
    fetcher, log = _MapDatasetFetcher(dataset, batched, collate, False), WorkerLog(str(tmp_path), 1, 0, 0)
    failures: list[str] = []
    fetch = timed_fetch(_MapDatasetFetcher.fetch, log, lambda: failures.append("failed"))
    batches = [fetch(fetcher, BATCH).tolist() for _ in range(2)]
    assert batches[0] == batches[1] and not failures
    assert KIND_PROFILED in RingReader(tmp_path / "worker-1.ring").drain().rows, "the second one was profiled"


def test_a_list_of_indices_that_is_kept_is_a_list_like_any_other(tmp_path: Path) -> None:
    dataset, before = Numbers(Chain(Short())), dict(vars(Chain))
    profile = BatchProfile(Names(str(tmp_path)), dataset, BATCH, 0)
    kept = profile.index
    assert type(kept) is not list and type(pickle.loads(pickle.dumps(kept))) is list
    profile.abandon()
    for number, _ in enumerate(kept):
        assert dict(vars(Chain)) == before, number
        assert not profile.open


def test_a_transform_that_is_called_without_itself_stays_so(tmp_path: Path) -> None:
    class Static:
        @staticmethod
        def __call__(x: Any) -> Any:
            return x

    batch, _, _ = profile_batch(tmp_path, Numbers(Static()))
    assert batch.tolist() == BATCH


class Shard:
    pass


def test_what_a_stream_lets_go_of_is_gone(tmp_path: Path) -> None:
    gone: list[Any] = []

    class Shards(Stream):
        def __iter__(self) -> Any:
            for n in range(4):
                shard = Shard()
                gone.append(weakref.ref(shard))
                value = n
                for step in self.transform.transforms:
                    value = step(value)
                del shard
                gone[-1] = gone[-1]()
                yield value

    profile_batch(tmp_path, Shards(Chain(Short())), fetcher=_IterableDatasetFetcher)
    assert gone == [None] * 4


class Late(Exception):
    pass


def late(number: int, frame: Any) -> None:
    raise Late


class Pausing(torch.Tensor):  # type: ignore[misc, name-defined]
    @property
    def shape(self) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return super().shape


def test_an_exception_of_a_signal_handler_in_a_profiled_sample_reaches_the_job(tmp_path: Path) -> None:
    class Pictures(Numbers):
        def __getitem__(self, index: int) -> Any:
            self.transform(torch.zeros(3, 40, 60).as_subclass(Pausing))
            return index

    before = signal.signal(signal.SIGUSR1, late)
    try:
        with pytest.raises(Late):
            profile_batch(tmp_path, Pictures(Chain(Short())))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_stream_is_not_asked_for_what_its_fetcher_would_not_ask(tmp_path: Path) -> None:
    class Shy(Stream):
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    batch, profile, _ = profile_batch(tmp_path, Shy(Chain(Short())), fetcher=_IterableDatasetFetcher)
    assert batch.tolist() == [0, 1, 2, 3] and profile["covered"] == 1
