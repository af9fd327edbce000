"""The commands in README and docs are valid: each is parsed by its command's own parser, and none is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rn50_advisor.advisor.cli import COMMANDS, cli
from rn50_advisor.advisor.commands.bench import bench
from rn50_advisor.advisor.commands.compare import compare
from rn50_advisor.advisor.model.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "rules")]


def shown() -> Iterator[list[str]]:
    """Yields the words of each command in a code block, with continuation lines and without comments."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            called = re.search(r"(?:^|[$] |^srun .* )rn50-advisor (.*)", line)
            if called:
                yield shlex.split(called[1], comments=True)


SHOWN = list(shown())


def parsed(words: list[str]) -> click.Context:
    """Parses a command. Raises click's UsageError."""
    name, *arguments = words
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, name
    return command.make_context(name, arguments)


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_a_documented_command_is_parsed(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that a command names are made first: results of two machines, a folder of many."""
    monkeypatch.chdir(tmp_path)
    for argument in words[1:]:
        if argument.endswith("/"):
            Path(argument).mkdir()
        elif argument.endswith(".json"):
            Path(argument).parent.mkdir(parents=True, exist_ok=True)
            Path(argument).write_text("{}")
    assert parsed(words).params


def test_the_three_studies_are_among_them() -> None:
    """Batches of VGG19 on pictures of CIFAR's size on one and two devices; ResNet50 in FP32 and AMP; two servers side by side."""
    studies = [words for words in SHOWN if "-o" in words and words[0] == "bench" and "--precisions" in words]
    vgg, resnet = (parsed(words).params for words in studies)
    assert (vgg["model"], vgg["image_size"], vgg["classes"]) == ("vgg19", 32, 10)
    assert vgg["batches"] == (128, 256, 512, 1024, 2048) and vgg["devices"] == (1, 2) and vgg["all_combinations"]
    assert resnet["model"] == "resnet50" and resnet["precisions"] == "fp32,fp16" and resnet["devices"] == (1, 8)
    assert any(words[0] == "fleet" and len(words) == 3 for words in SHOWN)


def test_the_page_of_commands_has_them_all() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`{name}" not in page] == []


def test_an_option_that_is_none_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        bench.make_context("bench", ["--batch-sizes", "1"])


def test_compare_says_who_puts_results_side_by_side(tmp_path: Path) -> None:
    """Results of machines are not runs: `compare` points a user with two of them to `fleet`."""
    for name in ("own.json", "rented.json"):
        (tmp_path / name).write_text("{}")
    done = CliRunner().invoke(compare, [str(tmp_path / "own.json"), str(tmp_path / "rented.json")])
    assert isinstance(done.exception, UsageError) and "fleet" in done.exception.message
    assert f"rn50-advisor fleet {tmp_path / 'own.json'} {tmp_path / 'rented.json'}" in done.exception.hint
