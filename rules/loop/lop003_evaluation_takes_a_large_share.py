"""Evaluation overhead.

What it does: finds runs that evaluate repeatedly and spend a tenth of their time or more on it.

Fires when: evaluation takes ≥ 10 % of the time, more than once.

Why it is slow: no training happens meanwhile; often evaluation runs with a small batch, few workers, or far too often.

Evidence: time in evaluation, spread over the steps; its share of the run so far; the line of the loop that evaluates,
found where the model that trains is put into `eval()` mode; the share of its batches during which autograd's graph grew;
check sums of its first batches, which show that all ranks of a DDP job evaluate the same samples; the share of stack samples beside the
model, in metrics or in outputs that a trainer collects, and their line.

Fix: evaluate less often, on a subset in between, with a larger batch and enough workers; under `torch.no_grad()`, which spares memory. If
starting the workers of its loader takes 15 % of it or more, keep them: `persistent_workers=True`, and the loader created once. If all
ranks evaluate the same samples, or one evaluates while the others wait, distribute them. If a model of transformers generates text whose
settings say `use_cache=False`, as scripts set it for gradient checkpointing, turn the cache on. If an evaluation's time is beside the
model, reduce each batch's outputs to what the metrics need; for the Trainer of Hugging Face by `preprocess_logits_for_metrics`.

Estimate: of what an evaluation does beside the model, 2 to 20 % are assumed to be left; of generating text, with a cache of keys and
values, 10 to 50 %. Evaluating half as often halves it; at best a tenth of it remains and the caches stay warm. Keeping the workers saves
1.75 to 3 times what starting them takes. Of N ranks that evaluate the same, each keeps an Nth of the samples, and so it is where one
evaluates for all; at worst half of the time that this spares is lost to uneven parts.

False alarms: a short trial run that evaluates once at its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from rn50_advisor.advisor.model.analysis import Analysis, EvaluationWork, LoaderFacts
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, Saving, Where
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES, CPU_HOST_BUSY_CORES, CPU_JOB_CORES
from rn50_advisor.advisor.model.measures.input_measures import LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_EVALUATION_S, STEP_EVALUATION_START_S, STEP_TIME_S
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.rules.analysis_reading import copies_of_one_model, idle_cores, model_of, where_of
from rn50_advisor.rules.loop.between_steps import on_ranks, ranks_that_spend
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Part of an evaluation may need gradients: adversarial examples, saliency.
_RECORDED_SHARE_MIN = 0.5
# Share of an evaluation: from there on keeping the workers saves about as much as evaluating half as often.
_START_SHARE_MIN = 0.15
# What keeping the workers saves, as a multiple of the time to start them: their first batches and their end go as well. Measured on two
# cores: 1.8 to 3.0 of it in six evaluations of 64 to 2,048 samples, 39 to 93 % of the evaluation.
_PERSISTENT_SAVES = (1.75, 3.0)
_BATCHES_SHARE_MIN = 0.07
# Of what sharing an evaluation among the ranks would spare. Two seeded jobs in turns became 1.14 and 1.05 times as fast where 1.11 and 1.06
# were likely.
_SPARED_AT_WORST = 0.5
_SITES_SHOWN = 3
# Of stack samples in evaluations: the model is then the smaller part. Of eight, half are there give or take a sixth.
_BESIDE_SHARE_MIN, _SAMPLES_MIN = 0.5, 8
# Of what evaluations do beside the model, at best and at worst: assumed, and not measured.
_REDUCED_LEFT = (0.02, 0.2)
_GENERATING_NOTE = (
    "of an evaluation: generate() runs the model on the whole text for each new word, as use_cache=False is set"
)
_CACHE_CHANGE = "model.generation_config.use_cache = True before it generates; use_cache=False in the forward passes of training alone"
# Of generating text, with a cache of keys and values, at best and at worst: assumed. With 96 new words it was 0.12 to 0.17 in one job on
# a CPU.
_CACHED_LEFT = (0.1, 0.5)
_EVALUATION = "gap.evaluation"


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    spent, step = a.budget.critical[_EVALUATION], a.value(STEP_TIME_S)
    times = sum(1 for segment in a.segments if segment.kind == "evaluation")
    level = severity(spent / step)
    if spent < t["share"] * step or times < t["evaluations"] or level is None:
        return Clear(RULE.id)
    site = next((Where(site["file"], site["line"]) for site in a.evaluation_sites), None)
    whose = ranks_that_spend(a, _EVALUATION)
    restarting = _restarting(a)
    fixes = [Fix("evaluate less often, or on a subset in between", "", site, "one line"), *_faster(a)]
    if (a.evaluated_with_gradients or 0.0) >= _RECORDED_SHARE_MIN:
        fixes.append(
            Fix("evaluate under torch.no_grad()", "which frees memory; it need not be faster", site, "one line")
        )
    if whose:
        change = "DistributedSampler(..., shuffle=False), counts summed with all_reduce"
        fixes.insert(0, Fix("distribute it across the ranks", change, site, "small change"))
    elif _all_evaluate_the_same(a):
        fixes.insert(0, _distribute(a))
    if restarting is not None:
        fixes.insert(0, _keep_workers(restarting))
    work = None if whose or a.on_gpu else _beside(a)  # a host that waits for its GPU is beside the model, too
    if work is not None:
        fixes.insert(0, _reduce(work))
    generating = 0.0 if work is not None else _uncached(a)
    if generating:
        fixes.insert(0, Fix("generate with a cache: use_cache=True", _CACHE_CHANGE, site, "one line"))
    if work is not None:
        saving = _spared(a, work)
    elif generating:
        saving = _with_cache(a, generating)
    else:
        saving = _saving(a, kept=restarting is not None, whose=len(whose))
    return Finding(
        rule=RULE.id,
        title="Evaluation overhead: large share of the run" + on_ranks(whose),
        severity=level,
        scope=Affected(ranks=whose),
        confidence=confidence(a),
        seconds_per_step=spent,
        evidence=(
            Evidence.of(
                STEP_EVALUATION_S,
                spent,
                t["share"] * step,
                f"{100 * spent / step:.0f} % of the time, spread over the steps",
            ),
            Evidence("evaluations", float(times), "", t["evaluations"], f"{times} evaluations so far"),
            *([_seen(work)] if work is not None else ()),
            *(
                [Evidence("stack samples", generating, "share", None, _GENERATING_NOTE, "explains")]
                if generating
                else ()
            ),
            *_details(a),
        ),
        fixes=tuple(fixes),
        saving=saving,
    )


def _uncached(a: Analysis) -> float:
    """Share of evaluations that generates text without a cache, if that is most of them; else 0."""
    found = a.generating
    uncached = any(facts.get("model", {}).get("uncached") for facts in a.rank_facts.values())
    most = found is not None and found.samples >= _SAMPLES_MIN and found.share >= _BESIDE_SHARE_MIN
    return found.share if found is not None and most and uncached else 0.0


def _with_cache(a: Analysis, generating: float) -> Saving:
    best, worst = (_step_with(a, share=1.0 - generating * (1.0 - left)) for left in _CACHED_LEFT)
    return model_of(a).saving(model_of(a).at_best(best), worst, "generating with a cache of keys and values")


def _beside(a: Analysis) -> EvaluationWork | None:
    """What evaluations do beside the model, if that is most of them. Where one rank evaluates for all, dividing that comes first."""
    work = a.evaluation_work
    return work if work and work.samples >= _SAMPLES_MIN and work.share >= _BESIDE_SHARE_MIN else None


def _reduce(work: EvaluationWork) -> Fix:
    if work.trainer is not None:
        where = Where(work.trainer["file"], work.trainer["line"])
        change = (
            "Trainer(..., preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)), if the metrics need "
            "no more"
        )
        return Fix("reduce each batch's outputs before the trainer collects them", change, where, "small change")
    change = "running sums for each batch: correct += (logits.argmax(-1) == labels).sum(); one .item() at the end"
    where = Where(work.file, work.line)
    return Fix("reduce each batch's outputs to what the metrics need", change, where, "small change")


def _seen(work: EvaluationWork) -> Evidence:
    note = f"of an evaluation, beside the model: mostly at {work.file}:{work.line} in {work.function}, {work.leaf}"
    return Evidence("stack samples", work.share, "share", None, note, "explains")


def _spared(a: Analysis, work: EvaluationWork) -> Saving:
    """What follows the last batch counts as time between steps."""
    model, after = model_of(a), sum(line.share for line in a.hot_lines if (line.file, line.line) in work.lines)
    error = (work.share * (1.0 - work.share) / work.samples) ** 0.5
    steps = []
    for left, beside in zip(_REDUCED_LEFT, (work.share + error, work.share - error), strict=True):
        kept = {_EVALUATION: 1.0 - (1.0 - left) * min(1.0, beside), "gap": 1.0 - (1.0 - left) * after}
        steps.append(model.step_if({(rank, of): own[of] * kept[of] for rank, own in model.own.items() for of in kept}))
    return model.saving(model.at_best(steps[0]), steps[1], "evaluations without most of what they do beside the model")


def _loader(a: Analysis) -> LoaderFacts | None:
    return next((loader for loader in a.loaders if loader.training is False), None)


def _restarting(a: Analysis) -> LoaderFacts | None:
    """The evaluation's loader if starting its workers is a large part of evaluating."""
    spent, loader = a.by_rank(STEP_EVALUATION_S), _loader(a)
    started = a.by_rank(STEP_EVALUATION_START_S)
    most = max((seconds / spent[rank] for rank, seconds in started.items() if spent.get(rank)), default=0.0)
    return loader if loader is not None and not loader.lives_on and most >= _START_SHARE_MIN else None


