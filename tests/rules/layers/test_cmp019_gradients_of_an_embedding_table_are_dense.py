"""CMP019, gradients of an embedding table are dense: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from explained_rules import would_explain
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

SEEN = 2_000


def table(empty: float = 0.99, rows: int = 1_000_000, **more: Any) -> dict[str, Any]:
    """A table whose optimizer updates nothing else, looked at in five steps."""
    known = {
        "class": "Embedding",
        "file": "/job/train.py",
        "line": 7,
        "name": "embed.weight",
        "rows": rows,
        "width": 16,
    }
    updated = {"optimizer": "Adam", "module": "torch.optim.adam", "fused": False, "elements": 16 * rows, "settings": []}
    looks = {"device": "cpu", "looks": 5, "rows_seen": SEEN, "rows_empty": round(empty * SEEN)}
    return {**known, **updated, **looks, **more}


def cmp019(
    spent: float = 0.5,
    tables: list[dict[str, Any]] | None = None,
    *,
    ranks: int = 1,
    ddp: str = "",
    gpu: bool = False,
    looked_at: bool = True,
    torch: str = "2.5.1",
    steady: int = 200,
    values: dict[str, Any] | None = None,
    **more: Any,
) -> Analysis:
    """Ranks that spend so much of their step in updating a table; `more`: its fields."""
    tables = [table(**more)] if tables is None else tables
    first = tables[0] if tables else table()
    optimizer = {"class": first["optimizer"], "module": first["module"], "fused": first["fused"]}
    facts: dict[str, Any] = {"torch": torch, "optimizer": optimizer}
    facts |= {"tables": tables} if looked_at else {}
    facts |= {"cuda": {"index": 0}} if gpu else {}
    facts |= {"ddp": [{"backend_name": ddp}]} if ddp else {}
    own = {n: rank(1.0 - spent, optimizer=0.0) | {"optimizer": spent} for n in range(ranks)}
    seen = sum(each["rows_seen"] for each in tables)
    empty = {n: sum(each["rows_empty"] for each in tables) / seen for n in range(ranks)} if looked_at and seen else {}
    known = {**({"table.empty_rows": empty} if empty else {}), **(values or {})}
    return job(own, steady=steady, values=known, facts={str(n): facts for n in range(ranks)})


WIDE = {"width": 64, "elements": 64_000_000}
ON_GPU = {"gpu": True, "tables": [table(device="cuda", looks=0, rows_seen=0, rows_empty=0)]}
TABLE = Table(
    "CMP019",
    cmp019,
    lines={
        "empty": ({"empty": 0.8, **WIDE}, {"empty": 0.7995, **WIDE}),
        "update": ({"spent": 0.0301, "optimizer": "SGD"}, {"spent": 0.0299, "optimizer": "SGD"}),
    },
    false_alarms={
        "a head that shares the weight": {"empty": 0.0},
        "a table whose rows are mostly used": {"empty": 0.3},
        "rows so narrow that sparse updates may take longer": {"empty": 0.85},
        "a decay that touches all rows": {"settings": ["weight_decay"]},
        "an optimizer that takes no sparse gradients": {"optimizer": "RMSprop"},
        "one of another library": {"module": "bitsandbytes.optim.adam"},
        "a part of the optimizer that is small": {"elements": 400_000_000},
        "one optimizer of several": {"elements": 16_000_000, "spent": 0.02},
        "waiting for a core": {"spent": 0.1, "values": {"step.run_delay_s": {0: 0.8}}},
        "no large tables": {"tables": []},
        "a GPU without tables": {"gpu": True, "tables": []},
        "a GPU in an older run": {"gpu": True, "looked_at": False},
        "ranks that exchange gradients by themselves": {"ranks": 2},
        "gradients that go over NCCL": {"ranks": 2, "ddp": "nccl"},
        "narrow rows, which sparse gradients may make slower": {"width": 2, "elements": 2_000_000, "empty": 0.91},
    },
    severities=(
        ({}, "critical"),
        ({"spent": 0.2}, "high"),
        ({"spent": 0.1}, "medium"),
    ),
    also_fires={
        "SGD": {"optimizer": "SGD"},
        "Adagrad": {"optimizer": "Adagrad"},
        "AdamW without decay": {"optimizer": "AdamW"},
        "fused already": {"fused": True},
        "bags": {"class": "EmbeddingBag"},
        "without a name": {"name": ""},
        "several tables": {"tables": [table(rows=100_000), table()]},
        "two ranks over gloo": {"ranks": 2, "ddp": "gloo"},
    },
    where=Where("/job/train.py", 7),
    not_measured={
        "a run without looks": ({"looked_at": False}, ("table.empty_rows",)),
        "gradients on a GPU": (ON_GPU, ("table.empty_rows",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp019_names_the_table_and_what_it_was_seen_to_use() -> None:
    finding = found("CMP019", cmp019())
    assert finding.title == "Dense gradients: every step updates all rows of embed.weight, a batch uses 1.0 %"
    rows, optimizer = finding.evidence
    assert rows.value == pytest.approx(0.99) and "2,000 rows looked at in 5 steps" in rows.note
    assert "embed.weight, 1,000,000 x 16" in rows.note
    assert optimizer.value == pytest.approx(0.5) and "100 % of its 16.0 M elements" in optimizer.note


def test_cmp019_counts_several_tables_and_names_the_largest() -> None:
    finding = found("CMP019", cmp019(tables=[table(name="small", rows=1_000, elements=16_001_000), table()]))
    assert (
        "2 embedding tables" in finding.title
        and "embed.weight, 1,000,000 x 16, is the largest" in finding.evidence[0].note
    )
    assert finding.fixes[0].title.startswith("sparse gradients for embed.weight and 1 other table")


def test_cmp019_asks_for_a_second_optimizer_beside_adam_and_says_what_it_changes() -> None:
    sparse, split, fused = found("CMP019", cmp019()).fixes
    assert sparse.where == Where("/job/train.py", 7) and sparse.change.startswith("Embedding(..., sparse=True)")
    assert "SparseAdam(list(model.embed.parameters()), lr=...)" in split.change and "check the accuracy" in split.change
    assert fused.change == "Adam(..., fused=True)"


def test_cmp019_leaves_out_the_fused_form_where_it_is_used_or_unknown() -> None:
    assert [len(found("CMP019", cmp019(**given)).fixes) for given in ({"fused": True}, {"torch": "2.3.1"})] == [2, 2]


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_cmp019_changes_one_call_where_the_optimizer_takes_sparse_gradients(name: str) -> None:
    (sparse,) = found("CMP019", cmp019(optimizer=name)).fixes
    assert f"{name} computes the same" in sparse.change and "fused" not in sparse.change
    (without,) = found("CMP019", cmp019(optimizer=name, fused=True)).fixes
    assert f"{name} without fused=True" in without.change


def test_cmp019_says_which_backends_sum_sparse_gradients() -> None:
    assert "gloo" in found("CMP019", cmp019(ranks=2, ddp="gloo")).fixes[0].change
    assert "gloo" not in found("CMP019", cmp019()).fixes[0].change


def test_cmp019_expects_more_the_fewer_rows_are_used() -> None:
    few, many = (found("CMP019", cmp019(empty=empty)).seconds_per_step for empty in (0.999, 0.93))
    assert few > many > 0


def test_cmp019_counts_what_other_optimizers_of_the_step_update() -> None:
    alone = cmp019()
    facts = {"0": {**alone.facts["0"], "work": [[1, 64_000_000, 1, 1]]}}
    beside = job(alone.model.own if alone.model else {}, values={"table.empty_rows": {0: 0.99}}, facts=facts)
    assert found("CMP019", beside).evidence[1].value == pytest.approx(0.125)


def test_cmp019_explains_an_optimizer_that_is_not_fused() -> None:
    assert would_explain(cmp019(), found("CMP019", cmp019())) == {"CMP014"}


def test_cmp019_counts_waiting_for_a_core_at_best() -> None:
    alone, waits = (found("CMP019", cmp019(values=values)) for values in ({}, {"step.run_delay_s": {0: 0.2}}))
    assert alone.saving is not None and waits.saving is not None
    assert waits.saving.speedup[1] == pytest.approx(alone.saving.speedup[1])
    assert waits.saving.speedup[0] < alone.saving.speedup[0]
    assert waits.evidence[1].value == pytest.approx(0.4, abs=0.01)


def with_phases(*, forward: float, backward: float, **given: Any) -> tuple[float, float]:
    """A second of which the optimizer takes 0.7."""
    made = cmp019(0.7, **given)
    assert made.model is not None
    own = {0: rank(forward=forward, backward=backward, optimizer=0.7)}
    saving = found("CMP019", replace(made, model=replace(made.model, own=own))).saving
    assert saving is not None
    return saving.seconds_per_step


def test_a_backward_pass_of_many_forward_passes_fills_the_gradient() -> None:
    (usual, _), (long, _) = with_phases(forward=0.1, backward=0.2), with_phases(forward=0.05, backward=0.25)
    # of three tenths of the update at most, the worst case takes 0.04 of it, or what is beyond three forward passes
    assert usual == pytest.approx(with_phases(forward=0.15, backward=0.15)[0])
    assert long - usual == pytest.approx(0.25 - 3 * 0.05 - 0.04 * 0.7, abs=0.003)


def test_at_best_zero_grad_gives_no_memory_back_where_a_gradient_is_large() -> None:
    few, many = (with_phases(forward=0.1, backward=0.2, rows=rows, elements=16 * rows) for rows in (500_000, 550_000))
    assert many[1] - few[1] == pytest.approx(0.07 * 0.7, abs=0.015), "from 32 MiB on"
