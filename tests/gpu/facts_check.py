"""Checks a report's facts against the job: `facts_check.py REPORT.json PATH=VALUE ...`, paths like conv.autocast or copies.0.pinned.

Looks at rank 0. Prints the differences; exit code 1 if there are any.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def found(facts: Any, path: str) -> Any:
    """The value at a dotted path; None if there is none."""
    for name in path.split("."):
        if isinstance(facts, list) and name.isdigit():
            facts = facts[int(name)] if int(name) < len(facts) else None
        else:
            facts = facts.get(name) if isinstance(facts, dict) else None
    return facts


def main(report: Path, wanted: list[str]) -> int:
    facts = json.loads(report.read_text())["facts"].get("0", {})
    wrong = []
    for item in wanted:
        path, _, value = item.partition("=")
        if (seen := str(found(facts, path))) != value:
            wrong.append(f"{path} is {seen}, not {value}")
    print("; ".join(wrong) or "as the job did")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
