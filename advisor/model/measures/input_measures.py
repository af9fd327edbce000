"""Measures of data loading: making batches and handing them to the training loop."""

from __future__ import annotations

from rn50_advisor.advisor.model.measures.measure import JobMeasure, RankMeasure

LOADER_WORKERS = RankMeasure("loader.workers", "workers", "worker processes of the training loader")
LOADER_BUSY_SHARE = RankMeasure(
    "loader.busy_share", "", "share of the time outside evaluations and checkpoints that workers made batches"
)
LOADER_HELPER_CORES = RankMeasure(
    "loader.helper_cores", "cores", "cores kept busy by threads of workers other than the one that makes batches"
)
LOADER_HELPER_SHARE = RankMeasure("loader.helper_share", "", "share of the workers' CPU time taken by these threads")
LOADER_LOCK_SHARE = JobMeasure(
    "loader.lock_share",
    "",
    "share of the stack samples of processes making samples that found one waiting for a shared lock or server",
)
LOADER_LOCK_ERROR = JobMeasure("loader.lock_error", "", "standard error of that share")
LOADER_FORESEEN = JobMeasure(
    "loader.foreseen", "workers", "the most workers per rank for which the step can be predicted"
)
LOADER_ASKING_SHARE = JobMeasure(
    "loader.asking_share", "", "share of the workers' stack samples that found one waiting for a server's answer"
)
LOADER_REPEATED_SHARE = JobMeasure(
    "loader.repeated_share",
    "",
    "share of the stack samples of processes making samples that found one repeating the same call for each item",
)
LOADER_REPEATED_ERROR = JobMeasure("loader.repeated_error", "", "standard error of that share")
LOADER_TABLE_SHARE = JobMeasure(
    "loader.table_share", "", "share of these stack samples that found one taking a row out of a table (pandas, polars)"
)
LOADER_TABLE_ERROR = JobMeasure("loader.table_error", "", "standard error of that share")
LOADER_COLLECTION_SHARE = JobMeasure(
    "loader.collection_share", "", "share of these stack samples that found one going through a whole collection"
)
LOADER_COLLECTION_ERROR = JobMeasure("loader.collection_error", "", "standard error of that share")
LOADER_ARRAY_SHARE = JobMeasure(
    "loader.array_share", "", "share of these stack samples that found one reading an array in chunks (HDF5, zarr)"
)
LOADER_ARRAY_ERROR = JobMeasure("loader.array_error", "", "standard error of that share")
LOADER_CHUNKED_SHARE = JobMeasure(
    "loader.chunked_share", "", "share of these stack samples that found one taking a single item out of such an array"
)
LOADER_CHUNK_ITEMS = JobMeasure(
    "loader.chunk_items", "items", "in a chunk of the array with the largest chunks that a data set keeps open"
)
LOADER_CHUNKED_ERROR = JobMeasure("loader.chunked_error", "", "standard error of that share")

FETCH_WALL_S = RankMeasure("fetch.wall_s", "s", "making one batch, in one worker or in the training process")
FETCH_CPU_SHARE = RankMeasure("fetch.cpu_share", "", "CPU time over the time of making a batch")
FETCH_DELAY_SHARE = RankMeasure("fetch.delay_share", "", "waiting for a core over the time of making a batch")
FETCH_SYSTEM_SHARE = RankMeasure(
    "fetch.system_share", "", "CPU time inside the kernel over the time of making a batch, in a worker"
)
FETCH_GC_SHARE = RankMeasure(
    "fetch.gc_share", "", "share of batch preparation time taken by garbage collections, in a worker"
)
FETCH_BLOCKED_SHARE = RankMeasure(
    "fetch.blocked_share", "", "neither computing nor waiting for a core: reading, sleeping, or waiting for a lock"
)
FETCH_HAND_OVER_S = RankMeasure("fetch.hand_over_s", "s", "part of the wait for a batch after a worker had finished it")
FETCH_HAND_OVER_ERROR = RankMeasure(
    "fetch.hand_over_error", "", "two standard errors of fetch.hand_over_s, as a share of it"
)
FETCH_SENDING_S = RankMeasure(
    "fetch.sending_s", "s", "CPU time that sending one batch takes its worker: pickling, handing out shared memory"
)
FETCH_PINNING_S = RankMeasure("fetch.pinning_s", "s", "copying one batch into pinned memory")
FETCH_BEHIND_S = RankMeasure(
    "fetch.behind_s",
    "s",
    "part of a step's wait for unfinished batches during which a later one was already finished",
)
FETCH_COLLECTING_S = RankMeasure(
    "fetch.collecting_s",
    "s",
    "part of a step's wait for batches that garbage collections of their workers took, at most",
)
FETCH_WORKER_LAG = RankMeasure(
    "fetch.worker_lag",
    "",
    "batch time of the slowest worker over that of the others, at least, without waiting for a core",
)
FETCH_SLOW_RATIO = RankMeasure("fetch.slow_ratio", "", "time to make batches that delayed later ones, over the median")
FETCH_READ_MB = RankMeasure("fetch.read_mb", "MB", "read from a device per batch")
FETCH_READ_MB_PER_S = RankMeasure("fetch.read_mb_per_s", "MB/s", "read from a device while making batches, per worker")

DATA_NETWORK_MOUNT = RankMeasure("data.network_mount", "", "1 when the data lies on a network file system")

SAMPLE_LOOKS = JobMeasure("sample.looks", "samples", "samples that were profiled")
SAMPLE_CPU_S = JobMeasure("sample.cpu_s", "s", "CPU time of making one sample, collating left out")
SAMPLE_TRANSFORM_SHARE = JobMeasure("sample.transform_share", "", "share of that time in the most expensive transform")
SAMPLE_FILE_KB = JobMeasure("sample.file_kb", "KB", "mean size of a sample's file")
SAMPLE_MEGAPIXELS = JobMeasure("sample.megapixels", "Mpx", "mean size of a picture before its transforms")

BATCH_COLLATE_S = JobMeasure("batch.collate_s", "s", "collating one batch")
BATCH_MEGABYTES = JobMeasure("batch.megabytes", "MB", "tensors of one batch")
BATCH_SAMPLES = RankMeasure("batch.samples", "samples", "in the batches that most steps have")
BATCH_BENCHMARKED = RankMeasure(
    "batch.benchmarked", "", "1: from a benchmark of the machine, not from batches of other sizes"
)
BATCH_FIXED_SHARE = RankMeasure(
    "batch.fixed_share", "", "share of a step's compute that does not depend on the batch size"
)
BATCH_SIZES = RankMeasure("batch.sizes", "sizes", "sizes of batches whose compute could be compared")
BATCH_USUAL_SHARE = RankMeasure("batch.usual_share", "", "share of the steps whose batch has that size")
