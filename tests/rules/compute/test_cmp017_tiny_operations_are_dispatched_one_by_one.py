"""CMP017, tiny operations are dispatched one by one: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Where
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

CELLS = {"LSTMCell": 1, "Linear": 1}


def cmp017(
    each_us: float | None = 20.0,
    operations: float = 1200.0,
    *,
    layers: dict[str, int] | None = None,
    samples: float = 16.0,
    batches: float = 1.0,
    own: float = 1.0,
    line_samples: int = 50,
    parameters: int = 0,
    gpu: bool = False,
    ranks: int = 1,
    **more: Any,
) -> Analysis:
    """Ranks whose micro-batches have so many operations of so many microseconds; forward and backward take 90 % of `own`."""
    known = {"model": {"class": "Net", "layers": CELLS if layers is None else layers, "parameters": parameters}}
    facts = {str(n): {**known, **({"cuda": {"index": 0}} if gpu else {})} for n in range(ranks)}
    values: dict[str, Any] = {
        "step.samples": dict.fromkeys(range(ranks), samples * batches),
        "step.batches": dict.fromkeys(range(ranks), batches),
    }
    if each_us is not None:
        values["step.operations"] = dict.fromkeys(range(ranks), operations * batches)
        values["step.operation_s"] = dict.fromkeys(range(ranks), each_us / 1e6)
    lines = (HotLine("/job/model.py", 33, "forward", "", line_samples, 0.9, io=False),)
    phases = rank(input_wait=1.0 - own)
    return job(
        dict.fromkeys(range(ranks), phases), **{"values": values, "facts": facts, "forward_lines": lines, **more}
    )


def rows(samples: float, **more: Any) -> dict[str, Any]:
    """Micro-batches of a perceptron, which is called once for each."""
    return {"operations": 16.0, "layers": {"Linear": 6, "ReLU": 4}, "samples": samples, **more}


TABLE = Table(
    "CMP017",
    cmp017,
    where=Where("/job/model.py", 33),
    lines={
        "calling": ({"each_us": 50.0}, {"each_us": 50.1}),
        "operations": ({"operations": 100.0}, {"operations": 99.9}),
        "repeats": (
            {"operations": 200.0, "layers": {"LSTMCell": 10}},
            {"operations": 199.0, "layers": {"LSTMCell": 10}},
        ),
        "samples": (rows(4.0), rows(4.1)),
    },
    false_alarms={
        "on a GPU, which is for CMP003": {"gpu": True},
        "a perceptron at an ordinary batch size": rows(64.0, each_us=22.0),
        "many layers, each called once": {
            "operations": 430.0,
            "layers": {"Conv2d": 120, "BatchNorm2d": 121},
            "each_us": 45.0,
        },
        "a transformer, whose layers have seven operations": {
            "operations": 260.0,
            "layers": {"Linear": 16, "LayerNorm": 8, "Dropout": 12},
        },
        "a model whose layers are not known": {"layers": {}},
        "a loop over large tensors": {"each_us": 130.0},
        "a step that waits for input": {"own": 0.02},
    },
    severities=(({}, "critical"), ({"each_us": 20.0, "own": 0.3}, "high"), ({"own": 0.1}, "medium")),
    also_fires={
        "a batch of one": rows(1.0),
        "of two ranks": {"ranks": 2},
        "a loop over samples": {"operations": 640.0, "layers": {"Linear": 4, "ReLU": 3}, "samples": 32.0},
    },
    not_measured={"operations that nobody counted": ({"each_us": None}, ("step.operations",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp017_advises_the_fused_module_for_the_cell_alone() -> None:
    advice = {
        kind: found("CMP017", cmp017(layers={kind: 1, "Linear": 1})).fixes[0] for kind in ("LSTMCell", "GRUCell", "GRU")
    }
    assert advice["LSTMCell"].change.startswith("nn.LSTM(")
    assert "nn.GRU" not in advice["GRUCell"].title + advice["GRUCell"].change
    assert advice["GRU"].title.startswith("pass all time steps to nn.GRU in one call")


@pytest.mark.parametrize("seen", ["layers", "stacks"])
def test_cmp017_is_low_where_torchs_own_layer_loops(seen: str) -> None:
    """`layers` misses the layer where the job calls parts of its model."""
    line = HotLine("/job/model.py", 33, "forward", "GRU.forward (rnn.py:1440)", 50, 0.9, io=False)
    where = {"layers": {"GRU": 1}} if seen == "layers" else {"layers": {"Linear": 1}, "forward_lines": (line,)}
    finding = found("CMP017", cmp017(**where))
    assert finding.severity == "low" and "use nn.LSTM" in finding.fixes[0].title
    assert found("CMP017", cmp017(samples=1.0, **where)).severity != "low", "larger batches are no other model"


@pytest.mark.parametrize(
    ("samples", "batches", "size"),
    [
        (1, 16, "batch_size=16, no gradient"),
        (2, 16, "batch_size=16, gradient accumulation over 2"),
        (4, 6, "batch_size=12"),
        (3, 7, "batch_size=21"),
    ],
)
def test_cmp017_merges_micro_batches_without_a_rest(samples: float, batches: float, size: str) -> None:
    finding = found("CMP017", cmp017(**rows(samples, batches=batches)))
    assert finding.fixes[0].change.startswith(size)


SMALL = {"batches": 32.0, "parameters": 280_000}


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        pytest.param({"each_us": 20.0}, {"each_us": 31.0}, id="of longer operations less is calling"),
        pytest.param({}, {"parameters": 56_000}, id="each batch passes through all parameters"),
        pytest.param({"layers": {"Conv2d": 4}}, {"layers": {"Linear": 4}}, id="convolutions take long to call"),
    ],
)
def test_cmp017_gains_by_larger_batches_what_does_not_depend_on_their_samples(
    faster: dict[str, Any], slower: dict[str, Any]
) -> None:
    more, less = (
        found("CMP017", cmp017(**{**rows(1.0), **SMALL, "each_us": 31.0, **changed})).saving
        for changed in (faster, slower)
    )
    assert more is not None and less is not None and more.speedup[1] > less.speedup[1]


def test_cmp017_asks_for_a_learning_rate_only_where_the_update_changes() -> None:
    alone, accumulated = (found("CMP017", cmp017(**rows(1.0, batches=batches))) for batches in (1.0, 16.0))
    assert "learning rate" in alone.fixes[0].title and "learning rate" not in accumulated.fixes[0].title
    assert alone.saving is not None and accumulated.saving is not None
    assert alone.saving.speedup[1] > accumulated.saving.speedup[1]  # its optimizer, too, steps less often


def test_cmp017_does_not_promise_what_another_loop_gains() -> None:
    saving = found("CMP017", cmp017(layers={"OwnCell": 1, "Linear": 2})).saving
    assert saving is not None and saving.speedup[0] == 1.0 and saving.is_vague


@pytest.mark.parametrize("layers", [{"OwnCell": 1, "Linear": 2}, {"LSTMCell": 1}])
def test_cmp017_has_no_gain_where_each_iteration_needs_the_one_before(layers: dict[str, int]) -> None:
    loop = HotLine("/job/model.py", 30, "sample", "", 50, 0.6, io=False)
    finding = found("CMP017", cmp017(layers=layers, chained_loops=(loop,)))
    assert (finding.severity, finding.saving, finding.fixes[0].where) == ("low", None, Where("/job/model.py", 30))
    few = replace(loop, share=0.4)
    assert found("CMP017", cmp017(layers=layers, chained_loops=(few,))).saving is not None


def test_cmp017_adds_larger_batches_to_a_loop_over_few_samples() -> None:
    assert [fix.title for fix in found("CMP017", cmp017(samples=1.0)).fixes][1].startswith("batches of 16")


def test_cmp017_names_no_line_for_a_few_samples() -> None:
    assert found("CMP017", cmp017(line_samples=9)).fixes[0].where is None


def stepwise(layer: str, *, share: float = 0.8, leaf: bool = True, **more: Any) -> Any:
    line = HotLine("/job/model.py", 21, "unroll", layer if leaf else "", 60, share, io=False)
    return found("CMP017", cmp017(layers={layer: 1, "Linear": 1}, recurrent_lines=(line,), **more))


def test_cmp017_gives_a_layer_that_is_called_step_by_step_many_time_steps_at_once() -> None:
    finding = stepwise("GRU")
    assert finding.fixes[0].where == Where("/job/model.py", 21) and "gru(inputs, state)" in finding.fixes[0].change
    assert finding.severity == "high"
    low, high = finding.saving.speedup
    assert 1.15 < low < 1.2 and 1.6 < high < 1.7


def test_cmp017_finds_such_calls_however_long_each_takes() -> None:
    finding = stepwise("LSTM", each_us=75.0, operations=80.0)
    assert finding.saving == stepwise("LSTM").saving
    assert "model.py:21 in unroll, 80 % of" in finding.evidence[-1].note


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_cmp017_expects_more_of_one_call_the_fewer_sequences_it_computes(layer: str) -> None:
    few, some, many = (stepwise(layer, samples=samples).saving.speedup for samples in (4.0, 16.0, 32.0))
    assert some == (many[0], few[1]) and few[0] > many[0] and few[1] >= many[1]
    assert stepwise(layer, samples=0.0).saving.speedup == some, "unknown"


def test_cmp017_knows_the_layer_by_the_model_where_profiles_do_not_name_it() -> None:
    assert stepwise("LSTM", leaf=False).saving == stepwise("LSTM").saving


def test_cmp017_gains_more_by_one_call_of_an_lstm_and_less_where_the_layer_is_a_part() -> None:
    low, high = stepwise("LSTM").saving.speedup
    assert low > stepwise("GRU").saving.speedup[0] and high > 2.0
    assert stepwise("LSTM", share=0.3).saving.speedup[1] < 1.4
