"""Where the job ran: hosts and GPUs as last seen, and what is known of the job."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import report_samples as samples
from nodes import two_nodes, with_host_samples
from recordings import plan
from rn50_advisor.advisor.merge.merging import merge
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.model.report import GpuStrip, HostStrip, NodeStrip, Report
from rn50_advisor.advisor.report import html, markdown, render, surroundings, text
from rn50_advisor.advisor.verdict.diagnose import diagnose


@pytest.fixture(scope="module")
def report() -> Report:
    first, second = two_nodes({rank: plan(40, forward=60 if rank == 3 else 30) for rank in range(4)})
    first = with_host_samples(first, cpu__allowed_cores=64, cpu__cores=64, cpu__busy_s=3)
    second = with_host_samples(second, cpu__allowed_cores=8, cpu__cores=8, cpu__busy_s=7)
    return diagnose(merge([first, second]))


@pytest.mark.parametrize("how", ["text", "markdown", "html"])
def test_every_report_names_the_hosts_their_ranks_and_how_well_clocks_are_known(report: Report, how: str) -> None:
    text = render(report, {"markdown": "md"}.get(how, how))
    for words in ("0–1", "2–3", "by gradient exchanges", "±", "rank 3 on b"):
        assert words in text, words


def test_a_finding_says_on_which_host_its_rank_is(report: Report) -> None:
    assert "rank 3, host b" in render(report, "text")


def test_a_lost_host_is_shown_with_the_time(report: Report) -> None:
    lost = replace(report, nodes=(*report.nodes[:1], replace(report.nodes[1], lost_after_s=75.0)))
    assert "no data since 1m 15s" in " ".join(render(lost, "text").split())


def test_json_holds_the_hosts_and_reads_back(report: Report) -> None:
    document = json.loads(render(report, "json"))
    assert [(node["host"], node["ranks"]) for node in document["nodes"]] == [("a", [0, 1]), ("b", [2, 3])]
    assert [rank["host"] for rank in document["ranks"]] == ["a", "a", "b", "b"]
    back = from_json(document)
    assert isinstance(back.nodes[1], NodeStrip) and back.nodes[1].strip is not None
    assert back.nodes == report.nodes


def test_a_report_of_an_older_advisor_has_no_hosts(report: Report) -> None:
    document = json.loads(render(report, "json"))
    del document["nodes"]
    for rank in document["ranks"]:
        del rank["host"]
    assert from_json(document).nodes == ()


def test_of_many_hosts_the_lost_and_the_late_are_listed(report: Report) -> None:
    many = [NodeStrip(f"n{number}", (10 + number,)) for number in range(50)]
    many[40] = replace(many[40], lost_after_s=3.0)
    text = " ".join(render(replace(report, nodes=(*many, *report.nodes)), "text").split())
    assert "n40 ranks 50" in text and "by gradient exchanges" in text
    assert "36 more hosts, in the JSON report" in text
    assert "n49" not in text


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render])
def test_a_gpu_that_counts_its_work_shows_it_beside_the_resident_kernel(render) -> None:
    report = samples.bottleneck()
    uncounted = " ".join(render(report).split())
    counted = replace(report.gpus[0], sm_active_pct=62.0, tensor_active_pct=41.0, pcie_gen=5.0, pcie_width=16.0)
    known = " ".join(render(replace(report, gpus=(counted,))).split())
    assert "62 %, 41 %" in known and "gen 5 x16" in known
    assert "62 %" not in uncounted and "gen 5" not in uncounted


def test_of_a_host_only_measured_values_are_shown() -> None:
    strip = HostStrip(
        "a", cores=16, allowed_cores=8, busy_cores=2.5, job_cores=2.0, steal_pct=0.0, disk_read_mb_s=1.004
    )
    assert surroundings.host(strip) == [
        ("busy", "2.50 of 16 cores"),
        ("this job", "2 of 8 allowed cores"),
        ("CPU steal", "0 %"),
        ("disk reads", "1 MB/s"),
    ]
    assert surroundings.host(HostStrip("a", cores=16)) == []


def test_of_a_gpu_what_was_not_measured_is_a_dash() -> None:
    assert {text for _, text in surroundings.gpu(GpuStrip(0, ""))} == {"–"}
    values = dict(surroundings.gpu(replace(samples.gpu(1), instances="1g.10gb: 3.0 GiB", trouble="throttled 60 %")))
    assert values["memory"] == "61.2 GiB of 79.6 GiB (1g.10gb: 3.0 GiB)" and values["power"] == "613 of 700 W"
    assert values["noticed"] == "throttled 60 %" and values["temperature"] == "61 °C" and values["PCIe"] == "–"


@pytest.mark.parametrize(
    ("strip", "word"), [(GpuStrip(3, ""), "GPU 3"), (GpuStrip(9, "", place="node1, 1"), "GPU 9 (node1, 1)")]
)
def test_a_gpu_of_several_hosts_is_shown_with_its_host(strip: GpuStrip, word: str) -> None:
    assert surroundings.gpu_word(strip) == word


@pytest.mark.parametrize(
    ("facts", "pairs"),
    [
        ({}, []),
        ({"a": {"b": {"c": 1}}}, [("a.b.c", "1")]),
        ({"a": None, "b": [], "c": {}, "d": ""}, [("a", "–"), ("b", "–"), ("c", "–"), ("d", "–")]),
        ({"a": [1, "b", 2.5]}, [("a", "1, b, 2.5")]),
        ({"a": [{"ä": 1}], "b": True, "c": 0}, [("a", '[{"ä": 1}]'), ("b", "true"), ("c", "0")]),
    ],
)
def test_facts_become_dotted_names_and_short_values(facts: dict[str, Any], pairs: list[tuple[str, str]]) -> None:
    assert list(surroundings.flat(facts)) == pairs


def test_what_has_a_place_of_its_own_is_not_among_the_facts() -> None:
    facts = {"storage": {"location": "/data"}, "torch": "2.8", "0": {"loaders": [{"line": 1}]}}
    report = replace(samples.healthy(), environment={"started": 1.0, "kernel": "6.1", "cores": 8}, facts=facts)
    names = dict(surroundings.pairs(report, beside=("cores",)))
    assert names["kernel"] == "6.1" and names["job.torch"] == "2.8"
    assert not {"started", "cores", "job.storage.location"} & set(names) and not any("loaders" in n for n in names)


def test_a_table_of_gpus_leaves_out_what_none_of_them_has() -> None:
    one, two = samples.gpu(0), replace(samples.gpu(1), trouble="throttled 60 %")
    labels, rows = surroundings.gpu_table([replace(one, sm_active_pct=None), replace(one, sm_active_pct=None)])
    assert "memory" in labels and not {"SM, Tensor Core active", "noticed"} & set(labels)
    assert [len(row) for row in rows] == [len(labels)] * 2
    labels, rows = surroundings.gpu_table([one, two])
    assert [row[labels.index("noticed")] for row in rows] == ["–", "throttled 60 %"]
