"""Options as scripts declare them, and what a command line gave them."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.edits.script_options import Option, decorating_option, environment_variable, options_for
from rn50_advisor.advisor.edits.syntax import Code, parse_code


def parsed(text: str, path: str = "train.py") -> Code:
    code = parse_code(path, text)
    assert code is not None
    return code


def option(*flags: str, takes: str = "a value") -> Option:
    return Option(parsed(""), 1, flags, None, takes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "argv", "given"),
    [
        (("--workers",), "train.py", None),
        (("--workers",), "train.py --workers 4", "4"),
        (("--workers",), "train.py --workers=4", "4"),
        (("--workers",), "train.py --workers 4 --workers=6", "6"),
        (("--workers",), "train.py --workers", ""),
        (("-j", "--workers"), "train.py -j4", "4"),
        (("-j", "--workers"), "train.py -j 4", "4"),
        (("-j", "--workers"), "train.py -job", None),
        (("--workers",), "train.py --workers-max 4", None),
        (("--workers",), "", None),
    ],
)
def test_the_last_value_on_the_command_line_counts(flags: tuple[str, ...], argv: str, given: str | None) -> None:
    assert option(*flags).given(argv.split()) == given


def test_a_flag_takes_no_value() -> None:
    assert option("--pin", takes="nothing").given(["--pin", "4"]) == ""


@pytest.mark.parametrize(("flags", "flag"), [(("-j", "--workers", "--jobs"), "--workers"), (("-j",), "-j")])
def test_an_option_is_called_by_its_first_long_name(flags: tuple[str, ...], flag: str) -> None:
    assert option(*flags).flag == flag


@pytest.mark.parametrize(
    ("text", "flags", "default", "takes"),
    [
        ('p.add_argument("-j", "--num-workers", default=4)', ("-j", "--num-workers"), "4", "a value"),
        ('p.add_argument("--jobs", dest="num_workers")', ("--jobs",), None, "a value"),
        ('p.add_argument("--num-workers", action="store_true")', ("--num-workers",), None, "nothing"),
        ('p.add_argument("--num-workers", action="store", default=1)', ("--num-workers",), "1", "a value"),
        ('p.add_argument("--num-workers", action="store_false")', ("--num-workers",), None, "unknown"),
        ('p.add_argument("--num-workers", action=Own)', ("--num-workers",), None, "unknown"),
        ('p.add_argument("--num-workers", choices=(1, 2), default=1)', ("--num-workers",), "1", "unknown"),
        ('add = p.add_argument\nadd("--num-workers", default=2)', ("--num-workers",), "2", "a value"),
        ('flags.DEFINE_integer("num_workers", 2, "how many")', ("--num_workers",), "2", "a value"),
    ],
)
def test_ways_to_declare_an_option(text: str, flags: tuple[str, ...], default: str | None, takes: str) -> None:
    (found,) = options_for([parsed(text)], "num_workers")
    assert (found.flags, found.takes, found.variable) == (flags, takes, False)
    assert (found.default and ast.unparse(found.default)) == default
    assert found.line == text.count("\n") + 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        'p.add_argument("--workers")',
        'p.add_argument("--num-workers", dest="jobs")',
        'p.add_argument("num_workers")',
        'add("--num-workers")',
        "p.add_argument(NAME)",
    ],
)
def test_others_are_none(text: str) -> None:
    assert options_for([parsed(text)], "num_workers") == []


def test_the_first_file_that_declares_it_counts_with_all_its_parsers() -> None:
    two = 'p.add_argument("--n")\nq.add_argument("--n", default=3)'
    codes = [parsed("pass"), parsed(two, "options.py"), parsed('p.add_argument("--n")', "other.py")]
    assert [(found.code.path, found.line) for found in options_for(codes, "n")] == [
        ("options.py", 1),
        ("options.py", 2),
    ]


@pytest.mark.parametrize(
    ("decorator", "takes"),
    [
        ('click.option("--num-workers", default=2)', "a value"),
        ('option("-j", "num_workers", default=2)', "a value"),
        ('click.option("--num-workers", is_flag=True, default=2)', "unknown"),
        ('click.option("--num-workers", "jobs", default=2)', None),
        ('click.argument("num_workers", default=2)', None),
        ("click.option", None),
    ],
)
def test_a_click_option_fills_the_parameter_of_its_name(decorator: str, takes: str | None) -> None:
    code = parsed(f"@{decorator}\ndef main(num_workers): pass")
    function = code.tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    found = decorating_option(code, function, "num_workers")
    assert (found and found.takes) == takes
    assert found is None or (found.default is not None and ast.unparse(found.default) == "2")


@pytest.mark.parametrize(
    ("text", "name", "default"),
    [
        ('os.environ.get("WORKERS", 4)', "WORKERS", "4"),
        ('os.getenv("WORKERS")', "WORKERS", None),
        ('getenv("WORKERS", default="2")', "WORKERS", "'2'"),
        ("os.getenv(NAME)", None, None),
        ("os.getenv()", None, None),
        ('config.get("WORKERS", 4)', None, None),
    ],
)
def test_variables_of_the_environment_are_options_too(text: str, name: str | None, default: str | None) -> None:
    code = parsed(text)
    found = environment_variable(code, code.calls()[0])
    assert (found and found.flag) == name
    if found is not None:
        assert found.variable and (found.default and ast.unparse(found.default)) == default
