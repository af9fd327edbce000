"""Activations exchanged in every step.

What it does: finds models and losses that exchange what they compute between the ranks, beside the gradients: features of all
ranks gathered for a contrastive loss, keys and negatives of other ranks, statistics of a batch.

Fires when: these collectives block even the rank that waits least for ≥ 10 % of the step.

Why it is slow: nothing else runs meanwhile. The passes wait for every byte, while DDP sends gradients beside the backward pass. With N
ranks each receives N times its own features, and a gather that passes gradients on sends as many back.

Evidence: the time in these calls on the rank that waits least, so that waiting for a late rank is not counted; the calls and bytes of
their line. Counted are calls of the job's own code, or through torch, in the forward pass, and with DDP in the backward pass; not those
that exchange a few numbers (COM011), of synchronised batch norm, or of libraries that shard the model.

Fix: one gather for all that is needed (image and text features in one tensor), in half precision, of the projected features rather than
of wide ones. A local loss compares each rank's own samples with all others, so that no gradients go back through the gather. What is
gathered only to be logged belongs after the update, every N steps.

Estimate: half the bytes take 40 to 70 % of the time, much like those of gradients (COM001); so do half as many calls of small tensors.

False alarms: tensor and sequence parallel models need their exchanges. Half precision rounds the features that are compared. On a GPU
collectives only queue work, and the rule stays silent.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.comm.exchanged_bytes import model_ns
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.measures.comm_measures import COLLECTIVES_MODEL_S, COMM_WIRE_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.probes.documents.collective_documents import CollectiveSite
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import largest_model, model_s, proven_s, python_calls
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LEFT = (0.4, 0.7)  # of the time, with half the bytes, or half as many calls
_SMALL_BYTES = 65_536  # of a call: below, round trips take the time
_GATHERED = Fix(
    "gather once per step, in half precision, and compare only each rank's own samples with all",
    "one all_gather of torch.cat([image_features, text_features]).bfloat16(); with a local loss (labels offset by rank * batch) no "
    "gradients go back through the gather",
    None,
    "small change",
)
_EXCHANGED = Fix(
    "exchange once per step, in half precision", "torch.cat(parts).bfloat16() in one collective", None, "small change"
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    held, step, model = model_s(a), a.value(STEP_TIME_S), model_of(a)
    level = severity(held / step)
    if proven_s(a, held) < t["held"] * step or level is None:
        return Clear(RULE.id)
    site = _site(a)
    kind = site.get("kind") or "collectives"
    best, worst = (model.step_if({}, wire_s=a.value(COMM_WIRE_S) - (1.0 - left) * held) for left in _LEFT)
    fix = _GATHERED if "gather" in kind else _EXCHANGED
    return Finding(
        rule=RULE.id,
        title=f"Activations exchanged in every step: {kind}",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=held,
        evidence=(
            Evidence.of(
                COLLECTIVES_MODEL_S,
                held,
                t["held"] * step,
                f"{100 * held / step:.0f} % of the step, on the rank that waits least",
            ),
            *_sizes(site),
        ),
        fixes=(
            Fix(fix.title, fix.change, Where(site["file"], site["line"]) if site.get("file") else None, fix.effort),
        ),
        saving=model.saving(best, worst, f"half {'as many' if _is_small(site) else 'the bytes'} of these collectives"),
    )


def _site(a: Analysis) -> CollectiveSite:
    """The line that these calls hold longest in the forward pass: what autograd calls has only the line of the backward pass."""
    held = [(model_ns(site, ddp=False).get("forward", 0), site) for site in python_calls(a)]
    longest_ns, longest = max(held, key=lambda each: each[0], default=(0, CollectiveSite()))
    return longest if longest_ns > 0 or largest_model(a) is None else CollectiveSite()


def _is_small(site: CollectiveSite) -> bool:
    return 0 < site.get("bytes", 0) < _SMALL_BYTES * site.get("calls", 0)


def _sizes(site: CollectiveSite) -> tuple[Evidence, ...]:
    if not site.get("calls"):
        return ()
    return (Evidence("bytes of a call", site["bytes"] / site["calls"] / 1e6, "MB", None, _place(site), "explains"),)


def _place(site: CollectiveSite) -> str:
    return f"in {site['function']}()" if site.get("function") else "of the longest line"


RULE = rule(
    __name__,
    "Activations exchanged in every step",
    check,
    needs=(STEP_TIME_S, COMM_WIRE_S),
    thresholds={
        "held": Threshold(0.1, "a loss on all ranks' features needs them: half the bytes of less spare too little")
    },
)
