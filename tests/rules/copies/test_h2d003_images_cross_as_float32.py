"""H2D003, images cross as float32: its table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_rule_cases import on_gpus
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, loader
from rule_table import Table
from table_checks import Check, checks

LINK_MB_PER_S = {3: 12_000.0, 4: 26_000.0, 5: 52_000.0}


IMAGES = {
    "class": "torchvision.datasets.folder.ImageFolder",
    "transforms": ["RandomResizedCrop", "ToTensor", "Normalize"],
}


def h2d003(share: float = 0.10, gen: int | None = 4, **more: Any) -> Analysis:
    """Images of bytes whose copy takes `share` of a step of one second; an unknown link counts as PCIe 5."""
    mb = share * LINK_MB_PER_S[gen or 5]
    values = {} if gen is None else {"gpu.pcie_gen": {0: gen, 1: gen}, "gpu.pcie_width": {0: 16, 1: 16}}
    made = on_gpus(values, ranks={"copy.float_pictures_mb": {0: mb, 1: more.pop("rank_1_mb", mb)}}, **more)
    return replace(made, loaders=tuple(loader(n, 4, dataset=IMAGES) for n in (0, 1)))


TABLE = Table(
    "H2D003",
    h2d003,
    lines={"copy": ({"share": 0.02}, {"share": 0.0199})},
    false_alarms={
        "pictures that are no bytes any more, or are sent as bytes": {"share": 0.0},
        "one rank alone": {"share": 0.0, "rank_1_mb": 2600.0},
    },
    severities=(
        ({"share": 0.41}, "high"),
        ({"share": 0.14}, "medium"),
        ({"share": 0.13}, "low"),
    ),
    where=Where(SCRIPT, 42),
    best=({"share": 0.2}, 1 / 0.85),
    also_fires={"an unknown link": {"gen": None}, "an old link": {"gen": 3}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)
