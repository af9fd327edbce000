"""The first batches of the first training loader get check sums, without a gap, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fact_paper import Paper  # noqa: E402
from rn50_advisor.probes.rank.facts.batch_digests import BATCHES, EVALUATED, STREAM, BatchDigests, EvaluatedDigests  # noqa: E402
from rn50_advisor.probes.rank.steps.step_account import EVALUATING, TRAINING  # noqa: E402
from stub_training import Training  # noqa: E402


class Job:
    def __init__(self, **loader: Any) -> None:
        self.paper, self.kinds = Paper(), {0: TRAINING}
        self.digests = BatchDigests(self.paper, {0: loader})  # type: ignore[arg-type,dict-item]

    def give(self, *batches: Any, loader: int = 0, training: bool = True) -> list[int]:
        """Gives batches as the recorder does, and returns all check sums so far."""
        for batch in batches:
            if self.digests.open:
                self.digests.batch(loader, batch, training, self.kinds)
        found = self.paper.values.get("first_batches", {"digests": []})["digests"]
        assert isinstance(found, list)
        return found


def batch(seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(8, 3, 16, 16, generator=generator), torch.randint(10, (8,), generator=generator)]


def test_the_same_batches_have_the_same_check_sums_and_others_do_not() -> None:
    one, same, other = Job(), Job(), Job()
    first = one.give(*map(batch, range(20)))
    assert first == same.give(*map(batch, range(20)))
    assert len(first) == len(set(first)) == BATCHES
    assert set(first[1:]).isdisjoint(other.give(*map(batch, range(100, 120))))
    assert not one.digests.open and one.paper.values["first_batches"]["loader"] == 0


@pytest.mark.parametrize(
    "same",
    [
        lambda x, y: [x.contiguous(memory_format=torch.channels_last), y],
        lambda x, y: {"x": x, "y": y},
        lambda x, y: ((x.requires_grad_(), "a name", 7), y),
        lambda x, y: [x.pin_memory() if torch.cuda.is_available() else x, y],
    ],
)
def test_what_holds_the_numbers_does_not_count(same: Any) -> None:
    assert Job().give(same(*batch(1))) == Job().give(batch(1))


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x.to(torch.bfloat16),
        lambda x: x > 0.5,
        lambda x: (200 * x).to(torch.uint8),
        lambda x: torch.complex(x, x),
        lambda x: x[:, :, ::2],
        lambda x: x.transpose(1, 3),
        lambda x: x.double().fill_(float("nan")),
    ],
)
def test_any_kind_of_numbers_is_read(made: Any) -> None:
    job = Job()
    assert len(job.give([made(batch(1)[0])])) == 1 and not job.paper.missed


@pytest.mark.parametrize(
    "unreadable",
    [
        ["names", "alone"],
        [],
        torch.arange(8),  # perhaps the numbers of samples
        [torch.empty(8, 3, device="meta")],
        [torch.eye(8).to_sparse()],
        [torch.empty(0, 3)],
        [torch.tensor(3.0)],
    ],
)
def test_a_batch_that_cannot_be_read_ends_the_list(unreadable: Any) -> None:
    job = Job()
    assert len(job.give(batch(1), unreadable, batch(2))) == 1
    assert not job.digests.open and not job.paper.missed


def test_only_the_largest_tensors_are_read() -> None:
    many = [torch.zeros(4)] * 10
    assert Job().give([*many, *batch(1)]) != Job().give([*many, *batch(2)])


def test_the_job_notices_nothing() -> None:
    given = batch(1)
    before, kept = torch.get_rng_state(), [tensor.clone() for tensor in given]
    versions, nodes = [tensor._version for tensor in given], torch._C._current_autograd_node()
    Job().give(given, [given[0].clone().requires_grad_()])
    assert torch.equal(torch.get_rng_state(), before) and torch._C._current_autograd_node() is nodes
    assert all(map(torch.equal, given, kept)) and [tensor._version for tensor in given] == versions


def test_what_watches_operations_sees_none() -> None:
    from torch.profiler import profile

    job = Job()
    with profile() as seen:
        job.give(batch(1))
    assert not job.digests.open and not any(event.name == "aten::take" for event in seen.events())


def test_a_batch_that_raises_ends_it_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    monkeypatch.setattr(torch.Tensor, "take", lambda *_: 1 / 0)
    assert job.give(batch(1)) == [] and not job.digests.open
    assert job.paper.missed == ["batch digests: ZeroDivisionError"]


def test_a_loader_of_which_a_batch_was_only_looked_at_is_forgotten() -> None:
    job = Job()
    job.kinds = {}
    job.give(batch(1), loader=5)
    job.give(batch(2), loader=5, training=False)
    assert not job.digests.open, "one of its batches was for an evaluation"
    job = Job()
    job.kinds = {5: EVALUATING}
    job.give(batch(1), loader=5)
    assert job.give(batch(2), batch(3)) == Job().give(batch(2), batch(3))


def test_other_loaders_of_the_loop_are_left_alone() -> None:
    job = Job()
    job.give(batch(1))
    job.give(batch(7), loader=1)
    job.give(batch(8), loader=2, training=False)
    assert job.give(batch(2)) == Job().give(batch(1), batch(2))


def test_an_evaluation_before_the_training_is_no_beginning() -> None:
    job = Job()
    job.give(batch(1), training=False)
    assert job.digests.open and job.give(batch(2)) == Job().give(batch(2))


@pytest.mark.parametrize(
    ("workers", "sampler", "most"), [(2, STREAM, 16), (8, STREAM, 32), (100, STREAM, 48), (8, "RandomSampler", 16)]
)
def test_of_a_stream_four_batches_of_each_worker_are_seen(workers: int, sampler: str, most: int) -> None:
    assert len(Job(num_workers=workers, sampler=sampler).give(*map(batch, range(60)))) == most


def test_steps_are_followed_one_by_one_while_batches_count() -> None:
    job = Job()
    assert not job.digests.counts(3), "no loader has given one yet"
    job.give(batch(1))
    assert job.digests.counts(3) and job.digests.counts(BATCHES + 15)
    assert not job.digests.counts(BATCHES + 16) and not job.digests.open
    job = Job()
    job.give(*map(batch, range(BATCHES)))
    assert not job.digests.counts(3)


def test_a_batch_that_may_be_missed_ends_the_list() -> None:
    job = Job()
    job.give(batch(1))
    job.digests.end()
    assert len(job.give(batch(3))) == 1


def test_no_mark_is_only_noted_while_batches_count(tmp_path: Path) -> None:
    training = Training(tmp_path)
    recorder = training.recorder
    assert training.buffered()
    recorder.loading.fetch_end((training.account, True, -1), batch(1))
    assert training.buffered(), "of a loader without a number none counts"
    recorder.loading.fetch_end((training.account, True, 0), batch(1))
    assert not training.buffered() and recorder.facts.values["first_batches"]["loader"] == 0
    recorder.thread_changed(training.account)
    assert training.buffered() and len(recorder.facts.values["first_batches"]["digests"]) == 1


def evaluated(*batches: Any, loader: int = 5) -> dict[str, Any]:
    paper = Paper()
    digests = EvaluatedDigests(paper)  # type: ignore[arg-type]
    for each in batches:
        if digests.open:
            digests.batch(loader, each)
    return paper.values


def test_the_first_batches_of_an_evaluation_have_check_sums_of_their_own() -> None:
    found = evaluated(*map(batch, range(9)))
    assert found == {"first_evaluated": {"loader": 5, "digests": Job().give(*map(batch, range(EVALUATED)))}}
    assert evaluated("a name") == {}


def test_another_loader_ends_the_list_of_an_evaluation() -> None:
    paper = Paper()
    digests = EvaluatedDigests(paper)  # type: ignore[arg-type]
    digests.batch(5, batch(1))
    digests.batch(6, batch(2))
    assert not digests.open and len(paper.values["first_evaluated"]["digests"]) == 1


def test_batches_of_evaluations_are_told_from_those_of_the_training(tmp_path: Path) -> None:
    training = Training(tmp_path)
    values = training.recorder.facts.values
    training.recorder.loading.fetch_end((training.account, True, 0), batch(1))
    assert "first_evaluated" not in values
    training.recorder.loading.fetch_end((training.account, False, 1), batch(2))
    assert values["first_evaluated"]["loader"] == 1
