"""What took cores from this process: an import of its script, or something else between two checks of its affinity. What set its number of
compute threads: a helper module or a library may do so when it is imported.
"""

from __future__ import annotations

import dis
import os
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from .process_facts import call_frames, is_users, jobs_frames, torchs_folder

if TYPE_CHECKING:
    from types import CodeType

    from ...documents.code_places import CodePlace
    from ...documents.rank_documents import RankFacts, ThreadSetting
    from .process_facts import Facts

    Place = tuple[CodeType, int, int]  # code, index of the instruction, line

# With these an OpenMP runtime binds threads to cores: some when it is loaded, some at its first parallel region.
BINDING_VARIABLES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_IMPORT = "<frozen importlib"  # of the import system's frames
_CHARS_MAX = 200  # of a value: a list of places may be long
# Instructions that run no code but that of imported modules.
_IMPORTING = frozenset(
    (
        "CACHE", "EXTENDED_ARG", "IMPORT_FROM", "IMPORT_NAME", "IMPORT_STAR", "LOAD_CONST", "LOAD_SMALL_INT", "MAKE_FUNCTION", "NOP",
        "POP_TOP", "ROT_TWO", "STORE_FAST", "STORE_GLOBAL", "STORE_NAME", "SWAP",
    )
)  # fmt: skip


def affinity_facts(affinity: Any) -> RankFacts:
    """`affinity`: the `_Affinity` of `inject/sitecustomize.py`; None where the system has none."""
    facts: RankFacts = {
        "binding_variables": {name: os.environ[name][:_CHARS_MAX] for name in BINDING_VARIABLES if name in os.environ}
    }
    if affinity is None:
        return facts
    affinity.check()
    facts["cpus_at_start"] = affinity.at_start
    if affinity.loss is not None:
        before, after, module, place, under_way, seen = affinity.loss
        facts["cpus_lost"] = {
            **_written(place),
            "before": before,
            "after": after,
            "module": module,
            "by_import": bool(module) and (under_way or _only_imports(place, seen)),
            "seen": _written(seen),
        }
    return facts


def _written(place: Place | None) -> CodePlace:
    if place is None or not is_users(place[0].co_filename):
        return {}
    return {"file": place[0].co_filename, "line": place[2]}


def _only_imports(place: Place | None, seen: Place | None) -> bool:
    """True if the first place is an import, and the user's code does nothing but import up to the second."""
    if place is None or seen is None or place[0] is not seen[0] or seen[1] < place[1]:
        return False
    names = {each.offset: each.opname for each in dis.get_instructions(place[0])}
    between = (name for offset, name in names.items() if place[1] < offset < seen[1])
    return names.get(place[1], "").startswith("IMPORT_") and _IMPORTING.issuperset(between)


def threads_are_set(facts: Facts, args: tuple[Any, ...]) -> None:
    """Records the job's last call of `torch.set_num_threads` by its arguments.

    Torch's own calls, in loader workers and pinning threads, do not count.
    """
    caller = next(jobs_frames(1), None)
    number = args[0] if args else None
    own = caller is None or caller.f_code.co_filename.startswith(torchs_folder())
    if own or not isinstance(number, int) or current_thread() is not main_thread():
        return
    frame, through = call_frames(1)
    if frame is None:
        return
    imports = any(each.f_code.co_filename.startswith(_IMPORT) for each in jobs_frames(1))
    found: ThreadSetting = {
        "threads": number,
        "file": frame.f_code.co_filename,
        "line": frame.f_lineno,
        "by_import": imports,
    }
    if through is not None:
        found["through"] = {"file": through.f_code.co_filename, "line": through.f_lineno}
    facts.values["threads_set"] = found  # written with the other facts
