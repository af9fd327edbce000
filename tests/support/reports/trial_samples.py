"""Results of `try` for every output. Not a test."""

from __future__ import annotations

from rn50_advisor.advisor.model.trials import MeasuredSpeedup, PastTrial, Predicted, Trial, Tried

DIFF = """--- a/train.py
+++ b/train.py
@@ -111,7 +111,7 @@
     loader = DataLoader(
         dataset,
-        num_workers=0,
+        num_workers=2,
         batch_size=64,
     )"""
WORKERS = Trial(
    "DAT003",
    "Data loading: batches made in the training process",
    "DataLoader.num_workers=2",
    "faster",
    predicted=Predicted(1.45, 1.3, 1.6),
    measured=MeasuredSpeedup(1.523, 1.49, 1.56, 8),
    applied="live",
    change="DataLoader(..., num_workers=2)",
    diff=DIFF,
)
THREADS = Trial(
    "CPU009",
    "Too few compute threads",
    "torch.set_num_threads(2)",
    "faster",
    predicted=Predicted(1.2, 1.1, 1.3),
    measured=MeasuredSpeedup(1.18, 1.12, 1.24, 16),
    applied="live",
    numbers="rounding",
    change="OMP_NUM_THREADS=2",
)
AUTOCAST = Trial(
    "CMP001",
    "Tensor Cores idle",
    'torch.autocast("cuda", torch.bfloat16)',
    "faster",
    predicted=Predicted(1.4, 1.1, 2.1),
    measured=MeasuredSpeedup(1.3, 1.26, 1.35, 4),
    applied="live",
    numbers="accuracy",
    change='with torch.autocast("cuda", torch.bfloat16): loss = ...',
)
FUSED = Trial(
    "CMP014",
    "The optimizer is not fused",
    "AdamW.fused=True",
    "no_gain",
    predicted=Predicted(1.05, 1.01, 1.1),
    measured=MeasuredSpeedup(1.001, 0.99, 1.02, 16),
    applied="restart",
    numbers="rounding",
)
SLOWER = Trial(
    "H2D001",
    "Copies from pageable memory",
    "DataLoader.pin_memory=True, DataLoader.pin_memory_device='cuda:0'",
    "no_gain",
    "5–9 % slower",
    predicted=Predicted(None, 1.0, 1.1),
    measured=MeasuredSpeedup(0.93, 0.91, 0.95, 8),
    applied="live",
)
BUCKETS = Trial(
    "COM004",
    "Exposed gradient exchange",
    "DistributedDataParallel.bucket_cap_mb=50",
    "undecided",
    "about 12 more pairs (1m 36s) would decide",
    predicted=Predicted(1.04, 1.0, 1.08),
    measured=MeasuredSpeedup(1.03, 0.97, 1.09, 16),
    applied="restart",
)
LOOP = Trial(
    "LOP002", "The loss is read in every step", "the training loop", "refused", "it rewrites the training loop"
)
BATCH = Trial(
    "CMP005", "The batch is small", "batch_size=128", "refused", "it changes the batch, and with it the training"
)
NOTES = (
    "writes were kept in memory and thrown away",
    "the network could not be held back: uploads of the job are real",
)


def several() -> Tried:
    """Every outcome, on a job that is slow for more than one reason."""
    return Tried(
        (WORKERS, THREADS, AUTOCAST, FUSED, SLOWER, BUCKETS, LOOP, BATCH),
        ("torchrun", "--nproc_per_node=2", "train.py", "--epochs", "1"),
        40.1,
        MeasuredSpeedup(1.71, 1.65, 1.78, 8),
        412.0,
        NOTES,
    )


def without_gain() -> Tried:
    return Tried((FUSED, SLOWER), ("python", "train.py"), 812.0, took_s=64.0)


def undecided() -> Tried:
    return Tried((FUSED, BUCKETS), ("python", "train.py"), None, took_s=180.0)


def nothing_tried() -> Tried:
    return Tried((LOOP,), ("python", "train.py"), 12.0)


PAST = (
    PastTrial(WORKERS.rule, WORKERS.knob, "faster", WORKERS.predicted, WORKERS.measured, "2026-11-28", "0.1.0", "2.14.1", "CPU"),
    PastTrial(WORKERS.rule, WORKERS.knob, "faster", Predicted(1.8, 1.6, 2.0), WORKERS.measured, "2026-11-29", "0.1.0", "2.14.1", "CPU"),
    PastTrial(BUCKETS.rule, BUCKETS.knob, "undecided", BUCKETS.predicted, BUCKETS.measured, "2026-11-29", "0.1.0", "2.15.0", "NVIDIA H200"),
    PastTrial(FUSED.rule, FUSED.knob, "no_gain", FUSED.predicted, FUSED.measured, "2026-11-30", "0.1.0", "2.15.0", "NVIDIA H200"),
)  # fmt: skip
