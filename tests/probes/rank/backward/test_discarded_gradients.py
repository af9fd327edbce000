"""Gradients that are thrown away are told from those that are used, or may be."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fact_paper import Paper  # noqa: E402
from rn50_advisor.probes.rank.backward import discarded_gradients  # noqa: E402
from rn50_advisor.probes.rank.backward.discarded_gradients import (  # noqa: E402
    FIRST_STEP,
    RECORDED,
    SETTLING_MAX,
    DiscardedGradientWatch,
)

WINDOW = RECORDED + SETTLING_MAX


class Job:
    """Two networks, and the marks of a loop that trains them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.source, self.judge = torch.nn.Linear(4, 6), torch.nn.Linear(6, 1)
        self.for_source, self.for_judge = (
            torch.optim.SGD(net.parameters(), lr=0.01) for net in (self.source, self.judge)
        )
        self.paper = Paper()
        self.observations = DiscardedGradientWatch(self.paper, lambda _: {"file": "/job/train.py", "line": 3})  # type: ignore[arg-type]

    def made(self) -> Any:
        return self.source(torch.randn(8, 4))

    def backward(self, loss: Any, **settings: Any) -> None:
        self.observations.backward_begins(loss, inner=False)
        loss.backward(**settings)
        self.observations.backward_ends()

    def update(self, optimizer: Any) -> None:
        self.observations.optimizer_begins(optimizer)
        optimizer.step()

    def train(self, step: Callable[[Job, int], Any], *, steps: int = WINDOW + 2) -> list[dict[str, Any]]:
        """Sites that throw gradients away, by a window in these steps."""
        for optimizer in (self.for_source, self.for_judge):
            self.observations.optimizer_begins(optimizer)
        self.observations.asked(FIRST_STEP, needed=True)
        for number in range(steps):
            self.observations.turn(FIRST_STEP + number)
            step(self, number)
        while self.observations.open:
            self.observations.turn(FIRST_STEP + steps)
        assert not self.paper.missed
        assert self.paper.values["watched_gradients"] == RECORDED
        found: list[dict[str, Any]] = self.paper.values.get("discarded_gradients", [])
        return found


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, of in enumerate(lines, 1) if of.endswith(text))


def not_detached(job: Job, number: int = 0, *, none: bool = True) -> None:
    job.for_judge.zero_grad(set_to_none=none)
    job.backward(job.judge(job.made()).square().mean())  # the source learns nothing here
    job.update(job.for_judge)
    job.for_source.zero_grad(set_to_none=none)
    job.judge.requires_grad_(False)
    job.backward(job.judge(job.made()).mean())
    job.judge.requires_grad_(True)
    job.update(job.for_source)


def not_frozen(job: Job, number: int = 0) -> None:
    job.for_judge.zero_grad()
    job.backward(job.judge(job.made().detach()).square().mean())
    job.update(job.for_judge)
    job.for_source.zero_grad()
    job.backward(job.judge(job.made()).mean())  # the judge learns nothing here
    job.update(job.for_source)


@pytest.mark.parametrize("none", [True, False])
def test_gradients_that_the_next_zero_grad_removes_are_found(none: bool) -> None:
    [site] = Job().train(lambda job, number: not_detached(job, none=none))
    assert (site["file"], site["line"]) == (__file__, line_of("self.observations.backward_begins(loss, inner=False)"))
    assert site["callers"][0] == {"file": __file__, "line": line_of("# the source learns nothing here")}
    assert (site["passes"], site["dropped"], site["whole"], site["steps"]) == (RECORDED, RECORDED, 0, RECORDED)
    assert (site["elements"], site["all_elements"]) == (30, 37)
    assert (site["class"], site["made"]) == ("SGD", {"file": "/job/train.py", "line": 3})
    assert site["order"] == "upstream" and not site["others"]
    assert site["products"] == [8 * (6 + 6 + 24), 8 * (6 + 24)]
    assert 0 < site["ns"] < site["all_ns"]


