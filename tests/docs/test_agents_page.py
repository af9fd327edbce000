"""The page for coding agents: its configurations start the server, its exchange is what the tools answer; the skill names real tools."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from threading import Event
from typing import Any

import click
import pytest

from rn50_advisor.advisor.cli import COMMANDS, cli
from rn50_advisor.advisor.commands.agents.job_tools import JobDesk
from rn50_advisor.advisor.commands.agents.read_tools import read_tools
from rn50_advisor.advisor.commands.agents.tool_calls import call
from rn50_advisor.advisor.commands.agents.verdict_tools import Shelf
from rn50_advisor.advisor.commands.demo.demo import RUN

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "agents.md").read_text(encoding="utf-8")
SKILL = (ROOT / "skills" / "rn50-advisor" / "SKILL.md").read_text(encoding="utf-8")
CALLS: list[tuple[str, dict[str, str]]] = [
    ("verdict", {}),
    ("finding", {"rule": "DAT003"}),
    ("explain", {"rule": "DAT3"}),
]
WIDTH = 110


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def exchange() -> str:
    """What the page shows: each call, the paragraph of its answer, and of a finding the fix as JSON."""
    tools = {tool.name: tool for tool in read_tools(Shelf(Path("runs")))}
    lines = []
    for name, arguments in CALLS:
        given: dict[str, Any] = arguments if name == "explain" else {**arguments, "run": str(RUN)}
        answer = call(tools[name], given, Event())
        lines += [
            f"→ {name} {json.dumps(arguments)}",
            *textwrap.wrap(f"← {answer.text}", WIDTH, subsequent_indent="  "),
        ]
        if answer.document is not None and name == "finding":
            fix = json.dumps({"fixes": answer.document["findings"][0]["fixes"]}, indent=2, ensure_ascii=False)
            lines += textwrap.indent(fix, "  ").splitlines()
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


@pytest.mark.parametrize("text", blocks("json"))
def test_a_configuration_is_json_and_starts_a_server_that_exists(text: str) -> None:
    configuration = json.loads(text)
    (servers,) = configuration.values()
    server = servers["rn50-advisor"]
    assert set(configuration) <= {"mcpServers", "servers"} and server["command"] == "rn50-advisor"
    name, *options = server["args"]
    command = cli.get_command(click.Context(cli), name)
    assert name in COMMANDS and command is not None and command.make_context(name, options).params["run_dir"]


def test_there_is_a_configuration_for_each_agent_that_is_named() -> None:
    assert len(blocks("json")) == 3
    assert all(name in PAGE for name in ("Claude Code", "Cursor", "VS Code", ".mcp.json", ".vscode/mcp.json"))


def test_the_exchange_is_what_the_tools_answer() -> None:
    assert blocks("text") == [exchange()]


def test_the_page_names_every_tool_and_argument() -> None:
    shelf = Shelf(Path("runs"))
    for tool in (*read_tools(shelf), *JobDesk(shelf).tools()):
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{tool.name}` |"))
        assert re.findall(r"`(\w+)`", row.split("|")[2]) == list(tool.takes.__struct_fields__)


def test_the_skill_has_what_agents_look_for_and_names_tools_and_commands_that_exist() -> None:
    head = re.match(r"---\nname: ([a-z0-9-]{1,64})\ndescription: (.{1,1024})\n---\n", SKILL)
    assert head is not None and head[1] == "rn50-advisor" and "Use it when" in head[2]
    shelf = Shelf(Path("runs"))
    tools = {tool.name for tool in (*read_tools(shelf), *JobDesk(shelf).tools())}
    named = {
        word
        for row in SKILL.splitlines()
        if row.startswith("| ")
        for word in re.findall(r"`([a-z_]+)`", row.split("|")[2])
    }
    assert named and named <= tools
    for words in re.findall(r"`rn50-advisor ([a-z]+)", SKILL):
        assert words in COMMANDS
