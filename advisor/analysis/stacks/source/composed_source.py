"""Finds operations that a function composes of elementary ones although torch has one for the whole: GELU, normalisation, distances.

Names are followed through assignments that only compute elementwise or reduce: `var = x.var(-1, keepdim=True)` belongs to the
normalisation that uses it, while the layer that made `x` does not.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.stacks.source.composed_forms import FORMS, SORTS, takes_few
from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at, names_in, parsed
from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import calls_in, name_of
from rn50_advisor.advisor.model.analysis import ComposedForm
from rn50_advisor.advisor.model.recording import Source
from rn50_advisor.probes.documents.code_places import CodePlace

# What computes one element from another, reduces, or only views a tensor. Other calls end the way back through names.
_ELEMENTARY = re.compile(
    r"abs|add|amax|arange|argsort|clamp|contiguous|cosine_similarity|detach|diag(_embed)?|div|erf|exp|eye|expand(_as)?|flatten|float|log|log_softmax|logsumexp|long|max|maximum|mean|mul|neg"
    r"|norm|normalize|one_hot|permute|pow|reciprocal|relu|relu6|repeat|reshape|rsqrt|sigmoid|size|softmax|sort|sqrt|square|squeeze|std|sub|sum|t"
    r"|tanh|to|transpose|type(_as)?|unfold|unsqueeze|var|vector_norm|view|where|zeros_like"
)
_VIEW = re.compile(r"contiguous|detach|expand(_as)?|flatten|permute|reshape|size|squeeze|t|transpose|unsqueeze|view")
_MULTIVARIATE, _DIAGONALS = "MultivariateNormal", frozenset(("diag", "diag_embed", "eye"))
_DIVERGENCE, _LOSS = re.compile(r"\bKLDivLoss\b|\bkl_div\b"), re.compile(r"kl|criterion|loss", re.IGNORECASE)
_TRANSFORMERS, _MAKE = "transformers", ("", "from_pretrained", "from_config")
_NO_MODELS = ("Tokenizer", "TokenizerFast", "Processor", "Collator", "Trainer", "TrainingArguments")
_SCATTERED = 3  # arguments of `scatter_`: dimension, classes and what they get
_NODES_MAX = 300  # of an expression with its names written out
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Composed:
    """`lines`: all that belong to it. `first`: the first of them that computes, rather than change a shape."""

    form: ComposedForm
    lines: frozenset[int]
    first: int


def composed_at(sources: Sequence[Source], file: str, line: int) -> Composed | None:
    """The operation composed at this line; None if there is none, or if the function's source is not known."""
    function = function_at(sources, file, line)
    found = () if function is None else (*_composed_in(function), *_smoothed_in(sources, file, function))
    return next((each for each in found if line in each.lines), None)


@functools.lru_cache(maxsize=256)  # a live job is analysed each second, with the same functions
def _composed_in(function: ast.AST) -> tuple[Composed, ...]:
    reader = _Reader(_read_whole(function))
    for statement in getattr(function, "body", ()):
        reader.visit(statement)
    return tuple(reader.found)


def _smoothed_in(sources: Sequence[Source], file: str, function: ast.AST) -> tuple[Composed, ...]:
    text = next(source.text for source in sources if source.path == file and not source.edited)
    return _smoothed(function) if _DIVERGENCE.search(text) else ()


