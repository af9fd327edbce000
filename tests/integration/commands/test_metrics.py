"""Metrics of a real job: what Prometheus, a file and a collector get while it runs; what fails there is no matter to the job."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli_process import advisor, environment
from fake_job import Job, fake_rank
from launcher_harness import descendants_of, killed_at_end
from otlp_receiver import OtlpReceiver, attributes
from reading_samples import reading
from report_samples import gpu, running
from rn50_advisor.advisor.outlets.metrics_page import ADDRESS_NAME, MetricsPage
from rn50_advisor.advisor.run.launch.screen_job import Supervised
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.store.run_folders import list_runs
from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import wait_for

parser = pytest.importorskip("prometheus_client.parser")

DASHBOARD = Path(__file__).resolve().parents[3] / "integrations" / "grafana" / "rn50-advisor.json"
SECRET = "s3cret-w0rd"
ENOUGH_S = 60.0
# a sleeping data set and a tiny model; trains until the second file is there
JOB = """
import sys, time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.randn(8), i % 2

torch.set_num_threads(1)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
until = time.time() + 120
while not Path(sys.argv[1]).exists() and time.time() < until:
    for x, y in DataLoader(Slow(), batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
print("trained", flush=True)
sys.exit(5)
"""


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    server = OtlpReceiver()
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    yield server
    server.answering.set()
    server.shutdown()
    server.server_close()


def samples(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in parser.text_string_to_metric_families(text):
        for each in family.samples:
            found.setdefault(each.name, {})[tuple(sorted(each.labels.items()))] = each.value
    return found


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=ENOUGH_S) as answer:
        return str(answer.read().decode())


def command_lines() -> list[bytes]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                found.append((entry / "cmdline").read_bytes())
    return found


def listening(pid: int) -> set[int]:
    """Ports that the process and its descendants listen on."""
    ports = set()
    for each in (pid, *descendants_of(pid)):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            ports |= {c.laddr.port for c in psutil.Process(each).net_connections() if c.status == psutil.CONN_LISTEN}
    return ports


@contextlib.contextmanager
def prometheus(folder: Path, *targets: str) -> Iterator[str]:
    """A real Prometheus that scrapes these addresses; yields the address of its API."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "training", "static_configs": [{"targets": list(targets)}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = ["prometheus", "--config.file", "prometheus.yml", "--storage.tsdb.path", "data"]
    with (
        (folder / "prometheus.log").open("wb") as log,
        killed_at_end(
            subprocess.Popen([*command, "--web.listen-address", address], cwd=folder, stdout=log, stderr=log)
        ),
    ):
        yield f"http://{address}/api/v1"


def answer_of(api: str, expression: str) -> list[Any]:
    """The series that Prometheus answers with; empty as long as it does not answer."""
    with contextlib.suppress(OSError):
        document = json.loads(fetched(f"{api}/query?{urllib.parse.urlencode({'query': expression})}"))
        assert document["status"] == "success"
        return list(document["data"]["result"])
    return []


def expressions() -> list[str]:
    """Of every panel of the dashboard, with its variables set."""
    document = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    assert len(found) > 10
    return [expression.replace("$run", ".*").replace("$__rate_interval", "1m") for expression in found]


@pytest.mark.torch
def test_a_job_that_trains_is_seen_by_all_who_were_asked_to_look(tmp_path: Path, receiver: OtlpReceiver) -> None:
    enough, file, job = tmp_path / "enough", tmp_path / "job.prom", tmp_path / "train.py"
    job.write_text(JOB)
    options = ["--metrics-file", str(file), "--metrics-listen", "0"]
    options += ["--otlp", receiver.url.replace("//", f"//user:{SECRET}@")]
    argv = [sys.executable, "-m", "rn50_advisor.advisor.cli", "run", "--no-tui", "--run-dir", str(tmp_path / "runs")]
    process = subprocess.Popen(
        [*argv, *options, "--", sys.executable, str(job), str(enough)],
        cwd=tmp_path,
        env=environment(OTEL_EXPORTER_OTLP_HEADERS=f"api-key={SECRET}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with killed_at_end(process):
        (run,) = wait_for(lambda: list_runs(tmp_path / "runs"), "the run")
        address = wait_for(lambda: (note := run / ADDRESS_NAME).exists() and note.read_text().strip(), "the page")
        page = f"http://{address}/metrics"
        told = wait_for(lambda: (s := samples(fetched(page))).get("rn50_advisor_finding_active") and s, "a finding")
        assert told["rn50_advisor_samples_per_second"][("run", run.name),] > 0
        phases = [dict(labels)["phase"] for labels in told["rn50_advisor_step_phase_duration_seconds"]]
        assert {"input_wait", "forward", "backward", "optimizer"} <= set(phases)
        assert told["rn50_advisor_input_wait_ratio"][("run", run.name),] > 0.5
        written = wait_for(
            lambda: (s := samples(file.read_text())).get("rn50_advisor_finding_active") and s, "the file"
        )
        assert written.keys() == told.keys()
        wait_for(lambda: any("finding.active" in str(document) for *_, document in receiver.requests), "the push")
        _, headers, document = receiver.requests[-1]
        assert headers["api-key"] == SECRET and headers["authorization"].startswith("Basic ")
        assert attributes(document.resource_metrics[0].resource)["service.instance.id"] == run.name
        assert len(listening(process.pid)) == 1
        assert not [line for line in command_lines() if SECRET.encode() in line]
        if shutil.which("prometheus"):
            _prometheus_answers(tmp_path, address, run.name)
        enough.touch()
        out, err = process.communicate(timeout=ENOUGH_S)
    assert (process.returncode, out) == (5, b"trained\n")
    after = samples(file.read_text())
    assert list(after["rn50_advisor_job_running"].values()) == [0.0]
    assert list(after["rn50_advisor_job_exit_code"].values()) == [5.0]
    assert not [gap for gap in read_recording(run).gaps if gap.metric.startswith(("metrics", "outlets"))]
    assert not [path for path in run.iterdir() if SECRET.encode() in path.read_bytes() or path.name == ADDRESS_NAME]
    assert SECRET.encode() not in err
    if not shutil.which("prometheus"):
        pytest.skip("THE DASHBOARD IS NOT TESTED HERE: there is no prometheus (apt-get install prometheus)")


def _prometheus_answers(folder: Path, address: str, run: str) -> None:
    """Every panel of the dashboard has an answer, with a page of a GPU job on several ranks beside that of the job that trains."""
    from dataclasses import replace

    sample = MetricsPage("0")
    sample.open(folder)
    job = replace(running(), gpus=tuple(replace(gpu(n), ranks=str(n), throttled_pct=20.0) for n in range(2)))
    sample.deliver(reading(job, run="sample"))
    with prometheus(folder, address, (folder / ADDRESS_NAME).read_text().strip()) as api:
        seen = "rn50_advisor_job_running == 1"
        wait_for(lambda: {run, "sample"} <= {s["metric"]["run"] for s in answer_of(api, seen)}, "both in Prometheus")
        for expression in expressions():
            wait_for(lambda told=expression: answer_of(api, told), f"an answer to {expression}")
    sample.close()


def gaps_of(run: Path) -> dict[str, str]:
    return {gap.metric: gap.reason for gap in read_recording(run).gaps if gap.metric.startswith(("metrics", "outlets"))}


def outlet_process(job: Job) -> psutil.Process:
    def found() -> psutil.Process | None:
        for pid in descendants_of(job.process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "rn50_advisor.advisor.outlets.outlet_process" in (process := psutil.Process(pid)).cmdline():
                    return process
        return None

    return wait_for(found, "the process of the outlets")


def test_endpoints_that_refuse_do_not_answer_or_vanish_are_lines_of_the_report(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    receiver.answering.clear()  # takes all and never answers
    folder = tmp_path / "collector"
    folder.mkdir()
    options = {"otlp": receiver.url, "metrics_file": str(folder / "job.prom"), "outlet_period_s": 0.2}
    with fake_rank(tmp_path, rank=0, options=options) as job:
        job.send("steps 50")
        wait_for(lambda: (folder / "job.prom").exists() and receiver.requests, "the first readings")
        shutil.rmtree(folder)
        job.order("exit 3")
        job.end(3)
    found = gaps_of(job.run_folder)
    assert set(found) == {"metrics.file", "metrics.otlp"}
    assert f"{folder}/job.prom: No such file or directory" in found["metrics.file"]
    assert f"{receiver.url}/v1/metrics: no answer in time" in found["metrics.otlp"]
    text = advisor("report", job.run_folder, "--full", cwd=tmp_path).stdout.decode()
    assert "metrics file (job)" in text and "no answer in time" in text


def test_the_job_goes_on_without_the_process_of_the_outlets(tmp_path: Path) -> None:
    with fake_rank(tmp_path, rank=0, options={"metrics_listen": "0"}) as job:
        job.send("steps 20")
        outlet_process(job).send_signal(signal.SIGKILL)
        job.until(lambda now: any(gap.metric == "outlets" for gap in now.gaps), "the gap")
        job.send("steps 20")
        job.order("leave")
        recording = job.end(0)
    assert recording.steps[0].size == 40
    assert gaps_of(job.run_folder) == {"outlets": "its process was killed by SIGKILL"}


def test_it_ends_with_a_recording_that_is_killed_and_the_job_goes_on(tmp_path: Path) -> None:
    with fake_rank(tmp_path, rank=0, options={"metrics_listen": "0"}) as job:
        job.send("steps 20")
        outlets = outlet_process(job)
        outlets.parent().kill()
        outlets.wait(ENOUGH_S)
        job.send("steps 20")
        job.order("exit 7")
        assert job.process.wait(ENOUGH_S) == 7


def test_without_an_option_nothing_listens_and_no_process_is_started(tmp_path: Path) -> None:
    with fake_rank(tmp_path, rank=0) as job:
        job.send("steps 20")
        job.until(lambda now: 0 in now.steps, "the steps")
        family = [psutil.Process(pid).cmdline() for pid in descendants_of(job.process.pid)]
        assert not listening(job.process.pid) and not [line for line in family if "outlet" in " ".join(line)]
        job.order("leave")
        job.end(0)


def test_behind_the_screen_no_command_line_shows_the_address(tmp_path: Path, receiver: OtlpReceiver) -> None:
    url, go = receiver.url.replace("//", f"//user:{SECRET}@"), tmp_path / "go"
    waits = ["sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done; exit 4"]
    started = Supervised.start(waits, run_folder=tmp_path / "run", options=RunOptions(otlp=url))
    wait_for(lambda: [line for line in command_lines() if b"outlet_process" in line], "the process of the outlets")
    assert not [line for line in command_lines() if SECRET.encode() in line]
    go.touch()
    assert started.wait(ENOUGH_S).exit_code == 4
    assert receiver.requests


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--otlp", f"ftp://user:{SECRET}@host"], "no http:// or https:// address"),
        (["--metrics-file", "nowhere/x.prom"], "No such file or directory"),
        (["--metrics-listen", "192.0.2.1:9400"], "Cannot assign requested address"),  # of no machine (RFC 5737)
    ],
)
def test_what_cannot_work_is_said_in_one_line_and_the_job_does_not_start(
    options: list[str], says: str, tmp_path: Path
) -> None:
    done = advisor("run", *options, "--", "sh", "-c", "touch started", cwd=tmp_path)
    assert done.returncode == 64 and says in done.stderr.decode() and SECRET not in done.stderr.decode()
    assert not (tmp_path / "started").exists() and not (tmp_path / "runs").exists()
