"""LOP003, evaluation takes a large share: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis, EvaluationWork, GeneratingShare, HotLine
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.report import Segment
from rule_cases import SCRIPT, job, loader, rank
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks


def lop003(spent: float = 0.3, times: int = 4, beside: tuple[float, int] | None = None, **more: Any) -> Analysis:
    """`beside`: share of samples beside the model, and how many there are of evaluations."""
    found = tuple(Segment("evaluation", float(n), n + 0.5, n, n) for n in range(times))
    loaders = (loader(0, 4), loader(0, 0, line=60, training=False))
    own = {number: rank(**{"gap.evaluation": spent}) for number in (0, 1)}
    if beside is not None:
        share, samples = beside
        work = EvaluationWork(SCRIPT, 37, "accuracy", "argmax", samples, share, frozenset({(SCRIPT, 37)}))
        more = {"evaluation_work": work, **more}
    return job(own, **{"segments": found, "loaders": loaders, **more})


TABLE = Table(
    "LOP003",
    lop003,
    lines={"share": ({"spent": 0.10}, {"spent": 0.0999}), "evaluations": ({"times": 2}, {"times": 1})},
    false_alarms={"a short trial that evaluates once at its end": {"times": 1, "spent": 0.4}},
    severities=(({"spent": 0.30}, "critical"), ({"spent": 0.15}, "high"), ({"spent": 0.12}, "medium")),
    best=({"spent": 0.3}, warm(1 / 0.73)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(("share", "samples", "reduces"), [(0.5, 8, True), (0.49, 8, False), (0.5, 7, False)])
def test_what_evaluations_do_beside_the_model_is_reduced_first(share: float, samples: int, reduces: bool) -> None:
    finding = found("LOP003", lop003(beside=(share, samples)))
    assert (finding.fixes[0].title == "reduce each batch's outputs to what the metrics need") is reduces
    assert (finding.fixes[0].where == Where(SCRIPT, 37)) is reduces
    assert any(evidence.metric == "stack samples" for evidence in finding.evidence) is reduces


def test_the_gain_is_that_of_the_samples_and_of_the_lines_that_end_an_evaluation() -> None:
    def saving(**more: Any) -> tuple[float, float]:
        own = {0: rank(**{"gap.evaluation": 0.3, "gap": 0.2})}
        a = lop003(beside=(1.0, 20), **more)
        found_there = found("LOP003", replace(a, model=replace(a.model, own=own))).saving
        assert found_there is not None
        return found_there.seconds_per_step

    line = HotLine(SCRIPT, 37, "accuracy", "argmax", 9, 1.0, False)
    worst, best = saving()
    assert worst == pytest.approx(0.8 * 0.3) and best >= 0.98 * 0.3
    assert saving(hot_lines=(line,))[0] == pytest.approx(0.8 * 0.5)


@pytest.mark.parametrize(
    ("share", "samples", "uncached", "told"),
    [(0.5, 8, True, True), (0.49, 8, True, False), (0.5, 7, True, False), (0.9, 20, False, False)],
)
def test_text_that_is_generated_without_a_cache_gets_one_first(
    share: float, samples: int, uncached: bool, told: bool
) -> None:
    facts = {number: {"model": {"class": "Bart", "uncached": uncached}} for number in ("0", "1")}
    sites = ({"file": SCRIPT, "line": 64, "count": 4},)
    a = lop003(generating=GeneratingShare(samples, share), facts=facts, evaluation_sites=sites)
    finding = found("LOP003", a)
    assert (finding.fixes[0].title == "generate with a cache: use_cache=True") is told
    assert any(evidence.metric == "stack samples" for evidence in finding.evidence) is told


def test_the_gain_of_a_cache_is_of_the_time_that_generates() -> None:
    facts = {number: {"model": {"class": "Bart", "uncached": True}} for number in ("0", "1")}
    saving = found("LOP003", lop003(generating=GeneratingShare(20, 0.8), facts=facts)).saving
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.8 * 0.5 * 0.3)


def test_a_host_that_waits_for_its_gpu_is_not_at_work_beside_the_model() -> None:
    cuda = {"facts": {"0": {"cuda": {"devices": 1}}}}
    assert "less often" in found("LOP003", lop003(beside=(1.0, 20), **cuda)).fixes[0].title


def test_an_evaluation_by_one_rank_is_divided_first() -> None:
    a = lop003(beside=(1.0, 20))
    alone = replace(a, model=replace(a.model, own={0: rank(**{"gap.evaluation": 0.3}), 1: rank(0.7)}))
    assert "distribute" in found("LOP003", alone).fixes[0].title


def test_a_library_that_collects_outputs_is_told_to_reduce_them() -> None:
    a = lop003(beside=(1.0, 20))
    trainer = replace(a.evaluation_work, trainer={"file": SCRIPT, "line": 73})  # type: ignore[type-var]
    fix = found("LOP003", replace(a, evaluation_work=trainer)).fixes[0]
    assert "preprocess_logits_for_metrics" in fix.change and fix.where == Where(SCRIPT, 73)


def test_lop003_advises_to_divide_an_evaluation_by_one_rank() -> None:
    assert "divide" not in found("LOP003", TABLE.job()).fixes[0].title
    alone = replace(lop003(), model=replace(lop003().model, own={0: rank(**{"gap.evaluation": 0.3}), 1: rank(0.7)}))
    finding = found("LOP003", alone)
    fix = finding.fixes[0]
    assert "distribute" in fix.title and "DistributedSampler" in fix.change
    assert finding.saving is not None and "2 ranks share" in finding.saving.basis
    worst, best = finding.saving.seconds_per_step
    assert worst == pytest.approx(0.3 / 4) and 0.3 / 2 <= best < 0.2, "the other half is evaluated by the other rank"


def test_lop003_names_the_line_that_evaluates_and_needless_gradients() -> None:
    site, another = (
        {"file": "/job/train.py", "line": 264, "count": 9},
        {"file": "/job/train.py", "line": 265, "count": 9},
    )
    plain = found("LOP003", lop003(evaluation_sites=(site, another), evaluated_with_gradients=0.0))
    recorded = found("LOP003", lop003(evaluation_sites=(site,), evaluated_with_gradients=1.0))
    assert plain.fixes[0].where == Where("/job/train.py", 264)
    assert [evidence.note for evidence in plain.evidence if evidence.metric == "called"] == [
        "at /job/train.py:264",
        "at /job/train.py:265",
    ]
    assert not any("no_grad" in fix.title for fix in plain.fixes)
    assert "less often" in recorded.fixes[0].title, "what the gain is that of"
    assert "torch.no_grad()" in recorded.fixes[-1].title and "memory" in recorded.fixes[-1].change
    assert found("LOP003", lop003(evaluated_with_gradients=None)).fixes[0].where is None


@pytest.mark.parametrize(
    ("start", "loaders", "title"),
    [
        (0.06, {}, "persistent_workers=True"),
        (
            0.06,
            {"made": 4, "persistent": True},
            "create the evaluation's DataLoader once, with persistent workers",
        ),
        (0.06, {"persistent": True}, "evaluate less often, or on a subset in between"),
        (0.04, {}, "evaluate less often, or on a subset in between"),
    ],
    ids=["new workers", "a new loader", "workers that live on", "few of it"],
)
def test_lop003_keeps_workers_whose_start_is_much_of_the_evaluation(
    start: float, loaders: dict[str, Any], title: str
) -> None:
    evaluating = loader(0, 2, line=60, training=False, **loaders)
    values = {"step.evaluation_start_s": {0: start, 1: start}}
    finding = found("LOP003", lop003(loaders=(loader(0, 4), evaluating), values=values))
    assert finding.fixes[0].title == title
    if "workers" in title:
        assert finding.fixes[0].where == Where(SCRIPT, 60)
        assert finding.saving is not None
        worst, best = finding.saving.seconds_per_step
        assert worst == pytest.approx(1.75 * start) and best >= 3.0 * start


def test_only_a_gpu_gains_by_a_larger_batch_and_only_idle_cores_by_workers() -> None:
    own = loader(0, 0, line=60, training=False)

    def second(workers: int = 0, **more: Any) -> str:
        fixes = found("LOP003", lop003(loaders=(replace(own, num_workers=workers),), **more)).fixes
        return fixes[1].title if len(fixes) > 1 else ""

    cuda = {"facts": {"0": {"cuda": {"devices": 1}}}}
    assert second() == "loader workers for evaluation"
    assert second(workers=4) == second(cores=2.0, job_cores=2.0) == ""
    assert second(workers=4, **cuda) == "a larger batch for evaluation"
    assert second(**cuda) == "a larger batch and loader workers for evaluation"


def test_lop003_spares_the_ranks_that_wait_for_the_one_that_evaluates() -> None:
    """In a loop without a loader the time in a barrier looks like forward pass."""

    def saving(waits: float) -> Any:
        own = {0: rank(**{"gap.evaluation": 0.3}), 1: rank(forward=0.24 + waits, backward=0.46)}
        return found("LOP003", replace(lop003(), model=replace(lop003().model, own=own))).saving

    waiting = saving(0.3)
    assert waiting.speedup[0] > 1.07 and waiting.speedup[1] > 1.15
    assert saving(0.0).speedup[1] >= waiting.speedup[1] > saving(0.5).speedup[1], "the rest is its own work"


def evaluated_by(digests: dict[int, list[int]], *, ddp: bool = True, beside: str = "", **of_loader: Any) -> Analysis:
    """Two ranks, each with a loader that evaluates; the check sums of its first batches. `beside`: the sampler of another one."""
    described = {"id": 3, "training": False, "sampler": "SequentialSampler", "batch_sampler": None, **of_loader}
    others = [{**described, "id": 4, "sampler": beside}] if beside else []
    facts: dict[str, Any] = {
        str(rank): {
            "ddp": [{"world_size": 2}] if ddp else [],
            "loaders": [{"id": 2, "training": True, "sampler": "DistributedSampler"}, described, *others],
            "first_evaluated": {"loader": 3, "digests": found},
        }
        for rank, found in digests.items()
    }
    return lop003(facts=facts)


def test_ranks_that_evaluate_the_same_samples_are_to_share_them() -> None:
    finding = found("LOP003", evaluated_by({0: [7, 8, 9], 1: [7, 8, 9]}))
    assert finding.fixes[0].title == "distribute it: each of 2 ranks evaluates the same samples"
    assert finding.fixes[0].where == Where(SCRIPT, 60) and "DistributedSampler" in finding.fixes[0].change
    assert finding.saving is not None
    worst, best = finding.saving.seconds_per_step
    assert worst == pytest.approx(0.3 / 4) and best >= 0.3 / 2
    assert any(evidence.metric == "ranks that evaluate the same" for evidence in finding.evidence)


@pytest.mark.parametrize(
    "made",
    [
        evaluated_by({0: [7, 8, 9], 1: [4, 5, 6]}),
        evaluated_by({0: [7, 8, 9], 1: [7, 8]}),
        evaluated_by({0: [7, 7], 1: [7, 7]}),
        evaluated_by({0: [7, 8, 9], 1: [7, 8, 9]}, sampler="DistributedSampler"),
        evaluated_by({0: [7, 8, 9], 1: [7, 8, 9]}, batch_sampler="ShardedBatches"),
        evaluated_by({0: [7, 8, 9], 1: [7, 8, 9]}, beside="DistributedSampler"),
        evaluated_by({0: [7, 8, 9], 1: [7, 8, 9]}, ddp=False),
        evaluated_by({0: [7, 8, 9]}),
    ],
    ids=[
        "others",
        "unlike numbers",
        "one batch",
        "distributed",
        "own batches",
        "one of two",
        "parts of a model",
        "one rank",
    ],
)
def test_ranks_that_may_evaluate_different_samples_are_not(made: Analysis) -> None:
    finding = found("LOP003", made)
    assert "distribute" not in finding.fixes[0].title
    assert finding.saving is not None and finding.saving.seconds_per_step[0] == pytest.approx(0.15)
