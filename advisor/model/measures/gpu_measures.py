"""Measures of GPUs and of ranks on them. GPU measures are by NVML's index and cover the steady steps unless they say otherwise."""

from __future__ import annotations

from rn50_advisor.advisor.model.measures.measure import GpuMeasure, JobMeasure, RankMeasure

GPU_IDLE_BESIDE = JobMeasure("gpu.idle_beside", "GPUs", "GPUs that were idle while the ranks trained on CPUs")
GPU_IDLE = GpuMeasure("gpu.idle", "", "1: not used by the job and idle; 0: another job's work was on it")
GPU_THROTTLED_SHARE = GpuMeasure(
    "gpu.throttled_share", "", "share of the time in which heat or a power brake held its clocks down"
)
GPU_SW_THERMAL_SHARE = GpuMeasure("gpu.sw_thermal_share", "", "of it, lowered by the driver for the temperature")
GPU_HW_THERMAL_SHARE = GpuMeasure("gpu.hw_thermal_share", "", "of it, at least halved by the board for the temperature")
GPU_POWER_BRAKE_SHARE = GpuMeasure(
    "gpu.power_brake_share", "", "of it, at least halved by a signal of the power supply"
)
GPU_POWER_CAPPED_SHARE = GpuMeasure(
    "gpu.power_capped_share", "", "share of the time in which the power limit held its clocks down"
)
GPU_CLOCK_SET_SHARE = GpuMeasure(
    "gpu.clock_set_share", "", "share of the readings under load in which a clock setting limited its clocks"
)
GPU_CLOCK_MHZ = GpuMeasure("gpu.clock_mhz", "MHz", "SM clock while it had work")
GPU_PEERS_CLOCK_MHZ = GpuMeasure(
    "gpu.peers_clock_mhz", "MHz", "median of the same for the job's other GPUs of this model"
)
GPU_TEMP_C = GpuMeasure("gpu.temp_c", "°C", "the hottest it was")
GPU_POWER_W = GpuMeasure("gpu.power_w", "W", "board power")
GPU_POWER_LIMIT_W = GpuMeasure("gpu.power_limit_w", "W", "power limit in force")
GPU_MEM_USED_MB = GpuMeasure("gpu.mem_used_mb", "MB", "memory in use, by any process")
GPU_UTIL_SHARE = GpuMeasure("gpu.util_share", "", "time some kernel was resident; never evidence of a cause")
GPU_SM_ACTIVE_SHARE = GpuMeasure("gpu.sm_active_share", "", "SMs that had work, where the GPU counts it")
GPU_TENSOR_ACTIVE_SHARE = GpuMeasure("gpu.tensor_active_share", "", "tensor cores at work, where the GPU counts it")
GPU_DRAM_ACTIVE_SHARE = GpuMeasure(
    "gpu.dram_active_share", "", "device memory bandwidth in use, where the GPU counts it"
)
GPU_PCIE_GEN = GpuMeasure("gpu.pcie_gen", "", "PCIe generation of the link while it had work")
GPU_PCIE_WIDTH = GpuMeasure("gpu.pcie_width", "lanes", "PCIe lanes of the link while it had work")
GPU_PCIE_RX_MB_PER_S = GpuMeasure("gpu.pcie_rx_mb_per_s", "MB/s", "received over PCIe")
GPU_NVLINK_MB_PER_S = GpuMeasure("gpu.nvlink_mb_per_s", "MB/s", "received over all NVLinks")
GPU_NVLINKS_ACTIVE = GpuMeasure("gpu.nvlinks_active", "links", "NVLinks that were up, the fewest over the whole run")
GPU_NVLINKS_DUE = GpuMeasure("gpu.nvlinks_due", "links", "NVLinks that should be up")
GPU_NVLINK_CRC_PER_S = GpuMeasure(
    "gpu.nvlink_crc_per_s", "errors/s", "damaged packets on its NVLinks, over the whole run"
)
GPU_NVLINK_RECOVERIES = GpuMeasure(
    "gpu.nvlink_recoveries", "events", "replays and recoveries of its NVLinks, over the whole run"
)
GPU_ERRORS_WATCHED = GpuMeasure("gpu.errors_watched", "kinds", "kinds of errors that could be looked for, of six")
GPU_UNCORRECTED_ERRORS = GpuMeasure(
    "gpu.uncorrected_errors", "errors", "uncorrectable memory errors that came in the run"
)
GPU_ROW_REMAP_PENDING = GpuMeasure("gpu.row_remap_pending", "", "1: a memory row waits for its replacement")
GPU_ROW_REMAP_FAILED = GpuMeasure("gpu.row_remap_failed", "", "1: a memory row remap failed")
GPU_RECOVERY_ACTION = GpuMeasure("gpu.recovery_action", "", "what the driver asks for: 0 nothing")
GPU_HARDWARE_XIDS = GpuMeasure("gpu.hardware_xids", "reports", "Xids in the run that no program brings about by itself")
GPU_LOST = GpuMeasure("gpu.lost", "", "1: the driver lost it, or asks for its reset")
GPU_FOREIGN_PROCESSES = GpuMeasure("gpu.foreign_processes", "processes", "processes of others that computed on it")
GPU_FOREIGN_MEM_MB = GpuMeasure("gpu.foreign_mem_mb", "MB", "their memory, the most")
GPU_UNEXPLAINED_MB = GpuMeasure(
    "gpu.unexplained_mb",
    "MB",
    "memory in use that neither torch nor a process's usual overhead explains, if no processes are listed",
)
GPU_FOREIGN_SM_SHARE = GpuMeasure("gpu.foreign_sm_share", "", "their share of its SM time")
GPU_NEAR_CPU_SHARE = RankMeasure(
    "gpu.near_cpu_share", "", "share of the CPUs this rank may run on that are near its GPU"
)
GPU_RESERVED_SHARE = RankMeasure(
    "gpu.reserved_share", "", "most that torch's allocator held, as a share of the GPU's memory"
)
GPU_PEAK_SHARE = RankMeasure("gpu.peak_share", "", "most that tensors took, as a share of the GPU's memory")
GPU_ALLOC_RETRIES = RankMeasure(
    "gpu.alloc_retries", "retries", "allocations in the steady steps that emptied torch's cache first"
)
GPU_FRAGMENTED_SHARE = RankMeasure(
    "gpu.fragmented_share", "", "share of the allocator's memory that tensors never used at once: 1 - peak / reserved"
)
GPU_MEMORY_WATCHED = RankMeasure("gpu.memory_watched", "readings", "readings of torch's allocator in the steady steps")
GPU_WATTS = JobMeasure(
    "gpu.watts", "W", "power of the job's GPUs together, from their energy counters or the reported power"
)
GPU_JOULES_PER_SAMPLE = JobMeasure("gpu.joules_per_sample", "J", "energy of the job's GPUs for each sample")
GPU_PAIRS = JobMeasure("gpu.pairs", "pairs", "pairs of the job's GPUs whose path is known")
GPU_IDLE_INPUT_S = RankMeasure(
    "gpu.idle_input_s", "s", "time per step in which the GPU was idle while the loop waited for its batch"
)
GPU_IDLE_GAP_S = RankMeasure(
    "gpu.idle_gap_s", "s", "time per step, at most, in which the GPU was idle between the optimizer and the next fetch"
)
GPU_HOST_STEP_S = RankMeasure(
    "gpu.host_step_s",
    "s",
    "what launching a step's passes takes the host, at least, in steps in which it did not wait for the GPU",
)
GPU_HOST_PACED_S = RankMeasure(
    "gpu.host_paced_s",
    "s",
    "forward, backward and optimizer with nothing queued: the GPU ran at the pace of the host's launches",
)
