"""What rules promise of other links, by the ring; what they say of rates; and of buckets that wait for each other."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import rule_cases as jobs
from comm_rule_tables import SCRIPT, TWO_HOSTS, com003, com007, com009, com010, wrapped
from gpu_rule_cases import com008
from rule_cases import rank
from test_rule_cases import RULES

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, NotMeasured, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules.communication.comm_cost import compresses, exposed_at, on_faster_links
from rn50_advisor.rules.registry import all_rules


def found(rule: str, analysis: Analysis) -> Finding:
    result = run_rule(RULES[rule], analysis, Config())
    assert isinstance(result, Finding), result
    return result


def with_values(analysis: Analysis, **values: float) -> Analysis:
    named = {(name.replace("_", ".", 1), "job"): value for name, value in values.items()}
    return replace(analysis, values={**analysis.values, **named})


def exchanging(
    megabytes: float = 100.0, ranks: int = 2, wire: float = 0.4, span: float | None = None, **more: Any
) -> Analysis:
    """Ranks that exchange so much in steps of a second; the rate is made of it as the analysis makes it."""
    own = {number: rank(1.0 - wire) for number in range(ranks)}
    seconds = max(wire, span or 0.0)
    rate = 2 * (ranks - 1) / ranks * megabytes / 1000 / seconds
    values = {"comm.wire_s": wire, "comm.span_s": span or wire, "comm.megabytes": megabytes, "comm.bus_gb_per_s": rate}
    options = {name: more.pop(name) for name in ("hosts", "backend_name", "comm_hook", "bucket_bytes") if name in more}
    return wrapped(own, values={**values, **more}, **options)


@pytest.mark.parametrize(
    ("job", "gb_per_s", "beyond", "expected"),
    [
        pytest.param({}, 1.0, {}, (0.1, 0.1), id="two ranks: as many bytes as there are gradients"),
        pytest.param({"ranks": 4}, 1.0, {}, (0.15, 0.15), id="four: one and a half times as many"),
        pytest.param({"megabytes": 200.0}, 1.0, {}, (0.2, 0.2), id="twice the bytes"),
        pytest.param({}, 0.1, {}, (0.4, 0.4), id="slower links: as today at most"),
        pytest.param({}, 1.0, {"least_s": 0.02, "beside_s": 0.05}, (0.1, 0.15), id="what else it takes, beside it"),
        pytest.param({}, math.inf, {"least_s": 0.02, "beside_s": 0.05}, (0.02, 0.05), id="and nothing but that"),
        pytest.param({"span": 0.5, "comm.buckets": 5.0}, 0.25, {}, (0.3, 0.3), id="0.1 s of it beside backward"),
        pytest.param({"span": 0.5, "comm.buckets": 5.0}, 1.0, {}, (0.02, 0.02), id="but never the last bucket"),
        pytest.param({"span": 0.5, "bucket_bytes": [20, 80]}, 1.0, {}, (0.08, 0.08), id="which may be a large one"),
        pytest.param({"span": 0.5, "bucket_bytes": [0, 1]}, 1.0, {}, (0.08, 0.08), id="at most what is left today"),
        pytest.param({"span": 0.3, "collectives.norm_s": 0.1}, 1.0, {}, (0.1, 0.1), id="gradients alone"),
    ],
)
def test_the_ring_over_other_links(
    job: dict[str, Any], gb_per_s: float, beyond: dict[str, float], expected: tuple[float, float]
) -> None:
    assert exposed_at(exchanging(**job), gb_per_s, **beyond) == pytest.approx(expected)


def test_without_bytes_there_is_no_prediction() -> None:
    unknown = jobs.without(exchanging(), "comm.bus_gb_per_s")
    assert exposed_at(unknown, 1.0) is None and on_faster_links(unknown, 1.0) is None


def test_links_that_carry_as_much_promise_nothing() -> None:
    assert on_faster_links(exchanging(), 0.25) is None and on_faster_links(exchanging(), 0.26) is not None
    # buckets that come one by one hide what the links could: all of it in the 0.1 s after backward, perhaps
    hiding = exchanging(wire=0.1, span=0.5, **{"comm.buckets": 5.0})
    assert on_faster_links(hiding, 1.0) is None and on_faster_links(hiding, 1.25) is not None


def test_gloo_works_for_each_byte_whatever_the_wire() -> None:
    """100 MB in one message: the CPUs' work, at 1.1 GB/s at best and 0.75 at worst."""
    given = exchanging(wire=0.6)
    assert given.model is not None
    saving = on_faster_links(given, math.inf)
    assert saving is not None
    assert saving.speedup == pytest.approx((1 / (0.4 + 0.1 / 0.75), 1 / given.model.at_best(0.4 + 0.1 / 1.1)))
    by_nccl = on_faster_links(exchanging(wire=0.6, backend_name="nccl"), math.inf)
    assert by_nccl is not None
    assert by_nccl.speedup == pytest.approx((1 / 0.4005, 1 / given.model.at_best(0.4)))


