"""Kept output of a failed job: lines about errors and the last ones, bounded and without secrets."""

from __future__ import annotations

from pathlib import Path

from rn50_advisor.advisor.run.sidefiles.last_words import last_words, relevant_lines
from rn50_advisor.advisor.store.schema import OUTPUT_NAME


def test_errors_are_kept_from_the_first_on_and_the_last_lines_whatever_they_say() -> None:
    lines = [f"step {n}" for n in range(500)]
    lines[100] = "[rank1]: RuntimeError: Detected mismatch between collectives on ranks."
    kept = relevant_lines(lines)
    assert kept[0] == lines[100] and kept[1:] == lines[-40:]


def test_a_flood_of_errors_keeps_its_beginning() -> None:
    kept = relevant_lines([f"error {n}" for n in range(5000)])
    assert kept[0] == "error 0" and kept[199] == "error 199" and kept[-1] == "error 4999" and len(kept) == 240


def test_colours_secrets_and_endless_lines_are_taken_out(tmp_path: Path) -> None:
    text = f"\x1b[31mValueError: https://me:hunter2hunter2@host/data is gone\x1b[0m\n{'x' * 20_000}\nunfinished error"
    (tmp_path / OUTPUT_NAME).write_text(text)
    first, second, third = last_words(tmp_path)
    assert first.startswith("ValueError:") and "hunter2" not in first
    assert len(second) == 500 and third == "unfinished error"


def test_without_kept_output_there_are_no_words(tmp_path: Path) -> None:
    assert last_words(tmp_path) == []
