"""All patches of torch are tried, and the facts name those that fail."""

from __future__ import annotations

import types
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch as real_torch

from rn50_advisor.probes.rank.patches import torch_patches
from rn50_advisor.probes.rank.recorder import Recorder


def test_a_patch_without_its_target_is_recorded_and_prevents_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a torch whose modules have other names."""
    for name in [name for name in vars(torch_patches) if name.startswith(("patch_", "mark_"))]:
        monkeypatch.setattr(torch_patches, name, lambda torch, recorder: torch.missing)
    saved = []
    torch: Any = SimpleNamespace(save=lambda obj, f: saved.append(f), serialization=SimpleNamespace())
    torch.save.__module__ = "torch.serialization"
    recorder: Any = SimpleNamespace(active=False, facts=SimpleNamespace(values={}), save_end=None, fsync_end=None)
    monkeypatch.setattr(torch_patches, "os", types.SimpleNamespace(fsync=len))
    wrapped = torch_patches.apply(torch, recorder)
    missing = [entry.partition(":")[0] for entry in recorder.facts.values["unpatched"]]
    assert {"loader", "backward", "optimizer", "ddp"} <= set(missing) and not {"save", "fsync"} & set(missing)
    assert torch.save in wrapped
    torch.save(1, "model.pt")
    assert saved == ["model.pt"]


def test_an_evaluation_ends_in_a_forked_process_too(tmp_path: Path) -> None:
    class Module:
        def train(self, mode: bool = True) -> Any:
            return self

        def eval(self) -> Any:
            return self.train(False)

    torch: Any = SimpleNamespace(is_grad_enabled=lambda: True, nn=SimpleNamespace(Module=Module))
    recorder = Recorder(torch, str(tmp_path))
    ended: list[Any] = []
    recorder.evaluation_ends = ended.append  # type: ignore[method-assign]
    torch_patches._evaluation(torch, recorder)
    recorder.forget()
    model = Module()
    recorder.evaluations.model = weakref.ref(model)
    model.eval()
    model.train()
    assert ended == [True]


@pytest.mark.parametrize("switch", ["eval", "train", "eval of its own"])
def test_the_outermost_switch_to_eval_mode_begins_an_evaluation(tmp_path: Path, switch: str) -> None:
    class Own(real_torch.nn.Sequential):  # like the models of transformers
        def eval(self) -> Any:
            return self.train(False)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(real_torch.nn.Module, "train", real_torch.nn.Module.train)
        recorder = Recorder(real_torch, str(tmp_path))
        begun: list[Any] = []
        recorder.evaluation_begins = begun.append  # type: ignore[method-assign]
        torch_patches._evaluation(real_torch, recorder)
        model = (Own if switch == "eval of its own" else real_torch.nn.Sequential)(
            real_torch.nn.Linear(2, 2), real_torch.nn.ReLU()
        )
        switched = model.train(False) if switch == "train" else model.eval()
        assert begun == [model] and switched is model and not model[0].training
        model.train()
        model[0].train(mode=False)
        assert begun == [model, model[0]], "whose model it is, evaluations tell"
