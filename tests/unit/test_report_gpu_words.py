"""GPUs and their connections in a line each."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.report.gpu_words import in_words

H100 = {"name": "NVIDIA H100", "pcie_gen_max": 5, "pcie_width_max": 16, "nvlinks": 18}


def pair(a: int, b: int, path: str, p2p: str = "OK") -> dict[str, Any]:
    return {"a": a, "b": b, "path": path, "p2p": p2p}


def test_gpus_of_one_kind_are_counted() -> None:
    told = in_words({"gpus": [H100, H100, {"name": "Tesla T4", "nvlinks": None}], "kernel": "6.1"})
    assert told == {"gpus": "2 × NVIDIA H100 (PCIe 5 x16, 18 NVLinks), 1 × Tesla T4", "kernel": "6.1"}


def test_mig_instances_are_counted() -> None:
    assert in_words({"gpus": [{"name": "A100", "mig_instances": [{}, {}]}]})["gpus"] == "1 × A100 (2 MIG instances)"


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ([pair(0, 1, "NV18"), pair(0, 2, "NV18"), pair(1, 2, "NV18")], "NV18 between all"),
        ([pair(0, 1, "PHB"), pair(2, 3, "PHB"), pair(0, 2, "SYS")], "PHB 0–1 2–3; SYS 0–2"),
        ([pair(0, 1, "PHB", "GNS")], "PHB between all; these GPUs refuse peer to peer: 0–1"),
        (
            [pair(0, n, "PIX") for n in range(1, 9)] + [pair(1, 2, "SYS")],
            "PIX 0–1 0–2 0–3 0–4 0–5 0–6 and 2 more; SYS 1–2",
        ),
    ],
)
def test_paths_are_grouped(paths: list[dict[str, Any]], words: str) -> None:
    assert in_words({"gpu_paths": paths})["gpu_paths"] == words


@pytest.mark.parametrize("odd", [None, [], "two", [1, 2], {"a": 1}])
def test_what_is_not_as_the_agent_writes_it_stays(odd: Any) -> None:
    assert in_words({"gpus": odd}) == {"gpus": odd}
