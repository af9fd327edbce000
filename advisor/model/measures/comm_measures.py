"""Measures of communication between ranks and of their network."""

from __future__ import annotations

from rn50_advisor.advisor.model.measures.measure import JobMeasure, RankMeasure

COMM_WIRE_S = JobMeasure(
    "comm.wire_s",
    "s",
    "exposed communication of the rank that arrives last: transfer time without waiting for other ranks",
)
COMM_WIRE_ERROR = JobMeasure("comm.wire_error", "", "two standard errors of comm.wire_s, as a share of it")
COMM_SPAN_S = JobMeasure(
    "comm.span_s",
    "s",
    "from the first all-reduce of a backward pass to the end of the last, what backward hides included",
)
COMM_SKEW_S = JobMeasure(
    "comm.skew_s", "s", "how much earlier the other ranks were done than the last one, mean over steps"
)
COMM_LATE_SHARE = RankMeasure("comm.late_share", "", "share of steps in which this rank arrived last by a clear margin")
COMM_LATE_RUN_STEPS = RankMeasure("comm.late_run_steps", "steps", "mean number of such steps in a row")
COMM_KEPT_WAITING_S = RankMeasure(
    "comm.kept_waiting_s", "s", "part of comm.skew_s from steps in which this rank was the last"
)
COMM_EXCESS_S = RankMeasure("comm.excess_s", "s", "own work of this rank beyond the median of the others")
COMM_EXCESS_ERROR_S = RankMeasure("comm.excess_error_s", "s", "two standard errors of comm.excess_s over the steps")
COMM_MEGABYTES = JobMeasure("comm.megabytes", "MB", "gradient bytes all-reduced per step")
COMM_EXCHANGES = JobMeasure(
    "comm.exchanges",
    "exchanges",
    "times that DDP exchanges the gradients in a step: one for each backward outside `no_sync`",
)
COMM_JOINED = JobMeasure(
    "comm.joined", "ranks", "ranks in one process group, as reported by torch.distributed or Horovod"
)
COMM_EXPOSED_S = RankMeasure(
    "comm.exposed_s", "s", "communication that this rank waits for after its own work, including waiting for late ranks"
)
COMM_HIDDEN_S = RankMeasure("comm.hidden_s", "s", "communication that overlapped with this rank's backward pass")
COMM_BUCKETS = JobMeasure("comm.buckets", "buckets", "parts in which DDP sends the gradients")
COMM_LARGEST_BUCKET = JobMeasure(
    "comm.largest_bucket", "share", "share of the gradients that lies in the largest of them"
)
COMM_BUS_GB_PER_S = JobMeasure(
    "comm.bus_gb_per_s", "GB/s", "carried by each link in a step's exchange: 2(N-1)/N of the bytes, over its time"
)
COMM_GLOO_ON_GPU = RankMeasure("comm.gloo_on_gpu", "", "1 where a model on a GPU exchanges its gradients by gloo")

COLLECTIVES_CALLS = RankMeasure("collectives.calls", "calls", "collectives that the job calls from Python in a step")
COLLECTIVES_MEGABYTES = RankMeasure("collectives.megabytes", "MB", "bytes that they move per step")
COLLECTIVES_TIMED_SHARE = RankMeasure(
    "collectives.timed_share",
    "",
    "share of this rank's time in collectives timed by NCCL, including computing that overlaps with them",
)
COLLECTIVES_HELD_S = RankMeasure(
    "collectives.held_s", "s", "time per step in which they block this rank, including waiting for late ranks"
)
COLLECTIVES_STREAM_S = RankMeasure(
    "collectives.stream_s",
    "s",
    "time per step in which this rank's GPU waits for them instead of computing, including waiting for late ranks",
)
COLLECTIVES_BY_HAND_S = JobMeasure(
    "collectives.by_hand_s", "s", "the rest between backward and optimizer, on the rank that is blocked shortest"
)
COLLECTIVES_METRICS_S = JobMeasure(
    "collectives.metrics_s",
    "s",
    "the part after the optimizer, and of calls before it that exchange only a few numbers, on the rank that is blocked shortest",
)
COLLECTIVES_MODEL_S = JobMeasure(
    "collectives.model_s",
    "s",
    "the part of forward and backward pass in which the model or its loss exchanges what it computes, on the rank that is blocked shortest",
)
COLLECTIVES_NORM_CALLS = RankMeasure(
    "collectives.norm_calls", "calls", "collectives of synchronised batch norm in a step"
)
COLLECTIVES_NORM_S = JobMeasure(
    "collectives.norm_s", "s", "time in which these block the rank that is blocked shortest"
)
COLLECTIVES_BUFFERS_S = JobMeasure(
    "collectives.buffers_s",
    "s",
    "time in which DDP's broadcasts of buffers block the rank that is blocked shortest",
)

NCCL_SOCKET = JobMeasure("nccl.socket", "", "1 where NCCL connects ranks by TCP")

NET_GBIT_PER_S = JobMeasure(
    "net.gbit_per_s", "Gbit/s", "nominal speed of the network card that the ranks exchange over"
)

DDP_SEARCHED = RankMeasure(
    "ddp.searched", "iterations", "iterations for which DDP reported the result of its search for unused parameters"
)
DDP_WITH_UNUSED = RankMeasure("ddp.with_unused", "iterations", "those in which it found some")
