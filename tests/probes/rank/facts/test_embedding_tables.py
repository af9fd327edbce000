"""Rows of embedding tables without a gradient are counted in a few observations, which change nothing of the job."""

from __future__ import annotations

import gc
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fact_paper import Paper  # noqa: E402
from rn50_advisor.probes.rank.facts.embedding_tables import (  # noqa: E402
    ELEMENTS_MIN,
    MADE_MAX,
    OBSERVATIONS_MAX,
    ROWS_AT_ONCE,
    TABLES_AT_ONCE,
    EmbeddingTables,
)

nn, optim = torch.nn, torch.optim
ROWS, WIDTH = 5000, 64


class Observations:
    """Observations as often as it is told, whatever the time, at tables of a model."""

    def __init__(self, model: Any = None) -> None:
        self.paper, self.step, self.model = Paper(), 0, model
        self.tables = EmbeddingTables(self.paper, lambda: self.model)  # type: ignore[arg-type]

    def know(self, *tables: Any) -> Any:
        for table in tables:
            self.tables.made(table)
        return tables[0]

    def observe(self, optimizer: Any, times: int = 1) -> None:
        for _ in range(times):
            self.step += 10
            self.tables._due_ns = 0
            self.tables.observe(optimizer, self.step)

    @property
    def found(self) -> list[dict[str, Any]]:
        assert self.paper.missed == []
        return list(self.paper.values["tables"])


def backward(table: Any, *rows: int, head: Any = None) -> None:
    """Gradients of these rows; `head`: a layer with the same weight, which reaches all rows."""
    given = table(torch.tensor([list(rows)]))
    (given if head is None else head(given)).sum().backward()


def seen(table: Any, rows: range, **more: Any) -> dict[str, Any]:
    """The one table after five observations with gradients in these rows."""
    observations, optimizer = Observations(), more.pop("optimizer", None) or optim.Adam(table.parameters())
    observations.know(table)
    backward(table, *rows, **more)
    observations.observe(optimizer, times=OBSERVATIONS_MAX)
    (found,) = observations.found
    return found


def test_rows_without_a_gradient_are_counted() -> None:
    found = seen(nn.Embedding(ROWS, WIDTH), range(0, ROWS, 4))
    assert found["rows_seen"] == OBSERVATIONS_MAX * ROWS_AT_ONCE and found["looks"] == OBSERVATIONS_MAX
    assert found["rows_empty"] / found["rows_seen"] == pytest.approx(0.75, abs=0.05)
    assert (found["rows"], found["width"], found["elements"]) == (ROWS, WIDTH, ROWS * WIDTH)
    assert (found["class"], found["optimizer"], found["settings"]) == ("Embedding", "Adam", [])


def test_the_call_that_made_the_table_is_known() -> None:
    found = seen(nn.Embedding(ROWS, WIDTH), range(9))
    assert found["file"].endswith("test_embedding_tables.py") and found["line"] > 0


def test_a_head_with_the_same_weight_fills_all_rows() -> None:
    table, head = nn.Embedding(ROWS, WIDTH), nn.Linear(WIDTH, ROWS, bias=False)
    head.weight = table.weight
    assert seen(table, range(1, 9), head=head)["rows_empty"] == 0


def test_bags_have_rows_too() -> None:
    found = seen(nn.EmbeddingBag(ROWS, WIDTH), range(ROWS))
    assert (found["class"], found["rows_empty"]) == ("EmbeddingBag", 0)


class Own(nn.Embedding):  # type: ignore[misc,name-defined]
    pass


@pytest.mark.parametrize(
    ("table", "optimizer", "settings"),
    [
        (nn.Embedding(ROWS, WIDTH), optim.AdamW, ["weight_decay"]),
        (nn.Embedding(ROWS, WIDTH), lambda p: optim.AdamW(p, weight_decay=0.0), []),
        (nn.Embedding(ROWS, WIDTH), lambda p: optim.SGD(p, lr=0.1, momentum=0.9), ["momentum"]),
        (nn.Embedding(ROWS, WIDTH), lambda p: optim.Adam(p, amsgrad=True), ["amsgrad"]),
        (nn.Embedding(ROWS, WIDTH, max_norm=1.0), lambda p: optim.SGD(p, lr=0.1), ["max_norm"]),
        (nn.Embedding(ROWS, WIDTH, scale_grad_by_freq=True), lambda p: optim.SGD(p, lr=0.1), ["scale_grad_by_freq"]),
        (nn.EmbeddingBag(ROWS, WIDTH, mode="max"), lambda p: optim.SGD(p, lr=0.1), ["mode"]),
        (Own(ROWS, WIDTH), lambda p: optim.SGD(p, lr=0.1), []),
    ],
    ids=["decays", "decays not", "momentum", "amsgrad", "max_norm", "by frequency", "a bag's maximum", "a subclass"],
)
def test_settings_that_sparse_gradients_do_not_allow_are_listed(
    table: Any, optimizer: Any, settings: list[str]
) -> None:
    found = seen(table, range(9), optimizer=optimizer(table.parameters()))
    assert found["settings"] == settings and found["class"] in ("Embedding", "EmbeddingBag")