def _all_evaluate_the_same(a: Analysis) -> bool:
    """True if the first batches that each rank evaluates are the same: several, not one again and again. All its loaders that evaluate go
    through their data sets in order: of several the first may be one that all ranks share on purpose.
    """
    if not copies_of_one_model(a):
        return False
    evaluated = [_evaluated(facts) for facts in a.rank_facts.values()]
    return evaluated[0] is not None and len(set(evaluated[0])) > 1 and all(each == evaluated[0] for each in evaluated)


def _evaluated(facts: RankFacts) -> list[int] | None:
    found = facts.get("first_evaluated")
    evaluating = [one for one in facts.get("loaders", ()) if one.get("training") is False]
    in_order = all(one.get("sampler") == "SequentialSampler" and not one.get("batch_sampler") for one in evaluating)
    return found["digests"] if found and evaluating and in_order else None


def _distribute(a: Analysis) -> Fix:
    loader = _loader(a)
    return Fix(
        f"distribute it: each of {a.world_size} ranks evaluates the same samples",
        "DataLoader(..., sampler=DistributedSampler(dataset, shuffle=False)), counts summed with all_reduce",
        None if loader is None else where_of(loader),
        "small change",
    )


def _keep_workers(loader: LoaderFacts) -> Fix:
    change = CallChange.of("DataLoader", num_workers=loader.num_workers, persistent_workers=True)
    title = (
        "persistent_workers=True"
        if loader.made <= 1
        else "create the evaluation's DataLoader once, with persistent workers"
    )
    return Fix.of(title, change, where_of(loader), "one line" if loader.made <= 1 else "small change")


