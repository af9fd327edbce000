"""Decides by the source whether a line computes what an earlier line of the same function has computed already, from the same values.

What cannot be decided counts as different: names that are bound anew or changed in between, random numbers, an update or another mode in
between, an earlier line that does not always run before this one.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.analysis.stacks.source.same_values import Module, Scope
from rn50_advisor.advisor.analysis.stacks.source.written_names import (
    bindings,
    classes,
    computed,
    guarded,
    is_in_place,
    last_name,
    methods,
    names,
    parameters,
    statement_at,
)
from rn50_advisor.advisor.model.recording import Source

# Calls after which parameters or a model's mode may be others, by words in their names: `optimizer.first_step()`, `ema.swap(model)`.
_CHANGES = re.compile(
    r"step|train|eval|load|update|apply|copy|swap|merge|perturb|restore|ascen|requires_grad|reset|init"
)
# A module that draws random numbers gives another result the second time, perhaps on purpose. Where it is made, only parts that do matter.
_PARTS = r"\b\w*(?:drop|noise)\w*\(|gumbel|stochastic"
_MADE_TO_DRAW = re.compile(_PARTS, re.IGNORECASE)
_DRAWS = re.compile(_PARTS + r"|\brand\w*\(|bernoulli|multinomial|\b(?:normal|uniform)_?\(|\.r?sample\(", re.IGNORECASE)
_MAKING = ("__init__", "init", "_init", "build", "_build", "reset", "_reset")  # names of methods begin so
_LAYERS = re.compile(r"\bnn\.\w+\(")  # torch's own, whose kinds the recorder lists
_LOSS = re.compile(r"loss|criter|^ce$|^bce$|^mse$", re.IGNORECASE)
# Contexts that change no value: the earlier result is as good, with or without gradients.
_GRADIENTS = re.compile(r"no_grad|inference_mode|enable_grad|set_grad_enabled|record_function|no_sync")
_NO_GRADIENTS = re.compile(r"no_grad|inference_mode")
_ENDS_GRADIENTS = frozenset(("argmax", "argmin", "detach", "eq", "item", "numpy", "tolist"))
_ON_NUMBERS = "abs bool float int len list max min print range round str sum tuple zip"
# What may surround the work in its line, and is no work by itself.
_ON_RESULTS = """
    amax amin argmax argmin contiguous cpu detach dim double eq expand flatten ge gt item le long lt mean ne numel numpy permute reshape
    size square squeeze t to tolist transpose unsqueeze view
"""
_LIGHT = frozenset((_ON_NUMBERS + _ON_RESULTS).split())
# Methods that are called without arguments and change no model.
_CALLED_BARE = """
    all any backward close flush items keys named_parameters parameters perf_counter state_dict time values zero_grad
