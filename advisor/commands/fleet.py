"""`fleet`: ranks the results of many machines, worst first."""

from __future__ import annotations

from pathlib import Path

import click

from rn50_advisor.advisor.commands import common_options, result_output
from rn50_advisor.advisor.model.errors import NotARun


@click.command
@click.argument("places", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path, exists=True))
@result_output.format_option()
@result_output.output_option
@click.option(
    "--save-baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep what is usual for these machines as a baseline.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Judge by a kept baseline, not by these machines themselves: then even a single one can be judged.",
)
@common_options.config
def fleet(
    *,
    places: tuple[Path, ...],
    format_: str | None,
    output: Path | None,
    save_baseline: Path | None,
    baseline: Path | None,
    config: Path | None,
) -> None:
    """Rank machines by what was measured on them, and name outliers with the component that deviates.

    Each DIR is a result of `triage` or `bench` (JSON), a report (JSON), a run's folder or bundle, or a folder that
    holds such. Results of one host are put together; machines are compared with others that have the same GPUs. An
    outlier is worse than the baseline by more than 5 % and by more robust standard deviations than chance explains; six machines
    of a kind are needed to name one, or a stored baseline. So is a machine that its own triage hands back, and one that has fewer
    GPUs than most others like it.

    Ends with exit code 3 when there is an outlier, with 2 when nothing could be read.

    \b
    rn50-advisor fleet results/
    rn50-advisor fleet results/ --save-baseline a100.json -o fleet.html
    rn50-advisor fleet new-machine/triage.json --baseline a100.json
    rn50-advisor fleet own-server.json cloud-server.json
    """
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.fleet import baseline as baselines
    from rn50_advisor.advisor.fleet.fleet_ranking import rank
    from rn50_advisor.advisor.fleet.result_files import read_all
    from rn50_advisor.advisor.report.fleets import document, wording

    stored = baselines.load(baseline) if baseline else None
    results, unread = read_all(places, load_config(config))
    if not results:
        why = f": {unread[0].file}: {unread[0].reason}" if unread else ""
        raise NotARun(f"no result could be read{why}", "make some: rn50-advisor triage -o F.json, rn50-advisor bench")
    made = rank(results, unread, stored=stored)
    if save_baseline is not None:
        baselines.save(save_baseline, [one for one in made.baselines if one.source == "fleet"])
    result_output.show(made, result_output.chosen(format_, output), output, document)
    if made.outliers:
        from rn50_advisor.advisor.model.documents.ranked_fleet import OutliersFound

        raise OutliersFound(f"{wording.title(made)}: {', '.join(machine.name for machine in made.outliers[:5])}")
