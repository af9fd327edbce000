"""Style of each phase of a step: a letter, a theme colour, and stripes where the step waits instead of working."""

from __future__ import annotations

from dataclasses import dataclass

from rn50_advisor.advisor.model.report import EPOCH_START, INPUT_OR_FORWARD, PHASE_TITLES, PHASES

MUTED = "$foreground 62%"


@dataclass(frozen=True, slots=True)
class PhaseStyle:
    letter: str
    colour: str  # a theme variable
    fill: str  # what pads the segment: blank for work, a pattern for waiting and for what is outside the step's work


_STYLES = {
    "input_wait": PhaseStyle("I", "$warning", "╱"),
    EPOCH_START: PhaseStyle("S", "$warning-darken-1", "╱"),
    INPUT_OR_FORWARD: PhaseStyle("N", "$primary-darken-2", "?"),
    "forward": PhaseStyle("F", "$primary", " "),
    "backward": PhaseStyle("B", "$secondary", " "),
    "comm_exposed": PhaseStyle("C", "$error", "╲"),
    "optimizer": PhaseStyle("O", "$success", " "),
    "gap.evaluation": PhaseStyle("E", "$primary-lighten-3", "∙"),
    "gap.checkpoint": PhaseStyle("K", "$error-lighten-3", "∙"),
    "gap": PhaseStyle("G", "$warning-darken-3", "∙"),
    "unattributed": PhaseStyle("U", "$foreground-darken-3", "?"),
}
_OTHER = PhaseStyle("X", "$foreground-darken-3", "?")
ORDER = PHASES
_SHORT_TITLES = {"input_wait": "input wait", "comm_exposed": "communication"}


def phase_style(phase: str) -> PhaseStyle:
    return _STYLES.get(phase, _OTHER)


def title(phase: str) -> str:
    return PHASE_TITLES.get(phase, phase)


def short_title(phase: str) -> str:
    return _SHORT_TITLES.get(phase, title(phase))


ENDED = "ended"  # the phase of a rank that left cleanly; of others it says how they went


def in_order(budget: dict[str, float]) -> list[tuple[str, float]]:
    """The phases that take any time, in the order they are always shown; unknown ones last."""
    known = [phase for phase in ORDER if phase in budget]
    return [
        (phase, budget[phase]) for phase in [*known, *sorted(set(budget) - set(known))] if (budget[phase] or 0) >= 1e-9
    ]
