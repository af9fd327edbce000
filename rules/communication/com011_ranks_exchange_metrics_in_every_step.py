"""Metrics exchanged in every step.

What it does: finds jobs that exchange their gradients and in each step call further collectives: to average the loss,
to log norms or metrics of all ranks, to gather outputs for a metric, a barrier.

Fires when: these collectives block even the rank that waits least for ≥ 5 % of the step.

Why it is slow: nothing else runs meanwhile. Every rank waits for the slowest one and for a round trip, once for each
call; objects are pickled and sent in two rounds.

Evidence: the time in these calls on the rank that waits least, so that waiting for a late rank is not counted; the
calls of a step; the line that calls them longest. After the update all collectives count. Before it, those that
exchange a few numbers (1 kB in a call) do, outside the model's call or through a library for metrics (Lightning's
`log` with `sync_dist`, torchmetrics); between backward and optimizer only where DDP exchanges the gradients.

Fix: sum on each rank, and exchange every N steps or where the value is printed; several values in one tensor. Values
that the update needs are exchanged in one tensor, once per step. A barrier is not needed, since the gradient exchange
already synchronizes the ranks. Under DDP each rank has the same gradients, so their norms need no exchange.

Estimate: the step without these calls, at best shorter beyond that, since they pickle and copy on the cores that
compute; or with half of them: some of the waiting moves into the next exchange.

False alarms: collectives within the model's call or of more numbers belong to the model (synchronised batch norm, tensor
parallelism, embeddings gathered for a contrastive loss) and are not counted before the update. Neither are those that
average gradients by hand, nor those of jobs that exchange nothing else: there they average the weights. On a GPU
collectives only queue work, and the rule stays silent.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.comm.exchanged_bytes import held_ns, metrics_ns
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.measures.comm_measures import (
    COLLECTIVES_CALLS,
    COLLECTIVES_METRICS_S,
    COLLECTIVES_NORM_CALLS,
    COMM_WIRE_S,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.probes.documents.collective_documents import CollectiveSite
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import largest_model, metrics_s, proven_s, python_calls
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Libraries whose collectives carry gradients, weights or activations.
_OF_MODEL = ("SyncBatchNorm", "FSDP", "ZeRO", "DeepSpeed", "communication hook")
# Share by which the rest of the step shortens at best, per share of the step that these calls take: they pickle and copy on the cores that
# compute. Measured where they took 21 % of the step: forward, backward and the gradients' exchange shrank by 20 %.
_RELIEF = 1.0
_EVERY = 50  # steps between two exchanges, as in the advice


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    held, step, model = metrics_s(a), a.value(STEP_TIME_S), model_of(a)
    level = severity(held / step)
    if proven_s(a, held) < t["held"] * step or level is None:
        return Clear(RULE.id)
    site = _site(a)
    kind, calls = site.get("kind") or "collectives", a.by_rank(COLLECTIVES_CALLS)
    norms = a.by_rank(COLLECTIVES_NORM_CALLS)
    most = max((count - norms.get(rank, 0.0) for rank, count in calls.items()), default=0.0)
    best, worst = (model.step_if({}, wire_s=a.value(COMM_WIRE_S) - share * held) for share in (1.0 - 1.0 / _EVERY, 0.5))
    return Finding(
        rule=RULE.id,
        title=f"Collectives besides the gradient exchange in every step: {kind}",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=held,
        evidence=(
            Evidence.of(
                COLLECTIVES_METRICS_S,
                held,
                t["held"] * step,
                f"{100 * held / step:.0f} % of the step, on the rank that waits least",
            ),
            Evidence.of(COLLECTIVES_CALLS, most, None, f"from Python in a step{_through(site)}", form="explains"),
        ),
        fixes=(
            Fix(
                "remove the barrier" if kind == "barrier" else "exchange every N steps, or where the value is used",
                "the gradient exchange already synchronizes the ranks"
                if kind == "barrier"
                else f"if step % {_EVERY} == 0: ...; sum on each rank meanwhile, several values in one tensor",
                Where(site["file"], site["line"]) if site.get("file") else None,
                "small change",
            ),
        ),
        saving=model.saving(
            best * (1.0 - _RELIEF * held / step),
            worst,
            f"these exchanges once every {_EVERY} steps; at worst half of their time remains",
        ),
    )


def _site(a: Analysis) -> CollectiveSite:
    """The line that these calls hold longest; empty if none is known."""
    ddp = largest_model(a) is not None
    held = [
        (held_ns(site, "gap") + sum(metrics_ns(site, ddp=ddp).values()), site)
        for site in python_calls(a)
        if site.get("library") not in _OF_MODEL
    ]
    longest_ns, longest = max(held, key=lambda each: each[0], default=(0, CollectiveSite()))
    return longest if longest_ns > 0 else CollectiveSite()


def _through(site: CollectiveSite) -> str:
    return f", through {site['library']}" if site.get("library") else ""


RULE = rule(
    __name__,
    "Metrics exchanged in every step",
    check,
    needs=(STEP_TIME_S, COMM_WIRE_S),
    thresholds={"held": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
