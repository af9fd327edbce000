"""The server with the SDK's own client, both eras of the protocol, without a process between them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner

from rn50_advisor.advisor.commands.agents import mcp_server
from rn50_advisor.advisor.commands.agents.job_tools import JobDesk
from rn50_advisor.advisor.commands.agents.mcp_server import made_server, result_of
from rn50_advisor.advisor.commands.agents.read_tools import read_tools
from rn50_advisor.advisor.commands.agents.tool_calls import Arguments, Tool, ToolAnswer
from rn50_advisor.advisor.commands.agents.verdict_tools import Shelf
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from written_runs import written_run

pytest.importorskip("mcp_types", reason="version 2 of the MCP SDK is not installed: pip install '.[mcp]'")
from mcp import Client
from mcp.shared.exceptions import MCPError


class Nothing(Arguments, frozen=True):
    pass


def tools(work: Any = None, *, runs_jobs: bool = False) -> dict[str, Tool]:
    made = work or (lambda taken, _: ToolAnswer("A sentence.", {"number": 1}))
    return {"look": Tool("look", "Look", "Looks.", Nothing, made, runs_jobs)}


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_both_eras_of_the_protocol_list_and_call_the_tools(mode: Any, version: str) -> None:
    async with Client(made_server(tools()), mode=mode) as client:
        assert client.protocol_version == version and client.server_info is not None
        assert client.server_info.name == "rn50-advisor"
        (listed,) = (await client.list_tools()).tools
        assert listed.name == "look" and listed.input_schema["type"] == "object"
        assert listed.annotations is not None and listed.annotations.read_only_hint
        result = await client.call_tool("look", {})
        assert result.structured_content == {"number": 1} and not result.is_error
        assert [block.text for block in result.content] == ["A sentence.", '{"number": 1}']


async def test_the_server_says_how_it_is_used_and_whether_it_runs_jobs() -> None:
    async with Client(made_server(tools())) as client:
        assert "Jobs are recorded on a terminal" in (client.instructions or "")
    async with Client(made_server(tools(runs_jobs=True))) as client:
        assert "run records a job" in (client.instructions or "")
        (listed,) = (await client.list_tools()).tools
        assert listed.annotations is not None and listed.annotations.destructive_hint


async def test_an_unknown_tool_is_an_error_of_the_protocol_and_the_server_goes_on() -> None:
    async with Client(made_server(tools())) as client:
        with pytest.raises(MCPError, match="unknown tool: run"):
            await client.call_tool("run", {"command": "python train.py"})
        assert not (await client.call_tool("look", {})).is_error


async def test_a_tool_that_fails_is_an_error_of_the_tool_and_the_server_goes_on() -> None:
    def work(taken: Any, stop: Event) -> ToolAnswer:
        raise ZeroDivisionError("a bug")

    async with Client(made_server(tools(work))) as client:
        for _ in range(2):
            result = await client.call_tool("look", {})
            assert result.is_error and result.content[0].text.startswith("ZeroDivisionError: a bug")
            assert "Traceback" not in result.content[0].text


async def test_whoever_waits_hears_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "_PROGRESS_EVERY_S", 0.01)
    heard = Event()

    def work(taken: Any, stop: Event) -> ToolAnswer:
        return ToolAnswer("told" if heard.wait(60) else "not told")

    async def progress(passed: float, total: float | None, message: str | None) -> None:
        heard.set()

    async with Client(made_server(tools(work))) as client:
        result = await client.call_tool("look", {}, progress_callback=progress)
        assert result.content[0].text == "told"


async def test_a_call_that_is_cancelled_tells_its_work_to_stop() -> None:
    import anyio

    began, stopped = Event(), Event()

    def work(taken: Any, stop: Event) -> ToolAnswer:
        began.set()
        if stop.wait(60):
            stopped.set()
        return ToolAnswer("nobody reads this")

    async with Client(made_server(tools(work, runs_jobs=True))) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call_tool, "look", {})
            assert await anyio.to_thread.run_sync(began.wait, 60)
            calls.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(stopped.wait, 60)


def test_an_answer_is_a_paragraph_and_json_in_plain_characters() -> None:
    result = result_of(ToolAnswer("1.4× faster.", {"title": "0 → 1"}, failed=True))
    assert [block.text for block in result.content] == ["1.4× faster.", '{"title": "0 → 1"}'] and result.is_error
    assert len(result_of(ToolAnswer("Nothing.")).content) == 1


async def test_answers_keep_to_the_published_schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client checks what it gets against the schema that the tool was listed with; of a failed call it checks nothing."""
    monkeypatch.chdir(tmp_path)
    for number, steps in enumerate((200, 200, 3)):
        written_run(
            tmp_path / "runs" / f"2025010{number}-000000-run{number}", steps=steps, started_unix_s=1.7e9 + number
        )
    shelf = Shelf(tmp_path / "runs")
    offered = {tool.name: tool for tool in (*read_tools(shelf), *JobDesk(shelf).tools())}
    assert {name: tool.gives for name, tool in offered.items() if tool.gives} == {
        "list_runs": "runs",
        "compare": "compare",
        "try": "try",
    }
    async with Client(made_server(offered)) as client:
        listed = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        assert all((listed[name] is not None) == bool(tool.gives) for name, tool in offered.items())
        assert "$id" not in (listed["compare"] or {})
        assert not (await client.call_tool("list_runs", {})).is_error
        assert not (await client.call_tool("compare", {"runs": ["run0", "run1"]})).is_error
        assert (await client.call_tool("compare", {"runs": ["run0", "run2"]})).is_error


async def test_an_answer_that_breaks_its_schema_would_be_noticed() -> None:
    offered = {"look": replace(tools()["look"], gives="runs")}
    async with Client(made_server(offered)) as client:
        await client.list_tools()
        with pytest.raises(RuntimeError):
            await client.call_tool("look", {})


def test_without_the_sdk_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "mcp" or name.startswith("mcp.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    error = CliRunner().invoke(mcp_server.mcp).exception
    assert isinstance(error, AdvisorError) and error.hint == 'pip install "rn50-advisor[mcp]"'


def test_on_a_terminal_the_command_says_who_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(mcp_server.sys, "stdin", Terminal())
    with pytest.raises(UsageError, match="not to a terminal"):
        mcp_server.mcp.callback(run_dir=Path("runs"), config=None, allow_run=False)  # type: ignore[misc]


def test_the_hint_names_an_extra_that_exists() -> None:
    pyproject = (Path(__file__).resolve().parents[4] / "pyproject.toml").read_text(encoding="utf-8")
    assert '\nmcp = ["mcp>=2' in pyproject and mcp_server.INSTALL.endswith('[mcp]"')
