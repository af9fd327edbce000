"""`ci`: shows the verdict on a run where a CI service shows it, and compares it with a run of the main branch."""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rn50_advisor.advisor.commands import common_options, result_output
from rn50_advisor.advisor.commands.completion import complete_run
from rn50_advisor.advisor.commands.conclusion import warn
from rn50_advisor.advisor.model.errors import AdvisorError, NotComparable, Regressed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rn50_advisor.advisor.commands.checked.ci_service import Service
    from rn50_advisor.advisor.model.documents.comparison import Comparison
    from rn50_advisor.advisor.model.findings import Where
    from rn50_advisor.advisor.model.report import Report
    from rn50_advisor.advisor.model.thresholds import Config
    from rn50_advisor.advisor.report.checked.annotations import Annotation

REPORT, COMPARISON, COMMENT, QUALITY, PACKED = (
    "report",
    "comparison",
    "comment.md",
    "gl-code-quality-report.json",
    "run.tar.gz",
)
_SUMMARY_BYTES = 1_000_000  # GitHub takes a MiB from each step


@dataclass(frozen=True, slots=True)
class _Checked:
    """A run, and what is shown of it."""

    run: Path
    report: Report
    comparison: Comparison | None
    comment: str = ""
    notes: Sequence[Annotation] = ()


@click.command
@common_options.which_run
@click.option("--base", metavar="RUN", shell_complete=complete_run, help="The run to compare with: of the main branch.")
@click.option(
    "--max-regression",
    type=click.FloatRange(min=0, max=100),
    metavar="PERCENT",
    help="End with exit code 3 when the run is significantly slower than the base, by more than this, with 4 when they cannot be "
    "compared. Without --base nothing is judged.",
)
@click.option(
    "--name",
    default="",
    help="Name of the job, for its comment: other jobs of a change have their own. Default: the run's.",
)
@click.option("--no-comment", is_flag=True, help="Write no comment on the pull or merge request.")
@click.option(
    "--files",
    type=click.Path(path_type=Path, file_okay=False),
    default="rn50-advisor-ci",
    show_default=True,
    help="The folder for report and comparison (.html, .json), comment.md, gl-code-quality-report.json, and the run as a bundle.",
)
@common_options.run_dir
@common_options.config
def ci(
    *,
    run: str,
    base: str | None,
    max_regression: float | None,
    name: str,
    no_comment: bool,
    files: Path,
    run_dir: Path,
    config: Path | None,
) -> None:
    """Show RUN in CI: its verdict, and its comparison with a run of the main branch.

    On GitHub: annotations at the lines of findings, a job summary, outputs, and one comment on the pull request, which the next push
    updates (GITHUB_TOKEN). On GitLab: a code quality report and one note on the merge request (GITLAB_TOKEN). Anywhere: pages, JSON,
    the comment as Markdown, and the exit code. A comment that cannot be written is one line and changes no exit code.

    \b
    rn50-advisor ci latest --base main.tar.gz --max-regression 5
    """
    from rn50_advisor.advisor.commands.checked.ci_service import in_repository, service_of
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.report import inert_text
    from rn50_advisor.advisor.report.checked.annotations import annotate
    from rn50_advisor.advisor.report.checked.comment import comment
    from rn50_advisor.advisor.report.compared import wording

    result_output.check_writable(files / COMMENT)
    service = service_of(os.environ, str(files))
    read = _read(run, base, run_dir, load_config(config), max_regression)
    report, comparison = read.report, read.comparison
    job_folder = str(report.environment.get("cwd") or "")

    def placed(where: Where) -> Where | None:
        return in_repository(where, job_folder, service.root)

    name = inert_text.one_line(name or report.job.name or "training", 80)
    text = comment(name, report, comparison, links=service.links, placed=placed)
    checked = replace(read, comment=text, notes=annotate(report, comparison, placed))
    _write_files(checked, files)
    _show(checked, service)
    if service.name == "github":
        _tell_github(checked, service, files)
    if not no_comment:
        _put(service, name, text)
    if max_regression is not None and comparison is None:
        warn("no --base: the run was compared with nothing, so --max-regression judged nothing")
    if comparison is not None and comparison.gate is not None and comparison.gate.failed:
        raise Regressed(wording.gate(comparison))
    if comparison is not None and comparison.gate is not None and comparison.gate.unjudged:
        raise NotComparable(wording.gate(comparison), "let the runs last longer, or compare runs of the same job")