def faster_path(analysis: Analysis) -> str:
    fixes = found("COM001", analysis).fixes
    return next((f"{fix.title}\n{fix.change}".strip() for fix in fixes if "faster path" in fix.title), "")


def test_a_faster_path_has_a_number_for_each_card_that_brings_more() -> None:
    over_network = {"hosts": TWO_HOSTS, "backend_name": "nccl", "net.gbit_per_s": 1.0}
    # 1 Gbit/s: 0.8 s for 100 MB; at 10 Gbit/s 0.08 s, at 25 0.032, at 100 0.008
    told = faster_path(exchanging(wire=0.8, **over_network)).splitlines()
    assert [line.partition(" Gbit/s")[0].rpartition(" ")[2] for line in told] == ["10", "25", "100"]
    assert told[0] == "a faster path between the ranks: at 10 Gbit/s the step would take 250–282 ms (3.5–4.0×)"
    already = exchanging(wire=0.2, megabytes=250.0, **over_network)  # it carries the 10 Gbit/s
    assert "at 10 Gbit/s" not in faster_path(already) and "at 25 Gbit/s" in faster_path(already)


def test_on_one_host_whose_path_does_what_it_can_no_faster_path_is_advised() -> None:
    sound, slow = exchanging(megabytes=200.0), exchanging(megabytes=20.0)
    assert faster_path(sound) == "" and "at 10 Gbit/s" in faster_path(slow)
    assert faster_path(jobs.without(slow, "comm.bus_gb_per_s")) == "a faster path between the ranks"
    assert any("larger batch" in fix.title for fix in found("COM001", sound).fixes)


def rate_row(analysis: Analysis, rule: str = "COM001") -> Evidence | None:
    return next((row for row in found(rule, analysis).evidence if row.metric == "comm.bus_gb_per_s"), None)


@pytest.mark.parametrize(
    ("job", "threshold", "said"),
    [
        pytest.param({"megabytes": 20.0}, 0.3, "ranks of one host should carry 0.3 GB/s", id="a slow path"),
        pytest.param({"megabytes": 200.0}, 0.3, "ranks of one host should carry 0.3 GB/s", id="a sound one"),
        pytest.param({"megabytes": 0.1, "comm.buckets": 200.0}, 0.3, "latency", id="many messages and few bytes"),
        pytest.param(
            {"hosts": TWO_HOSTS, "net.gbit_per_s": 25.0},
            25 / 16,
            "a card of 25 Gbit/s should carry 1.6 GB/s",
            id="a card",
        ),
        pytest.param({"hosts": TWO_HOSTS}, None, "2(N-1)/N", id="nobody knows the card"),
    ],
)
def test_a_rate_is_held_against_what_the_path_should_carry(
    job: dict[str, Any], threshold: float | None, said: str
) -> None:
    row = rate_row(exchanging(**job))
    assert row is not None and said in row.note
    assert row.threshold == (threshold if threshold is None else pytest.approx(threshold))


