"""Reports of a job on several hosts, grouped by them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nodes import two_nodes, with_host_samples
from recordings import plan
from rn50_advisor.advisor.merge.merging import merge
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.model.report import NodeStrip, Report
from rn50_advisor.advisor.report import render
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
    for words in ("0–1", "2–3", "by exchanges of gradients", "±", "rank 3 on b"):
        assert words in text, words


def test_a_finding_says_on_which_host_its_rank_is(report: Report) -> None:
    assert "rank 3, host b" in render(report, "text")


def test_a_lost_host_is_told_with_the_moment(report: Report) -> None:
    lost = replace(report, nodes=(*report.nodes[:1], replace(report.nodes[1], lost_after_s=75.0)))
    assert "not heard of since 1m 15s" in " ".join(render(lost, "text").split())


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
    assert "n40 ranks 50" in text and "by exchanges of gradients" in text
    assert "36 more hosts, in the JSON report" in text
    assert "n49" not in text