def test_gradients_of_a_network_that_is_only_passed_through_are_found() -> None:
    [site] = Job().train(not_frozen)
    assert site["callers"][0]["line"] == line_of("# the judge learns nothing here") and site["order"] == "downstream"
    assert (site["elements"], site["products"]) == (7, [8 * (6 + 6 + 24), 8 * 6])


def test_a_network_that_steps_seldom_loses_what_was_added_up_until_then() -> None:
    def seldom(job: Job, number: int) -> None:
        job.for_judge.zero_grad()
        job.backward(job.judge(job.made()).square().mean())
        job.update(job.for_judge)
        if number % 5 == 4:
            job.for_source.zero_grad()
            job.judge.requires_grad_(False)
            job.backward(job.judge(job.made()).mean())
            job.judge.requires_grad_(True)
            job.update(job.for_source)

    [site] = Job().train(seldom)
    assert (site["passes"], site["dropped"]) == (RECORDED, RECORDED)


def test_a_pass_of_which_nothing_is_used() -> None:
    def too_early(job: Job, number: int) -> None:
        job.backward(job.source(torch.randn(8, 4)).square().mean())
        job.for_source.zero_grad()
        job.backward(job.source(torch.randn(8, 4)).mean())
        torch.nn.utils.clip_grad_norm_(job.source.parameters(), 0.01)
        job.update(job.for_source)

    [site] = Job().train(too_early)
    assert (site["dropped"], site["whole"], site["order"]) == (RECORDED, RECORDED, "whole")


def test_an_attack_uses_the_gradients_of_the_inputs() -> None:
    def attacking(job: Job, number: int) -> None:
        rows = torch.randn(8, 4, requires_grad=True)
        job.backward(job.source(rows).square().mean())
        job.for_source.zero_grad()
        job.backward(job.source(rows.detach() + rows.grad.sign()).mean())
        job.update(job.for_source)

    [site] = Job().train(attacking)
    assert (site["order"], site["others"], site["whole"]) == ("downstream", True, RECORDED)


def accumulating(job: Job, number: int) -> None:
    for _ in range(3):
        job.backward(job.source(torch.randn(8, 4)).square().mean())
    if number % 2:
        job.update(job.for_source)
        job.for_source.zero_grad(set_to_none=False)


def both_at_once(job: Job, number: int) -> None:
    job.backward(job.judge(job.made()).square().mean())
    job.update(job.for_judge)
    job.update(job.for_source)
    job.for_judge.zero_grad()
    job.for_source.zero_grad()


def every_other_step(job: Job, number: int) -> None:
    job.backward(job.judge(job.made()).square().mean())
    job.update(job.for_judge)
    job.for_judge.zero_grad()
    if number % 3 == 2:
        job.update(job.for_source)
        job.for_source.zero_grad()


def two_for_one_network(job: Job, number: int) -> None:
    other = job.__dict__.setdefault("other", torch.optim.Adam(job.source.parameters()))
    job.backward(job.source(torch.randn(8, 4)).square().mean())
    job.update(other if number % 2 else job.for_source)
    job.source.zero_grad()


def by_closure(job: Job, number: int) -> None:
    def closure() -> Any:
        job.for_source.zero_grad()
        loss = job.source(torch.randn(8, 4)).square().mean()
        job.observations.backward_begins(loss, inner=True)
        loss.backward()
        job.observations.backward_ends()
        return loss

    job.observations.optimizer_begins(job.for_source)
    closure()
    job.for_source.step(closure)


def sharpness_aware(job: Job, number: int) -> None:
    """The first pass moves the weights, for the second to start from there."""
    job.backward(job.source(torch.randn(8, 4)).square().mean())
    moves = [0.05 * p.grad for p in job.source.parameters()]
    for parameter, move in zip(job.source.parameters(), moves, strict=True):
        parameter.data.add_(move)
    job.for_source.zero_grad()
    job.backward(job.source(torch.randn(8, 4)).square().mean())
    for parameter, move in zip(job.source.parameters(), moves, strict=True):
        parameter.data.sub_(move)
    job.update(job.for_source)
    job.for_source.zero_grad()


