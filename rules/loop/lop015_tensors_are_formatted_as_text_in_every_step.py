"""Tensors formatted as text.

What it does: finds lines of the job's code that turn tensors into text in the step: an f-string for a logger whose level drops it,
`print(tensor)`, `str(tensor)`, `f"{tensor.tolist()}"`.

Fires when: the training thread spends ≥ 5 % of the step formatting tensors.

Why it is slow: torch formats a tensor element by element in Python: ten took 0.25 ms, 512 took 3 ms, and a million 0.5 ms, of which it
shows a few. On a GPU it waits for the tensor and copies it first. An f-string is made before the logger decides that nobody reads it.

Evidence: a profile of the training thread's stacks, with the functions of torch that format tensors, and the line that called them; or
lines whose source makes text of a tensor's list or array.

Fix: pass the tensor instead of its text (`logger.debug("norms: %s", norms)`), so that it is formatted only if the message is written; a
number (`.item()`) or every hundredth step where it is.

Estimate: the step without formatting. At worst a tenth of it stays. The share is uncertain by one and a half standard errors of the
samples.

False alarms: below 5 % of the step the rule stays silent, and so it is in evaluations. A tensor of one number is formatted in 2 us.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_TEXT_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PHASES = ("gap", "optimizer", "forward", "backward")
_LEFT_WORST = 0.1


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    doing, lines = "formats tensors as text", a.text_lines
    found = own_code(RULE.id, a, STEP_TEXT_S, lines, least=t["formatting"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    return finding_of(
        RULE.id,
        a,
        found,
        f"Tensors formatted as text in every step: {lines[0].function}",
        fix=Fix(
            "format tensors only where the text is written",
            'logger.debug("norms: %s", norms) instead of an f-string, or if logger.isEnabledFor(logging.DEBUG): before it; where it is '
            "written, a number (.item()), and in every hundredth step",
            found.where,
            "one line",
        ),
        saving=saving_without(a, found, "no text, or a tenth of it", left=_LEFT_WORST, phases=_PHASES),
    )


RULE = rule(
    __name__,
    "Tensors formatted as text",
    check,
    needs=(STEP_TIME_S, STEP_TEXT_S),
    thresholds={"formatting": Threshold(0.05, "of the step: severity 'medium' begins at 5 %")},
)
