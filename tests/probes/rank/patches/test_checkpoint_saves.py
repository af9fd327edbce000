"""Checkpoints that other libraries than torch write are labelled as such."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.patches import torch_patches
from rn50_advisor.probes.rank.recorder import Recorder
from rn50_advisor.probes.rank.step_phases import GAP
from step_loops import Paper


def test_a_librarys_checkpoint_is_one_and_what_it_saves_inside_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(SimpleNamespace(is_grad_enabled=lambda: True), str(tmp_path))
    account: Any = recorder.own_account()
    account.ring, account.phase = Paper(), GAP
    save = torch_patches._around(recorder, str.upper, recorder.save_begin, recorder.save_end)
    library = SimpleNamespace(save_file=save)
    monkeypatch.setitem(sys.modules, "their.library", library)  # type: ignore[arg-type]
    torch_patches.save_of_library(recorder, "their.library", "save_file")
    assert library.save_file("x") == "X"
    assert [label for label, _ in account.ring.spans] == ["checkpoint"] and account.phase == GAP
    [site] = recorder.saves.facts()
    assert (site["count"], site["file"]) == (1, __file__)
    assert site["caller"] == (__file__, "test_a_librarys_checkpoint_is_one_and_what_it_saves_inside_is_part_of_it")
