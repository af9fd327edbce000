"""The parts that make a sample: found without running the job's code, named alike in every worker."""

from __future__ import annotations

import functools
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank.workers import sample_parts
from rn50_advisor.probes.rank.workers.sample_parts import (
    LOAD,
    PARTS_MAX,
    REST,
    TRANSFORM,
    Names,
    containers,
    datasets,
    described,
    is_sequential,
    makes_samples,
    own,
    steps_of,
    transform_files,
)


def crop(picture: Any) -> Any:
    return picture


class Blur:
    def __call__(self, picture: Any) -> Any:
        return picture

    def method(self, picture: Any) -> Any:
        return picture


class Derived(Blur):
    pass


class Pictures:
    def __init__(self, **own: Any) -> None:
        self.__dict__.update(own)

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("data was touched")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the job's code ran")


class IterableDataset:
    def __iter__(self) -> Any:
        raise AssertionError("data was touched")


class Stream(IterableDataset):
    pass


class Compose:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, picture: Any) -> Any:
        return picture


class Slots:
    __slots__ = ("dataset",)


def line_of(function: Any) -> int:
    return int(function.__code__.co_firstlineno)


@pytest.mark.parametrize(
    ("item", "kind", "name", "line"),
    [
        (crop, TRANSFORM, "crop", line_of(crop)),
        (functools.partial(crop, 1), TRANSFORM, "crop", line_of(crop)),
        (functools.partial(functools.partial(crop)), LOAD, "crop", line_of(crop)),
        (Blur().method, TRANSFORM, "Blur.method", line_of(Blur.method)),
        (Blur(), TRANSFORM, "Blur", line_of(Blur.__call__)),
        (Derived(), TRANSFORM, "Derived", line_of(Blur.__call__)),
        (Pictures, REST, "Pictures.__getitem__", line_of(Pictures.__getitem__)),
        (Stream, REST, "Stream.__iter__", line_of(IterableDataset.__iter__)),
    ],
)
def test_a_part_of_the_users_own_has_a_name_and_a_line(item: Any, kind: str, name: str, line: int) -> None:
    assert described(item, kind) == (name, __file__, line)


@pytest.mark.parametrize(
    ("item", "name"), [(len, "len"), (json.dumps, "dumps"), (json.JSONDecoder(), "JSONDecoder"), (object(), "object")]
)
def test_a_part_of_a_library_has_a_name_alone(item: Any, name: str) -> None:
    assert described(item, TRANSFORM) == (name, "", 0)


def test_a_part_has_one_number_in_all_workers_and_its_name_is_one_file(tmp_path: Path) -> None:
    first, second = Names(str(tmp_path)), Names(str(tmp_path))
    number = first.number(crop, TRANSFORM)
    assert number > 0
    assert number == first.number(crop, TRANSFORM) == second.number(functools.partial(crop), TRANSFORM)
    assert first.number(crop, LOAD) != number
    names = sorted((json.loads(file.read_text()) for file in tmp_path.iterdir()), key=lambda part: part["kind"])
    assert names == [
        {"kind": LOAD, "name": "crop", "file": __file__, "line": line_of(crop)},
        {"kind": TRANSFORM, "name": "crop", "file": __file__, "line": line_of(crop)},
    ]


def test_where_no_name_can_be_kept_a_part_has_no_number(tmp_path: Path) -> None:
    assert Names(str(tmp_path / "gone")).number(crop, TRANSFORM) == 0


def test_parts_are_numbered_up_to_a_bound(tmp_path: Path) -> None:
    names = Names(str(tmp_path))
    made = [eval(compile(f"lambda x: {n}", f"file{n}.py", "eval")) for n in range(PARTS_MAX + 5)]
    numbers = [names.number(function, TRANSFORM) for function in made]
    assert all(numbers[:PARTS_MAX])
    assert numbers[PARTS_MAX:] == [0] * 5
    assert names.number(made[0], TRANSFORM) == numbers[0]


def test_an_objects_own_attributes_are_read_without_its_code() -> None:
    pictures = Pictures(root="x")
    assert own(pictures) == {"root": "x"}
    assert own(Slots()) == own(7) == {}


