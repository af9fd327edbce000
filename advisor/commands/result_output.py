"""Writes a command's result to stdout (text in colour) or to a file, in the chosen format."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import FORMATS, SUFFIXES, Result, format_of, rendered
from rn50_advisor.advisor.report.document import MakeDocument

Command = TypeVar("Command", bound=Callable[..., object])


def format_option(
    *also: str, told: str = "Default: by the file name after -o, else text."
) -> Callable[[Command], Command]:
    return click.option(
        "--format",
        "format_",
        type=click.Choice((*FORMATS, *also)),
        help=told,
    )


def output_option(command: Command) -> Command:
    return click.option(
        "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, not to stdout."
    )(command)


def chosen(format_: str | None, output: Path | None) -> str:
    """Returns the requested format: by name, else by the file's name, else text."""
    if format_ is not None:
        return format_
    return format_of(str(output)) if output is not None and output.suffix.lower() in SUFFIXES else "text"


def check_writable(*paths: Path | None) -> None:
    """Creates the output folders before the work, so that nobody waits for a result that cannot be written. Raises AdvisorError."""
    for path in paths:
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AdvisorError(f"cannot write {path}: {error.strerror or error}") from error
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise AdvisorError(f"cannot write {path}: permission denied")


def write(made: Result, path: Path, format_: str, document: MakeDocument | None = None) -> None:
    """Writes a result to a file. `document`: for results other than a report. Raises AdvisorError if the file cannot be written."""
    _write_text(path, rendered(made, format_, document))


def show(made: Any, format_: str, output: Path | None, document: MakeDocument | None = None) -> None:
    """Writes a result to the file, if any, else to stdout. Raises AdvisorError."""
    if output is not None:
        write(made, output, format_, document)
    elif format_ == "text":
        from rn50_advisor.advisor.report import document_text, styled_lines, text

        styled_lines.paint(document_text.lines(document(made)) if document else text.document(made), sys.stdout)
    else:
        _write_utf8(rendered(made, format_, document))


def show_page(report: Report, output: Path | None, *, more: str | None = None) -> None:
    """Writes the report as one page of text. Raises AdvisorError if the file cannot be written.

    `more` says where the rest is, for another command than `report`.
    """
    from rn50_advisor.advisor.report import styled_lines, text_page

    if output is None:
        styled_lines.paint(text_page.document(report, more or text_page.MORE), sys.stdout)
    else:
        _write_text(output, text_page.render(report) + "\n")


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise AdvisorError(f"cannot write {path}: {error.strerror or error}") from error


def write_bytes(write_to: Callable[[BinaryIO], None]) -> None:
    """Lets `write_to` write to stdout."""
    if sys.stdout is None:
        from rn50_advisor.advisor.report.styled_lines import closed_stdout

        raise closed_stdout()
    sys.stdout.flush()
    write_to(sys.stdout.buffer)
    sys.stdout.flush()


def _write_utf8(text: str) -> None:
    """Writes UTF-8 to stdout whatever the locale: this output is meant as a file, and HTML declares UTF-8."""

    def written(out: BinaryIO) -> None:
        out.write(text.encode("utf-8", "replace"))

    write_bytes(written)
