"""Data loading: whole chunk read for every item.

What it does: finds a data set that takes single items, in a shuffled order, out of an HDF5 or zarr array whose chunks hold many of them.

Fires when: input wait is ≥ 5 % of the step, or training waits for cores that workers hold for ≥ 10 % of it, in ≥ 30 % of the stack
samples of processes that make items one takes an item out of such an array, and at worst ≤ 0.7 of the time of a read would be left. Not
where the loader goes through its data set in order.

Why it is slow: a chunk is the least that these libraries read and unpack. One item of a chunk of 32 costs as much as all 32, and with a
shuffled order the next item is in another chunk: the library keeps a few chunks of the many.

Evidence: the input wait as a share of the step; the share of stack samples in the array's library, with its standard error; the user's
line; the shape of the array's chunks, read from the file that the data set keeps open.

Fix: write the array with chunks of one item, by `create_dataset(..., chunks=(1, *shape[1:]))` or `h5repack -l images:CHUNK=1x64x64`. Or
shuffle chunks instead of items: take a whole chunk, and shuffle the items of several.

Estimate: this run's loader simulated with batches that lack the share of time spent in the library, plus or minus its error; of that, as
many parts are left as one item is of a chunk, and 4 µs for each read; at worst twice as many, and 60 µs. If workers hold the cores of the
rest of the step, it gets these.

False alarms: small arrays lie in the library's cache of chunks, and those that are not compressed in the page cache: then a read takes
little longer than that of one item. A line that takes a slice of several items is not counted. Items of many chunks each are DAT027's.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.measures.input_measures import (
    BATCH_SAMPLES,
    FETCH_WALL_S,
    LOADER_CHUNK_ITEMS,
    LOADER_CHUNKED_ERROR,
    LOADER_CHUNKED_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import common
from rn50_advisor.rules.items.frequent_calls import FREQUENT, finding_of
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

# Of the share that one item is of a chunk, and beside that for each read, in seconds: (best, worst). With h5py 3.16 a read of a small chunk
# of one item took 4 us, 45 with the look-up of its name; one of a picture of 224x224, packed, 1.6 to 1.8 times its share of one of 32.
_ITEMS, _READ_S = (1.0, 2.0), (4e-6, 60e-6)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    items, share = a.get(LOADER_CHUNK_ITEMS), a.get(LOADER_CHUNKED_SHARE)
    if items is None and share is not None and share >= t["share"]:
        return NotMeasured(RULE.id, (LOADER_CHUNK_ITEMS,))
    array = next(iter(a.chunked_arrays), None)
    in_order = any(loader.training and loader.shuffle is False for loader in a.loaders)
    if array is None or items is None or items < 2 or in_order:
        return Clear(RULE.id)
    each_s = (share or 0.0) * common(a.by_rank(FETCH_WALL_S)) / common(a.by_rank(BATCH_SAMPLES))
    left = tuple(times / items + read_s / max(each_s, 1e-9) for times, read_s in zip(_ITEMS, _READ_S, strict=True))
    if share is not None and left[1] > t["left"]:
        return Clear(RULE.id)
    shape = "×".join(map(str, array["chunk"]))
    packed = "unpacked" if array["packed"] else "read"
    return finding_of(
        a,
        t,
        RULE.id,
        a.chunked,
        measures=(LOADER_CHUNKED_SHARE, LOADER_CHUNKED_ERROR),
        title=f"Data loading: a chunk of {items:.0f} items {packed} for every item",
        where=f"in {array['name'] or 'an array'} with chunks of {shape}",
        fix=(
            "write the array in chunks of one item",
            f"create_dataset(..., chunks=(1, *shape[1:])), or h5repack -l {array['name']}:CHUNK=1x...; or take whole chunks in a shuffled "
            "order, and shuffle the items of several",
        ),
        basis="this run's batches simulated with one item read at a time",
        left=min(1.0, left[1]),
        left_best=left[0],
    )


RULE = rule(
    __name__,
    "Data loading: whole chunk read for every item",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS, BATCH_SAMPLES),
    thresholds={
        **FREQUENT,
        "left": Threshold(
            0.7, "of the time of a read, at worst: small chunks, and what lies in the library's cache, are read fast"
        ),
    },
)
