"""Data loading: same work repeated for every item.

What it does: finds a data set or a `collate_fn` that does the same for each item: it opens or reads an archive, an HDF5 or database
connection, an annotation file, lists a folder, builds a tokenizer, or computes a filter bank, a window, a table of words or a grid of
positions. Or that reads a whole array or file for each item that is a part of it: an array of an `.npz` file, `dataset[:]`, a file of many
samples. Or that opens an archive of many items for each of them.

Fires when: input wait is ≥ 5 % of the step, or training waits for cores that workers hold for ≥ 10 % of it, and in ≥ 30 % of the stack
samples of processes that make items one does such work.

Why it is slow: opening reads directories, indices or whole files, and a table is computed element by element. Once for each worker is
enough; it is done once for each item. `numpy.load` of an `.npz` file reads no array yet: each `archive["images"]` reads and unpacks all of
it, and `archive["images"][index]` uses one row.

Evidence: the input wait as a share of the step; the share of stack samples that found a process in this work, with its standard error; the
user's line. A call opens, reads or builds something by its name, and the code shows that its arguments are the same for each item:
constants, names of the module, attributes that only `__init__` sets. Computing uses, by the source of the functions on the stack, nothing
of the item, its shape, random numbers, files, or what any of the job's files changes. An array is read whole where the archive or file
stays open, also one opened for the first item, and its name is the same for each. A file serves many samples where the code divides the
index (`divmod`, `//`), searches bounds, or looks up file and row together, and the call does not map it. An archive does so where file and
member are looked up together.

Fix: keep what was opened, for each worker on its own: open it when a worker needs it first. What `__init__` opens is shared by forked
workers, which then move each other's position in the file; spawned workers cannot receive it. What is computed is made in `__init__`, or
by a function under `functools.lru_cache`. An array is read once (`self.images = archive["images"]`), or saved on its own and mapped
(`np.load(path, mmap_mode="r")`); a data set of HDF5 or zarr is indexed itself, without `[:]`. Files of many samples are kept
(`functools.lru_cache` on the function that reads one), or mapped (`torch.load(path, mmap=True)`).

Estimate: this run's loader simulated with batches that lack the share of time spent in this work, plus or minus its error; at best warm
caches also shorten the rest of the step, and if workers hold its cores, it gets these.

False alarms: a call whose arguments may depend on the item is never counted, nor one whose arguments the code does not show, such as an
object that another function returns. The call may draw random numbers despite its name, or what it reads may change during training: then
it cannot be kept. An attribute of an object that stays the same (`self.options.path`) is taken for a setting; if it is a file that was
opened before, each read gets something else. What each item fills is not counted, but what a caller further out changes in place has to be
copied. What is read whole may be larger than the memory, times the number of workers: then it is mapped, not kept. A file that each item
has of its own is not counted, nor one that is kept until another is needed.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_WALL_S,
    LOADER_REPEATED_ERROR,
    LOADER_REPEATED_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.probes.documents.code_places import ReadWhole
from rn50_advisor.rules.items.frequent_calls import FREQUENT, finding_of
from rn50_advisor.rules.rule import Thresholds, rule

_OPENED = (
    "call {name} once per worker, and keep the result",
    "if self.kept is None: self.kept = ...  # at a worker's first item; forked workers would share what __init__ opens",
)
_COMPUTED = (
    "compute it once, and keep the result",
    "self.kept = ... in __init__, or functools.lru_cache on a function of the settings; where an item changes it in place, a copy",
)
# What is read or opened, what to do, and as code.
_WHOLE: dict[ReadWhole, tuple[str, str, str]] = {
    "archive": (
        "an archive of many items",
        "keep the archives open, each worker its own",
        "if path not in self.kept: self.kept[path] = zipfile.ZipFile(path)  # at a worker's first item; forked workers would share what "
        "__init__ opens",
    ),
    "array": (
        "a whole array",
        "read the array once, and take items of it",
        'self.images = np.load(path)["images"]  # once per process: each [...] of an .npz file reads and unpacks all of it; where it does '
        'not fit into memory: np.save it on its own, and np.load(path, mmap_mode="r")',
    ),
    "dataset": (
        "a whole data set",
        "index the data set itself",
        "file[name][index], or dataset[index][column]  # without [:] and np.array(...), which read all of it; HDF5 and zarr: chunks of "
        "about one item when it is written",
    ),
    "file": (
        "a whole file of many items",
        "keep files that were read, or map them",
        'functools.lru_cache on the function that reads a path; or np.load(path, mmap_mode="r"), torch.load(path, mmap=True)',
    ),
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    call = a.repeated
    name = call.name if call else ""
    computes = call is not None and call.computes
    read = _WHOLE[call.whole] if call is not None and call.whole else None
    title, change = read[1:] if read else _COMPUTED if computes else _OPENED
    more = f" (also {', '.join(line.words for line in call.more)})" if call and call.more else ""
    verb = "open" if call is not None and call.whole == "archive" else "read"
    does = f"{verb}s {read[0]}" if read else "computes the same" if computes else "repeats the same work"
    where = "computing what uses nothing of the item" if computes else "with the same arguments for every item"
    without = "this call" if call is not None and not computes else "this work"
    return finding_of(
        a,
        t,
        RULE.id,
        call,
        measures=(LOADER_REPEATED_SHARE, LOADER_REPEATED_ERROR),
        title=f"Data loading: {name} {does} for every item",
        where=f"{verb}ing {read[0]}" if read else where,
        fix=(title.format(name=name) + more, change),
        basis=f"this run's batches simulated without {without}",
    )


RULE = rule(
    __name__,
    "Data loading: same work repeated for every item",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS),
    thresholds=FREQUENT,
)
