"""Measures of the storage of the data. They cover the steady steps unless they say otherwise."""

from __future__ import annotations

from rn50_advisor.advisor.model.measures.measure import JobAndEpochMeasure, JobMeasure, MountMeasure

STORAGE_READ_MB_S = JobMeasure("storage.read_mb_s", "MB/s", "read from the disk or the server that the data lies on")
STORAGE_READS_S = JobMeasure("storage.reads_s", "reads/s", "read requests to it")
STORAGE_MOUNT_MB_S = MountMeasure(
    "storage.mount_mb_s",
    "MB/s",
    "read from the disk or the server of a further mount with data, whose path is the scope",
)
STORAGE_MOUNT_READS_S = MountMeasure("storage.mount_reads_s", "reads/s", "read requests to that")
STORAGE_USUAL_MB_S = JobMeasure("storage.usual_mb_s", "MB/s", "read in the median second")
STORAGE_USUAL_READS_S = JobMeasure("storage.usual_reads_s", "reads/s", "read requests in the median second")
STORAGE_REQUEST_KB = JobMeasure("storage.request_kb", "KB", "mean size of such a request")
STORAGE_READ_S = JobMeasure("storage.read_s", "s", "mean time that a read request took")
STORAGE_QUEUE = JobMeasure("storage.queue", "requests", "requests in flight on average")
STORAGE_BUSY_SHARE = JobMeasure("storage.busy_share", "", "share of the time with a request in flight")
STORAGE_JOB_SHARE = JobMeasure("storage.job_share", "", "share of the disk's traffic that the job caused")
STORAGE_DEVICE_SHARE = JobMeasure(
    "storage.device_share", "", "share of the time that loaders were blocked in which the disk served their reads"
)
STORAGE_BLOCKED = JobMeasure("storage.blocked", "processes", "loaders that are blocked at any time, on average")
STORAGE_IO_WAIT_SHARE = JobMeasure(
    "storage.io_wait_share", "", "share of the time in which any process on the host waits for a disk (PSI)"
)
STORAGE_ASKED_MB_S = JobMeasure(
    "storage.asked_mb_s", "MB/s", "requested by processes that make batches, page cache included"
)
STORAGE_SAMPLE_KB = JobMeasure(
    "storage.sample_kb", "KB", "requested per sample: the mean file size, where each sample is one file"
)
STORAGE_CACHE_HIT_SHARE = JobAndEpochMeasure(
    "storage.cache_hit_share", "", "share of the requested bytes that the page cache held"
)
STORAGE_EPOCH_MB = JobMeasure("storage.epoch_mb", "MB", "requested in the first epoch, by all ranks of this host")
STORAGE_LATER_EPOCHS = JobMeasure("storage.later_epochs", "epochs", "requests after the first epoch, in epochs")
STORAGE_REREAD_SHARE = JobMeasure(
    "storage.reread_share", "", "share of the requests after the first epoch that was read from storage again"
)
STORAGE_LATER_READ_SHARE = JobMeasure(
    "storage.later_read_share", "", "share of the bytes read from storage that later epochs read"
)
STORAGE_HOST_ROOM_MB = JobMeasure(
    "storage.host_room_mb", "MB", "host memory that could hold files: free, or holding files now"
)
STORAGE_GROUP_ROOM_MB = JobMeasure(
    "storage.group_room_mb", "MB", "the same within the memory limit of the job's control group"
)
STORAGE_LIMIT_MB_S = JobMeasure("storage.limit_mb_s", "MB/s", "limit of a control group on reading from the disk")
STORAGE_LIMIT_READS_S = JobMeasure("storage.limit_reads_s", "reads/s", "the same, as a number of reads")
STORAGE_SECONDS = JobMeasure("storage.seconds", "readings", "readings of the disk's counters, about one a second")
STORAGE_MB_SPREAD = JobMeasure(
    "storage.mb_spread", "", "from the median of these seconds to the fast tenth, in bytes read, over the median"
)
STORAGE_READS_SPREAD = JobMeasure("storage.reads_spread", "", "the same in reads")
STORAGE_VOLUME_EXCEEDED_SHARE = JobMeasure(
    "storage.volume_exceeded_share", "", "share of the time in which the provider throttled this volume"
)
STORAGE_INSTANCE_EXCEEDED_SHARE = JobMeasure(
    "storage.instance_exceeded_share", "", "share of the time in which the provider throttled the machine's disks"
)
STORAGE_LINK_EXCEEDED_S = JobMeasure(
    "storage.link_exceeded_s", "packets/s", "packets beyond the provider's limit for this machine"
)
