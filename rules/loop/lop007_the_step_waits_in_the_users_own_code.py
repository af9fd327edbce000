"""The step waits in the user's own code.

What it does: finds loops whose training thread sleeps between the batch and its backward pass, or inside the model, in a line of the
script: a request to a server or a feature store, a file that is read, a lock, `time.sleep`.

Why it is slow: nothing is computed meanwhile, neither on the CPU nor on the GPU, and no worker does it ahead as it would in the data set.

Evidence: how long the training thread sleeps in forward, backward and optimizer, by its CPU clocks (on a GPU: how long that had nothing
queued); and a profile of its stacks with and without those that found it asleep, which names the line.

Fix: let the data set do it, so that loader workers wait for the next batches while this one computes; or ask for the next batch's in a
background thread; or ask once and keep the answers.

Estimate: the step without that sleep, and at best caches that stay warm; at worst a quarter of the sleep stays.

False alarms: threads of torch's that work for the training thread, exchanges with other ranks and waits for a GPU are torch's lines, not
the user's, or leave no time without work. A line that computes is found asleep only by chance. Waiting for the interpreter is LOP006,
what comes in every so many steps RUN004.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.rules.analysis_reading import COMPUTE, LAYERS, model_of, stalls_asleep, taken_from
from rn50_advisor.rules.loop.between_steps import on_ranks
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.stragglers import slows_the_wire

_LEFT = 0.25  # of the sleep, at worst
_LOOKS_MIN = 10  # at the line: of fewer it is not known well enough to be named


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, waits = a.value("step.time_s"), a.by_rank("step.waiting_s")
    unseen = [rank for rank, s in a.by_rank("step.asleep_s").items() if s >= t["waiting"] * step and rank not in waits]
    model = model_of(a)
    expected = model.step_if(_without(a, waits, 0.0))
    level = severity((step - expected) / step)
    whose = tuple(rank for rank, s in waits.items() if s >= t["waiting"] * step)
    line = next((line for line in a.waiting_lines if line.samples >= _LOOKS_MIN), None)
    if not whose or step - expected < t["waiting"] * step or level is None or line is None:
        return NotMeasured(RULE.id, ("step.waiting_s",)) if unseen and not whose else Clear(RULE.id)
    most, affected = max(whose, key=lambda rank: waits[rank]), whose if len(whose) < len(model.own) else ()
    where = Where(line.file, line.line)
    place = f"{line.file}:{line.line} in {line.function}, in {line.leaf}"
    return Finding(
        rule=RULE.id,
        title=f"The step waits in {line.function}, and nothing is computed meanwhile" + on_ranks(affected),
        severity=level,
        confidence=confidence(a),
        seconds_per_step=step - expected,
        explains=(*slows_the_wire(a, step - expected), *_stalls(a)),
        scope=Affected(ranks=affected),
        evidence=(
            Evidence(
                "step.waiting_s",
                waits[most],
                "s",
                t["waiting"] * step,
                f"of a {1000 * step:.3g} ms step rank {most}'s training thread sleeps in the script's own code",
            ),
            Evidence("stack samples", float(line.samples), "", None, place),
        ),
        fixes=(
            Fix(
                f"let loader workers do ahead what {line.function} waits for",
                "in the data set's __getitem__ or in collate_fn, with num_workers > 0",
                where,
                "small change",
            ),
            Fix(
                "or ask for the next batch's in a thread while this one is trained on",
                "concurrent.futures.ThreadPoolExecutor(1).submit(...); what is asked again and again: keep the answer",
                where,
                "small change",
            ),
        ),
        saving=model.saving(
            model.at_best(expected), model.step_if(_without(a, waits, _LEFT)), "the step without that sleep"
        ),
    )


def _stalls(a: Analysis) -> tuple[str, ...]:
    """Stalls of the phases in which it sleeps, which nothing else explains; where it sleeps in those alone, RUN004 is what happens."""
    within = a.pulse is not None and a.pulse.phase in LAYERS and not a.pulse.coincides
    return ("RUN004",) if within and not stalls_asleep(a) else ()


def _without(a: Analysis, waits: dict[int, float], left: float) -> dict[tuple[int, str], float]:
    """The computing of these ranks with so much of the sleep left: most sleep before the forward pass or in it."""
    own = model_of(a).own
    return {
        (rank, phase): seconds
        for rank, s in waits.items()
        for phase, seconds in taken_from(own[rank], COMPUTE, (1.0 - left) * s).items()
    }


RULE = rule(
    __name__,
    "the step waits in the user's own code",
    check,
    needs=("step.time_s",),
    explains=("CMP003", "CMP007", "COM002"),
    thresholds={"waiting": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
