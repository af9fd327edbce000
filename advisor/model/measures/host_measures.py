"""Measures of the host: cores, threads, quotas, memory."""

from __future__ import annotations

from rn50_advisor.advisor.model.measures.measure import JobMeasure, RankMeasure

SHM_USED_SHARE = JobMeasure("shm.used_share", "", "highest use of /dev/shm, as the job sees it")
SHM_TOTAL_MB = JobMeasure("shm.total_mb", "MB", "size of /dev/shm, as the job sees it")

CPU_ALLOWED_CORES = JobMeasure("cpu.allowed_cores", "cores", "cores the job may use")
CPU_JOB_CORES = JobMeasure("cpu.job_cores", "cores", "cores the job kept busy")
CPU_HOST_CORES = JobMeasure("cpu.host_cores", "cores", "cores of the host")
CPU_GIVEN_CORES = JobMeasure(
    "cpu.given_cores", "cores", "cores that the job's parent may use, whatever the job binds itself to"
)
CPU_AFFINITY_CORES = JobMeasure(
    "cpu.affinity_cores", "cores", "cores of the host that any of its ranks may run on, quotas aside"
)
CPU_HOST_BUSY_CORES = JobMeasure("cpu.host_busy_cores", "cores", "cores busy on the host, by any process")
CPU_OTHER_CORES = JobMeasure("cpu.other_cores", "cores", "cores kept busy by processes that are not of this job")
CPU_HELPER_CORES = JobMeasure(
    "cpu.helper_cores", "cores", "cores kept busy by processes of the job that are neither ranks nor loader workers"
)
CPU_STEAL_SHARE = JobMeasure("cpu.steal_share", "", "share of the host's CPU time the hypervisor took")

THREADS_INTRA_OP = RankMeasure("threads.intra_op", "threads", "threads among which torch splits one operation")
THREADS_WAITING = RankMeasure("threads.waiting", "threads", "threads of this rank that wait for a core, on average")

MEMORY_WATCHED_S = JobMeasure(
    "memory.watched_s", "s", "how long the memory of the job's processes was followed after the warm-up"
)
MEMORY_WORKER_MB = JobMeasure("memory.worker_mb", "MB", "private memory of one loader worker")
MEMORY_COPIED_MB = JobMeasure(
    "memory.copied_mb", "MB", "inherited pages of which loader workers hold copies of their own, all workers together"
)
MEMORY_PRESSURE_SHARE = JobMeasure(
    "memory.pressure_share", "", "share of the time in which some process of the host waited for memory"
)
MEMORY_SWAP_IN_MB_PER_S = JobMeasure(
    "memory.swap_in_mb_per_s", "MB/s", "read back from swap, by any process on the host"
)
MEMORY_HOST_LEFT_SHARE = JobMeasure(
    "memory.host_left_share", "", "share of the host's memory available without swapping"
)
MEMORY_LIMIT_USED_SHARE = RankMeasure(
    "memory.limit_used_share", "", "share of this rank's memory limit in use, droppable page cache excluded"
)
MEMORY_LIMIT_MB = RankMeasure("memory.limit_mb", "MB", "the memory limit above this rank")
MEMORY_HEADROOM_MB = JobMeasure(
    "memory.headroom_mb",
    "MB",
    "memory that the job may still take: of the host or of its control group's limit, whichever is less",
)

QUOTA_CORES = RankMeasure("quota.cores", "cores", "the CPU quota above this rank")
QUOTA_THROTTLED_SHARE = RankMeasure(
    "quota.throttled_share", "", "share of quota periods in which this rank's cgroup was throttled"
)
QUOTA_THROTTLED_S_PER_S = RankMeasure("quota.throttled_s_per_s", "s/s", "time throttled per second of wall time")
