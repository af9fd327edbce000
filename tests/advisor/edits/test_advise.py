"""A fix becomes a diff that applies, or an option to pass, or nothing if it is not certain."""

from __future__ import annotations

import ast
import subprocess

import pytest

from edit_snippets import MORE, ONLY_MORE, PLAIN, SNIPPETS, Snippet
from rn50_advisor.advisor.edits.advise import Advice, JobCommands, advise, shown_name, unified
from rn50_advisor.advisor.model.job_changes import CallChange, Expression
from rn50_advisor.advisor.model.recording import Source

PATH = "/job/train.py"


def advice_on(snippet: Snippet, *more: Source, edited: bool = False) -> Advice | None:
    lines = snippet.before.split("\n")
    line = next(n for n, text in enumerate(lines, 1) if snippet.at in text) if snippet.at else 1
    return advise(
        snippet.change,
        file=PATH,
        line=line,
        known=snippet.known,
        through=snippet.through,
        sources=(Source(PATH, "", snippet.before, edited), *more),
        job=JobCommands(snippet.argv, "/job"),
    )


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: s.name)
def test_the_advice_is_the_edit(snippet, tmp_path):
    advice = advice_on(snippet)
    if snippet.words is None:
        assert advice is None
        return
    assert advice is not None and advice.words == snippet.words
    if snippet.after is None:
        assert advice.diff is None
        return
    assert advice.diff is not None
    file = tmp_path / "train.py"
    file.write_bytes(snippet.before.encode())
    done = subprocess.run(
        ["patch", "-p1", "--binary"], cwd=tmp_path, input=advice.diff.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode() + advice.diff
    assert file.read_bytes().decode() == snippet.after
    assert not list(tmp_path.glob("*.rej"))
    ast.parse(snippet.after.removeprefix("\ufeff"))


def test_options_of_the_main_script_are_found_for_a_loader_in_another_file():
    module = Snippet("", "def make(args):\n    return DataLoader(data, num_workers=args.workers)\n", None)
    main = Source("/job/main.py", "", 'parser.add_argument("--workers", type=int, default=2)\n')
    advice = advice_on(Snippet(**{**_fields(module), "change": ONLY_MORE}), main)
    assert advice is not None and advice.words == ("pass --workers 6",)
    assert advice.diff is not None and advice.diff.startswith("--- a/main.py\n+++ b/main.py\n")


def test_a_diff_may_change_two_files():
    module = Snippet("", "def make(args):\n    return DataLoader(data, num_workers=args.workers)\n", None)
    main = Source("/job/main.py", "", 'parser.add_argument("--workers", type=int, default=2)\n')
    advice = advice_on(module, main)
    assert advice is not None and advice.diff is not None
    assert "+++ b/train.py" in advice.diff and "+++ b/main.py" in advice.diff


def test_a_file_that_was_edited_while_the_job_ran_is_left_alone():
    assert advice_on(Snippet("", PLAIN, None), edited=True) is None


def test_without_the_file_there_is_no_advice():
    nothing = advise(MORE, file=PATH, line=1, known={}, sources=(), job=JobCommands())
    assert nothing is None


def test_an_expression_is_not_written_where_its_names_may_be_unknown():
    change = CallChange.of("DataLoader", num_workers=6, generator=Expression("torch.Generator()"))
    assert advice_on(Snippet("", PLAIN, None, change=change)) is None


def test_a_masked_line_is_never_part_of_a_diff():
    lines = ["a = 1\n", 'key = "***"\n', "b = 2\n", "c = 3\n", "d = 4\n"]
    changed = [*lines[:3], "c = 5\n", *lines[4:]]
    made = unified("".join(lines), "".join(changed), "train.py")
    assert made is not None and "***" not in made and " b = 2\n-c = 3\n+c = 5\n d = 4\n" in made
    assert unified(lines[1], 'key = "***", 5\n', "train.py") is None


def test_files_are_named_from_where_the_job_was_started():
    assert shown_name("/job/src/train.py", "/job") == "src/train.py"
    assert shown_name("/job/src/train.py", "/job/") == "src/train.py"
    assert shown_name("/jobplace/train.py", "/job") == "jobplace/train.py"
    assert shown_name("train.py", "/job") == "train.py"


def _fields(snippet: Snippet) -> dict[str, object]:
    return {name: getattr(snippet, name) for name in Snippet.__dataclass_fields__}
