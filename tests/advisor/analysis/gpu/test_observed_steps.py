"""Waits, copies and precision of ranks, from the facts they wrote."""

from __future__ import annotations

from typing import Any

import pytest

from device_call_facts import CUDA, MS, copy, site
from recordings import plan, recording
from rn50_advisor.advisor.analysis.gpu.observed_steps import call_site_values, usual_call_sites
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.measures import MEASURES
from rn50_advisor.advisor.model.recording import Recording


def recorded(**facts: Any) -> Recording:
    return recording({0: plan()}, facts={100: facts})


def looked(sites: list[dict[str, Any]], copies: list[dict[str, Any]] | None = None, looks: int = 10) -> Recording:
    return recorded(syncs={"looks": looks, "device": "cuda", "sites": sites}, copies=copies or [])


def values(made: Recording, missing: dict[str, str] | None = None) -> dict[str, float]:
    found = call_site_values(made, usual_call_sites(made))
    if missing is not None:
        missing.update({name: why for (name, _), why in found.missing.items()})
    return {name: value for (name, scope), value in found.items() if scope == 0}


def test_waits_in_most_steps_are_call_sites_and_an_occasional_log_line_is_not() -> None:
    made = looked([site(), site(line=95, count=10, looks=1, blocked_ns=900 * MS)])
    (wait,) = usual_call_sites(made).waits
    assert (wait.line, wait.calls, wait.steps_share, wait.blocked_s) == (88, 1.0, 1.0, 0.005)
    found = values(made)
    assert found["sync.calls"] == 1.0 and found["sync.blocked_s"] == 0.005 and found["sync.looks"] == 10


def test_the_costliest_wait_comes_first() -> None:
    made = looked([site(), site(line=90, blocked_ns=80 * MS)])
    assert [wait.line for wait in usual_call_sites(made).waits] == [90, 88]


def test_copies_are_grouped_by_memory_call_and_stream() -> None:
    copies = [
        copy(),
        copy(line=62, pinned=False, bytes=100_000_000, least_ns=4 * MS),
        copy(line=63, non_blocking=False, bytes=200_000_000, blocked_ns=70 * MS),
        copy(line=64, pinned=False, aside=True),
    ]
    found = values(looked([], copies))
    assert found["copy.mb"] == pytest.approx(77 + 10 + 20 + 77)
    assert (found["copy.pageable_mb"], found["copy.pageable_s"]) == (10.0, 0.004)
    assert (found["copy.blocking_mb"], found["copy.blocking_s"]) == pytest.approx((20.0, 0.007))


def test_without_a_look_nothing_is_measured() -> None:
    missing: dict[str, str] = {}
    assert not [name for name in values(recorded(cuda={"name": "A100"}), missing) if name != "precision.capability"]
    assert "too short" in missing["sync.looks"] and "not observed" in missing["precision.half"]
    assert values(looked([], looks=0)) == {}
    nobody_asks: dict[str, str] = {}
    assert values(recorded(), nobody_asks) == nobody_asks == {}, "a job without a GPU"


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("dynamo", "torch._dynamo was not loaded"),
        ("compiling", "compiling in each step"),
        ("failed", "one inspection failed"),
        ("a word of a later version", "too short"),
    ],
)
def test_the_reason_why_no_step_was_inspected_is_reported(why: str, reason: str) -> None:
    missing: dict[str, str] = {}
    values(recorded(cuda=CUDA, syncs={"looks": 0, "device": "cuda", "sites": [], "unseen": why}), missing)
    assert reason in missing["sync.looks"] and missing["copy.mb"] == missing["sync.looks"]


def layer(**given: Any) -> dict[str, Any]:
    usual = {"device": "cuda", "input": "float32", "weight": "float32", "autocast": None}
    layouts = {"input_layout": "channels_first", "weight_layout": "channels_first", "shape": [8, 3, 224, 224]}
    return {**usual, **layouts, **given}


def weights(**given: Any) -> dict[str, Any]:
    """Facts of an optimizer's parameters, for a model whose layers were not observed."""
    usual = {"weights": 53, "dtypes": ["float32"], "channels_last": 0, "channels_first": 17}
    return {"class": "SGD", "convolutions": {**usual, **given}}


