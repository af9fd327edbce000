"""COM001, network transfer limits the step: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import rule_cases as jobs
from comm_rule_cases import TWO_HOSTS, causes, com001_beside_norms, com006, exchanging, wrapped
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, job, rank
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks


def com001(wire: float = 0.2, **more: Any) -> Analysis:
    own = {0: rank(1.0 - wire), 1: rank(1.0 - wire)}
    return job(own, wire_s=wire, **{"values": {"comm.megabytes": 100.0}, **more})


TABLE = Table(
    "COM001",
    com001,
    lines={"wire": ({"wire": 0.15}, {"wire": 0.1499})},
    false_alarms={
        "waiting for a straggler": {"wire": 0.02, "values": {"comm.skew_s": 0.5}},
        "few steps that scatter": {"wire": 0.2, "values": {"comm.wire_error": 0.3}},
    },
    severities=(({"wire": 0.30}, "critical"), ({"wire": 0.15}, "high")),
    best=({"wire": 0.2}, 1 / 0.88),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def faster_path(analysis: Analysis) -> str:
    fixes = found("COM001", analysis).fixes
    return next((f"{fix.title}\n{fix.change}".strip() for fix in fixes if "faster interconnect" in fix.title), "")


def test_a_faster_path_has_a_number_for_each_card_that_gains_more() -> None:
    over_network = {"hosts": TWO_HOSTS, "backend_name": "nccl", "net.gbit_per_s": 1.0}
    # 1 Gbit/s: 0.8 s for 100 MB; at 10 Gbit/s 0.08 s, at 25 0.032, at 100 0.008
    lines = faster_path(exchanging(wire=0.8, **over_network)).splitlines()
    assert [line.partition(" Gbit/s")[0].rpartition(" ")[2] for line in lines] == ["10", "25", "100"]
    assert lines[0] == "a faster interconnect between the ranks: at 10 Gbit/s the step would take 250–282 ms (3.5–4.0×)"
    already = exchanging(wire=0.2, megabytes=250.0, **over_network)  # it carries the 10 Gbit/s
    assert "at 10 Gbit/s" not in faster_path(already) and "at 25 Gbit/s" in faster_path(already)


def test_on_one_host_whose_path_is_sound_no_faster_path_is_advised() -> None:
    sound, slow = exchanging(megabytes=200.0), exchanging(megabytes=20.0)
    assert faster_path(sound) == "" and "at 10 Gbit/s" in faster_path(slow)
    assert faster_path(jobs.without(slow, "comm.bus_gb_per_s")) == "a faster interconnect between the ranks"
    assert any("larger batch" in fix.title for fix in found("COM001", sound).fixes)


def test_without_ddp_bytes_and_rate_are_those_of_the_calls() -> None:
    own = {n: rank(0.4) for n in (0, 1)}
    values = {
        "collectives.held_s": {0: 0.6, 1: 0.6},
        "collectives.megabytes": {0: 60.0, 1: 50.0},
        "comm.bus_gb_per_s": 0.1,
    }
    rows = {row.metric: row for row in found("COM001", jobs.job(own, wire_s=0.6, values=values)).evidence}
    assert rows["collectives.megabytes"].value == 60.0 and rows["comm.bus_gb_per_s"].value == 0.1


def test_small_batches_that_need_synchronised_batch_norm_get_fixes_for_it_and_not_for_gradients() -> None:
    analysis = com006(spent=0.3, batch=8.0)
    assert causes(analysis) == {"COM001": None}
    finding = found("COM001", analysis)
    assert "batch norm" in finding.title and "GroupNorm" in finding.fixes[0].title
    assert not any("bf16" in fix.change or "no_sync" in fix.title for fix in finding.fixes)
    sizes = {("comm.megabytes", "job"): 100.0, ("comm.bus_gb_per_s", "job"): 0.001}
    rows = found("COM001", replace(analysis, values={**analysis.values, **sizes})).evidence
    assert not any("GB/s" in row.note for row in rows), "a rate over the time of other collectives is meaningless"
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1 / 0.85, 1 / 0.7))


def test_half_the_bytes_of_gradients_spare_nothing_of_batch_norms_collectives() -> None:
    analysis = com001_beside_norms(wire=0.4, norms=0.1)
    saving = found("COM001", analysis).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / (1 - 0.4 * 0.3), 1 / (1 - 0.6 * 0.3)))


def with_hook(name: str) -> Analysis:
    own = {n: rank(0.7) for n in (0, 1)}
    return wrapped(own, values={"comm.wire_s": 0.3}, comm_hook=name)


def test_what_is_compressed_already_is_not_advised_again() -> None:
    plain, compressed = (found("COM001", with_hook(name)) for name in ("", "bf16_compress_hook"))
    assert "halve the bytes" in plain.fixes[0].title and plain.fixes[0].where == Where(SCRIPT, 7)
    assert not any("halve" in fix.title for fix in compressed.fixes)
    assert compressed.saving is not None and "exchanges" in compressed.saving.basis
    assert any("halve" in fix.title for fix in found("COM001", with_hook("allreduce_hook")).fixes)


def test_without_ddp_the_calls_themselves_are_named() -> None:
    own = {n: rank(0.4) for n in (0, 1)}
    finding = found("COM001", jobs.job(own, wire_s=0.6, values={"collectives.held_s": {0: 0.6, 1: 0.6}}))
    assert "called from Python" in finding.evidence[0].note and "hook" not in finding.fixes[0].title


def test_a_loop_that_accumulates_is_advised_to_exchange_once_a_step() -> None:
    own = {n: rank(0.6) for n in (0, 1)}
    values = {"comm.wire_s": 0.4, "comm.megabytes": 400.0, "comm.buckets": 4.0}
    often, once = (found("COM001", wrapped(own, values={**values, "comm.exchanges": n})) for n in (4.0, 1.0))
    assert "once per step, not after each of its 4 batches" in often.fixes[0].title
    assert often.saving is not None and once.saving is not None
    # a quarter of 0.4 s is left, a fifth of that less or more, and caches that stay warm
    assert often.saving.speedup == pytest.approx((1 / 0.72, 1 / (0.68 * (1 - 0.15 * 0.32))))
    assert "halve the bytes" in once.fixes[0].title
    assert once.saving.speedup == pytest.approx((1 / 0.84, 1 / 0.76))
    hiding = wrapped(own, values={**values, "comm.exchanges": 4.0, "comm.span_s": 0.5})
    assert hiding.model is not None
    # on two cores, of which the exchange takes half of one while it runs beside the backward pass: for a tenth of a second
    busy = replace(hiding, model=replace(hiding.model, job_cpu_s=1.7, allowed_cores=2.0))
    saving = found("COM001", busy).saving
    best = 0.68 - 0.5 * 0.1 * 0.75
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.72, 1 / (best * (1 - 0.15 * (1 - best)))))


@pytest.mark.parametrize(
    ("exchanges", "job_cpu_s", "cores", "threads"),
    [(8.0, 2.24, 2.0, 1.0), (1.0, 2.24, 2.0, 1.0), (8.0, 2.0, 2.0, 1.0), (8.0, 2.24, 8.0, 1.0), (8.0, 2.24, 2.0, 2.0)],
)
def test_exchanges_that_the_backward_pass_hides_cost_the_cores_that_they_run_on(
    exchanges: float, job_cpu_s: float, cores: float, threads: float
) -> None:
    """Of a step of 1 s 0.05 s are exposed; the exchange takes 0.6 s, and 0.12 s of CPU time in each rank."""
    own = {n: rank(0.95) for n in (0, 1)}
    values: dict[str, Any] = {"comm.wire_s": 0.05, "comm.span_s": 0.6, "comm.exchanges": exchanges, "comm.buckets": 3.0}
    values |= {"threads.intra_op": {0: threads, 1: threads}}
    hiding = wrapped(own, values=values)
    assert hiding.model is not None
    a = replace(hiding, model=replace(hiding.model, job_cpu_s=job_cpu_s + 0.12, allowed_cores=cores))
    outcome = run_rule(RULES["COM001"], a, Config())
    if (exchanges, job_cpu_s, cores, threads) != (8.0, 2.24, 2.0, 1.0):
        assert isinstance(outcome, Clear)
        return
    assert isinstance(outcome, Finding) and outcome.saving is not None
    assert outcome.title == "Gradient exchange after each of a step's 8 batches"
    assert outcome.evidence[0].metric == "needless exchanges" and "7 of 8 exchanges" in outcome.evidence[0].note
    beside = (2.36 - 1.9) / 2 / 0.6 * 0.55 * 7 / 8
    assert outcome.evidence[0].value == pytest.approx(0.05 * 7 / 8 + beside)
    worst = 1 - 0.05 * (1 - 1.2 / 8) - 0.5 * beside
    assert outcome.saving.speedup[0] == pytest.approx(1 / worst, rel=0.01)
    assert "once per step" in outcome.fixes[0].title


def test_com001_states_the_rate_of_the_whole_exchange() -> None:
    # the exposed part is shorter than the exchange: a rate over it would exceed that of every link
    known = {"comm.megabytes": 100.0, "comm.span_s": 0.4, "comm.bus_gb_per_s": 0.25}
    _, size, rate = found("COM001", TABLE.job(values=known)).evidence
    assert (size.value, rate.value) == (100.0, 0.25) and rate.note.startswith("over each link")
    hidden = found("COM001", TABLE.job(values={**known, "comm.span_s": 0.7}))
    assert hidden.evidence[2].note.startswith("at least"), "a part of that is waiting for the next bucket"
    assert not any(e.metric == "comm.bus_gb_per_s" for e in found("COM001", TABLE.job()).evidence)
    assert len(found("COM001", TABLE.job(values={})).evidence) == 1  # bytes unknown: no rate


@pytest.mark.parametrize(("span", "best"), [(0.2, 0.88), (0.3, 0.85), (0.5, 0.8)])
def test_of_an_exchange_that_backward_partly_hides_half_the_bytes_save_more_than_half_of_the_exposed_part(
    span: float, best: float
) -> None:
    finding = found("COM001", com001(values={"comm.megabytes": 100.0, "comm.span_s": span}))
    assert finding.saving is not None
    assert finding.saving.speedup == pytest.approx((1 / 0.92, 1 / best))


def by_library(library: str, wire: float = 0.6, *, gpu: bool = True) -> Analysis:
    """Two ranks that wait for collectives of a library on their streams; half of the rest is the backward pass."""
    own = {n: rank(1.0 - wire) for n in (0, 1)}
    values = {"collectives.stream_s": {0: wire, 1: wire}, "collectives.megabytes": {0: 60.0, 1: 60.0}}
    sites = [
        {"library": library, "calls": 10, "bytes": 600, "ns": 1},
        {"library": "", "calls": 90, "bytes": 6, "ns": 5},
    ]
    facts = {"collectives": sites, **({"cuda": {"devices": 2}} if gpu else {})}
    return jobs.job(own, wire_s=wire, values=values, facts={str(n): facts for n in own})


@pytest.mark.parametrize(
    ("library", "change"), [("FSDP", "param_dtype=torch.bfloat16"), ("DeepSpeed", '"communication_data_type"')]
)
def test_a_library_that_exchanges_by_itself_has_its_own_fixes(library: str, change: str) -> None:
    finding = found("COM001", by_library(library))
    assert "called from Python" in finding.evidence[0].note
    assert change in finding.fixes[0].change and "no_sync" not in finding.fixes[1].title


def test_sharded_parameters_between_cpus_stay_gathered_before_they_are_halved() -> None:
    finding = found("COM001", by_library("FSDP", gpu=False))
    assert "reshard_after_forward=False" in finding.fixes[0].change and "bfloat16" in finding.fixes[1].change
    assert finding.saving is not None
    assert finding.saving.seconds_per_step == pytest.approx((0.12, 0.24))


def test_the_part_of_a_librarys_exchange_that_its_passes_hide_is_spared_first() -> None:
    by_hand, engine, sharded = (found("COM001", by_library(name)).saving for name in ("", "DeepSpeed", "FSDP"))
    assert by_hand is not None and engine is not None and sharded is not None
    passes = jobs.rank(0.4)
    hidden = {"": 0.0, "DeepSpeed": passes["backward"], "FSDP": passes["backward"] + passes["forward"]}
    for saving, name in ((engine, "DeepSpeed"), (sharded, "FSDP")):
        assert saving.seconds_per_step[1] == pytest.approx(0.5 * (0.6 + hidden[name]))
        assert saving.seconds_per_step[0] == by_hand.seconds_per_step[0] == pytest.approx(0.24)


def by_hand(calls: float = 150.0, *, gb_per_s: float = 0.012, library: str = "") -> Analysis:
    """Two ranks between CPUs that call collectives for 2.4 MB one after the other: a fifth of the step."""
    own = {n: jobs.rank(0.8) for n in (0, 1)}
    values = {
        "collectives.held_s": {0: 0.2, 1: 0.2},
        "collectives.megabytes": {0: 2.4, 1: 2.4},
        "collectives.calls": {0: calls, 1: calls},
        "comm.bus_gb_per_s": gb_per_s,
    }
    place = {"file": "/job/parallel.py", "line": 14}
    facts = {"collectives": [{**place, "library": library, "backend": "gloo", "calls": 34, "bytes": 600, "ns": 1}]}
    return jobs.job(own, wire_s=0.2, values=values, facts={str(n): facts for n in own})


def test_many_small_collectives_become_one() -> None:
    finding = found("COM001", by_hand())
    (fix,) = finding.fixes
    assert fix.title == "one collective for all gradients instead of 150"
    assert fix.where == Where("/job/parallel.py", 14)
    assert finding.saving is not None
    assert finding.saving.seconds_per_step == pytest.approx((0.14, 0.2 * 149 / 150))


@pytest.mark.parametrize(
    "given",
    [{"calls": 7.0}, {"library": "DeepSpeed"}, {"gb_per_s": 4.0}, {"calls": 10.0}],
    ids=["few", "a library's", "the bytes take the time", "slower than messages are"],
)
def test_other_collectives_do_not(given: dict[str, Any]) -> None:
    assert not any("one collective" in fix.title for fix in found("COM001", by_hand(**given)).fixes)


def test_com001_weighs_what_half_of_the_bytes_spare_and_not_the_whole_exchange() -> None:
    finding = found("COM001", com001(wire=0.3))
    assert finding.saving is not None
    least, most = finding.saving.seconds_per_step
    assert finding.seconds_per_step == pytest.approx((least + most) / 2) and most < 0.2