"""
_HARMLESS = _LIGHT | frozenset(_CALLED_BARE.split())


@dataclass(frozen=True, slots=True)
class Earlier:
    """The line that has computed the same. `recorded`: the second result may have a backward pass of its own."""

    line: int
    recorded: bool


def computed_before(
    sources: Sequence[Source], file: str, line: int, *, as_module: bool, plain_layers: bool = False
) -> Earlier | None:
    """The earlier line that computes the same as this one; None if there is none, or it is not certain.

    `as_module`: the work of this line is in a module that it calls, and that is no loss. `plain_layers`: torch's own layers of the model
    are known, and none draws random numbers.
    """
    function = function_at(sources, file, line)
    statement = None if function is None else statement_at(function, line)
    if function is None or statement is None:
        return None
    known = {b.name for b in bindings(function)} | {*parameters(function)}
    scope = Scope(Module.of(sources, file), function, dict.fromkeys(known, True), rounds="passes")
    if as_module and any(_varies(source, plain_layers) for source in sources):
        return None
    around, earlier = _contexts(function, statement), [*_before(function, statement)]
    changing = _changing(around)
    for work in _works(scope, statement, as_module=as_module):
        wanted = ast.dump(work)
        for one in earlier:
            same = any(ast.dump(node) == wanted for part in computed(one) for node in ast.walk(part))
            if same and _changing(_contexts(function, one)) == changing and not _changed(scope, one, statement, work):
                return Earlier(one.lineno, recorded=not _without_gradients(around, statement, work))
    return None


def _works(scope: Scope, statement: ast.stmt, *, as_module: bool) -> Iterator[ast.expr]:
    """Yields the expressions beside which the statement computes little, the largest first, if they give the same for the same values."""
    nodes = [node for part in computed(statement) for node in ast.walk(part) if isinstance(node, ast.expr)]
    if as_module:
        modules = [node for node in nodes if isinstance(node, ast.Call) and _may_be_module(scope, node)]
        given = [part for call in modules for part in (*call.args, *(keyword.value for keyword in call.keywords))]
        yield from (modules if len(modules) == 1 and all(map(scope.same, given)) else ())
        return
    works = [node for node in nodes if isinstance(node, ast.Call) or _multiplies(node)]
    heavy = [node for node in works if not (isinstance(node, ast.Call) and last_name(node.func) in _LIGHT)]
    for node in heavy:
        if scope.same(node) and {*heavy} <= {*ast.walk(node)}:
            yield node


def _multiplies(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _may_be_module(scope: Scope, call: ast.Call) -> bool:
    """True for `model(x)` and `self.encoder(x)`: no loss, no method of its result, no function of a file or package."""
    name = last_name(call.func)
    of_result = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, (ast.Call, ast.BinOp, ast.Compare))
    known = of_result or name in _LIGHT or _LOSS.search(name) is not None or bool(scope.full_name(call.func))
    found = scope.definition(call.func)
    return bool(call.args) and not known and (found is None or getattr(found[1], "name", "") == "forward")


def _changes_itself(module: ast.ClassDef) -> bool:
    forward = methods(module)["forward"]
    calls = (node.func for node in guarded(forward) if isinstance(node, ast.Call))
    in_place = any(is_in_place(last_name(of)) and "self" in names(of) for of in calls)
    return in_place or any(b.name == "self" for b in bindings(forward))


@functools.lru_cache(maxsize=256)
def _varies(source: Source, plain_layers: bool) -> bool:
    """True if a module of this file may draw random numbers, or changes itself in its forward pass."""
    tree = function_at((source,), source.path, 0)
    modules = [] if tree is None else [each for each in classes(tree) if "forward" in methods(each)]
    if any(map(_changes_itself, modules)):
        return True
    found = [
        (method.name.startswith(_MAKING), ast.get_source_segment(source.text, method) or "")
        for each in modules
        for method in methods(each).values()
    ]
    return tree is None or any(
        (_MADE_TO_DRAW if making else _DRAWS).search(_LAYERS.sub("(", text) if plain_layers else text)
        for making, text in found
    )


def _before(function: ast.AST, statement: ast.stmt) -> Iterator[ast.stmt]:
    """Statements that have run whenever this one runs, the latest first; none from before a loop around it."""
    body = getattr(function, "body", [])
    found = list[ast.stmt]()
    while statement not in body:
        at = next((n for n, each in enumerate(body) if statement in guarded(each)), None)
        if at is None:
            return
        found += _always(body[:at])
        if isinstance(body[at], (ast.For, ast.AsyncFor, ast.While)):
            found.clear()
        body = next(
            block
            for block in _blocks(body[at])
            if any(statement is each or statement in guarded(each) for each in block)
        )
    yield from reversed(found + _always(body[: body.index(statement)]))


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    inner = [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
    return [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")] + [each.body for each in inner]


def _always(block: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements of a block that always run, also those within `with`."""
    found = list[ast.stmt]()
    for each in block:
        found += _always(each.body) if isinstance(each, (ast.With, ast.AsyncWith)) else [each]
    return found


def _contexts(function: ast.AST, statement: ast.stmt) -> list[str]:
    """What the `with` blocks around a statement enter."""
    blocks = (node for node in guarded(function) if isinstance(node, (ast.With, ast.AsyncWith)))
    return sorted(ast.unparse(i.context_expr) for block in blocks if statement in guarded(block) for i in block.items)


def _changing(contexts: Sequence[str]) -> list[str]:
    return [context for context in contexts if not _GRADIENTS.search(context)]


def _without_gradients(contexts: Sequence[str], statement: ast.stmt, work: ast.expr) -> bool:
    """True if nothing of the result of the work can reach a backward pass, as far as the statement shows."""
    calls = (node for part in computed(statement) for node in ast.walk(part) if isinstance(node, ast.Call))
    ends = any(last_name(call.func) in _ENDS_GRADIENTS for call in calls if work in ast.walk(call))
    return ends or any(map(_NO_GRADIENTS.search, contexts))


def _changed(scope: Scope, earlier: ast.stmt, later: ast.stmt, work: ast.expr) -> bool:
    """True if something that the work uses may have another value at the later statement."""
    used = names(work)
    between = [
        node
        for node in guarded(scope.function)
        if isinstance(node, ast.stmt) and earlier.lineno <= node.lineno < later.lineno and later not in guarded(node)
    ]
    bound = {b.name for node in between for b in bindings(ast.Module(body=[node], type_ignores=[]))}
    calls = [
        node for each in between for part in computed(each) for node in ast.walk(part) if isinstance(node, ast.Call)
    ]
    other = [call for call in calls if ast.dump(call) != ast.dump(work)]
    return bool(bound & used) or any(_may_change(scope, call, used) for call in other)


def _may_change(scope: Scope, call: ast.Call, used: Set[str]) -> bool:
    """True for a call that may change a tensor in place, or a model's parameters or mode."""
    name = last_name(call.func)
    given = {word for part in (*call.args, *(keyword.value for keyword in call.keywords)) for word in names(part)}
    if name.endswith("_") and given & used:
        return True
    if scope.full_name(call.func):
        return False
    unknown = isinstance(call.func, ast.Attribute) and not (call.args or call.keywords) and name not in _HARMLESS
    return unknown or _CHANGES.search(name) is not None
