"""What a fix asks for becomes a diff that applies, or the option to pass, or nothing that is not certain."""

from __future__ import annotations

import ast
import subprocess

import pytest

from edit_snippets import MORE, PLAIN, SNIPPETS, Snippet
from rn50_advisor.advisor.edits.advise import Advice, JobCommands, advise, shown_name, unified
from rn50_advisor.advisor.edits.fix_request import request_of
from rn50_advisor.advisor.model.recording import Source

PATH = "/job/train.py"


def advice_on(snippet: Snippet, *more: Source, edited: bool = False) -> Advice | None:
    request = request_of(snippet.change)
    assert request is not None
    lines = snippet.before.split("\n")
    line = next(n for n, text in enumerate(lines, 1) if snippet.at in text) if snippet.at else 1
    return advise(
        request,
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
    advice = advice_on(Snippet(**{**_fields(module), "change": "DataLoader(..., num_workers=6)"}), main)
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


def test_without_the_file_nothing_is_said():
    request = request_of(MORE)
    assert request is not None
    nothing = advise(request, file=PATH, line=1, known={}, sources=(), job=JobCommands())
    assert nothing is None


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        (MORE, {"num_workers": 6, "persistent_workers": True}),
        (MORE + "; 9 would fit the cores (2 each), 6 the memory", {"num_workers": 6, "persistent_workers": True}),
        ("DataLoader(..., prefetch_factor=None, in_order=False)", {"prefetch_factor": None, "in_order": False}),
        ("DataLoader(..., num_workers=cores)", None),
        ("DataLoader(data, num_workers=2)", None),
        ("DataLoader(...)", None),
        ("gc.collect(); gc.freeze()", None),
        ("docker run --shm-size=8g (or --ipc=host)", None),
        ("", None),
    ],
)
def test_a_request_is_a_call_with_dots_and_literals(change, arguments):
    request = request_of(change)
    assert (request and dict(request.arguments)) == arguments


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