def _faster(a: Analysis) -> tuple[Fix, ...]:
    """What makes each evaluation shorter: only a GPU is sure to gain by a larger batch, and workers need cores of their own."""
    loader = _loader(a)
    known = all(a.get(measure) is not None for measure in (CPU_ALLOWED_CORES, CPU_HOST_BUSY_CORES, CPU_JOB_CORES))
    workers = loader is not None and loader.num_workers == 0 and known and idle_cores(a) >= 1.0
    parts = [what for what, helps in (("a larger batch", a.on_gpu), ("loader workers", workers)) if helps]
    return (Fix(f"{' and '.join(parts)} for evaluation", "", where_of(loader), "one line"),) if loader and parts else ()


def _details(a: Analysis) -> Iterator[Evidence]:
    loader, started = _loader(a), max(a.by_rank(STEP_EVALUATION_START_S).values(), default=0.0)
    if loader is not None:
        yield Evidence.of(
            LOADER_WORKERS, float(loader.num_workers), note=f"the evaluation loader, {loader.file}:{loader.line}"
        )
    if started:
        yield Evidence.of(
            STEP_EVALUATION_START_S,
            started,
            note="to start its workers, without their first batches and their shutdown",
        )
    for called in a.evaluation_sites[:_SITES_SHOWN]:
        yield Evidence("called", float(called["count"]), "", None, f"at {called['file']}:{called['line']}")
    if (a.evaluated_with_gradients or 0.0) >= _RECORDED_SHARE_MIN:
        note = "of the evaluation's batches: activations are kept for a backward pass that never runs"
        yield Evidence("autograd recording", a.evaluated_with_gradients, "share", _RECORDED_SHARE_MIN, note)
    if _all_evaluate_the_same(a):
        yield Evidence(
            "ranks that evaluate the same", float(a.world_size), "", 2.0, "by check sums of their first batches"
        )


