"""GPUs and their connections in a line each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from report_samples import bottleneck
from rn50_advisor.advisor.report import html, markdown, text
from rn50_advisor.advisor.report.gpu_words import in_words, path_matrix

H100 = {"name": "NVIDIA H100", "pcie_gen_max": 5, "pcie_width_max": 16, "nvlinks": 18}


def pair(a: int, b: int, path: str, p2p: str = "OK") -> dict[str, Any]:
    return {"a": a, "b": b, "path": path, "p2p": p2p}


def test_gpus_of_one_kind_are_counted() -> None:
    facts = in_words({"gpus": [H100, H100, {"name": "Tesla T4", "nvlinks": None}], "kernel": "6.1"})
    assert facts == {"gpus": "2 × NVIDIA H100 (PCIe 5 x16, 18 NVLinks), 1 × Tesla T4", "kernel": "6.1"}


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


PAIRS = [pair(0, 1, "NV4"), pair(0, 2, "PHB", "GNS"), pair(2, 1, "SYS")]


def test_ways_that_differ_are_a_matrix() -> None:
    made = path_matrix({"gpu_paths": PAIRS})
    assert made is not None
    assert (made.head, made.rows) == (
        ("GPU", "0", "1", "2"),
        (("0", "", "NV4", "PHB, GNS"), ("1", "NV4", "", "SYS"), ("2", "PHB, GNS", "SYS", "")),
    )
    assert made.notes == ("GNS: these GPUs refuse peer to peer",)


@pytest.mark.parametrize(
    "paths",
    [
        None,
        [pair(0, 1, "PHB")],
        [pair(a, b, "NV18") for a in range(8) for b in range(a)],  # three words say it
        [pair(a, b, "SYS" if b else "PIX") for a in range(17) for b in range(a)],  # too wide for a page
        [{"a": [0], "b": 1, "path": "PHB", "p2p": ["OK"]}, {"a": 0}],
    ],
)
def test_what_is_no_matrix_stays_words(paths: Any) -> None:
    assert path_matrix({"gpu_paths": paths}) is None


def test_html_and_markdown_show_the_matrix_in_place_of_the_words() -> None:
    report = replace(bottleneck(), environment={"gpu_paths": PAIRS})
    page, shown = html.render(report).split('type="application/json"')[0], markdown.render(report)
    assert "Between the GPUs" in page and "PHB, GNS" in page and "gpu_paths" not in page
    assert (
        "| 0 |  | NV4 | PHB, GNS |" in shown
        and "GNS: these GPUs refuse peer to peer." in shown
        and "gpu\\_paths" not in shown
    )
    alike = replace(report, environment={"gpu_paths": [pair(0, 1, "NV18")]})
    assert "NV18 between all" in html.render(alike) and "Between the GPUs" not in html.render(alike)
    assert "PHB 0–2" in text.render(report), "a terminal has no room for it"
