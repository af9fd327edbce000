"""Small reports made by hand for the tests of the report formats."""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.model.findings import Affected, Evidence, Finding, Fix, Saving, Where
from rn50_advisor.advisor.model.forecast.worker_curve import WorkerCurve, WorkerPoint
from rn50_advisor.advisor.model.metrics import ProbeGap
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

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a|b||c",
    "line one\nline two\r\n# heading",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "`tick` ```fence```",
    "{{ 7*7 }} {% raw %}",
    "\"quote' &amp; --> ]]>",
    "\u202egnp.exe\u2028next",
    "bytes \udcff\udcfe",
    "x" * 10_240,
)

CURVE = WorkerCurve(
    measured=0,
    knee=3,
    points=(
        WorkerPoint(0, (109.0, 109.0)),
        WorkerPoint(1, (140.0, 160.0)),
        WorkerPoint(2, (250.0, 300.0)),
        WorkerPoint(3, (330.0, 390.0)),
        WorkerPoint(4, (335.0, 400.0)),
        WorkerPoint(8, (335.0, 402.0)),
    ),
)

LOADER = Finding(
    rule="DAT003",
    title="Loading happens in the training process",
    severity="critical",
    confidence=0.95,
    seconds_per_step=0.412,
    scope=Affected(ranks=(0, 1)),
    evidence=(
        Evidence("input_wait_share", 0.704, "share", 0.05, "of the steady step, on the critical path"),
        Evidence("num_workers", 0, "", None, "DataLoader at samples/train.py:142"),
        Evidence("fetch_cpu_share", 0.97, "share", 0.7, "of loading is work of the training thread itself"),
    ),
    fixes=(
        Fix(
            "load in worker processes: num_workers=6",
            "DataLoader(train_set, batch_size=32,\n           num_workers=6, pin_memory=True, persistent_workers=True)",
            Where("samples/train.py", 142),
            "one line",
        ),
        Fix("decode smaller images", "", None, "larger change"),
    ),
    saving=Saving(
        (0.31, 0.38), (2.13, 2.86), "six workers deliver 290–360 samples/s by what one core did here; compute caps it"
    ),
    explains=("COM002",),
)
STRAGGLER = Finding(
    rule="COM002",
    title="Ranks wait for a straggler",
    severity="medium",
    confidence=0.8,
    seconds_per_step=0.048,
    scope=Affected(ranks=(1,), since_step=40),
    evidence=(Evidence("arrival_skew", 0.048, "s", 0.058, "rank 1 arrives last in 81 % of steps"),),
    explained_by="DAT003",
)
CHECKPOINT = Finding(
    rule="LOP001",
    title="Checkpoints stop the training",
    severity="low",
    confidence=0.9,
    seconds_per_step=0.019,
    evidence=(Evidence("checkpoint_share", 0.032, "share", 0.03, "one torch.save of 98 MiB every 50 steps"),),
    fixes=(Fix("save every 500 steps, or in the background", "", Where("samples/train.py", 231)),),
    saving=Saving((0.01, 0.019), (1.02, 1.03), "the time itself"),
)


def bottleneck() -> Report:
    """Two ranks starved by loading in their own process; one cause, one victim, one small independent finding."""
    critical = {"input_wait": 0.412, "forward": 0.058, "backward": 0.071, "comm_exposed": 0.009, "optimizer": 0.012}
    critical |= {"gap.checkpoint": 0.019, "gap": 0.002, "unattributed": 0.004}
    timeline = tuple(TimelinePoint(t, 30 + 12 * (t > 8) + (t % 5), 0.58, 0.7) for t in range(2, 240, 2))
    return Report(
        verdict=Verdict(
            "bottleneck",
            "DAT003",
            "Loading happens in the training process",
            "70 % of every step is spent decoding images in the training process itself, on both ranks.",
        ),
        job=Job(
            ("torchrun", "--nproc_per_node=2", "samples/train.py", "--batch-size", "32"),
            0,
            252.4,
            2,
            name="resnet50-2ranks",
        ),
        throughput=Throughput(109.0, 1.703, 32, 2),
        step_time=StepTime(0.587, 0.702, 430, 412),
        findings=(LOADER, STRAGGLER, CHECKPOINT),
        outcomes=(
            OutcomeRow("DAT003", "fired"),
            OutcomeRow("COM002", "fired"),
            OutcomeRow("LOP001", "fired"),
            OutcomeRow("CMP007", "clear"),
            OutcomeRow("COM001", "clear"),
            OutcomeRow("CPU002", "not_measured", ("cpu.steal_s",)),
            OutcomeRow("DAT002", "crashed", ("ZeroDivisionError: division by zero",)),
        ),
        budget=Budget(critical, {0: critical, 1: {**critical, "input_wait": 0.431, "comm_exposed": 0.0}}),
        capacities=(
            Capacity("storage", 2310.0, 1900.0, 2700.0, "blocks read against time blocked, 412 steps"),
            Capacity("preprocessing", 154.0, 148.0, 161.0, "two ranks, each one core, 13 ms of CPU a sample"),
            Capacity("loader", None, None, None, "no worker ran, so nothing was handed over"),
            Capacity("compute", 424.0, 410.0, 440.0, "forward, backward and optimizer without waiting"),
            Capacity("communication", 7100.0, 6400.0, 7600.0, "98 MiB all-reduce a step over lo"),
        ),
        segments=(
            Segment("warm-up", 1.5, 8.0, 0, 8),
            Segment("epoch", 8.0, 120.0, 9, 210, "epoch 1"),
            Segment("checkpoint", 120.0, 128.0, 210, 211),
            Segment("epoch", 128.0, 250.0, 211, 429, "epoch 2"),
        ),
        worker_curve=CURVE,
        timeline=timeline,
        environment={
            "started": 1738324800.5,
            "host": "node-a",
            "kernel": "6.1.0",
            "cores": 16,
            "gpus": [],
            "env": {"OMP_NUM_THREADS": "1"},
        },
        facts={"torch": "2.8.0", "backend": "gloo"},
        gaps=(ProbeGap("cpu.steal_s", "host", "this kernel does not count stolen time", "run on the host to see it"),),
        overhead=Overhead(14.2, 0.000024, 0.21, 0.008, ("stacks",), 0.0137),
        ranks=(
            RankStrip(0, 4711, True, "input_wait", 0.2, 430, 0.58, 0.19),
            RankStrip(1, 4712, True, "forward", 0.1, 430, 0.59, 0.81),
        ),
        host=HostStrip("node-a", 16, 8, 2.1, 2.0, 0.0, 0.0, 9e9, 64e9, 1e6, 32e9, 12.0, 3.0, 0.1),
        gpus=(GpuStrip(0, "NVIDIA H200", 41, 20e9, 150e9, 310, 700, 1980, 1980, 48),),
    )


