"""Works out which changes to the code give a call other arguments."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.edits.calls import FoundCall
from rn50_advisor.advisor.edits.edit_changes import Change, NewArguments, NewLiteral
from rn50_advisor.advisor.edits.names import written_as
from rn50_advisor.advisor.edits.origins import FromOption, Literally, origin_of
from rn50_advisor.advisor.edits.script_options import Option
from rn50_advisor.advisor.edits.syntax import Code, is_literal, literal
from rn50_advisor.advisor.model.job_changes import Value

UNKNOWN_VALUE = object()  # an unknown value: differs from every value
_WORKERS = "num_workers"
_NEEDS_WORKERS: Mapping[str, str] = {
    "persistent_workers": "{workers} > 0",
    "prefetch_factor": "{value} if {workers} else None",
}


class EditPlan:
    """Changes for a call. `words`: steps that no edit covers or that are uncertain; `options`: those words that name a job's option;
    `typed`: these options as one types them.
    """

    def __init__(
        self,
        code: Code,
        call: FoundCall,
        *,
        known: Mapping[str, Value],
        others: Sequence[Code] = (),
        argv: Sequence[str] = (),
    ) -> None:
        self._code = code
        self._call = call
        self._known = known
        self._others = others
        self._argv = argv
        self._literals: list[tuple[Code, ast.expr, str]] = []
        self._put: list[tuple[str, str]] = []
        self._add: list[tuple[str, str]] = []
        self._drop: list[str] = []
        self._workers = _variable(call, _WORKERS)
        self.words: list[str] = []
        self.options: list[str] = []
        self.typed: list[str] = []

    def make(self, wanted: Mapping[str, Value], *, without: Sequence[str] = ()) -> bool:
        """False if the first argument, which matters most, cannot certainly be changed, or if an argument in `without` would stay."""
        for name, value in wanted.items():
            if not self._argument(name, value) and self._empty:
                return False
        return self._drop_all(without)

    def changes(self, code: Code) -> list[Change]:
        found: list[Change] = [NewLiteral(node, value) for where, node, value in self._literals if where is code]
        put = tuple((a, value) for name, value in self._put if (a := self._call.argument(name)) is not None)
        if code is self._code and (put or self._add or self._drop):
            found.append(NewArguments(self._call.node, put, tuple(self._add), tuple(self._drop)))
        return found

    @property
    def _empty(self) -> bool:
        return not (self._put or self._add or self._literals or self.options)

    def _argument(self, name: str, value: Value) -> bool:
        argument = self._call.argument(name)
        if argument is None:
            if self._call.takes(name):
                self._add.append((self._call.prefix + name, self._text(name, value)))
            elif not self._empty:
                self.words.append(f"{name}={value!r} where the loader itself is made")
            return self._call.takes(name)
        if not is_literal(argument.value):
            return self._follow(name, value, argument.value)
        if self._known.get(name, UNKNOWN_VALUE) not in (UNKNOWN_VALUE, literal(argument.value)):
            return False  # another call created this loader, or the argument was changed afterwards
        if argument.keyword is None and argument.position is None:
            self._literals.append((self._code, argument.value, repr(value)))
        else:
            self._put.append((name, self._text(name, value)))
        return True

    def _follow(self, name: str, value: Value, node: ast.expr) -> bool:
        """Changes the origin of an argument that is not a literal; False if that is not possible."""
        origin, at_run = origin_of(self._code, node, self._others), self._known.get(name, UNKNOWN_VALUE)
        if isinstance(origin, Literally) and at_run in (UNKNOWN_VALUE, literal(origin.node)):
            self._literals.append((origin.code, origin.node, repr(value)))
            return True
        if isinstance(origin, FromOption) and (step := self._option(origin, value, at_run)) is not None:
            self.words.append(step)
            self.options.append(step)
            self.typed.append(_typed(origin.option, value))
            default = origin.option.default
            if self._default_decides(origin, at_run) and default is not None:
                self._literals.append((origin.option.code, default, _like(default, value)))
            return True
        if name in _NEEDS_WORKERS and self._follows_workers(node):
            return True
        self.words.append(f"{name} is `{self._code.words(node)}`{self._set_at(node)}")
        return False

    def _follows_workers(self, node: ast.expr) -> bool:
        """True if the expression depends on the number of workers, and so changes with it."""
        if self._workers is None:
            return False
        return any(self._workers.strip("()") in ast.unparse(n) for n in (node, written_as(self._code, node)))

    def _set_at(self, node: ast.expr) -> str:
        origin = written_as(self._code, node)
        return f" there, `{self._code.words(origin)}` in line {origin.lineno}" if origin is not node else " there"

    def _option(self, origin: FromOption, value: Value, at_run: object) -> str | None:
        """Returns `pass --workers 6`; None if the option does not decide the value."""
        option = origin.option
        given = None if option.variable else option.given(self._argv)
        before = given if given is not None else _default_of(option)
        if option.takes == "unknown" or (option.takes == "nothing" and value is not True):
            return None
        if option.takes == "a value" and at_run is not UNKNOWN_VALUE and str(before) != str(at_run):
            return None
        if option.variable:
            return f"set {_typed(option, value)}"
        text = f"pass {_typed(option, value)}"
        text += f" instead of {option.flag} {given}" if given else ""
        return text + (f" (line {origin.changed_at} may change it)" if origin.changed_at else "")

    def _default_decides(self, origin: FromOption, at_run: object) -> bool:
        """True if the default was used as written: changing it then equals passing the option."""
        option = origin.option
        if option.variable or origin.changed_at or option.takes != "a value" or option.default is None:
            return False
        used = option.given(self._argv) is None and is_literal(option.default)
        return used and str(_default_of(option)) == str(at_run)

    def _text(self, name: str, value: Value) -> str:
        """Returns the value as source text; if the number of workers is a variable, in a form that also works without workers."""
        form = _NEEDS_WORKERS.get(name)
        if form is None or self._workers is None or not value:
            return repr(value)
        return form.format(workers=self._workers, value=repr(value))

    def _drop_all(self, names: Sequence[str]) -> bool:
        """False if one of the arguments is passed in a way that cannot be removed."""
        for name in names:
            argument = self._call.argument(name)
            if argument is None or _switched_off(argument.value) or self._follows_workers(argument.value):
                continue
            if argument.keyword is None or any(isinstance(n, ast.Call) for n in ast.walk(argument.value)):
                return False
            self._drop.append(argument.keyword)
        return True


def _switched_off(node: ast.expr) -> bool:
    """True for None, False and 0: such an argument may stay where it must not be set."""
    return is_literal(node) and not literal(node)


def _default_of(option: Option) -> Value:
    return literal(option.default) if option.default is not None and is_literal(option.default) else None


def _typed(option: Option, value: Value) -> str:
    """`--workers 6`, `--pin-memory`, `WORKERS=6`."""
    if option.variable:
        return f"{option.flag}={value}"
    return option.flag if option.takes == "nothing" else f"{option.flag} {value}"


def _like(default: ast.expr, value: Value) -> str:
    """Writes the value like the default: in quotes if that was, since argparse also takes numbers in quotes."""
    return repr(str(value)) if isinstance(literal(default), str) else repr(value)


def _variable(call: FoundCall, name: str) -> str | None:
    """The variable that the call passes for an argument; None for a literal."""
    argument = call.argument(name)
    if argument is None or is_literal(argument.value):
        return None
    text = ast.unparse(argument.value)
    return text if isinstance(argument.value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"
