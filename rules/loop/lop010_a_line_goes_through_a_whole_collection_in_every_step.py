"""Whole collection processed in every step.

What it does: finds lines of the training loop whose cost grows with a whole collection (a replay buffer, the names of all files,
everything computed so far), though the step needs a few of its items.

Fires when: the training thread computes ≥ 5 % of the step in lines that permute, copy, filter, search, move, join or convert a whole
collection, read a file from its start to one line, or take the rows of an array one by one.

Why it is slow: a permutation of a million indices of which 64 are used takes some 20 ms; a list moves all its items when the first
is taken out; `torch.tensor` converts a list of arrays number by number, which took 50 times as long as joining them; joining new
values to all earlier ones copies these again in each step, so that steps become longer and longer.

Evidence: a profile of the training thread's stacks, and in the code of its lines a call of this kind.

Fix: by what the call does: draw the batch's indices alone, keep a list beside a dictionary or a deque, use `collections.deque` as a
queue, a set or a dictionary for searching, join once, after the loop, seek to where a line begins, draw again instead of leaving items
out first, take rows at once.

Estimate: the step without this line. The share is uncertain by one and a half standard errors of the samples, and at worst a
quarter of it remains, a third of a conversion, a seventh of rows that a slice takes, five sixths of those taken by their indices; what
grows may take twice as long later.

False alarms: below 5 % of the step the rule stays silent, so that small collections are never reported. If the line does
something else as well, that part of it remains. Data sets and evaluations have rules of their own.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_COLLECTION_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule
from rn50_advisor.rules.whole_collections import ADVICE

_PHASES = ("forward", "gap")
_LEFT_WORST = 0.25  # of the line, at worst
# Times what the profile shows: later copies are longer. It showed 18 % of the step at half of a run of which they took 39 %.
_GROWING_BEST = 2.0


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    doing = "computes in lines that process a whole collection"
    lines = a.collection_lines
    found = own_code(RULE.id, a, STEP_COLLECTION_S, lines, least=t["computing"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    call = lines[0].collection
    if call is None:
        return Clear(RULE.id)
    times = _GROWING_BEST if call["kind"] == "grows" else 1.0
    basis = "the line without its work on all other items"
    advice = ADVICE[call["kind"]]
    return finding_of(
        RULE.id,
        a,
        found,
        f"{call['call']} {advice.does} in every step",
        fix=Fix(advice.fix, advice.change, found.where, "small change"),
        saving=saving_without(a, found, basis, left=advice.left_worst or _LEFT_WORST, phases=_PHASES, times=times),
    )


RULE = rule(
    __name__,
    "Whole collection processed in every step",
    check,
    needs=(STEP_TIME_S, STEP_COLLECTION_S),
    thresholds={"computing": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