def healthy() -> Report:
    phases = {"input_wait": 0.001, "forward": 0.06, "backward": 0.12, "optimizer": 0.01, "unattributed": 0.001}
    return Report(
        verdict=Verdict(
            "healthy", None, "Compute takes the time", "94 % of the step is computing; nothing worth fixing was found."
        ),
        job=Job(("python", "train.py"), 0, 61.0, 1, name="healthy"),
        throughput=Throughput(333.0, 5.2, 64, 1),
        step_time=StepTime(0.192, 0.199, 300, 290),
        budget=Budget(phases, {0: phases}),
        outcomes=(OutcomeRow("DAT003", "clear"),),
    )


def inconclusive() -> Report:
    """A job in which nothing was seen: every optional value is absent."""
    return Report(
        verdict=Verdict("inconclusive", None, "Too few steps", "2 steps were seen; 20 are needed."),
        job=Job(("true",), 0, 0.2, 0),
        throughput=Throughput(None, None, None, 0),
        step_time=StepTime(None, None, 0, 0),
        gaps=(ProbeGap("steps", "job", "no process trained", "python -I, -S or -E keeps the recorder out"),),
    )


def failed() -> Report:
    finding = Finding(
        rule="RUN002",
        title="Rank 1 died of SIGKILL",
        severity="critical",
        confidence=1.0,
        seconds_per_step=0.0,
        scope=Affected(ranks=(1,), hosts=("node-a",)),
        evidence=(Evidence("signal", "SIGKILL", "", None, "first of two ranks to end"),),
        fatal=True,
    )
    return replace(
        bottleneck(),
        verdict=Verdict("failed", "RUN002", finding.title, "Rank 1 was killed at step 200; rank 0 followed 2 s later."),
        findings=(finding,),
        job=Job(("torchrun", "train.py"), 1, 99.0, 2, name="killed"),
    )


def hostile() -> Report:
    """Strings that attack each format, everywhere a string can stand."""
    nasty = " ".join(HOSTILE[:-1])
    finding = Finding(
        rule="DAT003",
        title=nasty,
        severity="critical",
        confidence=0.5,
        seconds_per_step=0.1,
        scope=Affected(hosts=(nasty,)),
        evidence=tuple(Evidence(text, text, text, 1.0, text) for text in HOSTILE),
        fixes=tuple(Fix(text, text, Where(text, 1)) for text in HOSTILE),
        saving=Saving((0.1, 0.2), (1.1, 1.2), nasty),
    )
    base = bottleneck()
    return replace(
        base,
        verdict=Verdict("bottleneck", "DAT003", nasty, nasty),
        job=Job(tuple(HOSTILE), 1, 3.0, 2, name=nasty, exit_signal=None),
        findings=(finding,),
        outcomes=(
            OutcomeRow("DAT003", "fired"),
            OutcomeRow(nasty, "not_measured", HOSTILE),
            OutcomeRow("X", "crashed", (nasty,)),
        ),
        budget=Budget({**base.budget.critical, nasty: 0.1}, base.budget.per_rank),
        capacities=tuple(Capacity(text, 10.0, 9.0, 11.0, text) for text in HOSTILE),
        segments=tuple(Segment("epoch", 0.0, 1.0, 0, 1, text) for text in HOSTILE),
        environment={text: text for text in HOSTILE},
        facts={"list": list(HOSTILE), "nested": {nasty: {nasty: nasty}}, "nan": float("nan")},
        gaps=tuple(ProbeGap(text, text, text, text) for text in HOSTILE),
        overhead=Overhead(1.0, 0.1, 0.1, 0.1, HOSTILE),
        host=HostStrip(nasty),
        gpus=(GpuStrip(0, nasty),),
    )


def many_ranks(count: int = 256) -> Report:
    base = bottleneck()
    row = base.budget.per_rank[0]
    return replace(
        base,
        budget=Budget(base.budget.critical, {rank: {**row, "forward": 0.05 + rank * 1e-4} for rank in range(count)}),
    )


ALL = {
    "bottleneck": bottleneck,
    "healthy": healthy,
    "inconclusive": inconclusive,
    "failed": failed,
    "hostile": hostile,
    "many_ranks": many_ranks,
}
