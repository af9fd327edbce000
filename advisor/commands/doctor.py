"""`doctor`: finds out what can be measured on this machine, by trying it."""

from __future__ import annotations

import json
import sys

import click

from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.styled_lines import WIDTH, Line, Style, paint, wrapped

_MARKS: dict[str, tuple[str, Style]] = {
    "ok": ("✓ ok     ", "good"),
    "warn": ("! warn   ", "warn"),
    "missing": ("✗ missing", "bad"),
}


@click.command
@click.option(
    "--python", metavar="PYTHON", help="The interpreter that runs your training. Default: python of your PATH."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_context
def doctor(context: click.Context, python: str | None, as_json: bool) -> None:
    """Check what rn50-advisor can see on this machine, by trying each thing.

    Ends with 1 when something is missing that `run` needs to see into a job; a warning means less evidence, not less safety.

    \b
    rn50-advisor doctor
    rn50-advisor doctor --python /opt/conda/envs/train/bin/python
    """
    from rn50_advisor.advisor.commands.machine_checks import job_python, run_checks

    checks = run_checks(job_python(python))
    if as_json:
        rows = [{"name": c.name, "state": c.state, "found": c.found, "hint": c.hint} for c in checks]
        click.echo(json.dumps(rows, indent=2))
    else:
        lines: list[Line] = []
        for check in checks:
            mark, style = _MARKS[check.state]
            head: Line = [(f"{mark}  ", style), (check.name.ljust(22), "title")]
            found = wrapped("", inert_text.one_line(check.found), indent=33)
            lines += [[*head, (found[0][-1][0], "")], *found[1:]]
            lines += wrapped("hint: ", check.hint, "dim", indent=33) if check.hint else []
        bad = sum(check.state == "missing" for check in checks)
        less = sum(check.state == "warn" for check in checks)
        lines += [
            [("─" * WIDTH, "dim")],
            [(f"{len(checks) - bad - less} ok, {less} with less evidence, {bad} missing", "")],
        ]
        paint(lines, sys.stdout)
    context.exit(1 if any(check.state == "missing" for check in checks) else 0)
