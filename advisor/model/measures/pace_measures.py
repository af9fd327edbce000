"""Measures of a rank's use of its GPU: waits for it, copies to it, precision, and speed compared with published results."""

from __future__ import annotations

from rn50_advisor.advisor.model.measures.measure import JobMeasure, RankMeasure

COPY_FLOAT_PICTURES_MB = RankMeasure(
    "copy.float_pictures_mb", "MB", "images copied to the device as floating-point numbers although they are bytes"
)
COPY_MB = RankMeasure("copy.mb", "MB", "copied to the GPU by the training thread, in a step")
COPY_PAGEABLE_MB = RankMeasure("copy.pageable_mb", "MB", "the part from memory that is not pinned")
COPY_PAGEABLE_S = RankMeasure("copy.pageable_s", "s", "time per step that the host spends in these copies, at least")
COPY_BLOCKING_MB = RankMeasure(
    "copy.blocking_mb", "MB", "the part from pinned memory by calls that wait for the end of the copy"
)
COPY_BLOCKING_S = RankMeasure("copy.blocking_s", "s", "time per step that the host spends in these copies")

SYNC_LOOKS = RankMeasure("sync.looks", "steps", "steps in which calls that wait for the GPU were searched for")
SYNC_CALLS = RankMeasure(
    "sync.calls", "calls", "calls in a step that wait for the GPU, at places that do so in most steps"
)
SYNC_BLOCKED_S = RankMeasure("sync.blocked_s", "s", "time per step that the host spends in these calls")

PRECISION_HALF = RankMeasure(
    "precision.half", "", "1: layers compute in half precision, by autocast or by their weights"
)
PRECISION_TF32 = RankMeasure(
    "precision.tf32", "", "1: the operations that dominate this model, convolutions or matrix products, may use TF32"
)
PRECISION_BF16 = RankMeasure("precision.bf16", "", "1: the half precision that layers compute in is bfloat16")
PRECISION_CAPABILITY = RankMeasure("precision.capability", "", "compute capability of the GPU")

LAYOUT_CHANNELS_FIRST = RankMeasure(
    "layout.channels_first",
    "",
    "1: input and weights of the first convolution lie channels-first; 0: one of them does not",
)

PARALLEL_DEVICES = RankMeasure("parallel.devices", "GPUs", "GPUs across which DataParallel splits each batch")

REFERENCE_IMAGES_PER_S = JobMeasure(
    "reference.images_per_s",
    "images/s",
    "what typical PyTorch programs reach with this model, precision and GPUs, by the lowest source",
)
REFERENCE_TUNED_IMAGES_PER_S = JobMeasure(
    "reference.tuned_images_per_s", "images/s", "the ceiling that a vendor's own kernels reach"
)
REFERENCE_OBSERVED_IMAGES_PER_S = JobMeasure(
    "reference.observed_images_per_s",
    "images/s",
    "images, or a transformer's sequences, per second of this job over its steps without stalls",
)

ROOFLINE_FLOPS_PER_SAMPLE = RankMeasure(
    "roofline.flops_per_sample",
    "FLOP",
    "training on one sample: of the model as a table knows it, or counted in a deep window",
)
ROOFLINE_TFLOPS = RankMeasure("roofline.tflops", "TFLOP/s", "arithmetic of the model, stalls included")
ROOFLINE_MFU = RankMeasure("roofline.mfu", "", "share of the peak of the GPU's units for this precision")