@pytest.mark.parametrize(
    ("facts", "half"),
    [
        ({"conv": layer(), "autocast": {"enabled": False}}, 0.0),
        ({"conv": layer(autocast="bfloat16")}, 1.0),
        ({"conv": layer(weight="float16")}, 1.0),
        ({"linear": layer(autocast="float16")}, 1.0),
        ({"autocast": {"enabled": True, "dtype": "bfloat16"}, "compiled_frames": 3}, 1.0),
        ({"conv": layer(), "autocast": {"enabled": True, "dtype": "bfloat16"}}, 1.0),  # seen before it was entered
        ({"conv": layer(after_autocast=True), "autocast": {"enabled": True, "dtype": "bfloat16"}}, 0.0),
        (
            {
                "conv": layer(after_autocast=True),
                "linear": layer(after_autocast=True, autocast="bfloat16"),
                "autocast": {"enabled": True, "dtype": "bfloat16"},
            },
            1.0,
        ),
        ({"autocast": {"enabled": False}}, None),  # no layer was seen: it may compute in anything
        ({"compiled_frames": 3}, None),
        ({"compiled_frames": 3, "optimizer": weights(), "autocast": {"enabled": False}}, 0.0),
        ({"compiled_frames": 3, "optimizer": weights(), "autocast": {"enabled": True, "dtype": "bfloat16"}}, 1.0),
        ({"compiled_frames": 3, "optimizer": weights()}, None),  # autocast may be within what was compiled
        ({"compiled_frames": 3, "optimizer": weights(dtypes=["bfloat16"])}, 1.0),
        ({"compiled_frames": 3, "optimizer": weights(weights=0, dtypes=[]), "autocast": {"enabled": False}}, None),
    ],
)
def test_half_precision_is_what_layers_or_autocast_showed(facts: dict[str, Any], half: float | None) -> None:
    assert values(recorded(**facts)).get("precision.half") == half


@pytest.mark.parametrize(
    ("facts", "brain"),
    [
        ({"conv": layer(autocast="bfloat16")}, 1.0),
        ({"conv": layer(weight="bfloat16")}, 1.0),
        ({"linear": layer(autocast="float16")}, 0.0),
        ({"linear": layer(autocast="float16"), "autocast": {"enabled": True, "dtype": "bfloat16"}}, 0.0),
        ({"conv": layer(), "autocast": {"enabled": False, "dtype": "bfloat16"}}, 0.0),
        ({"autocast": {"enabled": True, "dtype": "bfloat16"}, "compiled_frames": 3}, 1.0),
        ({"compiled_frames": 3, "optimizer": weights(dtypes=["bfloat16"])}, 1.0),
        ({"compiled_frames": 3}, None),
    ],
)
def test_bfloat16_is_told_from_float16(facts: dict[str, Any], brain: float | None) -> None:
    assert values(recorded(**facts)).get("precision.bf16") == brain


@pytest.mark.parametrize(
    ("layers", "capability", "tf32"),
    [
        ({"Conv2d": 53, "Linear": 1}, [8, 0], 1.0),
        ({"Conv2d": 1, "Linear": 48}, [8, 0], 0.0),
        ({"Conv2d": 53}, [7, 0], 0.0),
    ],
)
def test_the_switch_that_counts_is_that_of_the_layers_there_are(
    layers: dict[str, int], capability: list[int], tf32: float
) -> None:
    found = values(recorded(cuda={**CUDA, "capability": capability}, conv=layer(), model={"layers": layers}))
    assert found["precision.tf32"] == tf32 and found["precision.capability"] == capability[0]


@pytest.mark.parametrize(
    ("given", "weight", "first"),
    [
        ("channels_first", "channels_first", 1.0),
        ("channels_first", "channels_last", 0.0),
        ("channels_last", "channels_first", 0.0),
        ("channels_first", "either", 1.0),
        ("either", "either", None),
    ],
)
def test_one_tensor_in_channels_last_is_enough(given: str, weight: str, first: float | None) -> None:
    found = values(recorded(conv=layer(input_layout=given, weight_layout=weight)))
    assert found.get("layout.channels_first") == first


@pytest.mark.parametrize(
    ("seen", "first"),
    [
        (weights(channels_last=17, channels_first=0), 0.0),
        (weights(), None),  # the compiler may reorder them
    ],
)
def test_the_layout_of_compiled_convolutions_comes_from_their_weights_if_known(seen: Any, first: float | None) -> None:
    missing: dict[str, str] = {}
    found = values(recorded(compiled_frames=3, optimizer=seen, cuda=CUDA), missing)
    assert found.get("layout.channels_first") == first
    assert ("the compiler chooses" in missing.get("layout.channels_first", "")) is (first is None)
    assert found["precision.tf32"] == 1.0, "what counts is the switch of convolutions"


def test_replicas_are_counted() -> None:
    assert (
        values(recorded(data_parallel=[{"devices": 4, "file": "/job/train.py", "line": 3}]))["parallel.devices"] == 4.0
    )


def test_every_value_is_in_the_catalogue() -> None:
    made = recorded(
        syncs={"looks": 10, "sites": [site()]}, copies=[copy()], conv=layer(), cuda=CUDA,
        model={"layers": {"Conv2d": 53}}, data_parallel=[{"devices": 2}],
    )  # fmt: skip
    assert set(values(made)) <= set(MEASURES)
    assert {name for name, _ in analyse(made).values} <= set(MEASURES)
