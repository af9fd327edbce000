"""Sends a run to MLflow: metrics by step, the verdict as tags, the HTML page as an artifact; to a run of its own, or to the job's."""

from __future__ import annotations

import os
from importlib import import_module
from itertools import islice
from typing import Any

from rn50_advisor.advisor.model.errors import TrackerRefused
from rn50_advisor.advisor.report.trackers.parcel import Parcel

PREFIX = "rn50_advisor"
_KEY, _SENT = f"{PREFIX}.run", f"{PREFIX}.sent_to_step"
_FOLDER = "rn50-advisor"
_BATCH = 1000  # metrics of a request; the server's limit
# Where the user has not chosen: by itself MLflow tries for minutes to reach a server that is down, and tells its makers of each call.
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def send(place: str, parcel: Parcel) -> str:
    """`place`, else MLFLOW_RUN_ID, names a run that exists already. Raises TrackerRefused or what MLflow raises."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    entities = import_module("mlflow.entities")
    client = import_module("mlflow").MlflowClient()
    given = place or os.environ.get("MLFLOW_RUN_ID", "")
    run = client.get_run(given) if given else _own_run(client, parcel)
    run_id = run.info.run_id
    made = not given and _SENT not in run.data.tags
    try:
        _fill(client, entities, run, parcel)
    except Exception:
        if made:
            client.delete_run(run_id)  # which MLflow keeps, out of sight
        raise
    if not given:
        client.set_terminated(run_id)
    return f"run {run_id} of experiment {run.info.experiment_id}"


def _fill(client: Any, entities: Any, run: Any, parcel: Parcel) -> None:
    """The points last: once they are in, the run says how far, and another call does not send them again."""
    run_id = run.info.run_id
    client.log_text(run_id, parcel.page, f"{_FOLDER}/report.html")
    client.log_text(run_id, parcel.summary, f"{_FOLDER}/verdict.md")
    for name, value in parcel.facts.items():
        client.set_tag(run_id, f"{PREFIX}.{name}", str(value))
    for name in set(_GAIN) - set(parcel.facts):
        if f"{PREFIX}.{name}" in run.data.tags:
            client.delete_tag(run_id, f"{PREFIX}.{name}")  # of an earlier verdict
    sent = _number(run.data.tags.get(_SENT))
    metrics = (
        entities.Metric(f"{PREFIX}/{name}", value, int(point.unix_s * 1000), point.step)
        for point in parcel.points
        if point.step > sent
        for name, value in point.values.items()
    )
    while batch := list(islice(metrics, _BATCH)):
        client.log_batch(run_id, metrics=batch)
    client.set_tag(run_id, _SENT, str(max(sent, parcel.last_step)))


_GAIN = ("rule", "gain", "speedup_low", "speedup_high", "speedup_likely")


def _number(text: str | None) -> int:
    try:
        return int(text or "-1")
    except ValueError:
        return -1


def _own_run(client: Any, parcel: Parcel) -> Any:
    """The run that an earlier call made for this one, else a new one."""
    experiment = _experiment(client)
    found = client.search_runs([experiment], f"tags.`{_KEY}` = '{parcel.key}'", max_results=1)
    if found:
        return found[0]
    return client.create_run(experiment, run_name=parcel.name, tags={_KEY: parcel.key})


def _experiment(client: Any) -> str:
    """As MLflow chooses it: by id, else by name, else the default one."""
    given = os.environ.get("MLFLOW_EXPERIMENT_ID")
    if given:
        return given
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "Default")
    found = client.get_experiment_by_name(name)
    if found is None:
        return str(client.create_experiment(name))
    if found.lifecycle_stage != "active":
        raise TrackerRefused(
            f"mlflow did not take the report: its experiment {name} is deleted", "set MLFLOW_EXPERIMENT_NAME"
        )
    return str(found.experiment_id)
