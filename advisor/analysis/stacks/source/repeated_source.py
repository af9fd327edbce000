"""Decides by the source whether a line computes the same in every step: from nothing of the batch, the parameters, random numbers or
earlier steps. Or in every round of a loop within a forward pass, in which the parameters are the same.

What cannot be decided counts as different in every step. The shape, type and device of a tensor count as the same.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal

from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.analysis.stacks.source.written_names import (
    bindings,
    carried,
    class_around,
    class_named,
    class_of,
    computed,
    covers,
    definitions,
    guarded,
    imports,
    is_kept,
    is_set_once,
    last_name,
    methods,
    names,
    parameters,
    statement_at,
    used_as_object,
)
from rn50_advisor.advisor.model.recording import Source

Entered = Literal["called", "as a module", "otherwise"]
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_KNOWN = """
    range len int float bool str min max sum abs list tuple set dict zip enumerate sorted reversed round divmod pow slice
"""
_BUILT_IN = frozenset(_KNOWN.split())
# Packages whose functions give the same for the same arguments, except in these parts and under these names.
_PURE = ("torch", "numpy", "math", "scipy", "itertools", "einops", "torchaudio", "torchvision", "librosa", "cv2")
_IMPURE_PARTS = frozenset(("random", "distributed", "distributions", "cuda", "io", "utils"))
_DRAW_OR_READ = """
    bernoulli fromfile get_rng_state gumbel_softmax imread load manual_seed memmap multinomial normal poisson rrelu save seed
"""
_IMPURE = frozenset(_DRAW_OR_READ.split())
_OF_SHAPE = ("shape", "device", "dtype", "ndim", "is_cuda", "layout", "itemsize", "nbytes")
_NEW = ("new_zeros", "new_ones", "new_full", "new_empty")
_CALLS_OF_SHAPE = frozenset(("size", "dim", "numel", "stride", "element_size", "get_device", "ndimension", *_NEW))
_LIKE = ("zeros_like", "ones_like", "full_like", "empty_like")
# Methods of tensors, arrays and numbers, also in place: what these change is tracked where it is named.
_COMPUTE = """
    abs add all amax amin any argmax argmin argsort astype bmm bool byte ceil chunk clamp clip clone coalesce contiguous copy cos cosh cpu
    cumprod cumsum detach diag diag_embed diagonal div dot double eq exp expand fill fill_diagonal flatten flip float floor gather ge gt
    half index_fill index_select int inverse isfinite isnan item items keys le log long lt masked_fill matmul max mean min mm movedim mul
    ne neg nonzero norm numpy outer permute pin_memory pow prod pinverse ravel reciprocal relu remainder repeat repeat_interleave reshape
    roll round rsqrt scatter scatter_add select sigmoid sign sin sinh softmax sort split sqrt square squeeze std sub sum t tan tanh tile to
    to_dense to_sparse to_sparse_csr tolist topk transpose tril triu type type_as unbind unfold unique unsqueeze values var view where zero
"""
_METHODS = frozenset(_COMPUTE.split())
# Layers whose output depends on nothing but their input and parameters.
_PLAIN = """
    Linear Bilinear Embedding Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d LayerNorm RMSNorm GroupNorm Identity Flatten Unflatten
    ReLU LeakyReLU PReLU ELU GELU SELU SiLU Mish Sigmoid Tanh Softplus Softmax LogSoftmax AvgPool1d AvgPool2d MaxPool1d MaxPool2d Upsample
"""
_PLAIN_LAYERS = frozenset(_PLAIN.split())
_DEPTH_MAX = 4  # functions called within each other


@dataclass(frozen=True, slots=True)
class Entry:
    """A function of the user's in which a stack is, and how the one before it entered it."""

    file: str
    line: int
    function: str
    entered: Entered


