"""A fleet: results found and read, baselines, and who is an outlier and by which component."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench_samples import A100, OPTIONS, measured, setting
from fleet_samples import SOUND, check, many, results_of, triage
from rn50_advisor.advisor.bench.conclude import conclude
from rn50_advisor.advisor.fleet.fleet_ranking import rank, unusual_from
from rn50_advisor.advisor.fleet.machine_readings import of_benchmark
from rn50_advisor.advisor.report import FORMATS
from rn50_advisor.advisor.report.fleets import render

HOSTILE = "</script><img src=x onerror=alert(1)>|\x1b[31m`*_@team"


def test_alike_machines_have_no_outlier_however_many_there_are() -> None:
    assert [many(200, seed=seed).outliers for seed in range(3)] == [()] * 3


def test_machines_that_differ_much_by_nature_have_none_either() -> None:
    """A tenth of noise: many are more than 5 % below the baseline, none is unusual."""
    assert sum(len(many(50, noise=0.1, seed=seed).outliers) for seed in range(10)) <= 1


@pytest.mark.parametrize(
    ("values", "component"),
    [
        ({"memory.copy_gb_per_s": 15.0}, "memory.copy_gb_per_s"),
        ({"disk.sync_ms": 3.0}, "disk.sync_ms"),
        ({"gpu.0.bf16_tflop_per_s": 245.0, "memory.copy_gb_per_s": 19.7}, "gpu.0.bf16_tflop_per_s"),
    ],
)
def test_an_outlier_is_named_with_the_component_that_deviates(values: dict[str, float], component: str) -> None:
    made = many(m7=values)
    [odd] = made.outliers
    assert odd is made.machines[0] and odd.name == "m7" and odd.worst == component
    assert [one.component for one in odd.deviations if one.outlier] == [component]
    assert odd.deviations[0].deviation is not None and odd.deviations[0].deviation < -0.05


def test_better_is_no_outlier() -> None:
    assert many(m7={"memory.copy_gb_per_s": 40.0, "disk.sync_ms": 0.2}).outliers == ()


def test_unusual_by_less_than_five_percent_is_no_outlier() -> None:
    made = many(100, noise=0.001, m7={"memory.copy_gb_per_s": 19.1})
    worst = made.machines[0]
    assert worst.name == "m7" and worst.score < -4 and not worst.outlier
    assert many(100, noise=0.001, m7={"memory.copy_gb_per_s": 18.9}).outliers


@pytest.mark.parametrize(("machines", "least", "most"), [(6, 11.0, 14.0), (20, 6.0, 7.5), (200, 4.0, 5.0)])
def test_the_fewer_machines_the_farther_an_outlier_must_be(machines: int, least: float, most: float) -> None:
    assert least < unusual_from(machines, 10 * machines) < most


def test_five_machines_are_too_few_and_six_are_enough() -> None:
    assert many(5, m3={"memory.copy_gb_per_s": 12.0}).outliers == ()
    assert many(6, m3={"memory.copy_gb_per_s": 12.0}).outliers


def test_several_bad_machines_do_not_hide_each_other() -> None:
    bad = {f"m{n}": {"memory.copy_gb_per_s": 12.0} for n in range(6)}
    assert {machine.name for machine in many(20, **bad).outliers} == set(bad)


def test_only_machines_of_one_kind_are_compared() -> None:
    slow = {name: value / 3 for name, (value, *_) in SOUND.items()}
    others = [triage(f"t{n}", slow, gpu="Tesla T4") for n in range(6)]
    made = rank(results_of(*(triage(f"a{n}") for n in range(6)), *others))
    assert made.outliers == () and {machine.group for machine in made.machines} == {"8 × A100-SXM", "8 × T4"}


def test_of_a_few_machines_none_is_called_an_outlier_but_they_are_ranked() -> None:
    made = rank(results_of(triage("own"), triage("cloud", {"memory.copy_gb_per_s": 12.0})))
    assert made.outliers == () and made.machines[0].name == "cloud"
    assert made.machines[0].deviations[0].deviation == pytest.approx(-0.4)
    assert "2 machines" in made.notes[0]


def test_facts_that_differ_from_the_others_are_shown_beside() -> None:
    documents = [triage(f"m{n}", **{"cpu.model": "EPYC 7R13", "cpu.cores_allowed": 96.0}) for n in range(9)]
    documents.append(
        triage("m9", {"memory.copy_gb_per_s": 12.0}, **{"cpu.model": "Xeon 8175M", "cpu.cores_allowed": 8.0})
    )
    [odd] = rank(results_of(*documents)).outliers
    assert {(d.name, d.value, d.usual) for d in odd.differences} == {
        ("cpu.model", "Xeon 8175M", "EPYC 7R13"),
        ("cpu.cores_allowed", "8", "96"),
    }
    assert all(not machine.differences for machine in rank(results_of(*documents)).machines if machine.name != "m9")


def test_results_of_one_host_are_one_machine() -> None:
    cells = [measured(setting("bf16", True, 256), 1500.0)]
    bench = of_benchmark(conclude(replace(A100, host="m0"), OPTIONS, cells, made_unix_s=5.0), "bench.json")
    [machine] = rank([*results_of(triage("m0", {"memory.copy_gb_per_s": 18.0}), triage("m0")), bench]).machines
    assert {one.kind for one in machine.results} == {"triage", "bench"} and len(machine.results) == 3
    by_name = {one.component: one.value for one in machine.deviations}
    assert by_name["memory.copy_gb_per_s"] == 19.0, "the median of two"
    assert by_name["resnet50 224 px, bf16, channels-last, batch 256, 1 device"] == 1500.0


def cloned(boot: str, **values: float) -> dict[str, Any]:
    return triage("localhost", values, **{"machine.boot_id": boot})


def test_machines_of_one_name_are_separated_by_their_boot() -> None:
    documents = [cloned(f"{n}0000000-aaaa") for n in range(8)] + [triage("localhost", **{"machine.boot_id": None})]
    documents.append(triage("localhost", {"memory.copy_gb_per_s": 5.0}, **{"machine.boot_id": "90000000-aaaa"}))
    made = rank(results_of(*documents))
    assert len(made.machines) == 10
    [odd] = made.outliers
    assert odd.name == "localhost (boot 90000000)" and odd.worst == "memory.copy_gb_per_s"
    assert len(rank(results_of(cloned("1"), cloned("1"), triage("localhost"))).machines) == 1


def started(boot: str, made_at: float, gpus: Sequence[str], **values: float) -> dict[str, Any]:
    """The triage of a machine with these GPUs."""
    document = triage("m0", values, **{"machine.boot_id": boot, "machine.made_at": made_at})
    document["checks"] += [check(f"gpu.{n}.uuid", uuid) for n, uuid in enumerate(gpus)]
    return document


LOST = [f"GPU-{n}" for n in range(7)]
OTHERS = [triage(f"other{n}") for n in range(9)]


@pytest.mark.parametrize("before", [True, False])
def test_a_machine_that_was_mended_and_restarted_is_as_its_last_boot_shows_it(before: bool) -> None:
    bad = started("1-a", 5.0 if before else 7.0, LOST, **{"memory.copy_gb_per_s": 5.0})
    bad["verdict"] = {"state": "hand-back", "reasons": ["GPU 7 is lost"]}
    bad["checks"] = [one for one in bad["checks"] if one["name"] != "gpu.7.name"]
    good = started("2-a", 6.0, [*LOST, "GPU-new"])
    for documents in ([good, bad], [bad, good]):
        made = rank(results_of(*documents, *OTHERS))
        assert len(made.machines) == 10
        assert [one.name for one in made.outliers] == ([] if before else ["m0"])
        [machine] = [one for one in made.machines if one.name == "m0"]
        assert machine.group == ("8 × A100-SXM" if before else "7 × A100-SXM") and len(machine.results) == 2


def test_boots_of_one_name_with_other_gpus_are_other_machines() -> None:
    bad = started("1-a", 5.0, ["GPU-a"], **{"memory.copy_gb_per_s": 5.0})
    again = started("3-a", 7.0, ["GPU-a"], **{"memory.copy_gb_per_s": 5.0})
    made = rank(results_of(bad, started("2-a", 6.0, ["GPU-b"]), again, started("4-a", 8.0, []), *OTHERS))
    assert [one.name for one in made.outliers] == ["m0 (boot 3-a)"] and len(made.machines) == 12


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_names_obey_nobody(format: str) -> None:
    made = rank(
        results_of(
            *(triage(f"m{n}{HOSTILE}", **{"cpu.model": HOSTILE}) for n in range(6)),
            triage(HOSTILE, {"memory.copy_gb_per_s": 1.0}),
        )
    )
    text = render(made, format)
    assert "\x1b" not in text
    assert "<img" not in text or format in ("text", "json"), "which are no markup"


def test_the_page_of_two_hundred_machines_stays_small_and_loads_nothing() -> None:
    page = render(many(200, m7={"memory.copy_gb_per_s": 12.0}), "html")
    assert len(page) < 400_000 and page.count("<tr") > 200
    assert "default-src 'none'" in page and not re.search(r"(src|href)=", page) and page.count("<script") == 1
    data = re.search(r'<script type="application/json" id="fleet-data">(.*?)</script>', page, re.S)
    assert data is not None and json.loads(data[1])["machines"][0]["name"] == "m7"


def test_text_names_outliers_first_and_the_worst_of_many() -> None:
    text = render(many(200, m7={"memory.copy_gb_per_s": 12.0}), "text")
    assert text.startswith("200 machines, 1 outlier\n")
    assert (
        "▼ m7 (8 × A100-SXM): memory.copy_gb_per_s 12 GB/s, 40 % worse than 20"
        in text.splitlines()[1] + text.splitlines()[2]
    )
    assert "160 more" in text and len(text.splitlines()) < 60


def of_eight_gpus(n: int, dice: random.Random) -> dict[str, Any]:
    """A triage as large as a real one: two hundred checks."""
    made = triage(f"node{n:03}", **{"cpu.model": "EPYC 7R13", "cpu.cores_seen": 96.0, "machine.made_at": 1e9 + n})
    for gpu in range(8):
        for name, unit, usual in (
            ("hbm_gb_per_s", "GB/s", 1600.0),
            ("h2d_pinned_gb_per_s", "GB/s", 25.0),
            ("d2h_pinned_gb_per_s", "GB/s", 25.0),
            ("h2d_pageable_gb_per_s", "GB/s", 8.0),
            ("d2h_pageable_gb_per_s", "GB/s", 8.0),
            ("matmul_bf16_tflop_per_s", "TFLOP/s", 250.0),
            ("matmul_fp16_tflop_per_s", "TFLOP/s", 250.0),
            ("matmul_tf32_tflop_per_s", "TFLOP/s", 120.0),
            ("matmul_fp32_tflop_per_s", "TFLOP/s", 18.0),
            ("sustained_tflop_per_s", "TFLOP/s", 240.0),
            ("sustained_clock_mhz", "MHz", 1300.0),
            *((f"to_{to}.p2p_gb_per_s", "GB/s", 240.0) for to in range(8) if to != gpu),
        ):
            made["checks"].append(check(f"gpu.{gpu}.{name}", usual * dice.gauss(1.0, 0.01), unit, lo=0.75 * usual))
        for name in ("uuid", "pci_bus_id", "near_cpus", "numa_node", "mig", "ecc", "paths"):
            made["checks"].append(check(f"gpu.{gpu}.{name}", f"{name} {n} {gpu}" if name == "uuid" else "0-47"))
    return made


@pytest.mark.parametrize("format", ["text", "json", "html"])
def test_four_times_as_many_machines_take_no_more_than_that_much_longer(format: str) -> None:
    """CPU time of 200 against 50, side by side: 4 times where each is looked at once, 16 where each is compared with each."""
    dice = random.Random(0)
    documents = [of_eight_gpus(n, dice) for n in range(200)]
    assert len(documents[0]["checks"]) > 200

    def spent_s(count: int) -> float:
        began = time.process_time()
        text = render(rank(results_of(*documents[:count])), format)
        assert "node000" in text or "more" in text
        return time.process_time() - began

    few, many = (min(spent_s(count) for _ in range(2)) for count in (50, 200))
    assert many < 8 * few