def test_data_sets_are_found_inside_each_other() -> None:
    inner, other = Pictures(), Pictures()
    whole = Pictures(datasets=[Pictures(dataset=inner), other, inner])
    assert datasets(whole) == [whole, whole.__dict__["datasets"][0], other, inner]
    circle = Pictures()
    circle.__dict__["dataset"] = circle
    assert datasets(circle) == [circle]
    assert len(datasets(Pictures(datasets=[Pictures() for _ in range(500)]))) == 16


class Wrapper:
    """As torch's Subset: it has no line of the user's."""

    __getitem__ = len

    def __init__(self, **own: Any) -> None:
        self.__dict__.update(own)


def test_the_innermost_data_set_makes_the_samples_unless_a_wrapper_of_the_users_does() -> None:
    inner = Pictures()
    assert makes_samples(inner) is inner
    assert makes_samples(Wrapper(dataset=inner)) is inner
    assert makes_samples(Wrapper(datasets=[Wrapper(dataset=inner), Pictures()])) is inner
    users = Pictures(dataset=inner)
    assert makes_samples(Wrapper(dataset=users)) is users


def test_containers_of_transforms_are_found_also_inside_each_other() -> None:
    nested = Compose(Blur())
    outer = Compose(crop, nested)
    kept = Pictures(transform=outer, views={"global": Compose(Blur())})
    assert containers([kept]) == [outer, kept.__dict__["views"]["global"], nested]
    assert containers([Pictures(transform=Blur(), root="x", numbers=[1, 2])]) == []


@pytest.mark.parametrize(
    ("item", "steps"),
    [
        (Compose(), None),
        (Compose(7), None),
        (Compose(*[crop] * 101), None),
        (object(), None),
        (Compose(crop, len), [crop, len]),
    ],
)
def test_only_a_list_of_what_can_be_called_is_a_list_of_steps(item: Any, steps: Any) -> None:
    assert steps_of(item) == steps


@pytest.mark.torch
def test_a_sequential_of_torch_is_a_container() -> None:
    from torch import nn

    layers = [nn.Identity(), nn.ReLU()]
    assert steps_of(nn.Sequential(*layers)) == layers
    assert is_sequential(nn.Sequential()) and not is_sequential(nn.ReLU())
    assert not is_sequential(Compose(crop))


class Lazy(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise AssertionError("a lazy module was asked")


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Names of files by module: of the classes, of the package, of neither, and modules that must not be read."""
    transforms = pytest.importorskip("torchvision.transforms")
    monkeypatch.setattr(sample_parts, "_FILES_MAX", 10_000)  # modules of other tests have torchvision, too
    files = {name: str(tmp_path / f"{name}.py") for name in ("presets", "data", "model", "lazy", "compiled")}
    for name, file in files.items():
        module = Lazy(name) if name == "lazy" else types.ModuleType(name)
        vars(module)["__file__"] = file.replace(".py", ".so") if name == "compiled" else file
        monkeypatch.setitem(sys.modules, f"job_{name}", module)
    vars(sys.modules["job_presets"])["GaussianBlur"] = transforms.GaussianBlur
    for name in ("data", "lazy", "compiled"):
        vars(sys.modules[f"job_{name}"])["T"] = transforms
    monkeypatch.setitem(sys.modules, "job_odd", object())
    yield files


@pytest.mark.torch
def test_modules_with_the_class_come_before_those_with_its_package(modules: dict[str, str]) -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    found = [file for file in transform_files([transforms.GaussianBlur(3)]) if file in modules.values()]
    assert found == [modules["presets"], modules["data"]]


@pytest.mark.torch
def test_own_transforms_and_functions_need_no_file(modules: dict[str, str]) -> None:
    class Own:
        __module__ = "__main__"

    assert transform_files([Own(), len]) == [] and transform_files([]) == []


@pytest.mark.torch
def test_a_dataset_names_them(modules: dict[str, str]) -> None:
    transforms = pytest.importorskip("torchvision.transforms")

    class Pictures:
        transform = transforms.Compose([transforms.GaussianBlur(3)])

        def __len__(self) -> int:
            return 3

    from rn50_advisor.probes.rank.facts.dataset_facts import describe_dataset  # imports torch

    assert modules["presets"] in describe_dataset(Pictures())["transform_files"]