def repeated_work(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> Entry | None:
    """Where the work of a stack's innermost line could be done once for all steps, as far out as possible; None if it could not.

    `entries`: the stack, outermost first. `backwards`: lines that lead to the backward pass, by file and function.
    """
    for n in reversed(range(len(entries))):
        entry = entries[n]
        function, lines = function_at(sources, entry.file, entry.line), backwards.get((entry.file, entry.function))
        loop = None if function is None or not lines else _training_loop(function, entry.line, lines)
        if function is not None and loop is not None:
            return _repeated(sources, entries[n:], _loop_scope(_Module.of(sources, entry.file), function, loop))
    return None


def repeated_in_loop(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> Entry | None:
    """Where the work of a stack's innermost line could be done once before a loop that is no training loop; None if it could not.

    The arguments are those of `repeated_work`.
    """
    for n, function, loop in _inner_loops(sources, entries, backwards):
        scope = _loop_scope(_Module.of(sources, entries[n].file), function, loop, in_pass=True)
        found = _repeated(sources, entries[n:], scope) if scope.always_at(entries[n].line, loop) else None
        if found is not None:
            return found
    return None


def called_in_loop(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> bool:
    """True if a stack is in a loop that is no training loop, and that calls the same in each round: not each of several layers."""
    for n, function, loop in _inner_loops(sources, entries, backwards):
        turns = names(loop.target) if isinstance(loop, (ast.For, ast.AsyncFor)) else set()
        statement = statement_at(function, entries[n].line)
        parts = [] if statement is None else computed(statement)
        called = [node.func for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)]
        if not any(names(each) & turns for each in called):
            return True
    return False


def _inner_loops(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> Iterator[tuple[int, ast.AST, ast.stmt]]:
    """Yields (number of the entry, its function, loop around its line) for loops that lead to no backward pass, the outermost first.

    Without those of generators: what takes from them may train in between.
    """
    for n, entry in enumerate(entries):
        function = function_at(sources, entry.file, entry.line)
        if function is None:
            continue
        lines = backwards.get((entry.file, entry.function), ())
        around = (
            []
            if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in guarded(function))
            else _loops_at(function, entry.line)
        )
        yield from ((n, function, loop) for loop in around if not any(covers(loop, line) for line in lines))


def _repeated(sources: Sequence[Source], entries: Sequence[Entry], scope: _Scope) -> Entry | None:
    place: Entry | None = None
    for before, entry in itertools.pairwise(entries):
        function = function_at(sources, entry.file, entry.line)
        if function is None:
            return None
        if function is not scope.function:  # a comprehension is a frame of its own in the same function
            module = _Module.of(sources, entry.file)
            calls = scope.calls_of(before.line, entry, class_around(module.tree, function))
            place = place or (before if calls and all(map(scope.same, calls)) else None)
            scope = scope.entered(module, function, calls, entry.entered)
            if scope.in_pass and not scope.always_at(entry.line):
                return None
    return (place or entries[-1]) if scope.same_at(entries[-1].line) else None


def _loops_at(function: ast.AST, line: int) -> list[ast.stmt]:
    """Loops with this line in their body, the outermost first."""
    return [n for n in guarded(function) if isinstance(n, _LOOPS) and covers(n, line) and n.body[0].lineno <= line]


def _training_loop(function: ast.AST, line: int, backwards: Set[int]) -> ast.stmt | None:
    around = [loop for loop in _loops_at(function, line) if any(covers(loop, backward) for backward in backwards)]
    return max(around, key=lambda loop: loop.lineno, default=None)


@dataclass(frozen=True, slots=True)
class _Module:
    """A file of the user's code."""

    tree: ast.AST
    sources: tuple[Source, ...] = ()

    @classmethod
    def of(cls, sources: Sequence[Source], file: str) -> _Module:
        tree = function_at(sources, file, 0)
        assert tree is not None  # it has a function that was found
        return cls(tree, tuple(sources))

    def full_name(self, name: str) -> str:
        """What an imported name stands for (`np`: numpy); empty for all other names."""
        return imports(self.tree).get(name, "")

    def function(self, name: str) -> tuple[_Module, ast.AST] | None:
        """The function of this name in this file, or in the one from which it is imported."""
        found = definitions(self.tree).get(name)
        if found is not None:
            return self, found
        package, _, original = self.full_name(name).rpartition(".")
        file = package.replace(".", "/") + ".py"
        for source in self.sources if original else ():
            tree = function_at(self.sources, source.path, 0) if source.path.endswith("/" + file) else None
            found = None if tree is None else definitions(tree).get(original)
            if tree is not None and found is not None:
                return replace(self, tree=tree), found
        return None

    def forward_of(self, name: str) -> tuple[_Module, ast.AST] | None:
        """The forward pass of the user's class of this name, in whichever file it is."""
        for source in self.sources:
            tree = function_at(self.sources, source.path, 0)
            around = None if tree is None else class_named(tree, name)
            forward = None if around is None else methods(around).get("forward")
            if tree is not None and forward is not None:
                return replace(self, tree=tree), forward
        return None

    def is_data(self, name: str) -> bool:
        """True for a name of the file that is assigned once, and to data."""
        if name in imports(self.tree):
            return True
        return sum(b.name == name for b in bindings(self.tree)) == 1 and not used_as_object(self.tree, name)


@dataclass(frozen=True, slots=True)
class _Scope:
    """A call of a function. `names`: True for names that have the same value in every step, or `in_pass`, in every round of a loop."""

    module: _Module
    function: ast.AST
    names: Mapping[str, bool] = field(default_factory=dict)
    depth: int = 0
    in_pass: bool = False

    def entered(self, module: _Module, function: ast.AST, calls: Sequence[ast.Call], how: Entered) -> _Scope:
        """The scope of a function that one of these calls enters; nothing is known of its parameters if it was entered otherwise."""
        each = [] if how == "otherwise" else [self._given(function, call) for call in calls]
        given = {name: all(one.get(name, False) for one in each) for name in (each[0] if each else ())}
        own = dict.fromkeys((b.name for b in bindings(function)), True)
        of_call = {name: given.get(name, False) for name in parameters(function)}
        if self.in_pass and "self" in of_call:  # each of several layers has weights of its own
            of_call["self"] = bool(each) and all(self._same_receiver(call, how) for call in calls)
        return _Scope(module, function, own | of_call, self.depth + 1, self.in_pass).settled(function)

    def settled(self, within: ast.AST) -> _Scope:
        """What is made of something that differs from step to step differs, too."""
        scope = self
        while True:
            different = {b.name for b in bindings(within) if scope.names.get(b.name) and not all(map(scope.same, b.of))}
            if not different:
                return scope
            scope = replace(scope, names={**scope.names, **dict.fromkeys(different, False)})

    def _same_receiver(self, call: ast.Call, how: Entered) -> bool:
        """True if the object that a call enters is the same in every round: a module that is called, or what the method is called on."""
        around = class_around(self.module.tree, self.function)
        itself = how == "as a module" or (around is not None and bool(class_of(around, call.func)))
        return self.same(call.func.value if isinstance(call.func, ast.Attribute) and not itself else call.func)

    def _given(self, function: ast.AST, call: ast.Call) -> dict[str, bool]:
        """The parameters of a function for this call; those that it leaves out have their defaults."""
        arguments = getattr(function, "args", None)
        unpacked = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
        if arguments is None or unpacked:
            return {}
        places = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        given = dict.fromkeys(parameters(function), True)
        given |= zip(places[places[:1] == ["self"] :], map(self.same, call.args), strict=False)
        return given | {k.arg: self.same(k.value) for k in call.keywords if k.arg}

    def calls_of(self, line: int, entry: Entry, of: ast.ClassDef | None) -> list[ast.Call]:
        """The calls in the statement at a line that may enter this function, a method of the class `of` if there is one."""
        statement = statement_at(self.function, line)
        parts = [] if statement is None else computed(statement)
        calls = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)]
        found = [call for call in calls if last_name(call.func) == entry.function.rpartition(".")[2]]
        if found or entry.entered != "as a module":
            return found
        known, around = _METHODS | _BUILT_IN | _CALLS_OF_SHAPE, class_around(self.module.tree, self.function)
        found = [c for c in calls if not self.full_name(c.func) and last_name(c.func) not in known]
        made = [c for c in found if around and of and class_of(around, c.func) == of.name]
        return made or found

    def always_at(self, line: int, within: ast.AST | None = None) -> bool:
        """True if whether the statement at a line runs is the same in every round; `within`: only what decides it there counts."""
        statement = statement_at(self.function, line)
        around = guarded(self.function if within is None else within)
        return statement is not None and all(map(self.same, around.get(statement, ())))

    def same_at(self, line: int) -> bool:
        """True if all that the statement at a line computes is the same in every step in which it runs; `in_pass`, of no loop's head, which
        goes on with each round.
        """
        statement = statement_at(self.function, line)
        if self.in_pass and isinstance(statement, _LOOPS):
            return False
        parts = [] if statement is None else computed(statement)
        return bool(parts) and all(map(self.same, parts))

    def same(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            known = self.names.get(node.id)
            return known if known is not None else node.id in _BUILT_IN or self.module.is_data(node.id)
        if isinstance(node, ast.Attribute):
            return self._same_attribute(node)
        if isinstance(node, ast.Call):
            return self._same_call(node)
        if isinstance(node, _COMPREHENSIONS):
            return self._same_comprehension(node)
        if isinstance(node, (ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
            return False
        children = (
            getattr(child, "value", child) if isinstance(child, ast.FormattedValue) else child
            for child in ast.iter_child_nodes(node)
        )
        return all(self.same(child) for child in children if isinstance(child, ast.expr))

    def _same_attribute(self, node: ast.Attribute) -> bool:
        if node.attr in _OF_SHAPE or self.full_name(node):
            return True
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            around = class_around(self.module.tree, self.function)
            if around is None or (self.in_pass and not self.names.get("self", False)):
                return False
            return is_kept(around, node.attr) or (self.in_pass and is_set_once(around, node.attr))
        return node.attr != "grad" and self.same(node.value)

    def _same_call(self, node: ast.Call) -> bool:
        name, full = last_name(node.func), self.full_name(node.func)
        arguments = [*node.args, *(k.value for k in node.keywords)]
        if name in _LIKE or (name == "len" and not full):
            return all(map(self.same, arguments[1:]))
        if not all(map(self.same, arguments)):
            return False
        if full:
            odd = name[:1].isupper() or name.startswith("rand") or "dropout" in name or name in _IMPURE
            return not odd and _IMPURE_PARTS.isdisjoint(full.split("."))
        if isinstance(node.func, ast.Name) and name in _BUILT_IN and name not in self.names:
            return True
        if self.in_pass and self.is_plain_layer(node.func):
            return True
        return name in _CALLS_OF_SHAPE or self._same_method(node.func) or self._same_own_function(node)

    def is_plain_layer(self, function: ast.expr) -> bool:
        """True for a layer of torch that computes its output from its input and its parameters alone."""
        around = class_around(self.module.tree, self.function)
        return around is not None and class_of(around, function) in _PLAIN_LAYERS

    def _same_method(self, function: ast.expr) -> bool:
        known = isinstance(function, ast.Attribute) and function.attr.removesuffix("_") in _METHODS
        return known and isinstance(function, ast.Attribute) and self.same(function.value)

    def _same_own_function(self, node: ast.Call) -> bool:
        """True for a function of the user's that computes what it returns from nothing else."""
        found = self.definition(node.func) if self.depth < _DEPTH_MAX else None
        if found is None:
            return False
        module, function = found
        scope = self.entered(module, function, [node], "called")
        returns = [n for n in guarded(function) if isinstance(n, ast.Return) and n.value is not None]
        decided = [part for n in returns for part in (*computed(n), *guarded(function)[n])]
        return bool(returns) and all(map(scope.same, decided))

    def definition(self, function: ast.expr) -> tuple[_Module, ast.AST] | None:
        if isinstance(function, ast.Name) and function.id not in self.names:
            return self.module.function(function.id)
        of = function.value if isinstance(function, ast.Attribute) else None
        around = class_around(self.module.tree, self.function) if isinstance(of, ast.Name) and of.id == "self" else None
        method = None if around is None else methods(around).get(last_name(function))
        if method is None and around is not None and self.in_pass:
            return self.module.forward_of(class_of(around, function))
        return None if method is None else (self.module, method)

    def _same_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> bool:
        scope, parts = self, list[ast.expr]()
        for generator in node.generators:
            bound = dict.fromkeys(names(generator.target), scope.same(generator.iter))
            scope = replace(scope, names={**scope.names, **bound})
            parts += [generator.iter, *generator.ifs]
        parts += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return all(map(scope.same, parts))

    def full_name(self, node: ast.expr) -> str:
        """The full name of a function or a constant of a known package (`numpy.linalg.norm`); empty for everything else."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        package = self.module.full_name(node.id) if isinstance(node, ast.Name) and node.id not in self.names else ""
        return ".".join((package, *reversed(parts))) if package.split(".")[0] in _PURE else ""


@functools.lru_cache(maxsize=64)
def _loop_scope(module: _Module, function: ast.AST, loop: ast.stmt, *, in_pass: bool = False) -> _Scope:
    """The function with the loop. Data that the loop does not change is the same in every step, or in every round of it."""
    inner = {b.name: b.new for b in bindings(loop)}
    outer = {b.name for b in bindings(function)} | {*parameters(function)}
    different = carried(loop) | (names(loop.target) if isinstance(loop, (ast.For, ast.AsyncFor)) else set())
    different |= {
        name
        for node in guarded(loop)
        if isinstance(node, ast.Call)
        for name in _changed_by(module, function, node, in_pass=in_pass)
    }
    known = {name: not used_as_object(function, name) for name in outer - {*inner}}
    return _Scope(module, function, known | inner | dict.fromkeys(different, False), in_pass=in_pass).settled(loop)


def _changed_by(module: _Module, function: ast.AST, call: ast.Call, *, in_pass: bool = False) -> set[str]:
    """Names of data that a call is given and may change in place: of the user's functions by their source, and of unknown methods all."""
    handed = {value.id for value in (*call.args, *(k.value for k in call.keywords)) if isinstance(value, ast.Name)}
    scope = _Scope(module, function, in_pass=in_pass)
    definition = scope.definition(call.func) if handed else None
    if definition is None and in_pass and scope.is_plain_layer(call.func):
        return set()
    if definition is None:
        method = isinstance(call.func, ast.Attribute) and call.func.attr.removesuffix("_") not in _METHODS
        return handed if method and not scope.full_name(call.func) else set()
    changed = {b.name for b in bindings(definition[1]) if not b.new}
    places = [name for name in parameters(definition[1]) if name != "self"]
    pairs = [*zip(places, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
    return {value.id for name, value in pairs if isinstance(value, ast.Name) and name in changed}
