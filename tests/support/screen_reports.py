"""Reports as the analysis would make them, for the screen's tests: each a plain value, JSON round trip included."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from rn50_advisor.advisor.model.findings import Affected, Evidence, Finding, Fix, Saving, Where
from rn50_advisor.advisor.model.forecast.worker_curve import WorkerCurve, WorkerPoint
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.model.report import (
    Budget,
    Capacity,
    GpuStrip,
    HostStrip,
    Job,
    OutcomeRow,
    Overhead,
    RankStrip,
    Report,
    Segment,
    StepTime,
    Throughput,
    TimelinePoint,
    Verdict,
)

GIB = 2.0**30
TORCHRUN = ("torchrun", "--nproc_per_node=2", "samples/train.py", "--workers", "0", "--amp", "bf16")


CURVE = WorkerCurve(
    measured=0,
    knee=3,
    points=(
        WorkerPoint(0, (231.9, 231.9)),
        WorkerPoint(1, (240.0, 262.0)),
        WorkerPoint(2, (290.0, 322.0)),
        WorkerPoint(3, (330.0, 390.0)),
        WorkerPoint(4, (335.0, 400.0)),
        WorkerPoint(8, (335.0, 402.0)),
    ),
)


def timeline(level: float, points: int = 180, hole: range = range(0)) -> tuple[TimelinePoint, ...]:
    """A rate that warms up and breathes a little; nothing known in the hole."""

    def rate(i: int) -> float | None:
        return None if i in hole else level * (1 - 0.6 * math.exp(-i / 9)) * (1 + 0.04 * math.sin(i / 5))

    return tuple(TimelinePoint(i * 4.0, rate(i), None if rate(i) is None else 64 / rate(i)) for i in range(points))


def input_bound() -> Report:
    """DDP with two ranks that load in the training process."""
    budget = {"input_wait": 0.1701, "forward": 0.0262, "backward": 0.0533, "comm_exposed": 0.0081}
    budget |= {"optimizer": 0.0102, "gap": 0.0049, "unattributed": 0.0032}
    loading = Finding(
        rule="DAT003",
        title="loading happens in the training process",
        severity="critical",
        confidence=0.95,
        seconds_per_step=0.1701,
        scope=Affected(ranks=(0, 1), since_step=0),
        evidence=(
            Evidence(
                "input wait, share of the step", 0.616, "share", 0.05, "CPU burnt while waiting: work, not blocking"
            ),
            Evidence("num_workers", 0, "workers", None, "DataLoader at samples/train.py:88"),
            Evidence("preprocessing per sample", 0.00227, "s", None, "437 samples/s of one core"),
            Evidence("allowed cores idle", 5.9, "cores", 1.0),
        ),
        fixes=(
            Fix(
                "give the loader workers",
                "DataLoader(train_set, batch_size=32, num_workers=3, pin_memory=True, persistent_workers=True)",
                Where("samples/train.py", 88),
                "one line",
            ),
            Fix("decode smaller images", "store the data set resized to 256 px", None, "outside the code"),
        ),
        saving=Saving((0.118, 0.149), (1.75, 2.15), "T → max(T − w, prep/N), capped by compute at 628 samples/s"),
        explains=("CMP007",),
    )
    slower = Finding(
        rule="CMP007",
        title="rank 1 computes slower than the others",
        severity="low",
        confidence=0.6,
        seconds_per_step=0.006,
        scope=Affected(ranks=(1,)),
        evidence=(Evidence("forward and backward, over the median rank", 1.11, "×", 1.1),),
        explained_by="DAT003",
    )
    saving_often = Finding(
        rule="LOP001",
        title="checkpoints stop the training",
        severity="medium",
        confidence=0.8,
        seconds_per_step=0.0145,
        evidence=(Evidence("torch.save, share of the run", 0.052, "share", 0.03),),
        fixes=(Fix("save every epoch instead of every 50 steps", "", Where("samples/train.py", 142), "one line"),),
        saving=Saving((0.009, 0.013), (1.03, 1.05), "their own time"),
    )
    return Report(
        verdict=Verdict(
            "bottleneck",
            "DAT003",
            "loading happens in the training process",
            "Both ranks spend 62 % of each step decoding and augmenting images themselves (num_workers=0 at "
            "samples/train.py:88) while 5.9 of 8 cores stand idle. With three workers a rank the step falls from 276 ms to "
            "about 140 ms; then compute is the limit.",
        ),
        job=Job(TORCHRUN, None, 727.4, 2, running=True, name="resnet50-ddp"),
        throughput=Throughput(231.9, 3.62, 32, 2),
        step_time=StepTime(0.276, 0.3014, 2611, 2541),
        findings=(loading, saving_often, slower),
        outcomes=(
            OutcomeRow("DAT003", "fired"),
            OutcomeRow("LOP001", "fired"),
            OutcomeRow("CMP007", "fired"),
            *(
                OutcomeRow(rule, "clear")
                for rule in ("DAT001", "DAT004", "COM001", "COM002", "CPU002", "LOP002", "LOP003", "RUN001")
            ),
            OutcomeRow("DAT002", "not_measured", ("disk.read_bytes", "fetch_blocks")),
            OutcomeRow("CPU001", "not_measured", ("cgroup.throttled_s",)),
            OutcomeRow("LOP004", "crashed"),
        ),
        budget=Budget(budget, {0: dict(budget), 1: {**budget, "input_wait": 0.1652, "forward": 0.0311}}),
        capacities=(
            Capacity("storage", None, None, None, "everything came from the page cache: no cold read was seen"),
            Capacity("preprocessing", 437.0, 402.0, 471.0, "CPU time of fetches, one core a rank"),
            Capacity("loader", 228.4, 219.0, 236.0, "batches handed over while the rank waited"),
            Capacity("copy", None, None, None, "no CUDA device"),
            Capacity("compute", 628.0, 610.0, 655.0, "steps that never waited"),
            Capacity("communication", 5120.0, 4700.0, 5600.0, "all-reduce of 97.5 MB over gloo"),
        ),
        segments=(
            Segment("warm-up", 0, 32, 0, 70),
            Segment("epoch", 32, 500, 71, 1700, "1"),
            Segment("checkpoint", 500, 506),
        ),
        timeline=timeline(231.9, hole=range(125, 128)),
        worker_curve=CURVE,
        environment={"host": "trainer-3", "torch": "2.15.0", "python": "3.11.4", "cores": 8, "kernel": "6.1.0"},
        facts={"loader": {"file": "samples/train.py", "line": 88, "num_workers": 0}},
        gaps=(
            ProbeGap("gpu.util_pct", "host", "no NVIDIA driver on this machine", "expected on a CPU machine"),
            ProbeGap("psi.cpu_some_s", "host", "/proc/pressure is absent", "boot with psi=1"),
            ProbeGap("cgroup.throttled_s", "job", "no CPU controller above the job"),
        ),
        overhead=Overhead(14.2, 0.00005, 0.21, 0.008, ("per-process disk",), 0.0137),
        ranks=(
            RankStrip(0, 4711, True, "input_wait", 0.121, 2611, 0.2761, 0.47),
            RankStrip(1, 4712, True, "backward", 0.034, 2611, 0.2758, 0.53),
        ),
        host=HostStrip(
            "trainer-3", 8, 8, 2.13, 2.05, 0.2, None, 11.7 * GIB, 62.8 * GIB, 0.02 * GIB, 31.4 * GIB, 0.4, 1.0, 188.0
        ),
    )


def gpu(index: int, util_pct: float = 97.0) -> GpuStrip:
    return GpuStrip(
        index,
        "NVIDIA H100 80GB HBM3",
        util_pct,
        61.2 * GIB,
        79.6 * GIB,
        612.0 + index,
        700.0,
        1755.0,
        1980.0,
        60.0 + index,
    )


def healthy() -> Report:
    """Eight GPUs, compute-bound, nothing to say."""
    budget = {"input_wait": 0.0004, "forward": 0.031, "backward": 0.0692, "comm_exposed": 0.0019, "optimizer": 0.0021}
    budget |= {"gap": 0.0007, "unattributed": 0.0002}
    return Report(
        verdict=Verdict(
            "healthy",
            None,
            "compute takes the time",
            "95 % of each step is forward and backward; nothing worth fixing was found.",
        ),
        job=Job(("torchrun", "--nproc_per_node=8", "train.py"), None, 8040.0, 8, running=True, name="rn50-h100x8"),
        throughput=Throughput(19421.0, 9.48, 256, 8),
        step_time=StepTime(0.1055, 0.1071, 76219, 76120),
        outcomes=tuple(
            OutcomeRow(rule, "clear") for rule in ("DAT001", "DAT002", "DAT003", "DAT004", "COM001", "CPU001")
        ),
        budget=Budget(budget, {rank: dict(budget) for rank in range(8)}),
        capacities=(
            Capacity("storage", 92000.0, 88000.0, 97000.0, "cold reads of epoch 1"),
            Capacity("preprocessing", 24100.0, 23000.0, 25600.0, "worker CPU time, 12 workers a rank"),
            Capacity("loader", 51000.0, 47000.0, 60000.0, "hand-over while workers were ready"),
            Capacity("copy", 310000.0, 290000.0, 330000.0, "52 GB/s pinned"),
            Capacity("compute", 19790.0, 19700.0, 19900.0, "CUDA events"),
            Capacity("communication", 410000.0, 350000.0, 470000.0, "all-reduce, 470 GB/s"),
        ),
        timeline=timeline(19421.0, 240),
        overhead=Overhead(31.0, 0.0003, 0.27, 0.012),
        ranks=tuple(RankStrip(r, 9000 + r, True, "backward", 0.012, 76219, 0.1055, 0.125) for r in range(8)),
        host=HostStrip(
            "dgx-17", 192, 192, 101.7, 99.8, 0.0, 0.0, 310 * GIB, 2000 * GIB, 41 * GIB, 1000 * GIB, 2210.0, 31.0, 4.1
        ),
        gpus=tuple(gpu(i, 97.0 + i % 3) for i in range(8)),
    )


def hang() -> Report:
    """Rank 1 stuck in user code for a while; the other waits in its all-reduce."""
    stuck = Finding(
        "RUN001",
        "the job hangs: rank 1 has been in augment() for 4m 12s",
        "critical",
        0.97,
        252.0,
        Affected(ranks=(1,), since_step=412),
        (
            Evidence("no step for", 252.0, "s", 30.0),
            Evidence(
                "rank 1 is in", "augment (data/augment.py:57)", "", None, "stack sampled three times, always there"
            ),
        ),
        (
            Fix(
                "look at the loop that does not end",
                "while crop.area < minimum: retry()",
                Where("data/augment.py", 57),
                "small change",
            ),
        ),
        fatal=True,
    )
    ranks = (
        RankStrip(0, 100, True, "backward", 251.7, 412, 0.31, None),
        RankStrip(1, 101, True, "input_wait", 252.0, 412, 0.31, 1.0),
    )
    return replace(
        input_bound(),
        verdict=Verdict(
            "failed", "RUN001", stuck.title, "Rank 0 waits for it in the gradient all-reduce since step 412."
        ),
        findings=(stuck,),
        ranks=ranks,
    )


def dead_rank() -> Report:
    """Rank 1 was killed and torchrun ended the job."""
    died = Finding(
        "RUN002",
        "rank 1 died first: SIGKILL by the OOM killer",
        "critical",
        1.0,
        0.0,
        Affected(ranks=(1,)),
        (Evidence("memory of the cgroup", 15.9 * GIB, "bytes", 16.0 * GIB),),
        (Fix("give the job more memory or fewer prefetched batches", effort="outside the code"),),
        fatal=True,
    )
    return replace(
        input_bound(),
        verdict=Verdict("failed", "RUN002", died.title, "torchrun ended the other ranks two seconds later."),
        job=Job(TORCHRUN, 1, 93.0, 2, running=False, name="resnet50-ddp"),
        findings=(died,),
        ranks=(RankStrip(0, 100, False, "ended", 1.0, 301, 0.29), RankStrip(1, 101, False, "forward", 3.2, 301, 0.29)),
    )


def young() -> Report:
    """Started seconds ago: processes, no step."""
    return Report(
        verdict=Verdict("inconclusive", None, "too young to judge", "No step has ended yet."),
        job=Job(TORCHRUN, None, 6.3, 2, running=True),
        throughput=Throughput(None, None, None, 2),
        step_time=StepTime(None, None, 0, 0),
        ranks=(RankStrip(0, 100, True, "start", 3.1, 0, None), RankStrip(1, 101, True, "start", 2.9, 0, None)),
        host=HostStrip("trainer-3", 8, 8, 3.1, 2.9),
    )


def inconclusive() -> Report:
    """Steps, but too much could not be seen."""
    return replace(
        input_bound(),
        verdict=Verdict(
            "inconclusive",
            None,
            "input wait is unknown",
            "The job's loader is no DataLoader: its waiting cannot be seen.",
        ),
        findings=(),
        capacities=(),
        budget=Budget({"forward": 0.03, "backward": 0.05, "unattributed": 0.19}),
    )


def empty() -> Report:
    """None wherever a report allows it."""
    return Report(
        verdict=Verdict("inconclusive", None, "", ""),
        job=Job((), None, 0.0, 0),
        throughput=Throughput(None, None, None, 0),
        step_time=StepTime(None, None, 0, 0),
        findings=(Finding("XXX000", "", "info", 0.0, 0.0, evidence=(Evidence("x", None),), fixes=(Fix(""),)),),
        outcomes=(OutcomeRow("XXX000", "not_measured"),),
        budget=Budget({"gap": 0.0}, {0: {}}),
        capacities=(Capacity("storage", None, None, None, ""), Capacity("loader", 5.0, None, None, "")),
        timeline=(TimelinePoint(0.0, None, None), TimelinePoint(1.0, math.nan, None)),
        gaps=(ProbeGap("", "", ""),),
        ranks=(RankStrip(0, 1, True, "", 0.0, 0, None),),
        host=HostStrip(""),
        gpus=(GpuStrip(0, ""),),
    )


def many_ranks(count: int = 64, slow: int = 41) -> Report:
    """One slow rank among many."""
    base = {"input_wait": 0.002, "forward": 0.031, "backward": 0.069, "comm_exposed": 0.021, "optimizer": 0.002}
    late = {**base, "forward": 0.05, "comm_exposed": 0.002}
    straggler = Finding(
        "CMP007",
        f"rank {slow} computes slower than the others",
        "high",
        0.9,
        0.02,
        Affected(ranks=(slow,)),
        explains=("COM002",),
    )
    return replace(
        healthy(),
        verdict=Verdict("bottleneck", "CMP007", straggler.title, f"63 ranks wait for rank {slow} in every step."),
        job=Job(("srun", "python", "train.py"), None, 5000.0, count, running=True),
        findings=(straggler,),
        budget=Budget(late, {rank: late if rank == slow else base for rank in range(count)}),
        ranks=tuple(
            RankStrip(
                r,
                9000 + r,
                True,
                "forward" if r == slow else "backward",
                0.01 * (r % 7),
                500,
                0.125,
                0.97 if r == slow else 0.0,
            )
            for r in range(count)
        ),
    )


def round_trip(report: Report) -> Report:
    return from_json(json.loads(json.dumps(report.as_json())))


ALL = {
    "input_bound": input_bound,
    "healthy": healthy,
    "hang": hang,
    "dead_rank": dead_rank,
    "young": young,
    "inconclusive": inconclusive,
    "empty": empty,
    "many_ranks": many_ranks,
}