def _read(run: str, base: str | None, run_dir: Path, settings: Config, max_regression: float | None) -> _Checked:
    """Raises NotARun."""
    from rn50_advisor.advisor.merge.job_reading import read_job, resolve_job
    from rn50_advisor.advisor.run_comparison import compare, load
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    path = resolve_job(run, run_dir)
    if base is None:
        return _Checked(path, diagnose(read_job(path), settings), None)
    earlier = load("base", read_job(resolve_job(base, run_dir)), settings)
    now = load("this change", read_job(path), settings, place=1)
    limit = None if max_regression is None else max_regression / 100
    return _Checked(path, now.report, compare([earlier, now], max_regression=limit))


def _write_files(checked: _Checked, folder: Path) -> None:
    from rn50_advisor.advisor.report.checked.annotations import code_quality
    from rn50_advisor.advisor.report.compared import document
    from rn50_advisor.advisor.store.run_bundle import make_bundle

    for format_ in ("html", "json"):
        result_output.write(checked.report, folder / f"{REPORT}.{format_}", format_)
        if checked.comparison is not None:
            result_output.write(checked.comparison, folder / f"{COMPARISON}.{format_}", format_, document)
    quality = json.dumps(code_quality(checked.notes), indent=2) + "\n"
    try:
        (folder / COMMENT).write_text(checked.comment, encoding="utf-8", errors="replace")
        (folder / QUALITY).write_text(quality, encoding="utf-8")
    except OSError as error:
        raise AdvisorError(f"cannot write to {folder}: {error.strerror or error}") from error
    if checked.run.is_dir():  # else it is a bundle or a trace already
        try:
            make_bundle(checked.run, folder / PACKED, force=True)
        except AdvisorError as error:
            warn(f"the run was not packed: {error.message}")


def _show(checked: _Checked, service: Service) -> None:
    """Prints the verdict and, for GitHub's runner, the annotations. Texts of the job are not read as commands."""
    from rn50_advisor.advisor.report import document_text, styled_lines, text
    from rn50_advisor.advisor.report.checked.annotations import workflow_commands
    from rn50_advisor.advisor.report.compared import document

    on_github = service.name == "github"
    fence = secrets.token_hex(16)
    if on_github:
        click.echo(f"::stop-commands::{fence}")
    styled_lines.paint(text.summary_lines(checked.report), sys.stdout)
    if checked.comparison is not None:
        click.echo()
        styled_lines.paint(document_text.lines(document(checked.comparison)), sys.stdout)
    if on_github:
        click.echo(f"::{fence}::")
        for line in workflow_commands(checked.notes):
            click.echo(line)


def _tell_github(checked: _Checked, service: Service, files: Path) -> None:
    """Writes the summary and the outputs of the step."""
    from rn50_advisor.advisor.report import inert_text, render
    from rn50_advisor.advisor.report.compared import wording

    report, comparison = checked.report, checked.comparison
    whole = f"{checked.comment}\n<details><summary>The whole report</summary>\n\n{render(report, 'md')}\n</details>\n"
    fits = len(whole.encode("utf-8", "replace")) <= _SUMMARY_BYTES
    _append(service.summary_file, whole if fits else checked.comment)
    pair = comparison.pairs[0] if comparison is not None else None
    outputs = {
        "verdict": report.verdict.state,
        "rule": report.verdict.rule or "",
        "title": report.verdict.title,
        "change": pair.change if pair is not None else "",
        "speed": f"{pair.speed.value:.4f}" if pair is not None and pair.speed is not None else "",
        "difference": wording.headline(comparison, pair) if comparison is not None and pair is not None else "",
        "files": str(files),
    }
    _append(service.output_file, "".join(f"{key}={inert_text.one_line(value)}\n" for key, value in outputs.items()))


def _append(path: str, text: str) -> None:
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        warn(f"{path} could not be written: {error.strerror or error}")


def _put(service: Service, name: str, text: str) -> None:
    """Writes the comment; where that fails, says so in one line."""
    from rn50_advisor.advisor.commands.checked.change_comments import put_comment
    from rn50_advisor.advisor.outlets.json_requests import RequestFailed
    from rn50_advisor.advisor.report.checked.comment import marker

    if service.comments is None:
        if service.needs:
            warn(f"no comment was written: {service.needs}")
        return
    try:
        put = put_comment(service.comments, marker(name), text)
    except RequestFailed as error:
        why = f"; {service.needs}" if error.status in (401, 403, 404) else ""
        warn(f"no comment was written: {error.message}{why}")
    else:
        click.echo(f"comment: {put}")
