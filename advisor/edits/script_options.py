"""Finds the command-line options that a script declares (argparse, click, absl) and the environment variables that it reads."""

from __future__ import annotations

import ast
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.edits.syntax import Code, Function, last_name

_CLICK = ("option",)
_ABSL = ("DEFINE_integer", "DEFINE_bool", "DEFINE_boolean", "DEFINE_float")


@dataclass(frozen=True, slots=True)
class Option:
    """An option such as `--workers`, declared in `code`. `default`: the node of its default, if it is written there."""

    code: Code
    line: int
    flags: tuple[str, ...]
    default: ast.expr | None
    takes: Literal["a value", "nothing", "unknown"] = "a value"
    variable: bool = False  # True: an environment variable

    @property
    def flag(self) -> str:
        """The flag to show: the first long one."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])

    def given(self, argv: Sequence[str]) -> str | None:
        """Returns the value on a command line, the last one if there are several; empty if the option has none, None without it."""
        found = None
        for at, word in enumerate(argv):
            name, equals, value = word.partition("=")
            if name in self.flags:
                following = argv[at + 1] if at + 1 < len(argv) else ""
                found = value if equals else following if self.takes == "a value" else ""
            elif any(len(f) == 2 and word.startswith(f) and word[2:].isdigit() for f in self.flags):
                found = word[2:]  # -j4
        return found


def options_for(codes: Sequence[Code], name: str) -> list[Option]:
    """Returns the options whose value a parser stores under `name`, from the first file that has any."""
    for code in codes:
        declaring = {"add_argument", *_other_names(code)}
        found = [o for call in code.calls() if (o := _declared(code, call, name, declaring)) is not None]
        if found:
            return found
    return []


def decorating_option(code: Code, function: Function, parameter: str) -> Option | None:
    """Returns the click option that fills a parameter."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and last_name(decorator.func) in _CLICK:
            flags = _flags(decorator)
            given = [_text(a) for a in decorator.args if (_text(a) or "-")[0] != "-"]
            if flags and parameter in (given or [_dest(flags)]):
                flag = _keyword(decorator, "is_flag")
                return Option(
                    code, decorator.lineno, flags, _keyword(decorator, "default"), "unknown" if flag else "a value"
                )
    return None


def environment_variable(code: Code, call: ast.Call) -> Option | None:
    """Returns the variable that `os.environ.get("WORKERS", 4)` or `os.getenv(...)` reads."""
    called = ast.unparse(call.func)
    if called not in {"os.environ.get", "os.getenv", "environ.get", "getenv"} or not call.args:
        return None
    name = _text(call.args[0])
    default = call.args[1] if len(call.args) > 1 else _keyword(call, "default")
    return Option(code, call.lineno, (name,), default, variable=True) if name else None


def _declared(code: Code, call: ast.Call, name: str, declaring: Container[str | None]) -> Option | None:
    called = last_name(call.func)
    if called in _ABSL and call.args and _text(call.args[0]) == name:
        return Option(code, call.lineno, (f"--{name}",), call.args[1] if len(call.args) > 1 else None)
    if called not in declaring:
        return None
    flags, dest = _flags(call), _text(_keyword(call, "dest"))
    if not flags or (dest or _dest(flags)) != name:
        return None
    action = _keyword(call, "action")
    takes: Literal["a value", "nothing", "unknown"] = "a value"
    if action is not None:
        takes = "nothing" if _text(action) == "store_true" else "a value" if _text(action) == "store" else "unknown"
    if _keyword(call, "choices") is not None:
        takes = "unknown"  # the choices may not include the new value
    return Option(code, call.lineno, flags, _keyword(call, "default"), takes)


def _other_names(code: Code) -> set[str]:
    """Names bound to the method, as in `add = parser.add_argument`."""
    return {
        target.id
        for node in ast.walk(code.tree)
        if isinstance(node, ast.Assign) and last_name(node.value) == "add_argument"
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _flags(call: ast.Call) -> tuple[str, ...]:
    return tuple(text for argument in call.args if (text := _text(argument)) and text.startswith("-"))


def _dest(flags: Sequence[str]) -> str:
    first = next((flag for flag in flags if flag.startswith("--")), flags[0])
    return first.lstrip("-").replace("-", "_")


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
