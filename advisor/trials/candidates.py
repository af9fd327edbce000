"""Which fixes of a report are tried, best predicted first, and which are not, with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.findings import Finding, Fix
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.trials import Predicted, Trial
from rn50_advisor.advisor.model.wording.near_names import did_you_mean
from rn50_advisor.advisor.trials.knobs import NO_CHANGE, Knob, knob_of


@dataclass(frozen=True, slots=True)
class FixCandidate:
    """A fix with its knob."""

    finding: Finding
    fix: Fix
    knob: Knob

    def trial(self, **result: object) -> Trial:
        """Its row in the results."""
        return _row(self.finding, self.fix, self.knob.name, numbers=self.knob.numbers, **result)


def can_be_tried(finding: Finding) -> bool:
    """True if one of its fixes can be applied from outside."""
    return any(isinstance(knob_of(fix), Knob) for fix in finding.fixes)


def candidates(report: Report, asked: Collection[str] = ()) -> tuple[list[FixCandidate], list[Trial]]:
    """The fixes to try and those that are refused. `asked`: only fixes of these rules; empty: all that promise a gain.

    Raises UsageError if the report has no finding of a rule that is asked for.
    """
    found = {finding.rule: finding for finding in report.findings}
    if missing := [rule for rule in asked if rule not in found]:
        hint = did_you_mean(missing[0], sorted(found)) or f"it has {', '.join(found) or 'no finding'}"
        raise UsageError(f"this job has no finding of {', '.join(missing)}", hint)
    tried: list[FixCandidate] = []
    refused: list[Trial] = []
    for finding in _by_gain(report, asked):
        knobs = [(fix, knob_of(fix, also_other_training=finding.rule in asked)) for fix in finding.fixes]
        chosen = next(((fix, knob) for fix, knob in knobs if isinstance(knob, Knob)), None)
        if chosen is not None:
            tried.append(FixCandidate(finding, *chosen))
        else:
            fix, why = next(((fix, str(knob)) for fix, knob in knobs), (Fix(finding.title), NO_CHANGE))
            refused.append(_row(finding, fix, str(fix.call) if fix.call else fix.title, outcome="refused", reason=why))
    return tried, refused


def _row(finding: Finding, fix: Fix, knob: str, **result: object) -> Trial:
    return Trial(
        rule=finding.rule,
        title=finding.title,
        knob=knob,
        predicted=_predicted(finding),
        change="; ".join(fix.typed) or fix.change,
        diff=fix.diff,
        **result,  # type: ignore[arg-type]
    )


def _predicted(finding: Finding) -> Predicted | None:
    saving = finding.saving
    return Predicted(saving.likely, *saving.speedup) if saving else None


def _by_gain(report: Report, asked: Collection[str]) -> Iterator[Finding]:
    def worth(finding: Finding) -> bool:
        if asked:
            return finding.rule in asked
        return not finding.explained_by and bool(finding.saving and finding.saving.is_gain)

    def gain(finding: Finding) -> float:
        saving = finding.saving
        return -(saving.likely or max(saving.speedup)) if saving else 0.0

    yield from sorted(filter(worth, report.findings), key=gain)
