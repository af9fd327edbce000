"""Excessive padding.

What it does: finds training batches of token sequences of which a large part is padding.

Fires when: ≥ 20 % of the tokens of a batch are padding.

Why it is slow: the model computes padding like any other token, and masks it afterwards.

Evidence: the share of padding by the attention mask of batches on the CPU, or without one by the number that fills only
the ends (or only the starts) of their rows; the share that would remain if each batch was padded to its own longest
sequence.

Fix: pad to the longest sequence of the batch instead of a fixed length (`padding="longest"`, `DataCollatorWithPadding`).
If that is done already, batches of similar lengths (`group_by_length=True`, a sampler of buckets), or packed
sequences.

Estimate: forward and backward shrink with the number of tokens, attention more than that. At worst 15 % of the
difference remains, and half of it if sequences are grouped or on a GPU.

False alarms: a fixed length may be wanted: a compiled model, CUDA graphs and some accelerators compile each new shape.
Then pad to a few lengths (CMP012). A recurrent network may skip padding (`pack_padded_sequence`), and without a mask it
counts only for models with embeddings and layer norms. Padding of batches on a GPU is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.job_changes import PaddedToLongest
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.probes.documents.rank_documents import PaddingFacts
from rn50_advisor.rules.analysis_reading import model_of, training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_NORMS = frozenset(("LayerNorm", "RMSNorm"))  # of transformers
_RECURRENT = frozenset(("LSTM", "GRU", "RNN"))
_SAMPLED_BATCHES_MIN = 3  # batches
_SCALED_PHASES = ("forward", "backward")
# Share of the removed tokens' compute that remains at worst. Measured on two cores with small transformers: padded to the longest, with
# 15, 72, 76 and 89 % of the tokens, they took 12 to 14, 50 to 63, 62 to 69 and 91 to 106 % of the time; sorted by length, with 9 and
# 45 to 72 %, they took 7 to 9 and 36 to 88. A GPU that waits for its host gains less.
_LEFT, _LEFT_GROUPED, _LEFT_ON_GPU = 0.15, 0.5, 0.5
# The time of attention shrinks with the square of the length.
_POWER, _SHARE_AT_BEST = 1.6, 0.45
# Sorted by length most batches keep much of theirs, and short ones have little attention.
_POWER_GROUPED = 1.25
_PADDED_TO_LONGEST_MIN = 0.9  # of the tokens: from here on batches are padded to their own longest sequence


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    facts = {rank: facts_of(a, rank) for rank in model_of(a).own}
    layers = {name for of_rank in facts.values() for name in of_rank.get("model", {}).get("layers", {})}
    by_rank, source = {rank: seen for rank in facts if (seen := facts[rank].get("padding"))}, "by their attention mask"
    if not by_rank and layers & _NORMS and not layers & _RECURRENT and "Embedding" in layers:
        by_rank = {rank: seen for rank in facts if (seen := facts[rank].get("padded_ends"))}
        source = "by the value that fills the ends of their rows"
    if not by_rank:
        return NotMeasured(RULE.id, ("batch.attention_mask",)) if "Embedding" in layers else Clear(RULE.id)
    total = _summed(by_rank.values())
    share = (total["cells"] - total["tokens"]) / max(total["cells"], 1)
    if share < t["padding"] or total["looks"] < _SAMPLED_BATCHES_MIN:
        return Clear(RULE.id)
    longest = total["longest"] / total["cells"]
    grouped = longest >= _PADDED_TO_LONGEST_MIN
    left = 1.0 - share if grouped else longest
    model, step = model_of(a), a.value(STEP_TIME_S)
    best = _step_with(a, max(_SHARE_AT_BEST * left, left ** (_POWER_GROUPED if grouped else _POWER)))
    stays = _LEFT_GROUPED if grouped else _LEFT_ON_GPU if a.on_gpu else _LEFT
    worst = _step_with(a, left + stays * (1.0 - left))
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if level is None:
        return Clear(RULE.id)
    where = where_of(training_loader(a, dict.fromkeys(by_rank, 0.0)))
    group = Fix(
        "batches of similar lengths: group_by_length=True, a sampler of buckets, or packing", "", where, "small change"
    )
    shorter = Fix(
        'pad to the longest sequence of the batch: padding="longest", or DataCollatorWithPadding',
        "",
        where,
        "one line",
        call=PaddedToLongest(),
    )
    return Finding(
        rule=RULE.id,
        title=f"Excessive padding: {100 * share:.0f} % of the tokens",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=(
            Evidence(
                "padding",
                share,
                "share",
                t["padding"],
                f"of the tokens of {total['looks']} batches, {source}",
            ),
            Evidence(
                "padding within a batch",
                1.0 - total["tokens"] / max(total["longest"], 1),
                "share",
                None,
                "if each is padded to its longest sequence",
            ),
        ),
        fixes=(group,) if grouped else (shorter, group),
        saving=model.saving(best, worst, "no padding beyond each batch's longest sequence"),
    )


def _summed(facts: Iterable[PaddingFacts]) -> PaddingFacts:
    found: PaddingFacts = {"looks": 0, "cells": 0, "tokens": 0, "longest": 0}
    for padding in facts:
        found["looks"] += padding["looks"]
        found["cells"] += padding["cells"]
        found["tokens"] += padding["tokens"]
        found["longest"] += padding["longest"]
    return found


def _step_with(a: Analysis, share: float) -> float:
    """The step with this share of the compute."""
    model = model_of(a)
    return model.step_if(
        {(rank, phase): share * own[phase] for rank, own in model.own.items() for phase in _SCALED_PHASES}
    )


RULE = rule(
    __name__,
    "Excessive padding",
    check,
    needs=(STEP_TIME_S,),
    thresholds={"padding": Threshold(0.2, "of the tokens: batches grouped by length still have 5 to 20 %")},
)
