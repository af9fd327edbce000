"""`mcp` as an agent starts it: a real process, the SDK's own client and bare messages, a real run, a real job."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli_process import TIMEOUT_S, environment
from rn50_advisor.advisor.commands.demo.demo import RUN
from waiting import wait_for

pytest.importorskip("mcp_types", reason="version 2 of the MCP SDK is not installed: pip install '.[mcp]'")
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

PROGRAM = [sys.executable, "-m", "rn50_advisor", "mcp"]
READING = ["list_runs", "verdict", "finding", "explain", "compare", "doctor"]
# Prints when it was interrupted, and ends a moment later with its own exit code, as one that writes a last checkpoint.
LONG = (
    "import signal, sys, time, pathlib; here = pathlib.Path('.');\n"
    "def end(*_): (here / 'interrupted').write_text('by SIGINT'); print('saved', flush=True); sys.exit(5)\n"
    "signal.signal(signal.SIGINT, end); (here / 'started').write_text(''); time.sleep(600)"
)
TRAINING = """
import time
import torch

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * 60

    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.zeros(64)

print("training")
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(Items(), batch_size=8, num_workers=0):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


class Bare:
    """A client that sends lines, for what no proper client sends."""

    def __init__(self, cwd: Path, *options: str) -> None:
        temporary = cwd / "temporary"  # a server that is killed leaves its folder to the next one
        temporary.mkdir()
        self.process = subprocess.Popen(
            [*PROGRAM, *options],
            cwd=cwd,
            env=environment(TMPDIR=str(temporary)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def request(self, method: str, params: dict[str, Any] | None = None, *, number: int = 1) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}))

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def greet(self) -> None:
        about = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "bare", "version": "0"}}
        self.request("initialize", about)
        assert self.answer()["result"]["protocolVersion"] == "2024-11-05"
        self.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def end(self) -> str:
        """Closes its input; returns what it still wrote."""
        return self.process.communicate(timeout=TIMEOUT_S)[0]


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Any]:
    made: list[Bare] = []

    def start(*options: str) -> Bare:
        made.append(Bare(tmp_path, *options))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def client(cwd: Path, *options: str, mode: str = "auto") -> Client:
    server = StdioServerParameters(command=PROGRAM[0], args=[*PROGRAM[1:], *options], cwd=cwd, env=environment())
    return Client(stdio_client(server), mode=mode)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder of runs with the recorded run of `demo` in it, and a damaged one."""
    folder = tmp_path / "runs" / "20250101-120000-resnet50"
    folder.mkdir(parents=True)
    with tarfile.open(RUN) as bundle:
        bundle.extractall(folder, filter="data")
    found = next(folder.rglob("run.sqlite"))
    if found.parent != folder:
        for file in found.parent.iterdir():
            file.rename(folder / file.name)
    damaged = tmp_path / "runs" / "20240101-120000-damaged"
    damaged.mkdir()
    (damaged / "run.sqlite").write_bytes(b"no database" * 100)
    return tmp_path


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_an_agent_finds_what_limits_a_run_and_survives_its_own_mistakes(
    recorded: Path, mode: str, version: str
) -> None:
    async with client(recorded, mode=mode) as agent:
        assert agent.protocol_version == version
        assert [tool.name for tool in (await agent.list_tools()).tools] == READING
        for arguments in ({"run": "nowhere"}, {"run": "damaged"}, {"run": 3}, {"bogus": 1}):
            wrong = await agent.call_tool("verdict", arguments)
            assert wrong.is_error and "Traceback" not in wrong.content[0].text, arguments
        verdict = (await agent.call_tool("verdict", {})).structured_content
        assert verdict["verdict"]["rule"] == "DAT003" and verdict["run"]["name"] == "20250101-120000-resnet50"
        finding = (await agent.call_tool("finding", {"rule": verdict["verdict"]["rule"]})).structured_content
        assert finding["findings"][0]["fixes"][0]["where"]["line"] == 111


async def test_an_agent_that_may_run_jobs_gets_the_verdict_of_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINING)
    async with client(tmp_path, "--allow-run") as agent:
        assert [tool.name for tool in (await agent.list_tools()).tools] == [*READING, "run", "try"]
        command = f"{shlex.quote(sys.executable)} train.py"
        result = await agent.call_tool("run", {"command": command, "name": "small", "time_limit_s": 100})
        made = result.structured_content
        assert not result.is_error and made["run"]["name"].endswith("-small"), result.content[0].text
        assert (made["exit_code"], made["stopped"]) == (0, None)
        assert "training" in made["output"] and "DAT003" not in made["output"]
        assert made["verdict"]["rule"] == "DAT003" and made["step_time"]["steps"] >= 50
        again = (await agent.call_tool("finding", {"run": "small"})).structured_content
        assert again["findings"][0]["fixes"][0]["where"]["file"].endswith("train.py")


def test_without_allow_run_nothing_can_be_started(bare: Any, tmp_path: Path) -> None:
    server = bare()
    server.greet()
    for number, name in enumerate(("run", "try"), 2):
        server.request("tools/call", {"name": name, "arguments": {"command": "touch made"}}, number=number)
        assert server.answer()["error"]["code"] == -32602
    assert server.end() == "" and not (tmp_path / "made").exists()


def test_nothing_but_the_protocol_is_written_and_what_is_no_message_is_survived(bare: Any) -> None:
    server = bare()
    server.greet()
    for line in ("no json", "[]", '{"jsonrpc": "2.0", "method": "notifications/unknown"}', "{}"):
        server.send(line)
    server.request("no/such/method", number=2)
    answers = [server.answer()]
    while answers[-1].get("id") != 2:
        answers.append(server.answer())
    assert answers[-1]["error"]["code"] == -32601
    server.request("tools/list", number=3)
    assert len(server.answer()["result"]["tools"]) == len(READING)
    assert server.end() == "" and server.process.returncode == 0


def job_call(cwd: Path) -> dict[str, Any]:
    (cwd / "long.py").write_text(LONG)
    return {"name": "run", "arguments": {"command": f"{shlex.quote(sys.executable)} long.py", "time_limit_s": 600}}


def started(server: Bare, cwd: Path) -> list[psutil.Process]:
    wait_for((cwd / "started").exists, "the job's start")
    return psutil.Process(server.process.pid).children(recursive=True)


def test_when_the_client_goes_its_job_is_interrupted_and_the_server_ends(bare: Any, tmp_path: Path) -> None:
    server = bare("--allow-run")
    server.greet()
    server.request("tools/call", job_call(tmp_path), number=2)
    processes = started(server, tmp_path)
    server.end()
    assert server.process.returncode == 0
    assert (tmp_path / "interrupted").read_text() == "by SIGINT"
    assert psutil.wait_procs(processes, timeout=30)[1] == []
    (run,) = (tmp_path / "runs").iterdir()
    report = subprocess.run([*PROGRAM[:-1], "report", str(run), "--format", "json"], capture_output=True, check=True)
    assert json.loads(report.stdout)["job"]["exit_code"] == 5


def test_a_cancelled_call_interrupts_its_job_and_the_next_one_runs(bare: Any, tmp_path: Path) -> None:
    server = bare("--allow-run")
    server.greet()
    server.request("tools/call", job_call(tmp_path), number=2)
    processes = started(server, tmp_path)
    server.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}))
    assert psutil.wait_procs(processes, timeout=30)[1] == []
    assert (tmp_path / "interrupted").exists()
    server.request("tools/call", {"name": "list_runs", "arguments": {}}, number=3)
    while (answer := server.answer())["id"] != 3:
        assert answer["id"] == 2 and "error" in answer
    assert len(answer["result"]["structuredContent"]["runs"]) == 1
    server.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_killed_interrupts_its_job(bare: Any, tmp_path: Path, number: signal.Signals) -> None:
    server = bare("--allow-run")
    server.greet()
    server.request("tools/call", job_call(tmp_path), number=2)
    processes = started(server, tmp_path)
    os.kill(server.process.pid, number)
    assert server.process.wait(TIMEOUT_S) == 128 + number
    assert psutil.wait_procs(processes, timeout=30)[1] == []
    assert (tmp_path / "interrupted").exists()


def test_a_job_outlives_a_server_that_nothing_could_warn(bare: Any, tmp_path: Path) -> None:
    server = bare("--allow-run")
    server.greet()
    server.request("tools/call", job_call(tmp_path), number=2)
    processes = started(server, tmp_path)
    launcher = next(process for process in processes if process.ppid() == server.process.pid and leads(process))
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(TIMEOUT_S)
    assert launcher.is_running()
    os.killpg(launcher.pid, signal.SIGINT)
    assert psutil.wait_procs(processes, timeout=30)[1] == []
    (run,) = (tmp_path / "runs").iterdir()
    report = subprocess.run([*PROGRAM[:-1], "report", str(run), "--format", "json"], capture_output=True, check=True)
    assert json.loads(report.stdout)["job"]["exit_code"] == 5, "it could still print, and ended as it wanted"


def leads(process: psutil.Process) -> bool:
    """True for the launcher: the relay of the output has no children."""
    return bool(process.children())
