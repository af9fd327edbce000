"""Measures from a rank's deep window on a GPU. Shares are of the kernels' time unless they say otherwise."""

from __future__ import annotations

from rn50_advisor.advisor.model.measures.measure import RankMeasure

KERNEL_WINDOW_STEPS = RankMeasure("kernel.window_steps", "steps", "steps that a deep window on a GPU covered")
KERNEL_BUSY_SHARE = RankMeasure("kernel.busy_share", "", "share of the window in which a kernel ran")
KERNEL_CONV_SHARE = RankMeasure("kernel.conv_share", "", "convolutions")
KERNEL_MATMUL_SHARE = RankMeasure("kernel.matmul_share", "", "matrix products and attention")
KERNEL_NORM_SHARE = RankMeasure("kernel.norm_share", "", "normalisation layers")
KERNEL_ELEMENTWISE_SHARE = RankMeasure("kernel.elementwise_share", "", "elementwise operations and reductions")
KERNEL_LAYOUT_SHARE = RankMeasure("kernel.layout_share", "", "reordering between channels-first and channels-last")
KERNEL_OPTIMIZER_SHARE = RankMeasure("kernel.optimizer_share", "", "the optimizer's step")
KERNEL_NCCL_SHARE = RankMeasure("kernel.nccl_share", "", "collectives")
KERNEL_OTHER_SHARE = RankMeasure("kernel.other_share", "", "everything else")
KERNEL_TENSOR_CORE_SHARE = RankMeasure(
    "kernel.tensor_core_share",
    "",
    "share of convolutions and matrix products (without attention) in kernels that use tensor cores",
)
KERNEL_ELIGIBLE_SHARE = RankMeasure("kernel.eligible_share", "", "convolutions and matrix products together")
KERNEL_IDLE_SHARE = RankMeasure(
    "kernel.idle_share", "", "share of a step in which the GPU stood idle, copies counted as idle"
)
KERNEL_IDLE_INPUT_SHARE = RankMeasure(
    "kernel.idle_input_share", "", "share of a step: idle while the host fetched a batch"
)
KERNEL_IDLE_COPY_SHARE = RankMeasure(
    "kernel.idle_copy_share", "", "share of a step: idle except for a copy, or while the host was blocked in one"
)
KERNEL_IDLE_SYNC_SHARE = RankMeasure(
    "kernel.idle_sync_share",
    "",
    "share of a step: idle after the host had waited for the GPU, for at most as long as it had",
)
KERNEL_IDLE_LAUNCH_SHARE = RankMeasure(
    "kernel.idle_launch_share", "", "share of a step: idle because the next kernel was launched too late"
)
KERNEL_IDLE_OTHER_SHARE = RankMeasure(
    "kernel.idle_other_share",
    "",
    "share of a step: idle although the next kernel was launched: streams wait for each other",
)
KERNEL_LAUNCHES = RankMeasure("kernel.launches", "launches", "kernels in a step")
KERNEL_MEAN_S = RankMeasure("kernel.mean_s", "s", "mean length of a kernel")
KERNEL_SYNCS = RankMeasure("kernel.syncs", "calls", "calls of a step in which the host waits for the GPU")
KERNEL_SYNC_S = RankMeasure("kernel.sync_s", "s", "time that these take on the host, per step")
KERNEL_PINNED_MB = RankMeasure("kernel.pinned_mb", "MB", "copied to the device from pinned memory, per step")
KERNEL_PINNED_MB_PER_S = RankMeasure(
    "kernel.pinned_mb_per_s", "MB/s", "median rate of large copies from pinned memory to the device"
)
KERNEL_PAGEABLE_MB = RankMeasure("kernel.pageable_mb", "MB", "copied to the device from pageable memory, per step")
KERNEL_PAGEABLE_S = RankMeasure("kernel.pageable_s", "s", "time that copies from pageable memory take, per step")
KERNEL_COPY_S = RankMeasure(
    "kernel.copy_s", "s", "copies and fills on the GPU, in every direction, per step; kernels may run meanwhile"
)
KERNEL_NCCL_S = RankMeasure("kernel.nccl_s", "s", "collectives on the GPU, per step")
KERNEL_NCCL_OVERLAP_SHARE = RankMeasure("kernel.nccl_overlap_share", "", "share of these hidden by other kernels")
KERNEL_ATTENTION_S = RankMeasure(
    "kernel.attention_s",
    "s",
    "attention computed in parts (scores, softmax, weighted sum), forward and backward, per step",
)
KERNEL_FLOPS = RankMeasure(
    "kernel.flops", "FLOP", "convolutions, matrix products and attention of a step, by their shapes"
)
