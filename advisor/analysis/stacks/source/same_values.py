"""Decides by the source whether an expression has the same value each time: in every step, in every round of a loop, for every item.

What cannot be decided counts as different. The shape, type and device of a batch's tensors count as the same.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.analysis.stacks.source.written_names import (
    bindings,
    carried,
    changed_globals,
    changed_on_objects,
    class_around,
    class_named,
    class_of,
    classes,
    computed,
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
    touches,
    used_as_object,
)
from rn50_advisor.advisor.model.recording import Source

Entered = Literal["called", "as a module", "otherwise"]
# What is compared: the steps of a training loop, the rounds of a loop within a forward pass, or the items of a data set. From round to
# round and from item to item the same object has the same parameters, but a method may run on another object.
Rounds = Literal["steps", "passes", "items"]
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_KNOWN = """
    range len int float bool str min max sum abs list tuple set dict zip enumerate sorted reversed round divmod pow slice frozenset bytes
    ord chr any all
"""
_BUILT_IN = frozenset(_KNOWN.split())
# Packages whose functions give the same for the same arguments, except in these parts and under these names.
_PACKAGES = """
    bisect collections copy cv2 einops functools itertools json librosa math numpy operator re scipy skimage string torch torchaudio
    torchvision unicodedata
"""
_PURE = frozenset(_PACKAGES.split())
_CONTAINERS = ("Counter", "OrderedDict")
_IMPURE_PARTS = frozenset(("random", "distributed", "distributions", "cuda", "io", "utils"))
_DRAW_OR_READ = """
    bernoulli fromfile get_rng_state gumbel_softmax imread load manual_seed memmap multinomial normal poisson rrelu save seed
"""
_IMPURE = frozenset(_DRAW_OR_READ.split())
_DRAW_OR_READ_BEGIN = ("from_file", "genfromtxt", "load", "open", "rand", "read", "rvs")
# Methods of lists, dictionaries and sets that add what they are given: what these change is tracked as well.
_GROWING = ("add", "append", "extend", "insert", "setdefault", "update")
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
    count encode endswith find format get index isalpha isdigit join lower lstrip maketrans replace rstrip splitlines startswith strip title
    translate upper zfill
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


@dataclass(frozen=True, slots=True)
class Module:
    """A file of the user's code."""

    tree: ast.AST
    sources: tuple[Source, ...] = ()

    @classmethod
    def of(cls, sources: Sequence[Source], file: str) -> Module:
        tree = function_at(sources, file, 0)
        assert tree is not None  # it has a function that was found
        return cls(tree, tuple(sources))

    def full_name(self, name: str) -> str:
        """What an imported name stands for (`np`: numpy); empty for all other names."""
        return imports(self.tree).get(name, "")

    def function(self, name: str) -> tuple[Module, ast.AST] | None:
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

    def forward_of(self, name: str) -> tuple[Module, ast.AST] | None:
        """The forward pass of the user's class of this name, in whichever file it is."""
        for source in self.sources:
            tree = function_at(self.sources, source.path, 0)
            around = None if tree is None else class_named(tree, name)
            forward = None if around is None else methods(around).get("forward")
            if tree is not None and forward is not None:
                return replace(self, tree=tree), forward
        return None

    def family(self, name: str) -> tuple[ast.ClassDef, ...]:
        """The user's classes of this name, those that they inherit from, and those that inherit from them."""
        return _family(self.tree, self.sources, name)

    def changes(self, name: str) -> bool:
        """True for an attribute or a global name of any file that is changed from outside of its object or module."""
        trees = (self.tree, *(tree for s in self.sources if (tree := function_at(self.sources, s.path, 0)) is not None))
        return any(name in changed_on_objects(tree) or name in changed_globals(tree) for tree in trees)

    def is_data(self, name: str) -> bool:
        """True for a name of the file that is assigned once, and to data, and that no function changes."""
        if name in changed_globals(self.tree):
            return False
        if name in imports(self.tree):
            return True
        return sum(b.name == name for b in bindings(self.tree)) == 1 and not used_as_object(self.tree, name)


@functools.lru_cache(maxsize=256)
def _family(tree: ast.AST, sources: tuple[Source, ...], name: str) -> tuple[ast.ClassDef, ...]:
    trees = [tree, *(found for s in sources if (found := function_at(sources, s.path, 0)) not in (None, tree))]
    known = [cls for each in trees if each is not None for cls in classes(each)]
    bases = {cls.name: {last_name(base) for base in cls.bases} for cls in known}
    above, below = {name}, {name}
    for _ in range(_DEPTH_MAX):
        above |= {base for each in above for base in bases.get(each, ())}
        below |= {each for each, of in bases.items() if of & below}
    return tuple(cls for cls in known if cls.name in above | below)