def test_the_rate_stands_in_com010_where_nobody_knows_the_path() -> None:
    unknown = rate_row(replace(com010(wire=0.6, carried=1.2), facts={}), "COM010")
    assert unknown is not None and unknown.value == 1.2 and unknown.threshold is None


def test_without_ddp_bytes_and_rate_are_those_of_the_calls() -> None:
    own = {n: rank(0.4) for n in (0, 1)}
    values = {
        "collectives.held_s": {0: 0.6, 1: 0.6},
        "collectives.megabytes": {0: 60.0, 1: 50.0},
        "comm.bus_gb_per_s": 0.1,
    }
    rows = {row.metric: row for row in found("COM001", jobs.job(own, wire_s=0.6, values=values)).evidence}
    assert rows["collectives.megabytes"].value == 60.0 and rows["comm.bus_gb_per_s"].value == 0.1


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("", False),
        ("allreduce_hook", False),
        ("BuiltinCommHookType.ALLREDUCE", False),
        ("bf16_compress_hook", True),
        ("powerSGD_hook", True),
        ("bf16_compress_wrapper.<locals>.bf16_compress_wrapper_hook", True),
    ],
)
def test_hooks_that_send_less_or_nobody_knows_how_much(hook: str, said: bool) -> None:
    assert compresses(exchanging(comm_hook=hook)) is said


def test_nccl_instead_of_gloo_by_the_bytes() -> None:
    given = with_values(com007(wire=0.4), comm_bus_gb_per_s=0.5)  # 200 MB
    saving = found("COM007", given).saving
    # between GPUs of one host 12 GB/s at best, 3 and a message's latency at worst
    assert saving is not None
    assert saving.speedup == pytest.approx((1 / (0.6 + 0.2 / 3 + 0.0005), 1 / (0.6 + 0.2 / 12)))
    apart = with_values(replace(given, facts=com009().facts), net_gbit_per_s=100.0)
    saving = found("COM007", apart).saving
    assert saving is not None
    assert saving.speedup == pytest.approx((1 / (0.6 + 0.2 / 6.25 + 0.002), 1 / (0.6 + 0.2 / 12.5)))


def test_peer_to_peer_by_the_bytes() -> None:
    by_nvlink = found("COM008", with_values(com008(wire=0.3), comm_bus_gb_per_s=5.0)).saving  # 1.5 GB
    plain = found("COM008", com008(wire=0.3)).saving
    assert by_nvlink is not None and plain is not None
    assert by_nvlink.seconds_per_step[1] == pytest.approx(0.3 - 1.5 / 230)
    assert by_nvlink.seconds_per_step[0] == pytest.approx(plain.seconds_per_step[0]), "the slowest NVLink is not known"


def on_card(gbit: float | None = 10.0, *, ports: int | None = 0, backend: str = "nccl", **more: Any) -> Analysis:
    """Ranks of two hosts of whose network NCCL says nothing."""
    environment = {} if ports is None else {"rdma_ports": ports}
    values = {} if gbit is None else {"net.gbit_per_s": gbit}
    own = {n: rank(0.6) for n in (0, 1)}
    hosts = more.pop("hosts", TWO_HOSTS)
    given = wrapped(own, values={"comm.wire_s": 0.4, **values, **more}, hosts=hosts, backend_name=backend)
    return replace(given, meta=replace(jobs.META, environment=environment))


