"""`triage`: judges by facts and short measurements whether this machine is worth keeping."""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path

import click

from rn50_advisor.advisor.commands import result_output
from rn50_advisor.advisor.model.documents.machine_triage import TriageState
from rn50_advisor.advisor.model.errors import AdvisorError

_ANSWERS_S = 5.0  # a working folder answers at once
EXIT_CODES: dict[TriageState, int] = {"keep": 0, "fix": 3, "hand-back": 4}


@click.command
@click.option(
    "--quick/--full", "quick", default=True, help="One minute, or several with longer measurements. Default: --quick."
)
@click.option(
    "--data",
    type=Path,  # click's own type would wait forever for a mount that hangs
    metavar="DIRECTORY",
    help="The folder with the training data: only read, never written.",
)
@click.option(
    "--scratch",
    type=Path,
    metavar="DIRECTORY",
    help="Where the scratch folder is created; it is removed afterwards. Default: the folder for temporary files.",
)
@click.option(
    "--python", metavar="PYTHON", help="The interpreter that runs your training. Default: python of your PATH."
)
@result_output.format_option("markdown")
@result_output.output_option
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also pack everything for the provider's ticket into this .tar.gz.",
)
@click.option("--metadata", is_flag=True, help="Ask the provider's metadata service for the instance type.")
@click.option("--yes", is_flag=True, help="Run the long disk test of --full without asking.")
@click.pass_context
def triage(
    context: click.Context,
    *,
    quick: bool,
    data: Path | None,
    scratch: Path | None,
    python: str | None,
    format_: str | None,
    output: Path | None,
    bundle: Path | None,
    metadata: bool,
    yes: bool,
) -> None:
    """Is it the code or the box? Checks this machine before anything trains on it: keep it, fix a setting, or replace it.

    Cores, quotas, memory, disk, decoding of pictures and GPUs are measured and held against what such machines were measured to do
    elsewhere. What cannot be measured is a gap, and what others disturb proves nothing. No root is needed. Ends with 0 to keep the
    machine, 3 to fix a setting, 4 to replace it.

    \b
    rn50-advisor triage --data /data/imagenet
    rn50-advisor triage -o runs/triage.json      # runs on this machine cite it until its next boot
    rn50-advisor triage --full --bundle ticket.tar.gz
    """
    from rn50_advisor.advisor.commands.machine_checks import job_python
    from rn50_advisor.advisor.instances.metadata import ask
    from rn50_advisor.advisor.report.triaged import document, render, wording
    from rn50_advisor.advisor.triage.found_checks import TriageOptions
    from rn50_advisor.advisor.triage.storage.folder_place import scratch_folder
    from rn50_advisor.advisor.triage.triage_runner import FULL_LIMIT_S, QUICK_LIMIT_S
    from rn50_advisor.advisor.triage.triage_runner import triage as examine

    until_s = time.monotonic() + (QUICK_LIMIT_S if quick else FULL_LIMIT_S)
    _check_folders(data, scratch)
    format_ = result_output.chosen("md" if format_ == "markdown" else format_, output)
    if bundle is not None and bundle.exists():
        raise AdvisorError(f"{bundle} exists", "name another file with --bundle")
    result_output.check_writable(output, bundle)
    interpreter = str(Path(job_python(python)).absolute())  # it is started in the scratch folder
    asked_s = time.monotonic()
    large = not quick and _agreed(yes=yes)
    until_s += time.monotonic() - asked_s  # the time for the user's answer does not count
    named = ask() if metadata else None
    with scratch_folder(scratch) as folder:
        place = data.absolute() if data is not None else None
        setting = TriageOptions(
            folder, interpreter, place, not quick, large, metadata=metadata, named=named, until_s=until_s
        )
        found = examine(setting, _announce)
    result_output.show(found, format_, output, document)
    if output is not None:
        click.echo(f"{wording.verdict(found)}: {output}", err=True)
    if bundle is not None:
        from rn50_advisor.advisor.triage.ticket_bundle import write_bundle

        write_bundle(
            bundle, {f"triage.{name}": render(found, kind) for name, kind in (("json", "json"), ("txt", "text"))}
        )
    context.exit(EXIT_CODES[found.verdict.state])


def _check_folders(data: Path | None, scratch: Path | None) -> None:
    """Checks that the folders exist; the triage itself finds a data folder that hangs. Raises BadParameter or AdvisorError."""
    from rn50_advisor.advisor.triage.deadline import within

    for option, folder in (("--data", data), ("--scratch", scratch)):
        if folder is None:
            continue
        # before Python 3.14 Path.is_dir raises without permission
        there = within(_ANSWERS_S, functools.partial(os.path.isdir, folder))
        if there is False:
            raise click.BadParameter(f"{folder} is not a folder, or not readable", param_hint=option)
        if folder is scratch and (there is None or not os.access(folder, os.W_OK)):
            why = "does not answer" if there is None else "is not writable"
            raise AdvisorError(f"{folder} {why}", "name another folder with --scratch")


def _agreed(*, yes: bool) -> bool:
    """True if the user allows more than 2 GB of disk traffic; without a terminal to ask, only if `yes`."""
    if yes or not sys.stdin.isatty():
        return yes
    from rn50_advisor.advisor.triage.storage.disk_checks import LARGE_WORDS

    return click.confirm(f"The long disk test {LARGE_WORDS}. Run it?", default=False, err=True)


def _announce(what: str, number: int, of: int) -> None:
    click.echo(f"[{number}/{of}] {what}", err=True)
