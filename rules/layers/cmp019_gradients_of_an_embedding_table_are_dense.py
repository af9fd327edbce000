"""Dense gradients of an embedding table.

What it does: finds training on CPUs that updates all rows of a large embedding table in every step, though a batch uses few of
them.

Fires when: ≥ 80 % of the rows of `nn.Embedding` or `nn.EmbeddingBag` tables that were looked at have a gradient of zero, and
updating these tables takes ≥ 3 % of the step, which sparse gradients shorten even at worst.

Why it is slow: the backward pass makes a gradient as large as the whole table, mostly of zeros, in new memory. The optimizer
reads and writes each of its rows, with its moments. Both take as long for a row without a gradient as for any other.

Evidence: in some early steps, whether the gradients of a few hundred rows are zero, read before the optimizer's step; the table's share
of the optimizer's elements; the time of `optimizer.step()`.

Fix: `sparse=True` in the call that makes the table. SGD and Adagrad take sparse gradients and compute the same up to
rounding. Adam does not: the table needs a `SparseAdam` of its own beside the Adam of all other parameters. SparseAdam
updates the moments of the batch's rows alone, so compare the accuracy. Who wants the same numbers keeps Adam and takes its
fused form (CMP014).

Estimate: what the table takes of the optimizer's time, by its share of the elements, and the part of the backward pass that fills its
gradient, less what sparse updates of the rows in use take. Memory of gradients from 32 MiB on goes back to the kernel in each step: at
best zero_grad is spared this as well. How long sparse updates take beside dense ones was measured, with gains of 1.07 to 106 times; the
larger the gain, the wider its range.

False alarms: none of weights that other layers share, or of tables whose rows are mostly used, since their gradients fill the rows. The
rule is silent where sparse gradients would fail or compute something else: weight decay (AdamW has it by default),
momentum, amsgrad, max_norm, scale_grad_by_freq, other optimizers, and ranks that exchange gradients otherwise than by
DistributedDataParallel over gloo. `clip_grad_value_` and hooks of the job may not take sparse gradients. On a GPU reading
a gradient would wait for it, so that nothing is measured there. A table that is no module (`F.embedding`), or that was
copied or unpickled, is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S, TABLE_EMPTY_ROWS
from rn50_advisor.advisor.model.wording.quantities import counted, duration, number, share
from rn50_advisor.probes.documents.model_documents import TableFacts
from rn50_advisor.rules.analysis_reading import model_of, taken_from
from rn50_advisor.rules.compute.compute_cost import facts_of, fused_on_cpu, updating_s
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


@dataclass(frozen=True, slots=True)
class _Cost:
    """(at best, at worst) in multiples of the dense update of one element.

    `table`: the sparse update of a table without rows; `row`: of each row more, and `width`: of each of the row's elements. `gradient`: an
    element of the dense gradient, in the backward pass; `freed`: of one whose memory goes back to the kernel.
    """

    table: tuple[float, float]
    row: tuple[float, float]
    width: tuple[float, float]
    gradient: tuple[float, float]
    freed: tuple[float, float]


# Measured on two cores with torch 2.14: mostly beside other work, in 48 pairs of trainings of 26 kinds on one or two threads, tables from
# 100,000 x 8 to 4,000,000 x 32, and 26 of them, in batches of 256 to 4096 with 1 to 26 fields, below three sizes of dense layers; and on
# quiet cores, the steps of both in turns, for seven kinds on one and on two threads, and with a heap that keeps its memory. Of these 21
# gains, 2.3 to 106, the ranges of these numbers hold 20 within 5 %. The dense update of an element took 2.6 to 12 ns with Adam, 1.3 to
# 2.1 ns with its fused form, 2.8 to 8 ns with Adagrad, 0.2 to 0.9 ns with SGD; the sparse update of a row 0.4 to 1.5 us with SparseAdam,
# 0.3 to 0.8 us with Adagrad, 0.1 to 0.4 us with SGD; an element of a dense gradient 0.2 to 4 ns, and 0.1 to 0.4 ns more in zero_grad
# where its memory goes back to the kernel.
_COSTS = {
    "Adam": _Cost((10_000, 50_000), (60, 200), (0.5, 1), (0.3, 0.04), (0.07, 0)),
    "fused Adam": _Cost((100_000, 300_000), (200, 600), (5, 10), (2, 1), (0.3, 0)),
    "SGD": _Cost((20_000, 200_000), (150, 700), (2, 6), (7, 0.6), (1, 0)),
    "Adagrad": _Cost((15_000, 60_000), (80, 240), (1, 2), (0.45, 0.06), (0.07, 0)),
}
_RETURNED_BYTES_MIN = 32 << 20  # glibc gives so much back to the kernel when it is freed
_ELEMENT_BYTES = 4
_SAME_NUMBERS = ("SGD", "Adagrad")  # with sparse gradients as with dense ones
_WITH_SPARSE_FORM: Mapping[str, str] = {"Adam": "SparseAdam", "AdamW": "SparseAdam"}
_GRADIENTS_MAX = (0.97, 0.93)  # of the backward pass: the rest of the model takes some of it
# What a backward pass takes beyond this many forward passes fills dense gradients: with sparse ones it took 0.8 to 1.3 forward passes.
_BACKWARD_MAX = 3.0


@dataclass(frozen=True, slots=True)
class _Spared:
    """Seconds of a step: of its backward pass, of giving gradients' memory back in zero_grad, and of the optimizer."""

    gradients: float
    freed: float
    updates: float


