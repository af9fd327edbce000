"""What has to change for a call to be made with other arguments: changes, options to pass, and words for the rest."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rn50_advisor.advisor.edits.calls import find_call
from rn50_advisor.advisor.edits.edit_plan import EditPlan
from rn50_advisor.advisor.edits.rewrite import rewritten
from rn50_advisor.advisor.edits.syntax import Code, parse_code
from rn50_advisor.advisor.model.job_changes import Value

OPTION = 'p.add_argument("--workers", default=2)\n'


def parsed(text: str) -> Code:
    code = parse_code("train.py", text)
    assert code is not None
    return code


class Made:
    """A plan for the call in the last line, carried out."""

    def __init__(
        self,
        text: str,
        wanted: Mapping[str, Value],
        *,
        known: Mapping[str, Value] | None = None,
        argv: str = "",
        without: tuple[str, ...] = (),
    ) -> None:
        code = parsed(text)
        call = find_call(code, text.rstrip().count("\n") + 1, "DataLoader", through_package=False, wanted=wanted)
        assert call is not None
        plan = EditPlan(code, call, known=known or {}, argv=argv.split())
        self.whole = plan.make(wanted, without=without)
        changes = plan.changes(code)
        self.text = rewritten(code, changes) if changes else None
        self.words, self.options, self.typed = plan.words, plan.options, plan.typed


@pytest.mark.parametrize(
    ("text", "wanted", "after"),
    [
        ("DataLoader(d)", {"num_workers": 6}, "DataLoader(d, num_workers=6)"),
        ("DataLoader(d, num_workers=2)", {"num_workers": 6}, "DataLoader(d, num_workers=6)"),
        ("DataLoader(d, 8, None, None, None, 2)", {"num_workers": 6}, "DataLoader(d, 8, None, None, None, 6)"),
        ("n = 2\nDataLoader(d, num_workers=n)", {"num_workers": 6}, "n = 6\nDataLoader(d, num_workers=n)"),
        ("DataLoader(d, **{'num_workers': 2})", {"num_workers": 6}, "DataLoader(d, **{'num_workers': 6})"),
        ("make(d, workers=2)", {"num_workers": 6}, "make(d, workers=6)"),
    ],
)
def test_the_value_is_changed_where_it_was_written(text: str, wanted: dict[str, Value], after: str) -> None:
    made = Made(text, wanted)
    assert (made.whole, made.text, made.words, made.options) == (True, after, [], [])


@pytest.mark.parametrize(
    ("argv", "known", "words", "default"),
    [
        ("train.py", 2, "pass --workers 6", "6"),
        ("train.py --workers 3", 3, "pass --workers 6 instead of --workers 3", "2"),
    ],
)
def test_an_option_is_passed_and_its_default_changed_where_that_decides(
    argv: str, known: int, words: str, default: str
) -> None:
    text = OPTION + "DataLoader(d, num_workers=args.workers)"
    made = Made(text, {"num_workers": 6}, known={"num_workers": known}, argv=argv)
    assert made.whole and made.words == made.options == [words] and made.typed == ["--workers 6"]
    assert (made.text or text) == text.replace("default=2", f"default={default}")


def test_a_default_in_quotes_stays_in_quotes() -> None:
    text = OPTION.replace("2", "'2'") + "DataLoader(d, num_workers=int(args.workers))"
    made = Made(text, {"num_workers": 6}, known={"num_workers": 2}, argv="train.py")
    assert made.text == text.replace("'2'", "'6'")


@pytest.mark.parametrize(
    ("text", "known", "words"),
    [
        ("DataLoader(d, num_workers=cores())", {}, ["num_workers is `cores()` there"]),
        ("n = cores() // 2\nDataLoader(d, num_workers=n)", {}, ["num_workers is `n` there, `cores() // 2` in line 1"]),
        ("DataLoader(d, num_workers=2)", {"num_workers": 4}, []),  # not the call that made this loader
        (OPTION + "DataLoader(d, num_workers=args.workers)", {"num_workers": 5}, ["num_workers is `args.workers` there"]),
    ],
)  # fmt: skip
def test_what_cannot_certainly_be_changed_is_left_and_described(
    text: str, known: dict[str, Value], words: list[str]
) -> None:
    made = Made(text, {"num_workers": 6}, known=known)
    assert (made.whole, made.text, made.words) == (False, None, words)


@pytest.mark.parametrize(
    ("wanted", "added"),
    [
        ({"persistent_workers": True}, "persistent_workers=n() > 0"),
        ({"persistent_workers": False}, "persistent_workers=False"),
        ({"prefetch_factor": 4}, "prefetch_factor=4 if n() else None"),
        ({"pin_memory": True}, "pin_memory=True"),
    ],
)
def test_what_needs_workers_still_works_without_them(wanted: dict[str, Value], added: str) -> None:
    assert Made("DataLoader(d, num_workers=n())", wanted).text == f"DataLoader(d, num_workers=n(), {added})"


def test_an_argument_that_follows_the_workers_changes_with_them() -> None:
    text = "n = 0\nDataLoader(d, num_workers=n, persistent_workers=n > 0)"
    made = Made(text, {"num_workers": 6, "persistent_workers": True})
    assert made.whole and made.words == [] and made.text == text.replace("n = 0", "n = 6")


def test_a_factory_that_may_not_take_an_argument_gets_words() -> None:
    made = Made("make(d, workers=2)", {"num_workers": 6, "persistent_workers": True})
    assert made.whole and made.text == "make(d, workers=6)"
    assert made.words == ["persistent_workers=True where the loader itself is made"]


@pytest.mark.parametrize(
    ("argument", "whole", "after"),
    [
        ("prefetch_factor=4, ", True, "DataLoader(d, num_workers=0)"),
        ("prefetch_factor=choose(), ", False, None),
        ("", True, "DataLoader(d, num_workers=0)"),
    ],
)
def test_arguments_that_must_go_are_taken_away(argument: str, whole: bool, after: str | None) -> None:
    made = Made(f"DataLoader(d, {argument}num_workers=2)", {"num_workers": 0}, without=("prefetch_factor",))
    assert made.whole == whole and (not whole or made.text == after)


@pytest.mark.parametrize(
    ("given", "after"),
    [("False", "timeout=False"), ("None", "timeout=None"), ("0", "timeout=0"), ("9", ""), ("limit", "")],
)
def test_an_argument_that_must_not_be_set_is_removed_unless_it_is_switched_off(given: str, after: str) -> None:
    made = Made(f"DataLoader(d, num_workers=2, timeout={given})", {"num_workers": 0}, without=("timeout",))
    assert made.whole and made.text == "DataLoader(d, num_workers=0" + (f", {after})" if after else ")")
