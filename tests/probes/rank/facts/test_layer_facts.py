"""What a layer or a model is made of."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch not installed: pip install '.[train]'")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from rn50_advisor.probes.rank.facts.layer_facts import describe_model, layout_of  # noqa: E402


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    )


def train(model: nn.Module, x: Any, dtype: Any = None) -> None:
    with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
        loss = model(x).sum()
    loss.backward()


def test_a_wrapper_is_named_and_its_model_described() -> None:
    inner = net()
    facts = describe_model(torch, nn.DataParallel(inner))
    assert (
        facts["wrapped"] == "DataParallel" and facts["class"].endswith("Sequential") and facts["layers"]["Conv2d"] == 1
    )


@pytest.mark.parametrize(
    ("settings", "uncached"), [({"use_cache": False}, True), ({"use_cache": None}, False), ({}, False)]
)
def test_a_model_that_generates_without_a_cache_says_so(settings: dict[str, Any], uncached: bool) -> None:
    model = net()
    assert describe_model(torch, model)["uncached"] is False
    model.generation_config = SimpleNamespace(**settings)
    assert describe_model(torch, nn.DataParallel(model))["uncached"] is uncached


def test_a_replica_has_the_parameters_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = sys.modules["torch.nn.parallel.replicate"]
    monkeypatch.setattr(module, "_get_device_index", lambda device, *given: device)
    monkeypatch.setattr(
        module, "_broadcast_coalesced_reshape", lambda tensors, *given, **named: [[t.clone() for t in tensors]]
    )

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
            self.other.weight = self.one.weight

    model = nn.Sequential(net(), Tied())
    (replica,) = module.replicate(model, [0])
    assert not list(replica.parameters())
    assert describe_model(torch, replica) == describe_model(torch, model)


def test_the_bytes_of_a_model_by_device_include_frozen_weights_and_buffers() -> None:
    model = nn.Sequential(nn.Linear(3, 5, bias=False), nn.BatchNorm1d(5), nn.Linear(2, 2, device="meta"))
    model[0].requires_grad_(requires_grad=False)
    assert describe_model(torch, model)["bytes"] == {"cpu": 4 * (15 + 10 + 10) + 8, "meta": 24}
    model[0].weight.to_local = lambda: None  # type: ignore[operator]
    assert describe_model(torch, model)["bytes"] == {}, "shards"


def test_layouts_that_coincide_are_either() -> None:
    assert layout_of(torch, torch.ones(2, 1, 4, 4)) == "either"
    assert layout_of(torch, torch.ones(2, 3, 4, 4)[:, :, ::2]) == "other"
    assert layout_of(torch, torch.ones(2, 3)) == ""