@dataclass(frozen=True, slots=True)
class _Dense:
    """Tables of one rank whose gradients could be sparse, the largest first, and the seconds of a step in which all rows are updated."""

    tables: tuple[TableFacts, ...]
    update_s: float  # without waiting for a core
    waiting_s: float  # for a core, meanwhile

    @property
    def empty(self) -> float:
        """The share of rows without a gradient, by the tables' sizes."""
        return sum(_empty(table) * _elements(table) for table in self.tables) / self._whole

    @property
    def _whole(self) -> int:
        return sum(map(_elements, self.tables))

    def spared_s(self, case: Literal[0, 1]) -> _Spared:
        """Seconds that sparse gradients spare, at best (0) or at worst (1)."""
        # at best there is less to wait for, too
        gradients, freed, updates = 0.0, 0.0, self.update_s + (self.waiting_s if case == 0 else 0.0)
        element_s = updates / self._whole
        for table in self.tables:
            cost, used = _cost(table), (1.0 - _empty(table)) * table["rows"]
            gradients += element_s * cost.gradient[case] * _elements(table)
            if _ELEMENT_BYTES * _elements(table) >= _RETURNED_BYTES_MIN:
                freed += element_s * cost.freed[case] * _elements(table)
            sparse = cost.table[case] + used * (cost.row[case] + cost.width[case] * table["width"])
            updates -= element_s * sparse
        return _Spared(gradients, freed, updates)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    own, step = model_of(a).own, a.value(STEP_TIME_S)
    known = {rank: facts_of(a, rank).get("tables") for rank in own}
    if a.on_gpu:
        held = any(table["device"] != "cpu" for tables in known.values() for table in tables or ())
        return NotMeasured(RULE.id, (TABLE_EMPTY_ROWS,)) if held else Clear(RULE.id)
    looked_at = a.by_rank(TABLE_EMPTY_ROWS)
    if not looked_at and any(tables is None or tables for tables in known.values()):
        return NotMeasured(RULE.id, (TABLE_EMPTY_ROWS,))
    found = {rank: dense for rank in own if rank in looked_at and (dense := _dense(a, rank, t)) is not None}
    if not found or not _takes_sparse(a):
        return Clear(RULE.id)
    worst = max(found, key=lambda rank: found[rank].update_s)
    best_s, worst_s = (_step_with(a, found, case) for case in (0, 1))
    lost = step - 0.5 * (best_s + worst_s)
    level = severity(lost / step)
    if found[worst].update_s < t["update"] * step or level is None or worst_s >= step:  # or may be slower
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=_title(found[worst]),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=_evidence(found[worst], step, t),
        fixes=_fixes(a, worst, found[worst].tables),
        saving=model_of(a).saving(best_s, worst_s, "sparse gradients of the table"),
    )


def _dense(a: Analysis, rank: int, t: Thresholds) -> _Dense | None:
    facts = facts_of(a, rank)
    tables = sorted(filter(_could_be_sparse, facts.get("tables", ())), key=_elements, reverse=True)
    tables = [table for table in tables if _empty(table) >= t["empty"]]
    if not tables:
        return None
    # `work` counts what all optimizers of a step update
    updated = max(tables[0]["elements"], facts["work"][-1][1] if facts.get("work") else 0)
    part, update_s = min(1.0, sum(map(_elements, tables)) / updated), updating_s(a)[rank]
    return _Dense(tuple(tables), part * update_s, part * (model_of(a).own[rank]["optimizer"] - update_s))


def _could_be_sparse(table: TableFacts) -> bool:
    taken = table["optimizer"] in (*_SAME_NUMBERS, *_WITH_SPARSE_FORM) and table["module"].startswith("torch.optim")
    return taken and not table["settings"] and table["rows_seen"] > 0


def _takes_sparse(a: Analysis) -> bool:
    """False for ranks that exchange their gradients otherwise than by DistributedDataParallel over gloo."""
    ddp = [model for rank in model_of(a).own for model in facts_of(a, rank).get("ddp", ())]
    return a.world_size == 1 or (bool(ddp) and all(model.get("backend_name") == "gloo" for model in ddp))


