"""DDP buffer broadcast in every forward pass.

What it does: finds models whose buffers DistributedDataParallel broadcasts from rank 0 before each forward pass, as it
does by default: masks, tables of rotary or position embeddings, statistics of batch norm.

Fires when: these broadcasts block even the rank that waits least for ≥ 5 % of the step.

Why it is slow: nothing else runs meanwhile. A mask for 2048 positions is 17 MB, and each layer may have its own; they
never change, and all ranks have had them since the wrapper was made.

Evidence: the time in the broadcasts on the rank that waits least, so that waiting for a late rank is not counted;
the bytes of the buffers.

Fix: `forward_sync_buffers=False` where the model is wrapped; where torch has no such argument,
`broadcast_buffers=False`, with which torch from 2.1 on does not broadcast them when the model is wrapped either
(pytorch#111138): where only rank 0 loads a checkpoint, or ranks make random tables with seeds of their own, load or
broadcast the buffers once. Buffers that training changes then remain each rank's own: batch norm's statistics differ
a little between the ranks, and an evaluation uses those of its rank. Where that matters, broadcast the statistics
before an evaluation, or on GPUs take SyncBatchNorm.

Estimate: the step without the broadcasts, or with a quarter of their time: part of the waiting may move into the
exchange of gradients.

False alarms: batch norm's statistics alone are a few kilobytes a layer, and rarely take 5 % of a step. On a GPU a
broadcast only queues work, and its time is not measured.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.comm.exchanged_bytes import broadcasts_of
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.comm_measures import COLLECTIVES_BUFFERS_S, COMM_WIRE_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.probes.documents.collective_documents import CollectiveSite, DdpFacts
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import buffers_s, proven_s
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LEFT_MAX = 0.25  # of the broadcasts' time
_NORMS_SHARE = 0.5  # of the bytes: then batch norm's statistics are what is sent


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if not a.has(COLLECTIVES_BUFFERS_S) and any(model.get("synced_buffers") for model in _models(a)):
        return NotMeasured(RULE.id, (COLLECTIVES_BUFFERS_S,))
    held, step, model = buffers_s(a), a.value(STEP_TIME_S), model_of(a)
    level = severity(held / step)
    if proven_s(a, held) < t["held"] * step or level is None:
        return Clear(RULE.id)
    site = _site(a)
    at = Where(site["file"], site["line"]) if site.get("file") else None
    sent = next((found for found in _models(a) if at and at == Where(found["file"], found["line"])), DdpFacts())
    of_norms = sent.get("norm_buffer_bytes", 0) > _NORMS_SHARE * sent.get("buffer_bytes", 0)
    later = any(found.get("has_forward_sync") for found in _models(a))
    option = "forward_sync_buffers" if later else "broadcast_buffers"
    more = (
        ", and broadcast the statistics before an evaluation" if sent.get("norm_buffers") else "",
        "" if later else "  # nor does it send them at the start: load the same buffers on each rank",
    )
    best, worst = (model.step_if({}, wire_s=a.value(COMM_WIRE_S) - share * held) for share in (1.0, 1.0 - _LEFT_MAX))
    return Finding(
        rule=RULE.id,
        title="DDP broadcast of batch norm statistics in every forward pass"
        if of_norms
        else "DDP buffer broadcast in every forward pass",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=held,
        evidence=(
            Evidence.of(
                COLLECTIVES_BUFFERS_S,
                held,
                t["held"] * step,
                f"{100 * held / step:.0f} % of the step, on the rank that waits least",
            ),
            *_sizes(sent),
        ),
        fixes=(
            Fix.of(
                f"{option}=False: {_NORMS_DIFFER if sent.get('norm_buffers') else _TABLES_ARE_ALIKE}",
                CallChange(
                    "DistributedDataParallel", ((option, False),), without=("broadcast_buffers",) if later else ()
                ),
                at,
                "one line",
                more="".join(more),
            ),
        ),
        saving=model.saving(
            model.at_best(best), worst, "no buffer broadcasts; at worst a quarter of their time remains"
        ),
    )


_TABLES_ARE_ALIKE = "buffers that training does not change are identical on all ranks"
_NORMS_DIFFER = "results change slightly, because each rank keeps its own batch norm statistics"


def _models(a: Analysis) -> list[DdpFacts]:
    return [model for facts in a.rank_facts.values() for model in facts.get("ddp", ())]


def _site(a: Analysis) -> CollectiveSite:
    """The line whose broadcasts took longest."""
    sites = (site for facts in a.rank_facts.values() for site in broadcasts_of(facts))
    return max(sites, key=lambda site: site.get("ns", 0), default=CollectiveSite())


def _sizes(sent: DdpFacts) -> tuple[Evidence, ...]:
    size, norms = sent.get("buffer_bytes", 0), sent.get("norm_buffer_bytes", 0)
    if not size:
        return ()
    beside = f", {norms / 1e6:.2g} MB of them batch norm's statistics" if norms else ""
    return (Evidence("buffers", size / 1e6, "MB", None, f"in {sent.get('synced_buffers', 0)} buffers{beside}"),)


RULE = rule(
    __name__,
    "DDP buffer broadcast in every forward pass",
    check,
    needs=(STEP_TIME_S, COMM_WIRE_S),
    thresholds={"held": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