def surgery(job: Job, number: int) -> None:
    """The gradients of two losses are mixed by hand."""
    kept = []
    for _ in range(2):
        job.for_source.zero_grad()
        job.backward(job.source(torch.randn(8, 4)).square().mean())
        kept.append([p.grad.clone() for p in job.source.parameters()])
    for parameter, one, other in zip(job.source.parameters(), *kept, strict=True):
        parameter.grad = one + other
    job.update(job.for_source)


def surgery_in_place(job: Job, number: int) -> None:
    job.for_source.zero_grad()
    job.backward(job.source(torch.randn(8, 4)).square().mean())
    kept = [p.grad.clone() for p in job.source.parameters()]
    job.for_source.zero_grad()
    job.backward(job.source(torch.randn(8, 4)).square().mean())
    for parameter, before in zip(job.source.parameters(), kept, strict=True):
        parameter.grad.add_(before)
    job.update(job.for_source)


def clipped_by_sample(job: Job, number: int) -> None:
    """The gradients of each sample are clipped and added up, as for differential privacy."""
    total = [torch.zeros_like(p) for p in job.source.parameters()]
    for _ in range(16):
        job.for_source.zero_grad()
        job.backward(job.source(torch.randn(1, 4)).square().mean())
        total = [of + p.grad.clamp(-1, 1) for of, p in zip(total, job.source.parameters(), strict=True)]
    for one, parameter in zip(total, job.source.parameters(), strict=True):
        parameter.grad = one / 16
    job.update(job.for_source)


def kept_elsewhere(job: Job, number: int) -> None:
    job.for_source.zero_grad()
    job.backward(job.source(torch.randn(8, 4)).square().mean())
    job.__dict__["kept"] = [p.grad for p in job.source.parameters()]
    job.for_source.zero_grad()
    job.backward(job.source(torch.randn(8, 4)).square().mean())
    job.update(job.for_source)


def skipped_by_a_scaler(job: Job, number: int) -> None:
    """The recorder says that an update begins, and the scaler leaves it out."""
    job.backward(job.source(torch.randn(8, 4)).square().mean())
    job.observations.optimizer_begins(job.for_source)
    job.for_source.zero_grad()


def scaled_and_clipped(job: Job, number: int) -> None:
    scaler = job.__dict__.setdefault("scaler", torch.amp.GradScaler("cpu"))
    fused = job.__dict__.setdefault("fused", torch.optim.AdamW(job.source.parameters(), fused=True))
    for _ in range(2):
        job.backward(scaler.scale(job.source(torch.randn(8, 4)).square().mean()))
    scaler.unscale_(fused)
    torch.nn.utils.clip_grad_norm_(job.source.parameters(), 0.01, foreach=True)
    job.observations.optimizer_begins(fused)
    scaler.step(fused)
    scaler.update()
    fused.zero_grad(set_to_none=number % 2 == 0)


def in_hooks(job: Job, number: int) -> None:
    """Each parameter is updated as soon as it has its gradient."""
    if not number:
        for parameter in job.source.parameters():
            parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    job.backward(job.source(torch.randn(8, 4)).square().mean())
    job.backward(job.source(torch.randn(8, 4)).square().mean())


def sparse(job: Job, number: int) -> None:
    table = job.__dict__.setdefault("table", torch.nn.Embedding(50, 4, sparse=True))
    optimizer = job.__dict__.setdefault("for_table", torch.optim.SparseAdam(table.parameters()))
    for _ in range(2):
        job.backward(table(torch.randint(50, (8,))).square().mean())
    job.update(optimizer)
    optimizer.zero_grad()


