"""The cost of an exchange on its links, its estimate on faster ones, and the path between ranks."""

from __future__ import annotations

import math
from typing import Any

import pytest

import rule_cases as jobs
from comm_rule_cases import (
    TWO_HOSTS,
    exchanging,
    rate_row,
    wrapped,
)
from rn50_advisor.rules.communication.comm_cost import (
    compresses,
    exposed_at,
    on_faster_links,
    path_is_sound,
    path_of,
    several_hosts,
)
from rule_cases import rank


@pytest.mark.parametrize(
    ("job", "gb_per_s", "beyond", "expected"),
    [
        pytest.param({}, 1.0, {}, (0.1, 0.1), id="two ranks: as many bytes as there are gradients"),
        pytest.param({"ranks": 4}, 1.0, {}, (0.15, 0.15), id="four: one and a half times as many"),
        pytest.param({"megabytes": 200.0}, 1.0, {}, (0.2, 0.2), id="twice the bytes"),
        pytest.param({}, 0.1, {}, (0.4, 0.4), id="slower links: as today at most"),
        pytest.param({}, 1.0, {"least_s": 0.02, "beside_s": 0.05}, (0.1, 0.15), id="latency and CPU work on top"),
        pytest.param({}, math.inf, {"least_s": 0.02, "beside_s": 0.05}, (0.02, 0.05), id="and nothing else"),
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
    # buckets that come one by one hide what the links can carry: perhaps all bytes in the 0.1 s after backward
    hiding = exchanging(wire=0.1, span=0.5, **{"comm.buckets": 5.0})
    assert on_faster_links(hiding, 1.0) is None and on_faster_links(hiding, 1.25) is not None


def test_gloo_needs_cpu_time_for_each_byte_on_any_link() -> None:
    """100 MB in one message: the CPUs' work, at 1.1 GB/s at best and 0.75 at worst."""
    given = exchanging(wire=0.6)
    assert given.model is not None
    saving = on_faster_links(given, math.inf)
    assert saving is not None
    assert saving.speedup == pytest.approx((1 / (0.4 + 0.1 / 0.75), 1 / given.model.at_best(0.4 + 0.1 / 1.1)))
    by_nccl = on_faster_links(exchanging(wire=0.6, backend_name="nccl"), math.inf)
    assert by_nccl is not None
    assert by_nccl.speedup == pytest.approx((1 / 0.4005, 1 / given.model.at_best(0.4)))


@pytest.mark.parametrize(
    ("job", "threshold", "words"),
    [
        pytest.param({"megabytes": 20.0}, 0.3, "ranks of one host should reach 0.3 GB/s", id="a slow path"),
        pytest.param({"megabytes": 200.0}, 0.3, "ranks of one host should reach 0.3 GB/s", id="a sound one"),
        pytest.param({"megabytes": 0.1, "comm.buckets": 200.0}, 0.3, "latency", id="many messages and few bytes"),
        pytest.param(
            {"hosts": TWO_HOSTS, "net.gbit_per_s": 25.0},
            25 / 16,
            "a card of 25 Gbit/s should reach 1.6 GB/s",
            id="a card",
        ),
        pytest.param({"hosts": TWO_HOSTS}, None, "2(N-1)/N", id="an unknown card"),
    ],
)
def test_a_rate_is_held_against_what_the_path_should_carry(
    job: dict[str, Any], threshold: float | None, words: str
) -> None:
    row = rate_row(exchanging(**job))
    assert row is not None and words in row.note
    assert row.threshold == (threshold if threshold is None else pytest.approx(threshold))


@pytest.mark.parametrize(
    ("hook", "compressed"),
    [
        ("", False),
        ("allreduce_hook", False),
        ("BuiltinCommHookType.ALLREDUCE", False),
        ("bf16_compress_hook", True),
        ("powerSGD_hook", True),
        ("bf16_compress_wrapper.<locals>.bf16_compress_wrapper_hook", True),
    ],
)
def test_hooks_that_compress_or_send_an_unknown_amount(hook: str, compressed: bool) -> None:
    assert compresses(exchanging(comm_hook=hook)) is compressed


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


def test_without_ddp_the_backend_of_the_calls_gives_the_path() -> None:
    sites = [{"backend": "nccl", "ns": 1}, {"backend": "gloo", "ns": 900}]
    path = path_of(jobs.job({0: rank()}, facts={"0": {"collectives": sites}}))
    assert path is not None and path.gb_per_s == pytest.approx(0.3)


def test_without_the_launchers_variables_hosts_are_unknown() -> None:
    assert several_hosts(wrapped({0: rank()}, values={"comm.wire_s": 0.0}, hosts={})) is None


def test_each_exchange_of_a_step_has_messages_of_its_own() -> None:
    """12 ms are too long for two messages over the loopback, and not for three times two."""
    own = {n: rank(0.9) for n in (0, 1)}
    values = {"comm.bus_gb_per_s": 0.1, "comm.buckets": 2.0, "comm.wire_s": 0.012}
    once, often = (wrapped(own, values={**values, "comm.exchanges": n}) for n in (1.0, 3.0))
    assert path_is_sound(once) is False and path_is_sound(often) is True
