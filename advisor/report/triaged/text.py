"""The triage as text: the verdict with its reasons, what was judged, what was told, what is missing."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.machine_triage import Check, Triage, TriageState
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.styled_lines import WIDTH, Line, Style, plain, wrapped
from rn50_advisor.advisor.report.triaged import wording

_STYLE: dict[TriageState, Style] = {"keep": "good", "fix": "warn", "hand-back": "bad"}
_STATE_STYLE: dict[str, Style] = {"ok": "good", "low": "warn", "bad": "bad", "unknown": "dim"}
_NAME, _VALUE, _EXPECTED = 38, 18, 18


def render(triage: Triage) -> str:
    return plain(document(triage))


def document(triage: Triage) -> list[Line]:
    out: list[Line] = [[(f"{wording.verdict(triage)}", _STYLE[triage.verdict.state])]]
    for reason in triage.verdict.reasons:
        out += wrapped("- ", reason)
    out += [[], [("CHECKS", "title")]]
    for check in wording.judged(triage):
        out += _judged(check)
    told = wording.facts(triage)
    if told:
        out += [[], [("FACTS", "title")]]
        for check in told:
            out += _fact(check)
    if triage.gaps:
        out += [[], [("NOT MEASURED", "title")]]
        for gap in triage.gaps:
            hint = f" ({gap.hint})" if gap.hint else ""
            out += wrapped(f"{inert_text.one_line(gap.name, _NAME)}: ", f"{gap.reason}{hint}", "dim")
    return out


def _judged(check: Check) -> list[Line]:
    name, value = inert_text.one_line(check.name, _NAME - 2), inert_text.one_line(wording.value(check), 60)
    head: Line = [
        ("  ", ""),
        (wording.state(check).ljust(10), _STATE_STYLE[check.state]),
        (name.ljust(_NAME), ""),
        (value.ljust(_VALUE), ""),
        (wording.expected(check), "dim"),
    ]
    hint = wrapped("", check.hint, "dim", indent=12) if check.hint else []
    # where a number is not as expected, who says what to expect?
    asked = check.state in ("low", "bad") and wording.is_judged(check.expected) and check.expected.source
    source = wrapped("expected: ", check.expected.source, "dim", indent=12) if asked else []
    return [head, *hint, *source]


def _fact(check: Check) -> list[Line]:
    name = inert_text.one_line(check.name, _NAME - 2).ljust(_NAME)
    value = inert_text.one_line(wording.value(check), WIDTH - _NAME - 2)
    hint = f"  ({check.hint})" if check.hint else ""
    return wrapped(name, value + hint)