def _saving(a: Analysis, *, kept: bool, whose: int) -> Saving:
    """That of the first fix. `whose`: ranks that evaluate while the others wait; 0: all evaluate."""
    if kept:
        best, worst = (_step_with(a, starts=times) for times in reversed(_PERSISTENT_SAVES))
        return model_of(a).saving(model_of(a).at_best(best), worst, "persistent workers between evaluations")
    if whose or _all_evaluate_the_same(a):
        part = (whose or 1) / a.world_size
        best, worst = (_step_with(a, share=share) for share in (part, 1.0 - _SPARED_AT_WORST * (1.0 - part)))
        return model_of(a).saving(model_of(a).at_best(best), worst, f"{a.world_size} ranks share the evaluation")
    best, worst = (_step_with(a, share=share) for share in (0.1, 0.5))
    return model_of(a).saving(model_of(a).at_best(best), worst, "half as often, down to a tenth")


def _step_with(a: Analysis, *, share: float = 1.0, starts: float = 0.0) -> float:
    """Step time with this share of the evaluation, without `starts` times the start of its workers."""
    model, started = model_of(a), a.by_rank(STEP_EVALUATION_START_S)
    changes = {}
    for rank, own in model.own.items():
        left = share * own[_EVALUATION] - starts * started.get(rank, 0.0)
        changes[rank, _EVALUATION] = max(left, _BATCHES_SHARE_MIN * own[_EVALUATION])
    longest = max(model.own, key=lambda rank: model.own[rank][_EVALUATION])
    for rank, own in model.own.items():
        # a rank that does not evaluate may wait in a barrier for the one that does, which no mark tells from its own work
        spared = 0.0 if own[_EVALUATION] else model.own[longest][_EVALUATION] - changes[longest, _EVALUATION]
        for phase in ("gap", "forward"):
            waits = min(spared, max(0.0, own[phase] - model.own[longest][phase]))
            changes[rank, phase] = own[phase] - waits
            spared -= waits
    return model.step_if(changes)


RULE = rule(
    __name__,
    "Evaluation overhead",
    check,
    needs=(STEP_TIME_S, STEP_EVALUATION_S),
    thresholds={
        "share": Threshold(
            0.10,
            "twice the share from which severity is 'medium': evaluation is needed; only too much of it is a problem",
        ),
        "evaluations": Threshold(2, "one evaluation does not show how often it happens"),
    },
)
