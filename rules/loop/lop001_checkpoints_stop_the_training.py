"""Checkpoint overhead.

What it does: finds loops in which `torch.save`, `torch.distributed.checkpoint.save` or safetensors' `save_file`, with
the fsync that follows it, takes a noticeable share of the time.

Fires when: `torch.save` and its fsync take ≥ 3 % of the time.

Why it is slow: training stops while tensors are copied, pickled and written; with fsync, until they are on disk.

Evidence: time in checkpoints per step; how often and where they are written. Some libraries save to memory first
(Lightning, any file system by fsspec) and write the file afterwards: if stack samples find most of the time between
steps in the function that saved, that time counts as the checkpoint's.

Fix: `clone()` of tensors that are parts of larger ones, where files hold more than the tensors (`torch.save` writes whole storages); write
less often; write to a fast local disk and copy from there; `torch.distributed.checkpoint.async_save`; no fsync per file.

Estimate: at worst, writing half as often halves it. At best nothing remains and the caches stay warm: asynchronous saving leaves little
more than the copy. With needless bytes their share goes at best, half of it at worst.

False alarms: the one checkpoint at the end of a short run. If most of the time is between steps and came only once, the
severity is at most medium.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.measures.step_measures import GAP_SAVE_SHARE, STEP_CHECKPOINT_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.rank_documents import SaveSite
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.loop.between_steps import gap_severity, longest_gap, on_ranks, ranks_that_spend
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Share of the time for bytes that are not written which is spared at worst: pickling and opening the file stay.
_GONE_WORST = 0.5
_NEEDLESS_MIN = 0.3  # of the stored bytes; with less, writing the rest takes most of the time


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    step, writing = a.value(STEP_TIME_S), _writing_share(a, t)
    saved, written = a.budget.critical["gap.checkpoint"], writing * a.budget.critical["gap"]
    spent = saved + written
    level = gap_severity(a, spent / step) if written > saved else severity(spent / step)
    if spent < t["share"] * step or level is None:
        return Clear(RULE.id)
    model = model_of(a)
    site = a.save_sites[0] if a.save_sites else None
    where = Where(site["file"], site["line"]) if site and site.get("file") else None
    needless = _needless(site)
    views: tuple[Fix, ...] = ()
    left, basis = (0.0, 0.5), "checkpoints half as often, or asynchronous"
    if site is not None and needless:
        left, basis = (1.0 - needless, 1.0 - _GONE_WORST * needless), "checkpoints without unused storage"
        views = (_without_storages(site, where),)
    best, worst = (_step_with(model, part, writing) for part in left)
    if written > saved and longest_gap(a) is not None:
        worst, basis = model.step_s, f"{basis}; mostly observed once, so it may not recur"
    whose = ranks_that_spend(a, "gap.checkpoint")
    return Finding(
        rule=RULE.id,
        title="Blocking checkpoints" + on_ranks(whose),
        severity=level,
        scope=Affected(ranks=whose),
        confidence=confidence(a),
        seconds_per_step=spent,
        evidence=(*_evidence(a, t, writing, where), *_stored(site, needless)),
        fixes=(
            *views,
            Fix("write checkpoints less often, or to a fast local disk", "", where, "one line"),
            Fix("save asynchronously: torch.distributed.checkpoint.async_save", "", where, "small change"),
        ),
        saving=model.saving(model.at_best(best), worst, basis),
    )


def _needless(site: SaveSite | None) -> float:
    """Share of a checkpoint that none of its tensors shows; 0 if it is small."""
    stored = site.get("stored_bytes", 0) if site is not None else 0
    share = 1.0 - site.get("needed_bytes", 0) / stored if site is not None and stored else 0.0
    return share if share >= _NEEDLESS_MIN else 0.0


def _without_storages(site: SaveSite, where: Where | None) -> Fix:
    wanted, held = site["needed_bytes"] / 1e6, site["stored_bytes"] / 1e6
    title = f"save clones of tensors that are views of larger ones: {wanted:.3g} MB instead of {held:.3g} MB"
    return Fix(title, "part.clone() for each; torch.save writes the whole storage of a view", where, "one line")


def _stored(site: SaveSite | None, needless: float) -> tuple[Evidence, ...]:
    if site is None or not needless:
        return ()
    note = (
        f"in a checkpoint, of which its tensors need {site['needed_bytes'] / 1e6:.3g} MB: some are views of larger ones"
    )
    return (Evidence("storages", site["stored_bytes"] / 1e6, "MB", None, note, "explains"),)


def _evidence(a: Analysis, t: Thresholds, writing: float, where: Where | None) -> tuple[Evidence, ...]:
    step, spent = a.value(STEP_TIME_S), a.budget.critical
    saved_s, between_s = spent["gap.checkpoint"], spent["gap"]
    note = f"{100 * saved_s / step:.0f} % of the time, spread over the steps"
    found = [Evidence.of(STEP_CHECKPOINT_S, saved_s, t["share"] * step, note)]
    if writing:
        more = 100 * writing * between_s / step
        note = f"of {duration(between_s)} between steps is in the saving function, another {more:.0f} % of the time"
        found.append(Evidence.of(GAP_SAVE_SHARE, writing, t["writing"], note, form="continues"))
    if where:
        times, note = float(a.save_sites[0]["count"]), f"so far, written at {where.file}:{where.line}"
        found.append(Evidence("checkpoints", times, "", None, note, "explains"))
    return tuple(found)


def _writing_share(a: Analysis, t: Thresholds) -> float:
    """The checkpoint's share of the time between steps; 0 if most of that is something else, which other rules report."""
    share = a.get(GAP_SAVE_SHARE) or 0.0
    return share if share >= t["writing"] else 0.0


def _step_with(model: StepModel, left: float, writing: float) -> float:
    """The step if this share of the checkpoints' time is left."""
    changes = {}
    for rank, own in model.own.items():
        changes[rank, "gap.checkpoint"] = left * own["gap.checkpoint"]
        changes[rank, "gap"] = own["gap"] * (1.0 - (1.0 - left) * writing)
    return model.step_if(changes)


RULE = rule(
    __name__,
    "Checkpoint overhead",
    check,
    needs=(STEP_TIME_S, STEP_CHECKPOINT_S),
    thresholds={
        "share": Threshold(
            0.03, "lower than elsewhere: every rank pays for it at once, and it is easy to move out of the loop"
        ),
        "writing": Threshold(0.5, "of the time between steps: most of it, as for output"),
    },
)