def test_a_slow_card_between_the_hosts_is_found_without_nccls_words() -> None:
    finding = found("COM009", on_card(24.9, **{"comm.bus_gb_per_s": 1.25}))
    assert (finding.evidence[0].value, finding.evidence[0].threshold) == (24.9, 25.0)
    assert finding.saving is not None  # 0.5 GB at 12.5 GB/s; at half of it, and a message's latency
    assert finding.saving.seconds_per_step == pytest.approx((0.4 - 0.08 - 0.002, 0.4 - 0.04))
    judgement = judge(on_card(10.0), all_rules(), Config())
    by = {f.rule: f.explained_by for f in judgement.findings if f.rule.startswith("COM")}
    assert by == {"COM009": None, "COM001": "COM009"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (on_card(25.0), Clear("COM009")),
        (on_card(10.0, ports=2), NotMeasured("COM009", ("nccl.socket",))),  # InfiniBand that NCCL may use
        (on_card(10.0, ports=None), NotMeasured("COM009", ("nccl.socket",))),  # nobody has looked
        (on_card(None), NotMeasured("COM009", ("nccl.socket",))),
        (on_card(10.0, backend="gloo"), NotMeasured("COM009", ("nccl.socket",))),
        (on_card(10.0, hosts={"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}), NotMeasured("COM009", ("nccl.socket",))),
        (on_card(10.0, **{"nccl.socket": 0.0}), Clear("COM009")),  # NCCL says that it goes elsewhere
    ],
)
def test_a_card_is_blamed_only_where_it_is_the_way_between_the_hosts(given: Analysis, said: Any) -> None:
    assert run_rule(RULES["COM009"], given, Config()) == said


def in_buckets(**options: Any) -> Analysis:
    """Four buckets, and the backward pass is over before the first of them leaves."""
    own = {n: rank(0.7, backward=0.4) for n in (0, 1)}
    sizes = options.pop("bucket_bytes", [25_000_000] * 4)
    values = {
        "comm.wire_s": 0.3, "comm.span_s": 0.31, "comm.megabytes": 100.0, "comm.buckets": 4.0,
        "comm.largest_bucket": max(sizes) / sum(sizes), **options.pop("values", {}),
    }  # fmt: skip
    return wrapped(own, values=values, **{"bucket_cap_bytes": 25 << 20, "bucket_bytes": sizes, **options})


def test_buckets_that_wait_for_each_other_get_the_fix_of_what_keeps_them() -> None:
    searching = found("COM003", in_buckets(find_unused_parameters=True))
    assert searching.fixes[0].change == "DistributedDataParallel(..., find_unused_parameters=False)"
    assert searching.fixes[0].where == Where(SCRIPT, 7)
    assert searching.saving is not None
    assert searching.saving.speedup == pytest.approx((1 / (0.7 + 0.65 * 0.3), 1 / (0.7 + 0.31 / 4)))
    used = in_buckets(find_unused_parameters=True, values={"ddp.with_unused": {0: 3.0, 1: 0.0}})
    assert found("COM003", used).fixes[0].change == "DistributedDataParallel(..., static_graph=True)"
    assert searching.confidence == 0.7, "a model with large layers at its begin looks the same"
    assert isinstance(
        run_rule(RULES["COM003"], in_buckets(find_unused_parameters=True, bucket_cap_bytes=1 << 20), Config()), Finding
    )


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(in_buckets(), id="nothing is seen that keeps them: large layers at the model's begin"),
        pytest.param(in_buckets(find_unused_parameters=True, static_graph=True), id="sorted anew"),
        pytest.param(in_buckets(find_unused_parameters=True, values={"comm.span_s": 0.41}), id="it would not fit"),
        pytest.param(
            in_buckets(find_unused_parameters=True, values={"comm.span_s": 0.4, "comm.wire_s": 0.29}), id="they overlap"
        ),
        pytest.param(in_buckets(bucket_bytes=[5_000_000, 95_000_000]), id="one parameter that no limit splits"),
    ],
)
def test_buckets_that_nothing_keeps_back_are_left_to_the_wire(given: Analysis) -> None:
    assert run_rule(RULES["COM003"], given, Config()) == Clear("COM003")


def test_buckets_in_the_wrong_order_are_the_root_of_the_wire() -> None:
    judgement = judge(in_buckets(find_unused_parameters=True), all_rules(), Config())
    by = {f.rule: f.explained_by for f in judgement.findings if f.rule in ("COM001", "COM003")}
    assert by == {"COM003": None, "COM001": "COM003"}


def test_one_large_bucket_keeps_its_fix_under_a_search() -> None:
    assert "bucket_cap_mb" in found("COM003", com003(wire=0.3)).fixes[0].change