def test_the_table_gets_its_name_when_the_model_is_known() -> None:
    table = nn.Embedding(ROWS, WIDTH)
    model, observations = nn.Sequential(nn.ModuleDict({"users": table}), nn.Linear(WIDTH, 1)), Observations()
    observations.know(table)
    backward(table, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    observations.observe(optimizer)
    assert "name" not in observations.found[0]
    observations.model = nn.ModuleDict({"module": model})  # as a wrapper holds it
    observations.observe(optimizer)
    assert observations.found[0]["name"] == "0.users.weight"


def test_sparse_frozen_small_and_forgotten_tables_are_passed_over() -> None:
    observations = Observations()
    sparse, frozen, small = nn.Embedding(ROWS, WIDTH, sparse=True), nn.Embedding(ROWS, WIDTH), nn.Embedding(9, WIDTH)
    frozen.requires_grad_(False)
    observations.know(sparse, frozen, small, nn.Embedding(ROWS, WIDTH))
    assert 9 * WIDTH < ELEMENTS_MIN
    gc.collect()
    backward(sparse, 1), backward(small, 1)
    observations.observe(optim.SGD([*sparse.parameters(), *frozen.parameters(), *small.parameters()], lr=0.1), times=9)
    assert observations.found == [] and observations.tables._due_ns > 1 << 60


def test_a_table_on_another_device_is_named_and_not_read() -> None:
    observations, table = Observations(), nn.Embedding(ROWS, WIDTH, device="meta")
    observations.know(table)
    table.weight.grad = torch.zeros_like(table.weight)
    observations.observe(optim.SGD(table.parameters(), lr=0.1), times=9)
    (found,) = observations.found
    assert (found["device"], found["looks"], found["rows_seen"]) == ("meta", 0, 0)
    assert observations.tables._due_ns > 1 << 60


def test_many_tables_take_turns() -> None:
    observations, tables = Observations(), [nn.Embedding(ROWS, WIDTH) for _ in range(2 * TABLES_AT_ONCE)]
    observations.know(*tables)
    for table in tables:
        backward(table, 1)
    optimizer = optim.SGD([table.weight for table in tables], lr=0.1)
    observations.observe(optimizer)
    assert sorted(found["looks"] for found in observations.found) == [0] * TABLES_AT_ONCE + [1] * TABLES_AT_ONCE
    observations.observe(optimizer, times=9)
    assert {found["looks"] for found in observations.found} == {OBSERVATIONS_MAX}
    assert observations.tables._due_ns > 1 << 60 and observations.paper.written == 1


def test_a_job_may_keep_making_tables() -> None:
    observations, table = Observations(), nn.Embedding(ROWS, WIDTH)
    observations.know(*[table] * (MADE_MAX + 9))
    assert len(observations.tables._made) == MADE_MAX


def test_released_memory_is_passed_over() -> None:
    observations, table = Observations(), nn.Embedding(ROWS, WIDTH)
    observations.know(table)
    backward(table, 1)
    table.weight.grad.untyped_storage().resize_(0)
    observations.observe(optim.SGD(table.parameters(), lr=0.1))
    assert observations.found[0]["looks"] == 0


def test_nothing_of_the_job_is_changed() -> None:
    observations, table = Observations(), nn.Embedding(ROWS, WIDTH)
    optimizer = optim.SGD(table.parameters(), lr=0.1)
    observations.know(table)
    backward(table, 1, 2)
    gradient, version = table.weight.grad.clone(), table.weight.grad._version
    state, nodes = torch.get_rng_state(), torch.autograd._get_sequence_nr()
    with torch.enable_grad():
        observations.observe(optimizer, times=3)
    assert torch.equal(table.weight.grad, gradient) and table.weight.grad._version == version
    assert torch.equal(torch.get_rng_state(), state) and torch.autograd._get_sequence_nr() == nodes
    assert not optimizer.state and len(gc.get_referrers(table)) <= 2, "the recorder keeps no table alive"
