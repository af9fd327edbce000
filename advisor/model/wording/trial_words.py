"""Words for the results of `try`, the same on the screen and in every output."""

from __future__ import annotations

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.trials import MeasuredSpeedup, Outcome, Predicted, Trial, Tried
from rn50_advisor.advisor.model.wording import quantities as fmt

# glyph and word always go together, as in the report
OUTCOME_WORDS: dict[Outcome, tuple[str, str]] = {
    "faster": ("▲", "faster"),
    "no_gain": ("=", "no gain"),
    "undecided": ("?", "undecided"),
    "refused": ("–", "not tried"),
}
BY_TRY = "measured by try"
TRIAL_COLUMNS = ("rule", "change", "predicted", "measured", "answer", "note")
NUMBERS_WORDS = {
    "same": "",
    "rounding": "results differ by rounding",
    "accuracy": "check the accuracy: the job computes other numbers with it",
}


def outcome(trial: Trial) -> str:
    return " ".join(OUTCOME_WORDS[trial.outcome])


def measured(found: MeasuredSpeedup | None) -> str:
    """`1.52× (1.49–1.56×)`."""
    if found is None:
        return fmt.DASH
    return f"{fmt.ratio(found.speedup)}× ({interval(found)})"


def interval(found: MeasuredSpeedup) -> str:
    return f"{fmt.ratio(found.lo)}–{fmt.ratio(found.hi)}×"


def predicted(expected: Predicted | None) -> str:
    """`1.45× (1.3–1.6×)`, or only the range where nothing is likely."""
    if expected is None:
        return fmt.DASH
    spread = predicted_range(expected)
    return f"{fmt.ratio(expected.likely)}× ({spread})" if expected.likely is not None else spread


def predicted_range(expected: Predicted | None) -> str:
    return fmt.speedup_range((expected.lo, expected.hi)) if expected else fmt.DASH


def note(trial: Trial) -> str:
    """Why it is so, and what the change does to the numbers if it is to be kept."""
    kept = NUMBERS_WORDS[trial.numbers] if trial.outcome == "faster" else ""
    return "; ".join(part for part in (trial.reason, kept) if part)


def of_finding(tried: Tried | None, finding: Finding) -> str:
    """What the trial of this finding's fix has measured: `1.52× (1.49–1.56×)`; empty if there was none."""
    trials = [trial for trial in tried.trials if trial.rule == finding.rule and trial.measured] if tried else []
    same = [trial for trial in trials if trial.title == finding.title]  # of several findings of one rule
    trial = next(iter(same or trials), None)
    if trial is None:
        return ""
    answer = "" if trial.outcome == "faster" else OUTCOME_WORDS[trial.outcome][1]
    return "; ".join(part for part in (measured(trial.measured), answer, note(trial)) if part)


def fitted(knob: str, width: int) -> str:
    """The change in at most so many columns: without the names of the calls, if need be, and then cut."""
    if len(knob) <= width:
        return knob
    _, inside, arguments = knob.partition("(..., ")
    knob = arguments.removesuffix(")") if inside else knob
    parts = [part.partition("=") for part in knob.split(", ")]
    shorter = ", ".join(f"{name.rpartition('.')[2]}{sign}{value}" for name, sign, value in parts)
    return fmt.shorten(shorter if "=" in shorter else knob, width)


def winners(tried: Tried) -> list[Trial]:
    """The faster ones, the largest gain first."""
    faster = [trial for trial in tried.trials if trial.outcome == "faster" and trial.measured]
    return sorted(faster, key=lambda trial: -trial.measured.speedup if trial.measured else 0.0)


def answer(tried: Tried) -> Outcome:
    """The answer of all trials: that of the best one, else the one that says most."""
    outcomes = {trial.outcome for trial in tried.trials}
    order: tuple[Outcome, ...] = ("faster", "undecided", "no_gain")
    return next((each for each in order if each in outcomes), "refused")


def headline(tried: Tried) -> str:
    """`1.52× as fast (1.49–1.56×) with DataLoader.num_workers=2 (DAT003)`."""
    best, judged = tried.best, [trial for trial in tried.trials if trial.outcome != "refused"]
    if best is not None and best.measured is not None:
        return f"{measured(best.measured).replace('×', '× as fast', 1)} with {best.knob} ({best.rule})"
    if not judged:
        return "no advised change could be tried" if tried.trials else "there is no advised change to try"
    unsure = sum(trial.outcome == "undecided" for trial in judged)
    if unsure == 0:
        return (
            "the change makes this job no faster"
            if len(judged) == 1
            else f"none of {len(judged)} changes makes this job faster"
        )
    return f"no change is certain to make this job faster; {unsure} of {len(judged)} undecided"


def together(tried: Tried) -> str:
    """`all 3 at once: 1.71× (1.65–1.78×)`; empty if they were not tried so."""
    found, best = tried.together, tried.best
    if found is None:
        return ""
    words = f"{all_at_once(tried)}: {measured(found)}"
    alone = best.measured.speedup if best and best.measured else 0.0
    return f"{words}, no more than {best.rule} alone" if best and found.speedup <= alone else words


def all_at_once(tried: Tried) -> str:
    return f"all {len(winners(tried))} at once"


def speed(tried: Tried) -> str:
    """`40.1 samples/s as it is, about 61.1 with DAT003`."""
    if tried.samples_per_s is None:
        return ""
    words = f"{fmt.rate(tried.samples_per_s, 'samples/s')} as it is"
    best = tried.best
    if best is None or best.measured is None:
        return words
    return f"{words}, about {fmt.rate(tried.samples_per_s * best.measured.speedup, '')} with {best.rule}"