def _step_with(a: Analysis, found: Mapping[int, _Dense], case: Literal[0, 1]) -> float:
    model, changes = model_of(a), dict[tuple[int, str], float]()
    for rank, dense in found.items():
        own, spared, most = model.own[rank], dense.spared_s(case), dense.spared_s(0)
        seen = own["backward"] - _BACKWARD_MAX * own["forward"]
        gradients = min(max(spared.gradients, seen), most.gradients, _GRADIENTS_MAX[case] * own["backward"])
        freed = min(spared.freed, _GRADIENTS_MAX[case] * (own["forward"] + own["gap"]))
        for phase, seconds in taken_from(own, ("forward", "gap"), freed).items():
            changes[rank, phase] = seconds
        changes[rank, "backward"] = own["backward"] - gradients
        changes[rank, "optimizer"] = own["optimizer"] - spared.updates
    step = model.step_if(changes)
    return model.at_best(step) if case == 0 else step


def _elements(table: TableFacts) -> int:
    return table["rows"] * table["width"]


def _empty(table: TableFacts) -> float:
    return table["rows_empty"] / max(1, table["rows_seen"])


def _cost(table: TableFacts) -> _Cost:
    name = table["optimizer"].replace("AdamW", "Adam")
    return _COSTS.get(f"fused {name}" if table["fused"] else name, _COSTS[name])


def _name(table: TableFacts) -> str:
    return table.get("name") or "an embedding table"


def _title(dense: _Dense) -> str:
    of = _name(dense.tables[0]) if len(dense.tables) == 1 else f"{len(dense.tables)} embedding tables"
    return f"Dense gradients: every step updates all rows of {of}, a batch uses {share(1.0 - dense.empty)}"


def _evidence(dense: _Dense, step_s: float, t: Thresholds) -> tuple[Evidence, ...]:
    largest, several = dense.tables[0], len(dense.tables) > 1
    seen, looks = sum(table["rows_seen"] for table in dense.tables), max(table["looks"] for table in dense.tables)
    shape = f"{_name(largest)}, {largest['rows']:,} x {largest['width']}" + (", is the largest" if several else "")
    part = sum(map(_elements, dense.tables)) / largest["elements"]
    return (
        Evidence.of(
            TABLE_EMPTY_ROWS,
            dense.empty,
            t["empty"],
            f"of {seen:,} rows looked at in {counted(looks, 'step')} have no gradient: {shape}",
            form="continues",
        ),
        Evidence(
            "optimizer",
            dense.update_s,
            "s",
            t["update"] * step_s,
            f"of a {duration(step_s)} step in {largest['optimizer']} for {'these tables' if several else 'this table'}, "
            f"{share(min(1.0, part))} of its {number(largest['elements'])} elements",
            "continues",
        ),
    )


def _fixes(a: Analysis, rank: int, tables: tuple[TableFacts, ...]) -> tuple[Fix, ...]:
    largest = tables[0]
    name, where = largest["optimizer"], Where(largest["file"], largest["line"]) if largest["file"] else None
    of = _name(largest) if len(tables) == 1 else f"{_name(largest)} and {counted(len(tables) - 1, 'other table')}"
    change = CallChange.of(largest["class"], sparse=True)
    reduced = "; DistributedDataParallel sums them over gloo, as here, and hardly over NCCL" if a.world_size > 1 else ""
    if name in _SAME_NUMBERS:
        unfused = f", and {name} without fused=True, which supports none" if largest["fused"] else ""
        more = f"  # {name} computes the same up to rounding{unfused}{reduced}"
        return (Fix.of(f"sparse gradients for {of}", change, where, "one line", more=more),)
    sparse = _WITH_SPARSE_FORM[name]
    module = f"model.{largest['name'].removesuffix('.weight')}" if largest.get("name") else "table"
    more = f", and {sparse} for it, since {name} does not support sparse gradients{reduced}"
    split = f"optimizers = [{sparse}(list({module}.parameters()), lr=...), {name}(the other parameters, lr=...)]"
    fixes = [
        Fix.of(f"sparse gradients for {of}, and {sparse}", change, where, "small change", more=more),
        Fix(
            f"with it, two optimizers: {sparse} for the {'table' if len(tables) == 1 else 'tables'}, {name} for the rest",
            f"{split}\n{sparse} updates the moments of the batch's rows alone: check the accuracy",
        ),
    ]
    if fused_on_cpu(facts_of(a, rank)):
        title = f"or, if the numbers must stay the same, {name} in its fused form"
        fixes.append(Fix.of(title, CallChange(name, (("fused", True),), without=("foreach",)), None, "one line"))
    return tuple(fixes)


RULE = rule(
    __name__,
    "Dense gradients of an embedding table",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "empty": Threshold(0.8, "of the rows: where a third was used, SparseAdam made the step 1.2 times as long"),
        "update": Threshold(0.03, "of the step: with the backward pass, which spares as much again, 5 % from here on"),
    },
)
