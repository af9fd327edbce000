"""Blocking wait inside the step.

What it does: finds loops whose training thread sleeps between the batch and its backward pass, or inside the model, in
a line of the script: a request to a server or a feature store, a file read, a lock, `time.sleep`.

Fires when: the training thread sleeps ≥ 5 % of the step in a line of the script (a server, a feature store, `time.sleep`).

Why it is slow: nothing is computed meanwhile, neither on the CPU nor on the GPU, and no worker does it ahead of time,
as it would in the data set.

Evidence: how long the training thread sleeps in forward, backward and optimizer, by its CPU clocks (on a GPU, at most
the time in which that had nothing queued); a profile of its stacks with and without the samples that found it asleep,
which names the line.

Fix: move it to the data set, so that loader workers wait for the next batches while this one computes; or request the
next batch's data in a background thread; or request it once and keep the answers.

Estimate: at best the step without that sleep and with warm caches; at worst a quarter of the sleep remains.

False alarms: torch's compute threads that work for the training thread, exchanges with other ranks and waits for a GPU
are in torch's lines, not the user's, or leave no time without work. A line that computes is found asleep only by
chance. Waiting for the interpreter belongs to LOP006, sleep that recurs every N steps to RUN004.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_ASLEEP_S, STEP_TIME_S, STEP_WAITING_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of, taken_from
from rn50_advisor.rules.loop.between_steps import line_words, on_ranks
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_SLEEP_LEFT_WORST = 0.25  # of the sleep, at worst
_LINE_SAMPLES_MIN = 10  # samples at the line: with fewer it is too uncertain to be named


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, waits = a.value(STEP_TIME_S), a.by_rank(STEP_WAITING_S)
    unknown = [rank for rank, s in a.by_rank(STEP_ASLEEP_S).items() if s >= t["waiting"] * step and rank not in waits]
    model = model_of(a)
    expected = model.step_if(_without(a, waits, 0.0))
    level = severity((step - expected) / step)
    whose = tuple(rank for rank, s in waits.items() if s >= t["waiting"] * step)
    line = next((line for line in a.waiting_lines if line.samples >= _LINE_SAMPLES_MIN), None)
    if not whose or step - expected < t["waiting"] * step or level is None or line is None:
        return NotMeasured(RULE.id, (STEP_WAITING_S,)) if unknown and not whose else Clear(RULE.id)
    most, affected = max(whose, key=lambda rank: waits[rank]), whose if len(whose) < len(model.own) else ()
    where = Where(line.file, line.line)
    place = line_words(line)
    return Finding(
        rule=RULE.id,
        title=f"Blocking wait inside the step: {line.function}" + on_ranks(affected),
        severity=level,
        confidence=confidence(a),
        seconds_per_step=step - expected,
        scope=Affected(ranks=affected),
        evidence=(
            Evidence.of(
                STEP_WAITING_S,
                waits[most],
                t["waiting"] * step,
                f"of a {duration(step)} step, in which rank {most}'s training thread sleeps in the script's own code",
                form="continues",
            ),
            Evidence("stack samples", float(line.samples), "", None, place),
        ),
        fixes=(
            Fix(
                f"move the wait in {line.function} to the loader workers",
                "in the data set's __getitem__ or in collate_fn, with num_workers > 0",
                where,
                "small change",
            ),
            Fix(
                "or prefetch the next batch's data in a background thread",
                "concurrent.futures.ThreadPoolExecutor(1).submit(...); cache repeated answers",
                where,
                "small change",
            ),
        ),
        saving=model.saving(
            model.at_best(expected), model.step_if(_without(a, waits, _SLEEP_LEFT_WORST)), "the step without that sleep"
        ),
    )


def _without(a: Analysis, waits: dict[int, float], left: float) -> dict[tuple[int, str], float]:
    """The compute phases of these ranks if this share of the sleep remains: most of it is before the forward pass or in it."""
    own = model_of(a).own
    return {
        (rank, phase): seconds
        for rank, s in waits.items()
        for phase, seconds in taken_from(own[rank], COMPUTE, (1.0 - left) * s).items()
    }


RULE = rule(
    __name__,
    "Blocking wait inside the step",
    check,
    needs=(STEP_TIME_S,),
    thresholds={"waiting": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
