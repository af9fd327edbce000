"""Sends a run to Weights & Biases: curves on an axis of their own, the verdict as tags and summary, the HTML page as an artifact.

Nothing is sent of what this process prints, of its code or of its use of the machine: another one trained.
"""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import TrackerRefused, UsageError
from rn50_advisor.advisor.report.trackers.parcel import COLUMNS, STEP, Parcel

PREFIX = "rn50_advisor"
_AXIS = f"{PREFIX}/{STEP}"
_TAG = "rn50:"  # of our tags, so that those of an earlier verdict are known
_PROJECT = "rn50-advisor"
_INIT_WITHIN_S, _SENT_WITHIN_S = 30.0, 120.0
_DEFAULTS = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
_OFFLINE = ("offline", "dryrun")
# In the order in which names are tried: releases differ.
_SETTINGS: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("console",), "off"),
    (("silent",), True),
    (("disable_git",), True),
    (("disable_code",), True),
    (("save_code",), False),
    (("init_timeout",), _INIT_WITHIN_S),
    (("login_timeout",), 1.0),
    (("finish_timeout",), _SENT_WITHIN_S),
    (("finish_timeout_raises",), True),
    (("x_disable_meta", "_disable_meta"), True),
    (("x_disable_stats", "_disable_stats"), True),
    (("x_disable_machine_info", "_disable_machine_info"), True),
    (("x_save_requirements", "_save_requirements"), False),
)


def send(place: str, parcel: Parcel) -> str:
    """`place`: ENTITY/PROJECT/RUN_ID of a run that exists, or where a run is made. Raises AdvisorError or what wandb raises."""
    entity, project, run_id = _place(place)
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if run_id and os.environ.get("WANDB_MODE", "").lower() in _OFFLINE:
        raise _not_offline(run_id)
    if run_id and parcel.running:
        raise TrackerRefused(
            f"wandb lets one process write a run, and the job of run {run_id} goes on",
            "wait for its end, or leave out the run's id",
        )
    wandb = import_module("wandb")
    with tempfile.TemporaryDirectory(prefix="rn50-advisor-") as folder:
        page = Path(folder) / "report.html"
        page.write_text(parcel.page, encoding="utf-8", errors="replace")
        try:
            run = wandb.init(
                entity=entity or None,
                project=project or os.environ.get("WANDB_PROJECT") or _PROJECT,
                id=run_id or f"rn50-{parcel.key}",
                name=None if run_id else parcel.name,
                job_type=None if run_id else "rn50-advisor",
                resume="must" if run_id else "allow",
                settings=_settings(wandb),
            )
            if getattr(run, "disabled", False):
                raise TrackerRefused("wandb did not take the report: it is switched off", "see WANDB_MODE")
            if run_id and getattr(run, "offline", False):
                raise _not_offline(run_id)
            try:
                _fill(wandb, run, page, parcel)
                told = _told(run)
            except BaseException:
                run.finish(exit_code=1)
                raise
            # the job's own run shall not look as if a failed job had succeeded
            run.finish(exit_code=parcel.exit_code if run_id else 0)
        finally:
            wandb.teardown()  # ends the process that sends
    return told


def _not_offline(run_id: str) -> TrackerRefused:
    """`wandb sync` may put what is written offline in the place of the run that is there."""
    return TrackerRefused(
        f"wandb cannot add to run {run_id} while it is offline", "leave out the run's id, or set WANDB_MODE=online"
    )


def _place(place: str) -> tuple[str, str, str]:
    """(entity, project, run id), each empty if not named."""
    parts = place.split("/") if place else []
    if len(parts) > 3 or not all(parts):
        raise UsageError(
            f"wandb:{place} names no run", "wandb, wandb:PROJECT, wandb:ENTITY/PROJECT or wandb:ENTITY/PROJECT/RUN_ID"
        )
    if len(parts) == 1:
        return "", parts[0], ""
    entity, project, run_id = [*parts, "", "", ""][:3]
    return entity, project, run_id


def _settings(wandb: Any) -> Any:
    """Those of ours that this release knows."""
    known = getattr(wandb.Settings, "model_fields", None) or dir(wandb.Settings())
    chosen = {}
    for names, value in _SETTINGS:
        name = next((name for name in names if name in known), None)
        if name is not None:
            chosen[name] = value
    return wandb.Settings(**chosen)


def _fill(wandb: Any, run: Any, page: Path, parcel: Parcel) -> None:
    run.define_metric(_AXIS, hidden=True)
    run.define_metric(f"{PREFIX}/*", step_metric=_AXIS)
    sent = _sent(run)
    for point in parcel.points:
        if point.step > sent:
            run.log({f"{PREFIX}/{name}": value for name, value in point.values.items()} | {_AXIS: point.step})
    findings = wandb.Table(columns=list(COLUMNS), data=[list(row) for row in parcel.findings])
    run.log({f"{PREFIX}/findings": findings, f"{PREFIX}/report": wandb.Html(str(page), inject=False)})
    for name, value in parcel.facts.items():
        run.summary[f"{PREFIX}/verdict/{name}"] = value
    run.tags = (*(tag for tag in run.tags or () if not tag.startswith(_TAG)), *(f"{_TAG}{tag}" for tag in parcel.tags))
    artifact = wandb.Artifact(f"rn50-advisor-{run.id}", type="report", metadata=dict(parcel.facts))
    artifact.add_file(str(page), name=page.name)
    run.log_artifact(artifact)


def _sent(run: Any) -> int:
    """The last step that an earlier call sent; -1 if none is known, as offline."""
    try:
        return int(run.summary.get(_AXIS, -1))
    except (TypeError, ValueError):
        return -1


def _told(run: Any) -> str:
    if not getattr(run, "offline", False) and run.url:
        return str(run.url)
    folder = Path(str(run.dir)).parent
    return f"{folder}: wandb sync {folder}"
