"""The call that a recorded line stands for, and its arguments, whichever way they are given."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.edits.calls import FoundCall, find_call, find_settings, options_of_settings
from rn50_advisor.advisor.edits.syntax import Code, parse_code


def parsed(text: str) -> Code:
    code = parse_code("train.py", text)
    assert code is not None
    return code


def found_at(text: str, line: int = 1, *, through: bool = False) -> FoundCall | None:
    return find_call(parsed(text), line, "DataLoader", through_package=through, wanted=("num_workers",))


@pytest.mark.parametrize(
    ("text", "line", "kind"),
    [
        ("DataLoader(d)", 1, "itself"),
        ("torch.utils.data.DataLoader(d)", 1, "itself"),
        ("from torch.utils.data import DataLoader as DL\nDL(d)", 2, "itself"),
        ("x = DataLoader(\n    d,\n    8,\n)", 3, "itself"),
        ("for b in tqdm(DataLoader(d)): pass", 1, "itself"),
        ("make_loader(d, num_workers=2)", 1, "kin"),
        ("make_loader(d, workers=2)", 1, "kin"),
        ("super().__init__(d, num_workers=2)", 1, "kin"),
        ("make_loader(d)", 1, None),
        ("DataLoader(a), DataLoader(b)", 1, None),
        ("f(workers=1), g(workers=2)", 1, None),
        ("DataLoader(d)", 2, None),
        ("x = 1", 1, None),
    ],
)
def test_one_call_at_a_line_is_found_and_two_are_none(text: str, line: int, kind: str | None) -> None:
    found = found_at(text, line)
    assert (found and found.kind) == kind


def test_a_call_that_a_package_made_is_another_ones() -> None:
    found = found_at("DataLoader(d)", through=True)
    assert found is not None and found.kind == "kin" and not found.takes("num_workers")


@pytest.mark.parametrize(
    ("text", "name", "value", "keyword", "position"),
    [
        ("DataLoader(d, num_workers=2)", "num_workers", "2", "num_workers", None),
        ("DataLoader(d, 8, True)", "batch_size", "8", None, 1),
        ("DataLoader(d, 8, True, None, None, 4)", "num_workers", "4", None, 5),
        ("DataLoader(d, **{'num_workers': 3})", "num_workers", "3", None, None),
        ("o = dict(num_workers=3)\nDataLoader(d, **o)", "num_workers", "3", None, None),
        ("make(d, dataloader_num_workers=5)", "num_workers", "5", "dataloader_num_workers", None),
    ],
)
def test_an_argument_is_found_where_it_is_given(
    text: str, name: str, value: str, keyword: str | None, position: int | None
) -> None:
    found = found_at(text, text.count("\n") + 1)
    argument = found.argument(name) if found else None
    assert argument is not None
    assert (ast.unparse(argument.value), argument.keyword, argument.position) == (value, keyword, position)


def test_what_is_not_given_is_none_and_positions_are_not_guessed() -> None:
    plain, own = found_at("DataLoader(d)"), found_at("make(d, 8, workers=2)")
    assert plain is not None and own is not None
    assert plain.argument("num_workers") is None and plain.takes("num_workers")
    assert own.argument("batch_size") is None and not own.takes("batch_size")


@pytest.mark.parametrize(
    ("text", "stars"), [("DataLoader(*a, **o)", "*a, **o"), ("DataLoader(d, **o.x)", "**o.x"), ("DataLoader(*a)", "*a")]
)
def test_arguments_out_of_sight_are_named(text: str, stars: str) -> None:
    found = found_at(text)
    assert found is not None and found.spread is None and found.stars == stars


def test_the_settings_of_a_trainer_stand_for_its_loaders() -> None:
    found = find_settings(parsed("Seq2SeqTrainingArguments('out', dataloader_num_workers=2)"))
    assert found is not None and found.argument("num_workers") is not None
    assert found.takes("pin_memory") and not found.takes("collate_fn")
    assert find_settings(parsed("TrainingArguments(a)\nTrainingArguments(b)")) is None
    assert find_settings(parsed("Trainer(a)")) is None


def test_settings_that_a_parser_fills_are_options() -> None:
    wanted = {"num_workers": 6, "pin_memory": True}
    options = options_of_settings(parsed("HfArgumentParser(TrainingArguments)"), wanted)
    assert options == ("--dataloader_num_workers 6", "--dataloader_pin_memory True")
    assert options_of_settings(parsed("ArgumentParser()"), wanted) == ()
