"""What evaluations do beside the model, from stack samples in them and between the steps."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import plan, recording, stack
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import EvaluationWork, GeneratingShare
from rn50_advisor.advisor.model.recording import Event, Source

PACKAGES = "/env/lib/python3.11/site-packages"
LOOP = {"function": "Trainer.evaluation_loop", "file": f"{PACKAGES}/transformers/trainer.py", "line": 3023}
CONCAT = ("nested_concat", f"{PACKAGES}/transformers/trainer_pt_utils.py", 128)
LINEAR = ("forward", f"{PACKAGES}/torch/nn/modules/linear.py", 130)
FETCH = ("__next__", f"{PACKAGES}/torch/utils/data/dataloader.py", 700)
GATHER = ("all_gather", f"{PACKAGES}/torch/distributed/distributed_c10d.py", 3900)
MAIN = {"function": "main", "file": "/job/train.py", "line": 75}
SCRIPT = "trainer = Trainer(model, args,\n    compute_metrics=compute_metrics{more})\ntrainer.train()\n"


def inside(*callees: tuple[str, str, int], **given: Any) -> Event:
    """A sample in the library's loop, which the user's line 75 has called."""
    frames = [{"function": f, "file": file, "line": line} for f, file, line in callees]
    sample = stack("/job/train.py", 75, "main", **{"phase": "evaluation", **given})
    sample.data["frames"] = [*frames, LOOP, MAIN]
    return sample


def work(*events: Event, text: str = "", **more: Any) -> EvaluationWork | None:
    sources = (Source("/job/train.py", "", text),) if text else ()
    return analyse(recording({0: plan()}, events=events, sources=sources, **more)).evaluation_work


def test_outputs_that_a_trainer_collects_are_beside_the_model() -> None:
    others = inside(LINEAR), inside(LINEAR), inside(FETCH), inside(GATHER)
    found = work(*[inside(CONCAT)] * 6, *others, text=SCRIPT.format(more=""))
    assert found is not None and (found.samples, found.share) == (10, 0.6)
    assert (found.file, found.line) == (LOOP["file"], 3023) and found.leaf.startswith("nested_concat")
    assert found.trainer == {"file": "/job/train.py", "line": 1}


def test_the_share_of_evaluations_that_generate_text() -> None:
    generates = ("GenerationMixin.generate", f"{PACKAGES}/transformers/generation/utils.py", 2400)
    trained = inside(LINEAR, generates, phase="forward")
    events = (inside(LINEAR, generates), inside(LINEAR, generates), inside(LINEAR), inside(CONCAT), trained)
    assert analyse(recording({0: plan()}, events=events)).generating == GeneratingShare(4, 0.5)
    assert analyse(recording({0: plan()}, events=(trained,))).generating is None


def test_a_trainer_that_already_reduces_them_is_not_named() -> None:
    found = work(*[inside(CONCAT)] * 6, text=SCRIPT.format(more=", preprocess_logits_for_metrics=best"))
    assert found is not None and found.trainer is None


def test_metrics_after_the_last_batch_count_between_the_steps() -> None:
    metrics = inside(("compute_metrics", "/job/train.py", 37), phase="gap")
    found = work(*[metrics] * 5, *[inside(CONCAT)] * 2)
    assert found is not None and (found.samples, found.share) == (2, 1.0)
    assert (found.line, found.function) == (37, "compute_metrics")
    assert ("/job/train.py", 37) in found.lines


def test_the_users_own_evaluation_is_known_by_the_line_that_calls_it() -> None:
    site = {101: {"evaluation_sites": [{"file": "/job/train.py", "line": 75, "count": 3}]}}
    own = stack("/job/metrics.py", 9, "accuracy", callers=[MAIN], phase="evaluation")
    after = stack("/job/metrics.py", 30, "report", callers=[MAIN])
    found = work(own, own, after, facts=site)
    assert found is not None and (found.file, found.line, found.samples) == ("/job/metrics.py", 9, 2)
    assert ("/job/metrics.py", 30) in found.lines


@pytest.mark.parametrize("samples", [[], [inside(LINEAR)] * 9, [stack("/job/train.py", 80, "log")] * 9])
def test_without_samples_beside_the_model_nothing_is_known(samples: list[Event]) -> None:
    assert work(*samples) is None
