"""Finds the call that reads a file of many items for each of them: `torch.load(self.shards[at // 1000])[at % 1000]`. Or that opens an
archive of many: `with zipfile.ZipFile(path) as archive: archive.read(name)`.

The code has to show that one file serves several items: by a division of the index, a search among bounds, or a look-up that gives the file
and the row. A file that each item has of its own is none of these, nor one that is kept until another is needed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from rn50_advisor.advisor.edits.names import stored, written_as
from rn50_advisor.advisor.edits.syntax import dotted_name, last_name
from rn50_advisor.advisor.run.stacks.arrays_in_code import ARRAY_LIBRARIES
from rn50_advisor.advisor.run.stacks.repeated_calls import Running, call_by_user, running_at, values_of
from rn50_advisor.probes.documents.code_places import WholeRead
from rn50_advisor.probes.host.stacks.process_stacks import Frame, is_user_file

READS = re.compile(r"_?(load|read)\w*$|fromfile$|genfromtxt$")
READS_OR_OPENS = re.compile(rf"{READS.pattern}|open$|\w*File$")
_ARCHIVES = re.compile(r"(\w+\.)*(PyZipFile|TarFile|ZipFile)$|tarfile\.open$|h5py\.File$")
_MEMBERS = (
    "extractfile",
    "get",
    "getinfo",
    "getmember",
    "open",
    "read",
)  # methods of an archive that take one of its items
_MAPS = ("mmap", "mmap_mode", "memory_map")  # arguments with which a call reads nothing yet
_LIBRARIES = ARRAY_LIBRARIES | {"pd"}
_MAPS_SECOND = ("np.load", "numpy.load")  # as the second argument
_ROWS = ("iloc", "loc", "values")  # of a table, before the index
_CONVERTING = (
    "array",
    "as_tensor",
    "asarray",
    "astype",
    "double",
    "float",
    "from_numpy",
    "numpy",
    "tensor",
    "to_numpy",
    "to_pandas",
)
_SHARES = re.compile(r"divmod$|bisect\w*$|searchsorted$|digitize$|bucketize$")
_CALLERS_MAX = 4  # helpers that hand on what they have read
_STEPS_MAX = 8  # names followed
_GUARDS = (ast.If, ast.IfExp, ast.While, ast.ExceptHandler)


def shard_read(running: Running, callers: Sequence[Frame], call: ast.Call | None) -> WholeRead | None:
    """This call as a read of a file of many items; None if the code does not show that it is one."""
    if call is None or not call.args or _maps(running, call):
        return None
    name, one = dotted_name(call.func), call
    archive = _ARCHIVES.match(name or "") is not None
    if not archive and not READS.match(last_name(call.func) or ""):
        return None
    for _ in range(_CALLERS_MAX):
        if not _each_time(running, callers, one):
            return None
        if _serves_several(running, one):
            return {"kind": "archive" if archive else "file", "call": name}
        caller = running_at(callers[0]) if callers and is_user_file(callers[0].file) else None
        outer = call_by_user(caller, running.function.name) if caller is not None else None
        if caller is None or outer is None or not _hands_on(running, one):
            return None
        running, callers, one = caller, callers[1:], outer
    return None


def _maps(running: Running, call: ast.Call) -> bool:
    """True for a file that is mapped, or that may be: by an argument that is not None or False."""
    given = [keyword.value for keyword in call.keywords if keyword.arg in _MAPS]
    if dotted_name(call.func) in _MAPS_SECOND:
        given += call.args[1:2]
    values = [written_as(running.code, value) for value in given]
    return any(not (isinstance(value, ast.Constant) and value.value in (None, False)) for value in values)


def opening_of(running: Running, node: ast.expr) -> ast.Call | None:
    """The call that reads a file which this expression stands for."""
    opened = [value for name, value in _opened(running.function) if isinstance(node, ast.Name) and name == node.id]
    made = node if isinstance(node, ast.Call) else _made(running, node) or next(iter(opened), None)
    return made if isinstance(made, ast.Call) and READS.match(last_name(made.func) or "") else None


def _each_time(running: Running, callers: Sequence[Frame], call: ast.Call) -> bool:
    """False in a generator, in a function that remembers, and under a condition that may differ from item to item."""
    function = running.function
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function)):
        return False
    if any("cache" in ast.unparse(decorator).lower() for decorator in function.decorator_list):
        return False
    values = values_of(running, callers)
    around = (node for node in running.code.around(call) if isinstance(node, _GUARDS))
    inside = {id(node) for node in ast.walk(function)}
    return all(
        id(node) not in inside or (not isinstance(node, ast.ExceptHandler) and values.same(node.test))
        for node in around
    )


def _hands_on(running: Running, call: ast.Call) -> bool:
    """True if a function returns what the call has read."""
    returned = [node.value for node in ast.walk(running.function) if isinstance(node, ast.Return) and node.value]
    return any(value is call or (_made(running, value) is call) for value in returned)


def _made(running: Running, node: ast.expr) -> ast.expr | None:
    """The only value that the function assigns to a name."""
    values = [value for name, value in _assigned(running.function) if isinstance(node, ast.Name) and name == node.id]
    return values[0] if len(values) == 1 else None


def _serves_several(running: Running, call: ast.Call) -> bool:
    """True if an item takes a row of what the call has read, and the file is one for several items."""
    rows = [*_rows(running, call)]
    if not rows:
        return False
    of_file = _origins(running, [*call.args])
    of_row = _origins(running, rows)
    return any(_shares(part) for part in of_file) or bool(_common(running, of_file, of_row))


def _rows(running: Running, call: ast.Call) -> Iterator[ast.expr]:
    """The indices that the function takes of what a call has read, along one axis: not the box that is cut out of a picture. Or the names
    of what it takes out of an archive that the call has opened.
    """
    assigned = (*_assigned(running.function), *_opened(running.function))
    name = next((n for n, value in assigned if _whole(value) is call), None)
    archive = _ARCHIVES.match(dotted_name(call.func) or "") is not None

    for node in ast.walk(running.function):
        of, index = _taken(node, members=archive)
        whole = None if of is None else _whole(of)
        if index is not None and (whole is call or (isinstance(whole, ast.Name) and whole.id == name)):
            yield index


def _taken(node: ast.AST, *, members: bool) -> tuple[ast.expr | None, ast.expr | None]:
    """(object, index) of `images[row]`, or of `archive.read(name)`; Nones for other nodes."""
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant) and _is_one_axis(node.slice):
        return node.value, node.slice
    method = node.func if members and isinstance(node, ast.Call) and node.args else None
    if isinstance(node, ast.Call) and isinstance(method, ast.Attribute) and method.attr in _MEMBERS:
        return method.value, node.args[0]
    return None, None


def _whole(node: ast.expr) -> ast.expr:
    """What a named part is taken of, or a conversion made: `read(path)` of `read(path)["images"]` and of `tensor(read(path))`."""
    while (inner := _inner(node)) is not None:
        node = inner
    return node


def _inner(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Subscript):
        return node.value if isinstance(node.slice, ast.Constant) else None
    if isinstance(node, ast.Attribute):
        return node.value if node.attr in _ROWS else None
    if not isinstance(node, ast.Call) or last_name(node.func) not in _CONVERTING:
        return None
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    method = owner is not None and not (isinstance(owner, ast.Name) and owner.id in _LIBRARIES)
    return owner if method else next(iter(node.args), None)


def _is_one_axis(index: ast.expr) -> bool:
    axes = index.elts if isinstance(index, ast.Tuple) else [index]
    return sum(not (isinstance(axis, ast.Slice) and axis.lower is axis.upper is None) for axis in axes) == 1


def _origins(running: Running, nodes: Sequence[ast.expr]) -> list[ast.expr]:
    """Expressions, and what the function assigns to their names, and so on."""
    found, names = [*nodes], set[str]()
    assigned = [*_assigned(running.function), *_opened(running.function)]
    for _ in range(_STEPS_MAX):
        new = {each.id for node in found for each in ast.walk(node) if isinstance(each, ast.Name)} - names
        if not new:
            break
        names |= new
        found += [value for name, value in assigned if name in new]
    return found


def _shares(node: ast.expr) -> bool:
    """True if an expression divides or searches."""
    return any(
        (isinstance(each, ast.BinOp) and isinstance(each.op, (ast.FloorDiv, ast.RShift)))
        or (isinstance(each, ast.Call) and bool(_SHARES.match(last_name(each.func) or "")))
        for each in ast.walk(node)
    )


def _common(running: Running, of_file: Sequence[ast.expr], of_row: Sequence[ast.expr]) -> set[str]:
    """Look-ups that give both: `shard, row = self.places[at]`, or `clip.path` and `clip.start` of `clip = self.clips[at]`."""
    looked_up = {ast.unparse(value) for name, value in _assigned(running.function) if _looks_up(value)}
    file, row = ({ast.unparse(part) for part in parts} & looked_up for parts in (of_file, of_row))
    return file & row


def _looks_up(value: ast.expr) -> bool:
    """True for an element of a collection, or what a method of the user's gives for an index."""
    return isinstance(value, (ast.Subscript, ast.Call)) and not READS.match(
        last_name(value.func) or "" if isinstance(value, ast.Call) else ""
    )


def _assigned(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from ((each.id, node.value) for each in stored(target) if isinstance(each, ast.Name))


def _opened(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            yield node.optional_vars.id, node.context_expr
