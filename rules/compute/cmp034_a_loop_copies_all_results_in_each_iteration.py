"""All results copied in every iteration.

What it does: finds loops that make a tensor, an array or a table longer by one part in each iteration: `out = torch.cat([out, new], 1)`,
`np.append`, `pd.concat`.

Fires when: these lines take ≥ 5 % of the step, and the source shows that the loop uses what it makes longer for nothing else.

Why it is slow: each iteration allocates a new tensor and copies all results so far: n iterations copy n (n + 1) / 2 of them. With gradients
all of the intermediate tensors are nodes of autograd's graph.

Evidence: stack samples of the line; the source.

Fix: `outs.append(new)` on a list, and `torch.cat(outs, 1)` once after the loop; or a tensor of the full size, made before the loop.

Estimate: the step without these lines; at worst a third of them is left, for appending and the join at the end. The share of the line is
uncertain by one and a half standard errors of the samples.

False alarms: a loop that reads what it makes longer (a cache of keys and values, a growing sequence handed to a model) is none.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_JOINED_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PHASES = ("forward", "gap")
_LEFT = 0.33  # of the lines at worst


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    doing, lines = "copies all results so far", a.joined_lines
    found = own_code(RULE.id, a, STEP_JOINED_S, lines, least=t["joining"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    return finding_of(
        RULE.id,
        a,
        found,
        f"All results copied in every iteration: {lines[0].function}",
        fix=Fix(
            "append to a list, and join it once after the loop",
            "outs.append(new) in the loop, torch.cat(outs, dim) after it (np.concatenate, pd.concat): it copies each result once",
            found.where,
            "small change",
        ),
        saving=saving_without(a, found, "each result copied once", left=_LEFT, phases=_PHASES),
    )


RULE = rule(
    __name__,
    "All results copied in every iteration",
    check,
    needs=(STEP_TIME_S, STEP_JOINED_S),
    thresholds={"joining": Threshold(0.05, "of the step: severity 'medium' begins at 5 %")},
)
