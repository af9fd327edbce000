"""A run as MLflow keeps it: its own file store here, and a server that refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from history_samples import with_history
from report_samples import bottleneck
from rn50_advisor.advisor.model.errors import TrackerRefused
from rn50_advisor.advisor.report.trackers import Destination, send
from rn50_advisor.advisor.report.trackers.parcel import Parcel, parcel_of

PASSWORD = "pa55word1234"


def parcel() -> Parcel:
    return parcel_of(with_history(bottleneck()), started_unix_s=1.7e9, identity="one")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    import mlflow

    return mlflow.MlflowClient()


def the_run(client: Any, experiment: str = "Default") -> Any:
    (run,) = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return run


def steps(client: Any, run_id: str) -> list[int]:
    return [metric.step for metric in client.get_metric_history(run_id, "rn50_advisor/step_seconds")]


def test_curves_verdict_and_page_arrive(client: Any) -> None:
    sent = parcel()
    said = send(Destination("mlflow", ""), sent)
    run = the_run(client)
    run_id = run.info.run_id
    assert run_id in said and run.info.status == "FINISHED" and run.info.run_name == sent.name
    read = client.get_metric_history(run_id, "rn50_advisor/step_phase_seconds/input_wait")
    assert [(metric.step, metric.timestamp, metric.value) for metric in read] == [
        (point.step, int(point.unix_s * 1000), point.values["step_phase_seconds/input_wait"]) for point in sent.points
    ]
    assert run.data.tags["rn50_advisor.rule"] == "DAT003" and run.data.tags["rn50_advisor.gain"] == sent.facts["gain"]
    assert {item.path for item in client.list_artifacts(run_id, "rn50-advisor")} == {
        "rn50-advisor/report.html",
        "rn50-advisor/verdict.md",
    }


def test_sending_again_adds_only_what_is_new(client: Any) -> None:
    sent = parcel()
    send(Destination("mlflow", ""), replace(sent, points=sent.points[:100]))
    healthy = {"state": "healthy", "verdict": "nothing", "steps": 430}
    for _ in range(2):
        send(Destination("mlflow", ""), replace(sent, facts=healthy))
    run = the_run(client)
    assert steps(client, run.info.run_id) == [point.step for point in sent.points]
    assert run.data.tags["rn50_advisor.state"] == "healthy"
    assert not {"rn50_advisor.rule", "rn50_advisor.gain"} & set(run.data.tags)  # of the verdict before


@pytest.mark.parametrize("by_variable", [False, True])
def test_the_jobs_own_run_is_added_to_and_goes_on(
    client: Any, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    own = client.create_run("0", run_name="training")
    client.log_metric(own.info.run_id, "loss", 0.5, step=7)
    if by_variable:
        monkeypatch.setenv("MLFLOW_RUN_ID", own.info.run_id)
    send(Destination("mlflow", "" if by_variable else own.info.run_id), parcel())
    run = the_run(client)
    assert (run.info.run_name, run.info.status, run.data.metrics["loss"]) == ("training", "RUNNING", 0.5)
    assert len(steps(client, own.info.run_id)) == len(parcel().points)


def test_the_experiment_is_chosen_as_mlflow_does(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "resnets")
    send(Destination("mlflow", ""), parcel())
    assert the_run(client, "resnets")
    client.delete_experiment(client.get_experiment_by_name("resnets").experiment_id)
    with pytest.raises(TrackerRefused, match="is deleted"):
        send(Destination("mlflow", ""), parcel())


def test_a_run_that_is_not_there_is_told(client: Any) -> None:
    with pytest.raises(TrackerRefused, match="Run 'nope' not found") as refused:
        send(Destination("mlflow", "nope"), parcel())
    assert refused.value.exit_code == 2


def test_a_run_that_could_not_be_filled_is_not_left(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("mlflow.MlflowClient.log_batch", full)
    with pytest.raises(TrackerRefused, match="no space left"):
        send(Destination("mlflow", ""), parcel())
    assert client.search_runs(["0"]) == []


@pytest.fixture
def refusing() -> Iterator[str]:
    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"error_code": "PERMISSION_DENIED", "message": "not yours"}'
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_refusing_server_is_one_line_without_its_password(
    client: Any, refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:{PASSWORD}@{refusing}")
    with pytest.raises(TrackerRefused, match="not yours") as refused:
        send(Destination("mlflow", ""), parcel())
    assert PASSWORD not in refused.value.message and "\n" not in refused.value.message