@pytest.mark.parametrize(
    "step",
    [
        accumulating, both_at_once, every_other_step, two_for_one_network, by_closure, sharpness_aware, surgery, surgery_in_place,
        clipped_by_sample, kept_elsewhere, skipped_by_a_scaler, scaled_and_clipped, in_hooks, sparse,
    ],
)  # fmt: skip
def test_gradients_that_are_or_may_be_used_are_not_thrown_away(step: Callable[[Job, int], None]) -> None:
    assert Job().train(step) == []


def test_compiled_networks_are_told_apart() -> None:
    job = Job()
    makes, judges = torch.compile(job.source, backend="aot_eager"), torch.compile(job.judge, backend="aot_eager")

    def step(job: Job, number: int) -> None:
        job.for_judge.zero_grad()
        job.backward(judges(makes(torch.randn(8, 4))).square().mean())
        job.update(job.for_judge)
        job.for_source.zero_grad()
        job.judge.requires_grad_(False)
        job.backward(judges(makes(torch.randn(8, 4))).mean())
        job.judge.requires_grad_(True)
        job.update(job.for_source)

    [site] = job.train(step)
    assert site["order"] == "upstream"


def test_passes_through_one_function_are_told_apart_by_its_caller() -> None:
    def step(job: Job, number: int) -> None:
        def run(loss: Any) -> None:
            job.backward(loss)

        job.for_judge.zero_grad()
        run(job.judge(job.made()).square().mean())
        job.update(job.for_judge)
        job.for_source.zero_grad()
        run(job.judge(job.made()).mean())
        job.update(job.for_source)

    sites = Job().train(step)
    lines = [[site["line"], *(place["line"] for place in site["callers"])] for site in sites]
    assert [len(set(level)) for level in zip(*lines, strict=True)][:3] == [1, 1, 2]


def test_no_object_of_the_job_is_kept_alive() -> None:
    job = Job()
    job.train(not_detached, steps=3 + FIRST_STEP)
    paper, observations = job.paper, job.observations
    objects = [weakref.ref(each) for each in (job.source, job.source.weight, job.for_source)]
    del job
    gc.collect()
    assert [each() for each in objects] == [None] * 3 and observations.optimizers == 2 and paper.values


def test_a_loop_with_one_pass_is_known_to_throw_nothing_away() -> None:
    job = Job()
    job.observations.asked(FIRST_STEP, needed=False)
    assert not job.observations.turn(FIRST_STEP) and job.paper.values == {"watched_gradients": 0}


def test_nothing_is_seen_where_the_job_would_see_it() -> None:
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc,name-defined]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    job = Job()
    job.observations.asked(FIRST_STEP, needed=True)
    assert job.observations.turn(FIRST_STEP)
    with Mode():
        not_detached(job)
    assert not job.observations.open and not job.paper.values and not job.paper.missed


def test_an_error_ends_the_looks_and_not_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    monkeypatch.setattr(discarded_gradients, "state_of", lambda *_: 1 / 0)
    job.observations.optimizer_begins(job.for_source)
    for number in range(2):
        job.observations.asked(FIRST_STEP, needed=True)
        job.observations.turn(FIRST_STEP + number)
        not_detached(job)
    assert job.paper.missed == ["discarded gradients: ZeroDivisionError"] and not job.observations.open


def test_optimizers_and_places_have_a_bound() -> None:
    job = Job()
    for _ in range(100):
        job.observations.optimizer_begins(torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1))
    assert job.observations.optimizers == discarded_gradients.OPTIMIZERS_MAX
    job.observations.asked(FIRST_STEP, needed=True)
    job.observations.turn(FIRST_STEP)
    for number in range(100):
        names: dict[str, Any] = {}
        exec(compile("\n" * number + "def run(job, loss): job.backward(loss)", "/job/made_anew.py", "exec"), names)
        names["run"](job, job.made().mean())
    assert len(job.observations._sites) == discarded_gradients.SITES_MAX
    assert "torch" in sys.modules
