"""Which known model a job trains, by the number and size of its parameters, and what a sample of it computes."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.peaks.known_models import known_model, known_models


@pytest.mark.parametrize(
    ("tensors", "parameters", "name"),
    [
        (161, 25_557_032, "resnet50"),
        (161, 23_528_522, "resnet50"),  # ten classes
        (161, 25_557_033, None),
        (161, 25_028_904, "resnext50_32x4d"),
        (62, 11_689_512, "resnet18"),
        (62, 11_181_642, "resnet18"),
        (38, 143_667_240, "vgg19"),
        (70, 143_678_248, "vgg19_bn"),
        (152, 86_567_656, "vit_b_16"),
        (3, 1000, None),
        (0, 0, None),
    ],
)
def test_a_model_is_known_by_its_parameters(tensors: int, parameters: int, name: str | None) -> None:
    found = known_model(tensors, parameters)
    assert (found.name if found else None) == name


def test_every_model_of_the_table_is_told_from_every_other() -> None:
    assert len(known_models()) > 30
    for model in known_models():
        assert known_model(model.tensors, model.parameters) == model
        assert model.gmac > model.fixed_gmac >= 0


def test_flops_of_training_a_sample() -> None:
    resnet50 = known_model(161, 25_557_032)
    assert resnet50.flops_per_sample(224, 224) == pytest.approx(24.5e9, rel=0.01)
    assert resnet50.flops_per_sample(448, 448) == pytest.approx(4 * 24.5e9, rel=0.01)
    assert resnet50.flops_per_sample(16, 16) is None
    assert known_model(152, 86_567_656).flops_per_sample(256, 256) is None


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "size"), [("resnet18", 224), ("resnet18", 32), ("vgg19", 32), ("mobilenet_v3_small", 96)]
)
def test_the_table_agrees_with_torchs_own_counter(name: str, size: int) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from torchvision.models import get_model

    with torch.device("meta"):
        net = get_model(name).eval()
    parameters = list(net.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(torch.empty(2, 3, size, size, device="meta"))
    known = known_model(len(parameters), sum(p.numel() for p in parameters))
    assert known.name == name
    assert known.flops_per_sample(size, size) == pytest.approx(3 * counter.get_total_flops() / 2, rel=0.02)
