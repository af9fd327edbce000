"""The user's thresholds: where they are looked for, what is taken, and what is refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.config_file import load_config
from rn50_advisor.advisor.model.errors import ConfigError
from rn50_advisor.advisor.model.thresholds import Config

OWN = """
disable = ["LOP003"]
[rules.DAT003]
input_wait = 0.10
[rules.COM002]
skew = 1
"""
IN_PYPROJECT = """
[project]
name = "job"
[tool.rn50-advisor]
disable = ["LOP003"]
[tool.rn50-advisor.rules.DAT003]
input_wait = 0.10
[tool.rn50-advisor.rules.COM002]
skew = 1
"""
TAKEN = Config({"DAT003": {"input_wait": 0.10}, "COM002": {"skew": 1.0}}, frozenset({"LOP003"}))


def written(folder: Path, text: str, name: str = "advisor.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("text", [OWN, IN_PYPROJECT])
def test_a_file_of_its_own_or_a_table_in_pyproject(tmp_path: Path, text: str) -> None:
    assert load_config(written(tmp_path, text)) == TAKEN


def test_pyproject_of_the_folder_is_taken_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, IN_PYPROJECT, "pyproject.toml")
    assert load_config(folder=tmp_path) == TAKEN
    monkeypatch.chdir(tmp_path)
    assert load_config() == TAKEN


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="no pyproject.toml"),
        pytest.param("[project]\nname = 'job'\n", id="without our table"),
        pytest.param('disable = ["LOP003"]', id="our keys outside our table"),
        pytest.param("this is = = no TOML", id="broken, which is not ours to say"),
        pytest.param("[tool.rn50-advisor]\n", id="an empty table"),
    ],
)
def test_a_project_that_says_nothing_gets_the_defaults(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        written(tmp_path, text, "pyproject.toml")
    assert load_config(folder=tmp_path) == Config()


def test_a_file_that_was_named_wins_over_pyproject(tmp_path: Path) -> None:
    written(tmp_path, IN_PYPROJECT, "pyproject.toml")
    other = written(tmp_path, "[rules.LOP001]\nshare = 0.5\n")
    assert load_config(other, folder=tmp_path) == Config({"LOP001": {"share": 0.5}})


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("this is = = no TOML", "advisor.toml", ""),
        ("\xff", "advisor.toml", ""),
        ('disable = "LOP003"', "disable must be a list", ""),
        ("disable = [3]", "disable must be a list", ""),
        ('disable = ["LOP03"]', "no rule LOP03", "did you mean LOP003?"),
        ("[rules.frobnicate]\nx = 1", "no rule frobnicate", "rules lists them"),
        ("[rules.DAT003]\nimput_wait = 0.1", "DAT003 has no threshold imput_wait", "it has: hand_over, input_wait"),
        ("[rules.RUN002]\nx = 1", "RUN002 has no threshold x", "it has: none"),
        ('[rules.DAT003]\ninput_wait = "0.1"', "DAT003.input_wait must be a number", ""),
        ("[rules.DAT003]\ninput_wait = true", "DAT003.input_wait must be a number", ""),
    ],
)
def test_what_makes_no_sense_is_one_clear_line(tmp_path: Path, text: str, message: str, hint: str) -> None:
    file = tmp_path / "advisor.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as raised:
        load_config(file)
    assert message in raised.value.message and str(file) in raised.value.message
    assert "\n" not in raised.value.message
    assert hint in raised.value.hint and raised.value.exit_code == 78


@pytest.mark.parametrize("missing", [True, False])
def test_a_named_file_must_be_readable(tmp_path: Path, missing: bool) -> None:
    path = tmp_path / "nowhere.toml" if missing else tmp_path  # a folder is no file
    with pytest.raises(ConfigError, match=str(path)) as raised:
        load_config(path)
    assert "--config" in raised.value.hint


def test_a_wrong_table_in_pyproject_is_said_too(tmp_path: Path) -> None:
    written(tmp_path, '[tool.rn50-advisor]\ndisable = ["LOP999"]\n', "pyproject.toml")
    with pytest.raises(ConfigError, match="no rule LOP999"):
        load_config(folder=tmp_path)


@pytest.mark.parametrize(
    "text", ["rules = 3", "rules = ['DAT003']", "[rules]\nDAT003 = 0.1", "tool = 3", "[tool]\nrn50-advisor = 3"]
)
def test_tables_of_another_shape_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load_config(written(tmp_path, text))


def test_a_threshold_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_config(written(tmp_path, "[rules.DAT003]\ninput_wait = nan"))


def test_a_mistyped_key_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="disabled"):
        load_config(written(tmp_path, 'disabled = ["LOP003"]'))