@dataclass(frozen=True, slots=True)
class Scope:
    """A call of a function. `names`: True for names that have the same value each time."""

    module: Module
    function: ast.AST
    names: Mapping[str, bool] = field(default_factory=dict)
    depth: int = 0
    rounds: Rounds = "steps"

    def entered(self, module: Module, function: ast.AST, calls: Sequence[ast.Call], how: Entered) -> Scope:
        """The scope of a function that one of these calls enters; nothing is known of its parameters if it was entered otherwise."""
        each = [] if how == "otherwise" else [self._at(call)._given(function, call) for call in calls]
        given = {name: all(one.get(name, False) for one in each) for name in (each[0] if each else ())}
        own = dict.fromkeys((b.name for b in bindings(function)), True)
        of_call = {name: given.get(name, False) for name in parameters(function)}
        if self.rounds != "steps" and "self" in of_call:  # each of several layers has weights of its own
            making = getattr(function, "name", "") == "__init__" and how == "called"
            of_call["self"] = bool(each) and (making or all(self._same_receiver(call, how) for call in calls))
        return Scope(module, function, own | of_call, self.depth + 1, self.rounds).settled(function)

    def settled(self, within: ast.AST) -> Scope:
        """What is made of something that differs from step to step differs, too."""
        scope = self
        while True:
            different = {b.name for b in bindings(within) if scope.names.get(b.name) and not all(map(scope.same, b.of))}
            if not different:
                return scope
            scope = replace(scope, names={**scope.names, **dict.fromkeys(different, False)})

    def _same_receiver(self, call: ast.Call, how: Entered) -> bool:
        """True if the object that a call enters is the same in every round: a module that is called, or what the method is called on."""
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(of, ast.Call) and last_name(of.func) == "super":
            return self.names.get("self", False)
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
        own = places[:1] in (["self"], ["cls"])
        given |= zip(places[own:], map(self.same, call.args), strict=False)
        return given | {k.arg: self.same(k.value) for k in call.keywords if k.arg}

    def calls_of(self, line: int, entry: Entry, of: ast.ClassDef | None) -> list[ast.Call]:
        """The calls in the statement at a line that may enter this function, a method of the class `of` if there is one."""
        statement = statement_at(self.function, line)
        parts = [] if statement is None else computed(statement)
        calls = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)]
        name = entry.function.rpartition(".")[2]
        made = {name, of.name} if of is not None and name == "__init__" else {name}
        found = [call for call in calls if last_name(call.func) in made]
        if found or entry.entered != "as a module":
            return found
        known, around = _METHODS | _BUILT_IN | _CALLS_OF_SHAPE, class_around(self.module.tree, self.function)
        found = [c for c in calls if not self.full_name(c.func) and last_name(c.func) not in known]
        of_class = [c for c in found if around and of and class_of(around, c.func) == of.name]
        return of_class or found

    def always_at(self, line: int, within: ast.AST | None = None) -> bool:
        """True if whether the statement at a line runs is the same in every round; `within`: only what decides it there counts."""
        statement = statement_at(self.function, line)
        around = guarded(self.function if within is None else within)
        return statement is not None and all(map(self.same, around.get(statement, ())))

    def same_at(self, line: int) -> bool:
        """True if all that the statement at a line computes is the same each time that it runs.

        Within a pass, of no loop's head, which goes on with each round.
        """
        statement = statement_at(self.function, line)
        if self.rounds == "passes" and isinstance(statement, LOOPS):
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
        if (node.attr in _OF_SHAPE and not self._has_own_shape(node.value)) or self.full_name(node):
            return True
        around = class_around(self.module.tree, self.function)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            known = around is not None and (self.rounds == "steps" or self.names.get("self", False))
            return known and around is not None and self._is_kept(around, node.attr)
        if node.attr == "grad" or self.module.changes(node.attr):
            return False
        of_class = class_named(self.module.tree, node.value.id) if isinstance(node.value, ast.Name) else None
        return self._is_kept(of_class, node.attr) if of_class is not None else self.same(node.value)

    def _is_kept(self, around: ast.ClassDef, name: str) -> bool:
        """True for an attribute that is data and that nothing changes, wherever in the class's family it is set."""
        setters = [cls for cls in self.module.family(around.name) if touches(cls, name)]
        once = self.rounds != "steps"
        return (
            bool(setters)
            and all(is_kept(cls, name) or (once and is_set_once(cls, name)) for cls in setters)
            and not self.module.changes(name)
        )

    def same_arguments(self, call: ast.Call) -> bool:
        return all(map(self._at(call).same, (*call.args, *(k.value for k in call.keywords))))

    def _at(self, call: ast.Call) -> Scope:
        """This scope with what the comprehensions around a call go through."""
        around = [n for n in guarded(self.function) if isinstance(n, _COMPREHENSIONS) and call in ast.walk(n)]
        # what an iterable itself calls runs before the names exist
        before = (itertools.takewhile(lambda g: call not in ast.walk(g.iter), each.generators) for each in around)
        return functools.reduce(Scope.within, itertools.chain.from_iterable(before), self)

    def within(self, generator: ast.comprehension) -> Scope:
        bound = dict.fromkeys(names(generator.target), self.same(generator.iter))
        return replace(self, names={**self.names, **bound})

    def gives_same(self, calls: Sequence[ast.Call], inside: Scope) -> bool:
        """True if what these calls return is the same each time. `inside`: the scope of the function that they enter."""
        if not calls or all(map(self.same, calls)):
            return bool(calls)
        return all(map(self.same_arguments, calls)) and inside.returns_same()

    def _same_call(self, node: ast.Call) -> bool:
        name, full = last_name(node.func), self.full_name(node.func)
        arguments = [*node.args, *(k.value for k in node.keywords)]
        if name in _LIKE or (name == "len" and not full):
            return not any(map(self._has_own_shape, arguments[:1])) and all(map(self.same, arguments[1:]))
        if not all(map(self.same, arguments)):
            return False
        if full:
            odd = (name[:1].isupper() and name not in _CONTAINERS) or name.startswith(_DRAW_OR_READ_BEGIN)
            odd |= "dropout" in name or name in _IMPURE
            return not odd and _IMPURE_PARTS.isdisjoint(full.split("."))
        if isinstance(node.func, ast.Name) and name in _BUILT_IN and name not in self.names:
            return True
        plain = self.rounds != "steps" and self.is_plain_layer(node.func)
        return plain or self._same_method(node.func) or self._same_own_function(node)

    def _has_own_shape(self, node: ast.expr) -> bool:
        """True for what may have another shape each time: batches are mostly of one, items are not."""
        return self.rounds == "items" and not self.same(node)

    def is_plain_layer(self, function: ast.expr) -> bool:
        """True for a layer of torch that computes its output from its input and its parameters alone."""
        around = class_around(self.module.tree, self.function)
        return around is not None and class_of(around, function) in _PLAIN_LAYERS

    def _same_method(self, function: ast.expr) -> bool:
        if not isinstance(function, ast.Attribute):
            return False
        if function.attr in _CALLS_OF_SHAPE:
            return not self._has_own_shape(function.value)
        return (function.attr.removesuffix("_") in _METHODS or function.attr in _GROWING) and self.same(function.value)

    def _same_own_function(self, node: ast.Call) -> bool:
        """True for a function of the user's that computes what it returns from nothing else."""
        found = self.definition(node.func) if self.depth < _DEPTH_MAX else None
        if found is None:
            return False
        module, function = found
        return self.entered(module, function, [node], "called").returns_same()

    def returns_same(self) -> bool:
        """True if what the function returns, or what `__init__` sets, is the same for these parameters."""
        made = ast.Assign if getattr(self.function, "name", "") == "__init__" else ast.Return
        giving = {n: n.value for n in guarded(self.function) if isinstance(n, made) and n.value is not None}
        decided = [part for n, value in giving.items() for part in (value, *guarded(self.function)[n])]
        return bool(giving) and all(map(self.same, decided))

    def definition(self, function: ast.expr) -> tuple[Module, ast.AST] | None:
        if isinstance(function, ast.Name) and function.id not in self.names:
            return self.module.function(function.id)
        of = function.value if isinstance(function, ast.Attribute) else None
        around = class_around(self.module.tree, self.function) if isinstance(of, ast.Name) and of.id == "self" else None
        method = None if around is None else methods(around).get(last_name(function))
        if method is None and around is not None and self.rounds == "passes":
            return self.module.forward_of(class_of(around, function))
        return None if method is None else (self.module, method)

    def _same_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> bool:
        scope, parts = self, list[ast.expr]()
        for generator in node.generators:
            scope = scope.within(generator)
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
def loop_scope(module: Module, function: ast.AST, loop: ast.stmt, *, rounds: Rounds = "steps") -> Scope:
    """The function with the loop. Data that the loop does not change is the same in every step, or in every round of it."""
    inner = {b.name: b.new for b in bindings(loop)}
    outer = {b.name for b in bindings(function)} | {*parameters(function)}
    different = carried(loop) | (names(loop.target) if isinstance(loop, (ast.For, ast.AsyncFor)) else set())
    different |= {
        name
        for node in guarded(loop)
        if isinstance(node, ast.Call)
        for name in changed_by(module, function, node, rounds=rounds)
    }
    known = {name: not used_as_object(function, name) for name in outer - {*inner}}
    return Scope(module, function, known | inner | dict.fromkeys(different, False), rounds=rounds).settled(loop)


def changed_by(module: Module, function: ast.AST, call: ast.Call, *, rounds: Rounds = "steps") -> set[str]:
    """Names of data that a call is given and may change in place: of the user's functions by their source, and of unknown methods all."""
    handed = {value.id for value in (*call.args, *(k.value for k in call.keywords)) if isinstance(value, ast.Name)}
    scope = Scope(module, function, rounds=rounds)
    definition = scope.definition(call.func) if handed else None
    if definition is None and rounds != "steps" and scope.is_plain_layer(call.func):
        return set()
    if definition is None:
        method = isinstance(call.func, ast.Attribute) and call.func.attr.removesuffix("_") not in _METHODS
        return handed if method and not scope.full_name(call.func) else set()
    changed = {b.name for b in bindings(definition[1]) if not b.new}
    places = [name for name in parameters(definition[1]) if name != "self"]
    pairs = [*zip(places, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
    return {value.id for name, value in pairs if isinstance(value, ast.Name) and name in changed}
