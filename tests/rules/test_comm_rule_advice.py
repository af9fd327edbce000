"""Of the rules on the exchange of gradients: which one is the root, what they advise where, and what they leave to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import rule_cases as jobs
from comm_rule_tables import SCRIPT, TWO_HOSTS, com003, com006, com007, com009, com010, wrapped
from rule_cases import rank
from rule_table import warm
from test_rule_cases import RULES

from rn50_advisor.advisor.model.analysis import Analysis, SpeedChange, StuckCollective
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules.communication.comm_cost import path_is_sound, path_of, several_hosts
from rn50_advisor.rules.registry import all_rules


def causes(analysis: Analysis) -> dict[str, str | None]:
    judgement = judge(analysis, all_rules(), Config())
    return {f.rule: f.explained_by for f in judgement.findings if f.rule.startswith(("COM", "CMP"))}


def found(rule: str, analysis: Analysis) -> Finding:
    result = run_rule(RULES[rule], analysis, Config())
    assert isinstance(result, Finding), result
    return result


def test_one_bucket_of_the_users_own_making_is_the_root() -> None:
    assert causes(com003(wire=0.3)) == {"COM003": None, "COM001": "COM003"}


def test_a_model_that_fits_into_ddps_own_bucket_leaves_the_wire_as_the_root() -> None:
    assert causes(com003(wire=0.3, cap=25 << 20)) == {"COM001": None, "COM003": "COM001"}
    assert causes(com003(wire=0.2, cap=25 << 20)) == {"COM001": None, "COM003": "COM001"}


def test_averaging_by_hand_is_the_root_where_ddp_could_hide_it() -> None:
    analysis = com003(wire=0.3, hand=1.0)
    assert causes(analysis) == {"COM003": None, "COM001": "COM003"}
    assert "DistributedDataParallel" in found("COM003", analysis).fixes[0].title


def called_by(library: str) -> Analysis:
    site = {"file": "train.py", "line": 30, "library": library, "ns": 1000}
    small = {"file": "log.py", "line": 3, "library": "", "ns": 10}
    return replace(com003(wire=0.3, hand=1.0), facts={"0": {"collectives": [small, site]}})


def test_the_line_that_averages_by_hand_is_named_unless_a_library_does_it() -> None:
    assert found("COM003", called_by("")).fixes[0].where == Where("train.py", 30)
    assert run_rule(RULES["COM003"], called_by("DeepSpeed"), Config()) == Clear("COM003")


def test_a_slow_wire_is_the_root_of_an_exchange_longer_than_computing() -> None:
    assert causes(com010(wire=0.6, carried=0.12)) == {"COM001": None, "COM010": "COM001"}


def test_on_a_sound_path_the_batch_is_too_small() -> None:
    assert causes(com010(wire=0.6, carried=1.2)) == {"COM010": None, "COM001": "COM010"}


def test_where_the_bytes_are_not_known_the_wire_stays_the_root() -> None:
    assert causes(com010(wire=0.6, carried=None)) == {"COM001": None, "COM010": "COM001"}


def test_small_messages_are_slow_by_their_number_and_no_wire_is_to_blame() -> None:
    # 1 MB in two messages: 6 ms are their latency, and an exchange of 8 ms is what a sound path takes
    small = com010(wire=0.6, carried=0.02)
    quick = replace(small, values={**small.values, ("comm.wire_s", "job"): 0.008, ("comm.span_s", "job"): 0.008})
    assert path_is_sound(small) is False
    assert path_is_sound(replace(quick, values={**quick.values, ("comm.buckets", "job"): 3.0})) is True
    assert path_is_sound(quick) is False, "one message of as many bytes should be quicker"


def test_gloo_under_gpus_and_sockets_between_nodes_explain_the_wire() -> None:
    assert causes(com007(wire=0.4)) == {"COM007": None, "COM001": "COM007"}
    assert causes(com009(wire=0.4)) == {"COM009": None, "COM001": "COM009"}


def test_round_trips_of_batch_norm_explain_the_wire() -> None:
    assert causes(com006(spent=0.3)) == {"COM006": None, "COM001": "COM006"}


def test_small_batches_that_need_synchronised_batch_norm_are_told_of_that_and_not_of_gradients() -> None:
    analysis = com006(spent=0.3, batch=8.0)
    assert causes(analysis) == {"COM001": None}
    finding = found("COM001", analysis)
    assert "batch norm" in finding.title and "GroupNorm" in finding.fixes[0].title
    assert not any("bf16" in fix.change or "no_sync" in fix.title for fix in finding.fixes)
    sizes = {("comm.megabytes", "job"): 100.0, ("comm.bus_gb_per_s", "job"): 0.001}
    rows = found("COM001", replace(analysis, values={**analysis.values, **sizes})).evidence
    assert not any("GB/s" in row.note for row in rows), "a rate over the time of other collectives is nobody's"
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1 / 0.85, 1 / 0.7))


def test_half_the_bytes_of_gradients_spare_nothing_of_batch_norms_collectives() -> None:
    analysis = com001_beside_norms(wire=0.4, norms=0.1)
    saving = found("COM001", analysis).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / (1 - 0.4 * 0.3), 1 / (1 - 0.6 * 0.3)))


def test_batch_norms_collectives_are_no_gradients_sent_late_or_too_often() -> None:
    analysis = com001_beside_norms(wire=0.6, norms=0.55)
    silent = {rule: run_rule(RULES[rule], analysis, Config()) for rule in ("COM003", "COM010")}
    assert silent == {rule: Clear(rule) for rule in silent}
    assert causes(com001_beside_norms(wire=0.6, norms=0.0)).keys() == {"COM001", "COM010"}


def com001_beside_norms(wire: float, norms: float) -> Analysis:
    own = {n: rank(1.0 - wire, backward=0.6 * (1.0 - wire)) for n in (0, 1)}
    values = {"comm.wire_s": wire, "collectives.norm_s": norms, "comm.largest_bucket": 1.0}
    return wrapped(own, values=values)


def test_on_gpus_batch_norm_is_noted_without_a_number() -> None:
    finding = found("COM006", com006(spent=None))
    assert finding.severity == "low" and finding.saving is None and finding.seconds_per_step == 0.0


@pytest.mark.parametrize(("waits", "after_s"), [((0.0, 0.0), 0.5), ((0.05, 0.2), 0.45), ((0.2, 0.3), 0.425)])
def test_without_synchronised_batch_norm_computing_waits_less_for_cores(
    waits: tuple[float, float], after_s: float
) -> None:
    given = com006(spent=0.5)
    delays = {("step.run_delay_s", f"rank:{number}"): delay for number, delay in enumerate(waits)}
    saving = found("COM006", replace(given, values={**given.values, **delays})).saving
    assert given.model is not None and saving is not None
    assert saving.speedup == pytest.approx((1.5, 1 / given.model.at_best(after_s)))


def test_the_edit_for_buckets_points_to_the_line_that_wraps() -> None:
    fix = found("COM003", com003(wire=0.3)).fixes[0]
    assert fix.change == "DistributedDataParallel(..., bucket_cap_mb=16)" and fix.where == Where(SCRIPT, 7)


def test_buckets_that_nobody_has_told_of_are_not_measured() -> None:
    assert run_rule(RULES["COM003"], com003(largest=None), Config()) == NotMeasured("COM003", ("comm.largest_bucket",))


@pytest.mark.parametrize(
    ("hosts", "backend", "values", "expected"),
    [
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, "gloo", {}, 0.3),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, "nccl", {}, 3.0),
        (TWO_HOSTS, "nccl", {"net.gbit_per_s": 25.0}, 25 / 16),
        (TWO_HOSTS, "nccl", {}, None),
        ({}, "mpi", {}, None),
    ],
)
def test_what_a_path_should_carry(hosts: Any, backend: str, values: dict[str, Any], expected: float | None) -> None:
    analysis = wrapped({0: rank(), 1: rank()}, values={"comm.wire_s": 0.0, **values}, hosts=hosts, backend_name=backend)
    path = path_of(analysis)
    assert (path and path.gb_per_s) == (expected if expected is None else pytest.approx(expected))


def test_without_ddp_the_backend_of_the_calls_tells_the_path() -> None:
    sites = [{"backend": "nccl", "ns": 1}, {"backend": "gloo", "ns": 900}]
    path = path_of(jobs.job({0: rank()}, facts={"0": {"collectives": sites}}))
    assert path is not None and path.gb_per_s == pytest.approx(0.3)


def test_where_the_launcher_is_silent_hosts_are_unknown() -> None:
    assert several_hosts(wrapped({0: rank()}, values={"comm.wire_s": 0.0}, hosts={})) is None


def test_accumulation_pays_the_exchange_once() -> None:
    finding = found("COM010", com010(wire=0.75))
    # computing 0.25 s, the exchange 0.75: six batches bring it to half of the computing of each
    assert "over 6 batches" in finding.fixes[0].title
    assert finding.saving is not None
    # and a sixth of the update, which is a tenth of the computing
    assert finding.saving.speedup[1] == pytest.approx(warm(1 / (0.225 + (0.025 + 0.75) / 6)))


def on_full_cores(made: Any, burns_s: float) -> Analysis:
    """The same job on two cores, one for each rank, which burns so much for each of them beside computing and loading."""
    work = sum(map(made.model.own_s, made.model.own)) + 2 * burns_s
    return replace(made, model=replace(made.model, allowed_cores=2.0, job_cpu_s=work))


def test_where_cores_are_short_an_exchange_beside_the_backward_pass_slows_it() -> None:
    plain = com003(wire=0.3)
    spared, short = (found("COM003", made).saving for made in (plain, on_full_cores(plain, burns_s=0.15)))
    assert spared is not None and spared.speedup[1] == pytest.approx(1 / 0.75)
    # half of the exchange is work: of 0.105 s that are hidden at worst, backward takes 0.0525 s longer; at best that was polling
    assert short is not None and short.speedup == pytest.approx((1 / 0.9475, 1 / 0.75))
    assert run_rule(RULES["COM003"], on_full_cores(plain, burns_s=0.3), Config()) == Clear("COM003")


def test_where_cores_are_short_batches_that_are_not_exchanged_have_a_shorter_backward_pass() -> None:
    job = com010(wire=0.5, span=0.6)
    plain, short = (found("COM010", made).saving for made in (job, on_full_cores(job, burns_s=0.5)))
    assert plain is not None and short is not None
    after = 0.45 + (0.05 + 0.5) / 3
    assert plain.speedup[1] == pytest.approx(warm(1 / after))
    # 0.1 s of the exchange run beside the backward pass, and 0.5 / 0.6 of that is work
    assert short.speedup[1] == pytest.approx(warm(1 / (after - 0.1 * 0.5 / 0.6 * 2 / 3)))


def test_ranks_wait_for_each_other_once_in_several_batches() -> None:
    job = com010(wire=0.5)
    assert job.model is not None
    longer = {**job.values, ("step.time_s", "job"): 1.2}
    saving = found("COM010", replace(job, model=replace(job.model, step_s=1.2), values=longer)).saving
    after = 0.45 + (0.05 + 0.5) / 2 + 0.2 / 2**0.5 * (0.475 / 0.5)
    assert saving is not None and saving.speedup[1] == pytest.approx(warm(1.2 / after))


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


def test_switches_that_keep_nccl_from_infiniband_come_first() -> None:
    analysis = com009(wire=0.4, switches={"NCCL_IB_DISABLE": "1"})
    assert found("COM009", analysis).fixes[0].change == "unset NCCL_IB_DISABLE"
    by_environment = replace(jobs.META, environment={"variables": {"NCCL_NET": "Socket"}})
    assert found("COM009", replace(com009(wire=0.4), meta=by_environment)).fixes[0].change == "unset NCCL_NET"


def test_a_known_rate_bounds_what_a_faster_network_can_bring() -> None:
    saving = found("COM009", com009(wire=0.4, carried=1.25)).saving
    assert saving is not None and saving.seconds_per_step[1] == pytest.approx(0.4 * 0.9)


def late(**values: Any) -> Finding:
    return found(
        "COM002", jobs.job({0: rank(0.7), 1: rank()}, late={0: 0.05, 1: 0.9}, values={"comm.skew_s": 0.3, **values})
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"step.gc_s": {0: 0.01, 1: 0.25}}, ["step.gc_s"]),
        ({"step.gc_s": {0: 0.25, 1: 0.26}}, []),  # as much on both
        ({"step.gc_s": {0: 0.01, 1: 0.09}}, []),
        ({"quota.throttled_s_per_s": {1: 0.3}}, ["quota.throttled_s_per_s"]),
        ({"step.run_delay_s": {0: 0.0, 1: 0.2}, "step.gc_s": {0: 0.0, 1: 0.1}}, ["step.gc_s", "step.run_delay_s"]),
    ],
)
def test_what_stops_the_late_rank_is_told(values: dict[str, Any], said: list[str]) -> None:
    assert [e.metric for e in late(**values).evidence if e.metric in {*values, *said}] == said


def test_a_rank_that_became_late_is_late_since_then() -> None:
    change = SpeedChange(120, 30.0, None, 0.7, 1.0, 100, 100, 50.0, 0.2, 1, "forward", 0.3)
    analysis = jobs.com002()
    assert found("COM002", analysis).scope.since_step is None
    assert found("COM002", replace(analysis, changes=(change,))).scope.since_step == 120
    assert found("COM002", replace(analysis, changes=(replace(change, rank=0),))).scope.since_step is None


@pytest.mark.parametrize(("share", "in_a_row", "bursts"), [(0.4, 10.0, True), (0.4, 1.7, False), (0.9, 30.0, False)])
def test_a_rank_that_is_late_in_bursts_is_called_so(share: float, in_a_row: float, bursts: bool) -> None:
    analysis = jobs.com002(late=share, other=0.02, costs=0.95)
    analysis = replace(analysis, values={**analysis.values, ("comm.late_run_steps", "rank:1"): in_a_row})
    assert ("in bursts" in found("COM002", analysis).evidence[1].note) is bursts


def test_the_ranks_of_a_bad_host_are_one_straggler() -> None:
    own = {number: rank(0.4 if number < 4 else 0.6) for number in range(8)}
    late = {number: 0.0 if number < 4 else 0.2 for number in own}
    finding = found("COM002", jobs.job(own, late=late, values={"comm.skew_s": 0.2}))
    assert finding.scope.ranks == (4, 5, 6, 7) and finding.title == "The other ranks wait for ranks 4–7"
    assert "for them" in finding.evidence[1].note
    turns = found("COM002", jobs.job(own, late=dict.fromkeys(own, 0.12), values={"comm.skew_s": 0.3}))
    assert not turns.scope.ranks


STUCK = StuckCollective("all_reduce", 57, 2, (0,), (1,), elements=1024, source="torch's flight recorder")


def hang(stuck: StuckCollective | None) -> Finding:
    analysis = jobs.run001()
    return found("RUN001", replace(analysis, stalls=(replace(analysis.stalls[0], collective=stuck),)))


def test_a_hang_names_its_collective_and_who_has_come_to_it() -> None:
    (row,) = [e for e in hang(STUCK).evidence if e.metric == "collective"]
    assert row.value == "all_reduce of 1024 elements, number 57"
    assert "rank 0" in row.note and "rank 1 not" in row.note and "flight recorder" in row.note
    assert not [e for e in hang(None).evidence if e.metric == "collective"]


def test_collectives_that_differ_are_told_apart() -> None:
    finding = hang(replace(STUCK, differing="rank 0: all_reduce; rank 1: broadcast"))
    assert "rank 1: broadcast" in finding.fixes[0].title


def test_each_exchange_of_a_step_has_messages_of_its_own() -> None:
    """12 ms are too long for two messages over the loopback, and not for three times two."""
    own = {n: rank(0.9) for n in (0, 1)}
    values = {"comm.bus_gb_per_s": 0.1, "comm.buckets": 2.0, "comm.wire_s": 0.012}
    once, often = (wrapped(own, values={**values, "comm.exchanges": n}) for n in (1.0, 3.0))
    assert path_is_sound(once) is False and path_is_sound(often) is True


def test_a_loop_that_accumulates_shall_exchange_once_a_step() -> None:
    own = {n: rank(0.6) for n in (0, 1)}
    values = {"comm.wire_s": 0.4, "comm.megabytes": 400.0, "comm.buckets": 4.0}
    often, once = (found("COM001", wrapped(own, values={**values, "comm.exchanges": n})) for n in (4.0, 1.0))
    assert "once a step, not after each of its 4 batches" in often.fixes[0].title
    assert often.saving is not None and once.saving is not None
    # a quarter of 0.4 s is left, a fifth of that less or more, and caches that stay warm
    assert often.saving.speedup == pytest.approx((1 / 0.72, 1 / (0.68 * (1 - 0.15 * 0.32))))
    assert "halve the bytes" in once.fixes[0].title
    assert once.saving.speedup == pytest.approx((1 / 0.84, 1 / 0.76))
    hiding = wrapped(own, values={**values, "comm.exchanges": 4.0, "comm.span_s": 0.5})
    assert hiding.model is not None
    # on two cores, of which the exchange takes half of one while it runs beside the backward pass: for a tenth of a second
    busy = replace(hiding, model=replace(hiding.model, job_cpu_s=1.7, allowed_cores=2.0))
    told = found("COM001", busy).saving
    best = 0.68 - 0.5 * 0.1 * 0.75
    assert told is not None and told.speedup == pytest.approx((1 / 0.72, 1 / (best * (1 - 0.15 * (1 - best)))))


def test_one_that_exchanges_after_each_batch_is_told_of_that_first() -> None:
    own = {n: rank(0.4, backward=0.2) for n in (0, 1)}
    values = {"comm.wire_s": 0.6, "comm.buckets": 2.0, "comm.bus_gb_per_s": 1.2, "comm.megabytes": 400.0}
    assert causes(wrapped(own, values=dict(values))) == {"COM010": None, "COM001": "COM010"}
    assert causes(wrapped(own, values={**values, "comm.exchanges": 4.0})) == {"COM001": None, "COM010": "COM001"}
