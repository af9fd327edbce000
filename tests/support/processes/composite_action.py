"""Runs a composite action as GitHub's runner does: its steps in order, conditions, scripts in bash, files for outputs. Not a test.

Of the actions that it calls, the cache and the upload are played with folders.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|[\w.-]+|==|!=|&&|\|\||[!(),])")
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.S)
_STEP_LIMIT_S = 100


@dataclass
class Ran:
    """What the steps left behind. `outcomes`: by the id of the step, or the action that it called."""

    outcomes: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    summary: str = ""
    scripts: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if outcome == "failure"]


@dataclass
class _Job:
    """One run of the action."""

    context: dict[str, Any]
    temporary: Path
    ran: Ran = field(default_factory=Ran)


@dataclass
class Runner:
    """`place` holds workspace, temporary folder, cache and artifacts."""

    action: Path
    place: Path
    environment: Mapping[str, str]

    def __post_init__(self) -> None:
        self.workspace = self.place / "workspace"
        self.cache = self.place / "cache"
        self.artifacts = self.place / "artifacts"
        for folder in (self.workspace, self.cache, self.artifacts):
            folder.mkdir(parents=True, exist_ok=True)

    def run(self, github: Mapping[str, Any], **inputs: str) -> Ran:
        """`github`: of the context with that name. Inputs have underscores for dashes."""
        document = yaml.safe_load(self.action.read_text())
        temporary = self.place / "temp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert set(given) <= set(document["inputs"])
        context: dict[str, Any] = {"github": github, "runner": {"os": "Linux"}, "steps": {}, "failed": False}
        context["inputs"] = {
            name: given.get(name, filled(str(about.get("default", "")), context))
            for name, about in document["inputs"].items()
        }
        job = _Job(context, temporary)
        for number, step in enumerate(document["runs"]["steps"]):
            self._step(number, step, job)
        job.ran.outputs = {name: filled(about["value"], context) for name, about in document["outputs"].items()}
        return job.ran

    def _step(self, number: int, step: dict[str, Any], job: _Job) -> None:
        context = job.context
        name = step.get("id") or step["uses"].partition("@")[0]
        wanted = step.get("if", "success()")
        own_word = any(word in wanted for word in ("cancelled()", "always()", "failure()"))
        outcome = "skipped"
        outputs: dict[str, str] = {}
        if (own_word or not context["failed"]) and value_of(
            wanted.strip().removeprefix("${{").removesuffix("}}"), context
        ):
            if "uses" in step:
                self._called(
                    step["uses"], {key: filled(str(text), context) for key, text in step["with"].items()}, outputs
                )
                outcome = "success"
            else:
                outcome = self._script(number, step, job, outputs)
        context["failed"] = context["failed"] or outcome == "failure"
        context["steps"][name] = {"outcome": outcome, "outputs": outputs}
        job.ran.outcomes[name] = outcome

    def _script(self, number: int, step: dict[str, Any], job: _Job, outputs: dict[str, str]) -> str:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an expression in a script is part of the script"
        context, temporary, ran = job.context, job.temporary, job.ran
        script, told, summary = (temporary / f"{number}.{kind}" for kind in ("sh", "output", "summary"))
        script.write_text(step["run"])
        told.touch()
        summary.touch()
        environment = {**self.environment, **{key: filled(text, context) for key, text in step.get("env", {}).items()}}
        environment |= {
            "GITHUB_ACTION_PATH": str(self.action.parent),
            "GITHUB_OUTPUT": str(told),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(temporary),
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script],
            cwd=self.workspace / filled(step.get("working-directory", "."), context),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_STEP_LIMIT_S,
            check=False,
        )
        ran.log += done.stdout
        ran.summary += summary.read_text()
        ran.scripts.append(script.read_text())
        outputs |= dict(line.split("=", 1) for line in told.read_text().splitlines())
        return "failure" if done.returncode else "success"

    def _called(self, action: str, given: Mapping[str, str], outputs: dict[str, str]) -> None:
        path, key = self.workspace / given["path"], given.get("key", "")
        match action.partition("@")[0]:
            case "actions/cache/save":
                assert path.is_dir() and not (self.cache / key).exists()
                shutil.copytree(path, self.cache / key)
            case "actions/cache/restore":
                kept = sorted(self.cache.glob(f"{given['restore-keys']}*"), key=os.path.getmtime)
                if kept:
                    shutil.copytree(kept[-1], path, dirs_exist_ok=True)
                    outputs["cache-matched-key"] = kept[-1].name
            case "actions/upload-artifact":
                shutil.rmtree(self.artifacts / given["name"], ignore_errors=True)
                if path.is_dir() or given["if-no-files-found"] != "ignore":
                    shutil.copytree(path, self.artifacts / given["name"])
            case other:
                raise AssertionError(f"nobody plays {other}")


def filled(text: str, context: Mapping[str, Any]) -> str:
    """The text with its expressions replaced by their values."""

    def value(found: re.Match[str]) -> str:
        made = value_of(found[1], context)
        return (
            {True: "true", False: "false", None: ""}.get(made, made)
            if isinstance(made, (bool, type(None)))
            else str(made)
        )

    return _EXPRESSION.sub(value, text)


def value_of(expression: str, context: Mapping[str, Any]) -> Any:
    """Evaluates what our action uses of GitHub's expressions, translated to Python."""
    words, at = [], 0
    expression = expression.strip()
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        assert found is not None, expression[at:]
        words.append(_python(found[1]))
        at = found.end()

    def look(path: str) -> Any:
        value: Any = context
        for part in path.split("."):
            value = value.get(part, "") if isinstance(value, Mapping) else ""
        return value

    known = {
        "look": look,
        "startsWith": lambda text, start: str(text).lower().startswith(start.lower()),
        "cancelled": lambda: False,
        "success": lambda: not context["failed"],
    }
    return eval(" ".join(words), {"__builtins__": {}}, known)


def _python(word: str) -> str:
    if word in ("&&", "||", "!"):
        return {"&&": "and", "||": "or", "!": "not"}[word]
    if word in ("startsWith", "cancelled", "success", "true", "false") or not (word[0].isalpha() or word[0] == "'"):
        return word.title() if word in ("true", "false") else word
    return repr(word[1:-1].replace("''", "'")) if word[0] == "'" else f"look({word!r})"
