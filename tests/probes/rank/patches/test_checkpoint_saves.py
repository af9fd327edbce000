"""Checkpoints that other libraries than torch write are labelled as such."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.patches import checkpoint_saves, torch_patches, wrappers
from rn50_advisor.probes.rank.patches.checkpoint_saves import sizes_of
from rn50_advisor.probes.rank.recorder import Recorder
from rn50_advisor.probes.rank.steps.step_phases import CHECKPOINT, FORWARD, GAP
from step_loops import Paper


def test_a_librarys_checkpoint_is_one_and_what_it_saves_inside_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(SimpleNamespace(is_grad_enabled=lambda: True), str(tmp_path))
    account: Any = recorder.own_account()
    account.ring, account.phase = Paper(), GAP
    save = wrappers.around(recorder, str.upper, recorder.save_begin, recorder.save_end)
    library = SimpleNamespace(save_file=save)
    monkeypatch.setitem(sys.modules, "their.library", library)  # type: ignore[arg-type]
    torch_patches.save_of_library(recorder, "their.library", "save_file")
    assert library.save_file("x") == "X"
    assert [label for label, _ in account.ring.spans] == ["checkpoint"] and account.phase == GAP
    [site] = recorder.saves.facts()
    assert (site["count"], site["file"]) == (1, __file__)
    assert site["caller"] == (__file__, "test_a_librarys_checkpoint_is_one_and_what_it_saves_inside_is_part_of_it")


def saved_to(file: Any, tmp_path: Path, then: Callable[[Any], None]) -> tuple[list[str], Any]:
    """Spans and account after a save to this object, and what the function does that made it."""
    recorder = Recorder(SimpleNamespace(is_grad_enabled=lambda: True), str(tmp_path))
    account: Any = recorder.own_account()
    account.ring, account.phase = Paper(), GAP
    save = torch_patches._saving(recorder, lambda state, f: None)

    def checkpoint() -> None:
        made = file()
        save({}, made)
        then(account)

    checkpoint()
    return [label for label, _ in account.ring.spans], account


def test_a_buffer_in_memory_is_written_by_the_function_that_made_it(tmp_path: Path) -> None:
    labels, account = saved_to(io.BytesIO, tmp_path, lambda account: time.sleep(0.02))
    assert labels == ["checkpoint", "checkpoint"]
    assert account.wall[CHECKPOINT] >= 20_000_000 > account.wall[GAP] and account.phase == GAP


def test_a_buffer_that_the_training_goes_on_with_is_no_part_of_the_checkpoint(tmp_path: Path) -> None:
    labels, account = saved_to(io.BytesIO, tmp_path, lambda account: account.enter(FORWARD))
    assert labels == ["checkpoint"] and account.phase == FORWARD


def test_a_buffer_that_another_thread_drops_is_no_part_of_the_checkpoint(tmp_path: Path) -> None:
    kept: list[Any] = []
    labels, _ = saved_to(lambda: kept.append(io.BytesIO()) or kept[0], tmp_path, lambda account: None)
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert labels == ["checkpoint"] and not kept


def test_a_name_is_no_file_that_is_closed(tmp_path: Path) -> None:
    assert saved_to(lambda: str(tmp_path / "c.pt"), tmp_path, lambda account: None)[0] == ["checkpoint"]


@pytest.mark.parametrize(("file", "labels"), [("distributed_c10d.py", []), ("checkpoint.py", ["checkpoint"])])
def test_tensors_that_a_collective_pickles_are_no_checkpoint(tmp_path: Path, file: str, labels: list[str]) -> None:
    recorder = Recorder(SimpleNamespace(is_grad_enabled=lambda: True), str(tmp_path))
    account: Any = recorder.own_account()
    account.ring, account.phase = Paper(), GAP
    names: dict[str, Any] = {"save": torch_patches._saving(recorder, lambda state, f: None)}
    exec(compile("def pickled(file):\n    save({}, file)", f"/env/torch/distributed/{file}", "exec"), names)
    names["pickled"]("kept.pt")
    assert [label for label, _ in account.ring.spans] == labels and account.phase == GAP


@pytest.mark.torch
def test_a_part_of_a_tensor_is_written_with_its_whole_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    panel, weight = torch.zeros(100, 10), torch.nn.Parameter(torch.zeros(5))
    assert sizes_of({"step": 3, "model": {"w": weight}, "warm": [panel[:, :2]]}) == (4020, 820)
    assert sizes_of((panel[:, :2], panel[:, 2:], panel[:, :2])) == (4000, 4000), "each part once, together the whole"
    assert sizes_of([panel, panel.T]) == (4000, 4000)
    assert sizes_of(torch.nn.Linear(2, 2)) == (0, 0), "how an object is pickled is its own business"
    monkeypatch.setattr(checkpoint_saves, "_ITEMS_MAX", 10)
    assert sizes_of(list(range(11))) == (0, 0)


@pytest.mark.torch
def test_a_list_that_contains_itself_is_left_alone() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert sizes_of(endless) == (0, 0)


@pytest.mark.torch
@pytest.mark.parametrize(("writes_storages", "sizes"), [(True, (4000, 4)), (False, (0, 0))])
def test_the_first_save_of_a_line_is_measured_if_it_writes_storages(
    tmp_path: Path, *, writes_storages: bool, sizes: tuple[int, int]
) -> None:
    import torch

    recorder = Recorder(SimpleNamespace(is_grad_enabled=lambda: True), str(tmp_path))
    account: Any = recorder.own_account()
    account.ring, account.phase = Paper(), GAP
    original: Any = torch.save if writes_storages else lambda saved, f: None
    save, part = torch_patches._saving(recorder, original), torch.zeros(100, 10)[:1]
    for size in (1, 2):
        save({"part": part[:, :size]}, io.BytesIO())
    (site,) = recorder.saves.facts()
    assert (site["count"], site["stored_bytes"], site["needed_bytes"]) == (2, *sizes)


@pytest.mark.torch
def test_a_large_list_is_not_copied_to_look_into_it() -> None:
    class Counted(dict):  # type: ignore[type-arg]
        def values(self) -> Any:
            raise AssertionError("the job's own method")

    assert sizes_of({"replay": [0] * (checkpoint_saves._ITEMS_MAX + 1)}) == (0, 0)
    assert sizes_of(Counted(a=1)) == (0, 0)
