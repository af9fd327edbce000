"""Arrays in chunks that a data set keeps open, with the real libraries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rn50_advisor.probes.rank.workers import chunked_arrays
from rn50_advisor.probes.rank.workers.chunked_arrays import note_chunked_arrays

h5py = pytest.importorskip("h5py")
CHUNKED = {"name": "images", "rows": 64, "chunk": [16, 4, 4], "packed": True, "itemsize": 2}


class Items:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    with h5py.File(tmp_path / "items.h5", "w") as file:
        file.create_dataset("images", data=np.zeros((64, 4, 4), "i2"), chunks=(16, 4, 4), compression="gzip")
        file.create_dataset("labels", data=np.zeros(64, "i2"))
        yield file


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[dict[str, Any]]]:
    written: dict[str, str] = {}
    monkeypatch.setattr(chunked_arrays.rank_ring_folder, "put", lambda folder, name, text: written.update({name: text}))

    def note(dataset: Any) -> list[dict[str, Any]]:
        note_chunked_arrays(str(tmp_path), dataset)
        assert all(name.startswith("chunked-") for name in written)
        return [json.loads(text) for text in written.values()]

    return note


def test_an_open_array_and_those_of_an_open_file(opened: Any, noted: Callable[[Any], list[dict[str, Any]]]) -> None:
    """An array that lies in one piece has no chunks."""
    assert noted(Items(file=opened)) == noted(Items(image=opened["images"])) == [CHUNKED]
    assert noted(Items(dataset=Items(image=opened["images"]))) == [CHUNKED], "inside a Subset"


def test_links_into_other_files_are_not_followed(tmp_path: Path, noted: Callable[[Any], list[dict[str, Any]]]) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other.create_dataset("images", data=np.zeros((64, 4), "i2"), chunks=(16, 4))
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file["images"] = h5py.ExternalLink("other.h5", "images")
        assert noted(Items(file=file)) == []


def test_an_array_of_zarr(tmp_path: Path, noted: Callable[[Any], list[dict[str, Any]]]) -> None:
    zarr = pytest.importorskip("zarr")
    path = str(tmp_path / "items.zarr")
    array = zarr.open(path, mode="w", shape=(64, 4), chunks=(16, 4), dtype="i2")
    (found,) = noted(Items(array=array))
    assert (found["rows"], found["chunk"], found["itemsize"]) == (64, [16, 4], 2)


def test_other_objects_are_not_asked(noted: Callable[[Any], list[dict[str, Any]]]) -> None:
    class Odd:
        chunks, shape = (4,), (8,)

        @property
        def name(self) -> str:
            raise AssertionError("asked")

    assert noted(Items(odd=Odd(), rows=[1, 2], path="items.h5")) == []
    assert noted(7) == []


def test_an_array_that_cannot_be_asked_any_more_harms_nothing(
    opened: Any, noted: Callable[[Any], list[dict[str, Any]]]
) -> None:
    images = opened["images"]
    opened.close()
    assert noted(Items(image=images, file=opened)) == []
