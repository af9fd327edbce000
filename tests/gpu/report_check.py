"""Checks what a report says: `report_check.py WORDS REPORT.json`, or of recordings: `report_check.py --replay FOLDER ...`.

All words must hold: a rule or a state is the verdict's, +RULE is among the findings, -RULE was evaluated and not found, `clean` is healthy
with no finding but notes (severity info), `any` always holds, and A|B is one of both. FOLDER holds bundles (NAME.tar.gz) and expected.tsv,
with a line `NAME<tab>WORDS<tab>CONDITIONS` for each: CONDITIONS are those of deep_check.py, none for a run without a profiler window.
Prints what was said, and what is missing with exit code 1. Needs neither GPU nor torch.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

EXPECTED = "expected.tsv"


def missing(words: str, report: Mapping[str, Any]) -> list[str]:
    """The words that do not hold of the report."""
    verdict, findings = report["verdict"], report["findings"]
    met = {"any", verdict["rule"], verdict["state"], *(f"+{finding['rule']}" for finding in findings)}
    met |= {f"-{row['rule']}" for row in report["outcomes"] if row["state"] == "clear"}
    if verdict["state"] == "healthy" and all(finding["severity"] == "info" for finding in findings):
        met.add("clean")
    return [word for word in words.split() if met.isdisjoint(word.split("|"))]


def said(words: str, report: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns the verdict and the findings in short, with the words that are missing, and whether none is."""
    verdict, lacks = report["verdict"], missing(words, report)
    rules = [finding["rule"] for finding in report["findings"] if finding["rule"] != verdict["rule"]]
    short = " ".join([verdict["rule"] or verdict["state"], *(f"+{rule}" for rule in rules)])
    return (f"{short}, expected {' '.join(lacks)}" if lacks else short), not lacks


def replayed(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """Yields each recording's name, what is said of it today, and whether that is as expected.

    Raises ValueError for a bundle without a line in expected.tsv, or the reverse.
    """
    from rn50_advisor.advisor.store.run_reader import read_recording
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    differences = runpy.run_path(str(Path(__file__).with_name("deep_check.py")))["differences"]
    lines = (line.split("\t") for line in (folder / EXPECTED).read_text().splitlines())
    expected = {name: (words, conditions.split()) for name, words, conditions in lines}
    if unknown := {file.name.removesuffix(".tar.gz") for file in folder.glob("*.tar.gz")} ^ expected.keys():
        raise ValueError(f"{folder / EXPECTED} and the bundles beside it differ: {', '.join(sorted(unknown))}")
    for name, (words, conditions) in expected.items():
        report = diagnose(read_recording(folder / f"{name}.tar.gz")).as_json()
        text, right = said(words, report)
        wrong = differences(report, conditions) if conditions else []
        yield name, "; ".join([text, *wrong]), right and not wrong


def main(arguments: list[str]) -> int:
    if arguments[0] != "--replay":
        text, right = said(arguments[0], json.loads(Path(arguments[1]).read_text()))
        print(text)
        return not right
    failed = False
    for folder in map(Path, arguments[1:]):
        for name, text, right in replayed(folder):
            print(f"{name:28} {'ok' if right else 'FAILED'}: {text}")
            failed |= not right
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
