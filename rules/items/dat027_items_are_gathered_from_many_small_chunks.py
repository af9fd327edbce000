"""Data loading: many small chunks read for every item.

What it does: finds a data set whose items lie in many chunks each of an HDF5 or zarr array.

Fires when: input wait is ≥ 5 % of the step, or training waits for cores that workers hold for ≥ 10 % of it, ≥ 30 % of the stack samples
of processes that make items read such an array, an item is as large as ≥ 4 of its chunks, and at worst ≤ 0.7 of the time of a read
would be left.

Why it is slow: each chunk is looked up, read and unpacked by itself. That takes zarr 0.2 milliseconds, and a file of its own,
however few bytes the chunk holds; an item of 6 time steps, 2 channels and 64×64 cells takes 48 chunks of one step, one channel and
64×64 that do not begin where it does.

Evidence: the input wait as a share of the step; the share of stack samples in the array's library, with its standard error; the user's
line; the shape of the array's chunks, read from the array that the data set keeps open, and how many of them an item would fill.

Fix: write the array anew in chunks that hold what an item needs, several time steps and all channels: `zarr.create_array(...,
chunks=(steps, channels, height, width))`, `h5repack -l name:CHUNK=...`, `rechunker`.

Estimate: this run's loader simulated with batches that lack the share of time spent in the library, plus or minus its error. Of
chunks of an item's size, eight are left to read at worst, since an item can begin in the middle of one along three axes; at best as many
times one, but two at least, as this run's reads take longer than those of the fewest chunks that an item fills, since it begins in the
middle of some now. A chunk takes 0.3 ms and 1 ns for each byte with zarr, 10 µs and 5 ns with HDF5.

False alarms: HDF5 needs some microseconds for a chunk, and mostly the unpacking of what an item needs takes the time: then no other
chunks save much. An item may be made of a small part of what is read, such as every tenth step.
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.measures.input_measures import (
    BATCH_MEGABYTES,
    BATCH_SAMPLES,
    FETCH_WALL_S,
    LOADER_ARRAY_ERROR,
    LOADER_ARRAY_SHARE,
    LOADER_CHUNK_ITEMS,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import common
from rn50_advisor.rules.items.frequent_calls import FREQUENT, finding_of
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

# Bytes of a number in a batch: what is stored in fewer is mostly made float32.
_NUMBER = 4
# Seconds of a chunk, and of each byte that it unpacks. Measured with zarr 3.1 and h5py 3.16 from the page cache: zarr took 0.25 ms for a
# read and 0.20 ms for each of its chunks (0.13 where they are not packed), 1 ms for one of 1 MB; h5py 7 us for a chunk of 512 bytes packed
# by gzip, 39 us for one of 8 KB.
_CHUNK_S = {"h5py": (10e-6, 5e-9), "zarr": (300e-6, 1e-9)}
# Chunks that an item lies in when a chunk is as large as an item: it begins in the middle of one along one axis, or along three.
_FEWEST_LEFT, _MOST_LEFT = 2.0, 8.0


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    share, megabytes, array = a.get(LOADER_ARRAY_SHARE), a.get(BATCH_MEGABYTES), next(iter(a.chunked_arrays), None)
    if array is None and share is not None and share >= t["share"]:
        return NotMeasured(RULE.id, (LOADER_CHUNK_ITEMS,))
    if array is None or megabytes is None or a.array is None:
        return Clear(RULE.id)
    samples, itemsize = common(a.by_rank(BATCH_SAMPLES)), array.get("itemsize", _NUMBER)
    numbers = 1e6 * megabytes / samples / max(_NUMBER, itemsize)
    chunks = numbers / math.prod(array["chunk"])
    if chunks < t["chunks"]:
        return Clear(RULE.id)
    each_s = (1.0 if share is None else share) * common(a.by_rank(FETCH_WALL_S)) / samples
    chunk_s, byte_s = _CHUNK_S[a.array.name]
    byte_s *= itemsize
    beyond = each_s / (chunks * chunk_s + byte_s * numbers)
    fewest = min(_MOST_LEFT, max(_FEWEST_LEFT, beyond))
    best, worst = (n * (chunk_s + byte_s * numbers) / max(each_s, 1e-9) for n in (fewest, _MOST_LEFT))
    if worst > t["left"]:
        return Clear(RULE.id)
    shape = "×".join(map(str, array["chunk"]))
    return finding_of(
        a,
        t,
        RULE.id,
        a.array,
        measures=(LOADER_ARRAY_SHARE, LOADER_ARRAY_ERROR),
        title=f"Data loading: {chunks:.0f} chunks or more read for every item",
        where=f"in {array['name'] or 'an array'} with chunks of {shape}",
        fix=(
            "write the array in chunks that hold what an item needs",
            "zarr.create_array(..., chunks=the part of the array that an item takes), h5repack -l name:CHUNK=..., or rechunker; not much "
            "larger than an item, since a chunk is read as a whole",
        ),
        basis="this run's batches simulated with as many chunks of an item's size read as it would lie in",
        left=worst,
        left_best=best,
    )


RULE = rule(
    __name__,
    "Data loading: many small chunks read for every item",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS, BATCH_SAMPLES),
    thresholds={
        **FREQUENT,
        "chunks": Threshold(4.0, "of the array fit into an item: fewer are read nearly as fast as one"),
        "left": Threshold(
            0.7, "of the time of a read, at worst: with HDF5 unpacking takes the time, not the number of chunks"
        ),
    },
)