@functools.lru_cache(maxsize=256)
def _smoothed(function: ast.AST) -> tuple[Composed, ...]:
    """Divergences from targets that a function fills for all classes by `scatter_`: smoothed labels."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    filled = {
        call.func.value.id
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "scatter_"
        and len(call.args) == _SCATTERED
        and isinstance(call.func.value, ast.Name)
    }
    losses = [call for call in calls if _LOSS.search(ast.unparse(call.func))]
    compared = {arg.id for call in losses for arg in call.args if isinstance(arg, ast.Name)} & filled
    statements = (
        node for node in ast.walk(function) if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return))
    )
    lines = frozenset(
        line
        for node in statements
        if names_in(node) & compared
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    )
    return (Composed("smoothed targets", lines, min(lines)),) if lines else ()


class _Reader(ast.NodeVisitor):
    """Goes through a function's statements in their order, and writes out the names of elementary expressions in the next ones."""

    def __init__(self, whole: Set[str]) -> None:
        self.found: list[Composed] = []
        self._whole = whole
        self._names: dict[str, ast.expr] = {}
        self._searched: dict[int, ast.expr] = {}  # by id: values of names, in which nothing more is to be found

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, _SCOPES):  # each has its own reader
            super().visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self._read(node.value)
        for target in node.targets:
            self._assign(target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self._read(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            whole = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
            self._assign(node.target, self._read(ast.fix_missing_locations(ast.copy_location(whole, node))))

    def visit_Expr(self, node: ast.Expr) -> None:
        self._read(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._read(node.value)

    def _read(self, value: ast.expr) -> ast.expr:
        """The expression with its names written out, after a search for what it composes."""
        whole = self._written_out(value)
        self._search(whole)
        return whole

    def _search(self, node: ast.AST) -> None:
        if id(node) in self._searched:
            return
        for form, matches in FORMS.items() if isinstance(node, ast.expr) else ():
            if matches(node):
                nodes = [each for each in ast.walk(node) if isinstance(each, ast.expr)]
                computing = {each.lineno for each in nodes if _computes(each)}
                self._add(form, {each.lineno for each in nodes}, computing)
                return
        for child in ast.iter_child_nodes(node):
            self._search(child)

    def _add(self, form: ComposedForm, lines: set[int], computing: set[int]) -> None:
        """A longer expression of the same form replaces what is a part of it; the lines of another form stay its own."""
        self.found = [each for each in self.found if each.form != form or not each.lines <= lines]
        own = lines.difference(*(each.lines for each in self.found))
        if own:
            self.found.append(Composed(form, frozenset(own), min(own & computing or own)))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if next(calls_in(value, *SORTS), None) and names_in(target) & self._whole:
            for name in names_in(target):
                self._names.pop(name, None)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for place, each in enumerate(target.elts):
                part = ast.copy_location(ast.Subscript(value, ast.Constant(place), ast.Load()), value)
                self._assign(each, ast.fix_missing_locations(part))
        elif isinstance(target, ast.Name):
            self._names.pop(target.id, None)
            if _is_elementary(value):
                self._names[target.id] = self._searched[id(value)] = value

    def _written_out(self, value: ast.expr) -> ast.expr:
        written: ast.expr = _Names(self._names).visit(deepcopy(value))
        return written if sum(1 for _ in ast.walk(written)) <= _NODES_MAX else value


class _Names(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._names.get(node.id, node)


def is_diagonal(sources: Sequence[Source], file: str) -> bool:
    """True if each multivariate normal distribution made in this file is given the diagonal of its covariance, made a matrix."""
    source = next((source for source in sources if source.path == file and not source.edited), None)
    return source is not None and _made_diagonal(source.text)


@functools.lru_cache(maxsize=32)
def _made_diagonal(text: str) -> bool:
    tree = parsed(text)
    nodes = () if tree is None else tuple(ast.walk(tree))
    made = [node for node in nodes if isinstance(node, ast.Call) and name_of(node) == _MULTIVARIATE]
    diagonal = {
        name
        for node in nodes
        if isinstance(node, ast.Assign) and _is_diagonal(node.value, set())
        for target in node.targets
        for name in [ast.unparse(target)]
    }
    return bool(made) and all(any(_is_diagonal(each, diagonal) for each in _arguments(call)) for call in made)


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _is_diagonal(value: ast.expr, names: set[str]) -> bool:
    return ast.unparse(value) in names or any(name_of(node) in _DIAGONALS for node in ast.walk(value))


def _read_whole(function: ast.AST) -> set[str]:
    """Names that are read otherwise than by their first elements: `order[:, :k]`."""
    read = Counter(
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
    begun = Counter(
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and takes_few(node)
    )
    return {name for name, count in read.items() if count > begun[name]}


def _computes(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) or (isinstance(node, ast.Call) and not _VIEW.fullmatch(name_of(node)))


def _is_elementary(value: ast.expr) -> bool:
    """True if no call in it makes something that is costly or unknown."""
    return all(_ELEMENTARY.fullmatch(name_of(node)) for node in ast.walk(value) if isinstance(node, ast.Call))


def configured_at(sources: Sequence[Source]) -> CodePlace | None:
    """The job's call that configures a model of transformers, else the one that loads it; None if there is none, or several."""
    calls = [(source.path, *call) for source in sources if not source.edited for call in _model_calls(source.text)]
    for configures in (True, False):
        found = {(file, line) for file, line, of in calls if of is configures}
        if len(found) == 1:
            file, line = found.pop()
            return {"file": file, "line": line}
        if found:
            break
    return None


@functools.lru_cache(maxsize=256)
def _model_calls(text: str) -> tuple[tuple[int, bool], ...]:
    """(line, whether it makes a configuration) of calls such as `GPT2Config(...)` and `AutoModel.from_pretrained(...)`."""
    tree, found = parsed(text), []
    nodes = () if tree is None else tuple(ast.walk(tree))
    imported = {
        alias.asname or alias.name
        for node in nodes
        for alias in _imported_from(node)
        if not alias.name.endswith(_NO_MODELS)
    }
    for node in (node for node in nodes if isinstance(node, ast.Call)):
        called = ast.unparse(node.func)
        owner, name = called.removeprefix(f"{_TRANSFORMERS}.").partition(".")[::2]
        known = owner in imported or (called.startswith(_TRANSFORMERS) and not owner.endswith(_NO_MODELS))
        if known and owner[:1].isupper() and name in _MAKE:
            found.append((node.lineno, owner.endswith("Config")))
    return tuple(found)


def _imported_from(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_TRANSFORMERS) else []
