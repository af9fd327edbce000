"""Hand-made reports for the tests of all formats and of the screen. Not a test."""

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
    NodeStrip,
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
        Evidence(
            "input_wait_share", 0.704, "share", 0.05, "of the steady step, on the critical path", form="continues"
        ),
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
        (0.31, 0.38),
        (2.13, 2.86),
        "six workers deliver 290–360 samples/s by what one core did here; compute caps it",
        likely=2.47,
        confidence=0.8,
        bounds=(1.91, 3.67),
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
    """Two ranks starved by loading in their own process; one cause, one symptom, one small independent finding."""
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
            *(OutcomeRow(rule, "clear") for rule in ("CMP007", "COM001", "DAT001", "LOP002", "LOP003", "RUN001")),
            OutcomeRow("CPU002", "not_measured", ("cpu.steal_s",)),
            OutcomeRow("DAT002", "crashed", ("ZeroDivisionError: division by zero",)),
        ),
        budget=Budget(critical, {0: critical, 1: {**critical, "input_wait": 0.431, "comm_exposed": 0.0}}),
        capacities=(
            Capacity("storage", 2310.0, 1900.0, 2700.0, "blocks read against time blocked, 412 steps"),
            Capacity("preprocessing", 154.0, 148.0, 161.0, "two ranks, each one core, 13 ms of CPU per sample"),
            Capacity("loader", None, None, None, "no worker ran, so nothing was transferred"),
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
        gaps=(
            ProbeGap("cpu.steal_s", "host", "this kernel does not count stolen time", "run on the host to see it"),
            ProbeGap("cgroup.throttled_s", "job", "no CPU controller above the job"),
        ),
        overhead=Overhead(14.2, 0.000024, 0.21, 0.008, ("stacks",), 0.0137),
        ranks=(
            RankStrip(0, 4711, True, "input_wait", 0.2, 430, 0.58, 0.19),
            RankStrip(1, 4712, True, "forward", 0.1, 430, 0.59, 0.81),
        ),
        host=HostStrip("node-a", 16, 8, 2.1, 2.0, 0.0, 0.0, 9e9, 64e9, 1e6, 32e9, 12.0, 3.0, 0.1),
        gpus=(GpuStrip(0, "NVIDIA H200", 41, 20e9, 150e9, 310, 700, 1980, 1980, 48),),
    )


def running() -> Report:
    """The same job while it runs, on a machine without GPU."""
    report = bottleneck()
    no_gpu = ProbeGap("gpu.util_pct", "host", "no NVIDIA driver on this machine", "expected on a CPU machine")
    job = replace(report.job, exit_code=None, running=True)
    return replace(report, job=job, gpus=(), gaps=(no_gpu, *report.gaps))


def on_two_hosts() -> Report:
    """The running job with a rank on each host; the report's values are those of the second host."""
    report = running()
    ranks = tuple(replace(strip, host=f"node{place}") for place, strip in enumerate(report.ranks))
    nodes = tuple(
        NodeStrip(strip.host, (strip.rank,), HostStrip(strip.host, cores=8, busy_cores=3.5), shown=strip.rank == 1)
        for strip in ranks
    )
    return replace(report, ranks=ranks, nodes=nodes)


def gpu(index: int, util_pct: float = 97.0) -> GpuStrip:
    power_w, celsius = 612.0 + index, 60.0 + index
    return GpuStrip(
        index, "NVIDIA H100 80GB HBM3", util_pct, 61.2 * GIB, 79.6 * GIB, power_w, 700.0, 1755.0, 1980.0, celsius
    )


def healthy() -> Report:
    """Eight GPUs, compute-bound, no finding."""
    phases = {"input_wait": 0.0004, "forward": 0.031, "backward": 0.0692, "comm_exposed": 0.0019, "optimizer": 0.0021}
    phases |= {"gap": 0.0007, "unattributed": 0.0002}
    rates = (19_421.0 * (1 - 0.6 * math.exp(-i / 9)) for i in range(240))
    return Report(
        verdict=Verdict(
            "healthy", None, "Compute-bound", "95 % of the step is computing; nothing worth fixing was found."
        ),
        job=Job(("torchrun", "--nproc_per_node=8", "train.py"), None, 8040.0, 8, running=True, name="rn50-h100x8"),
        throughput=Throughput(19_421.0, 9.48, 256, 8),
        step_time=StepTime(0.1055, 0.1071, 76_219, 76_120),
        outcomes=tuple(OutcomeRow(rule, "clear") for rule in ("DAT001", "DAT002", "DAT003", "COM001", "CPU001")),
        budget=Budget(phases, {rank: dict(phases) for rank in range(8)}),
        capacities=(
            Capacity("storage", 92_000.0, 88_000.0, 97_000.0, "cold reads of epoch 1"),
            Capacity("preprocessing", 24_100.0, 23_000.0, 25_600.0, "worker CPU time, 12 workers per rank"),
            Capacity("copy", 310_000.0, 290_000.0, 330_000.0, "52 GB/s pinned"),
            Capacity("compute", 19_790.0, 19_700.0, 19_900.0, "CUDA events"),
        ),
        timeline=tuple(TimelinePoint(i * 4.0, rate, 0.1055) for i, rate in enumerate(rates)),
        overhead=Overhead(31.0, 0.0003, 0.27, 0.012),
        ranks=tuple(RankStrip(rank, 9000 + rank, True, "backward", 0.012, 76_219, 0.1055, 0.125) for rank in range(8)),
        host=HostStrip(
            "dgx-17", 192, 192, 101.7, 99.8, 0.0, 0.0, 310 * GIB, 2000 * GIB, 41 * GIB, 1000 * GIB, 2210.0, 31.0, 4.1
        ),
        gpus=tuple(gpu(i, 97.0 + i % 3) for i in range(8)),
    )


def with_energy() -> Report:
    """The healthy report, with the power of its GPUs."""
    report = healthy()
    return replace(report, throughput=replace(report.throughput, watts=512.0, joules_per_sample=1.5375))


def failed(finding: Finding, why: str) -> Report:
    """The running job with a fatal finding."""
    verdict = Verdict("failed", finding.rule, finding.title, why)
    return replace(running(), verdict=verdict, findings=(finding,))


def hang() -> Report:
    """Rank 1 stuck in user code for a while; the other waits in its all-reduce."""
    place = Evidence(
        "rank 1 is in", "augment (data/augment.py:57)", note="in each of three samples of its stack", form="continues"
    )
    fix = Fix("look at the loop", "while crop.area < minimum: retry()", Where("data/augment.py", 57), "small change")
    stuck = Finding(
        rule="RUN001",
        title="the job hangs: rank 1 has been in augment() for 4m 12s",
        severity="critical",
        confidence=0.97,
        seconds_per_step=252.0,
        scope=Affected(ranks=(1,), since_step=412),
        evidence=(Evidence("no step for", 252.0, "s", 30.0), place),
        fixes=(fix,),
        fatal=True,
    )
    ranks = (
        RankStrip(0, 100, True, "backward", 251.7, 412, 0.31, None),
        RankStrip(1, 101, True, "input_wait", 252.0, 412, 0.31, 1.0),
    )
    return replace(failed(stuck, "Rank 0 waits for it in the gradient all-reduce since step 412."), ranks=ranks)


def dead_rank() -> Report:
    """Rank 1 was killed and torchrun ended the job."""
    died = Finding(
        rule="RUN002",
        title="rank 1 died first: SIGKILL by the OOM killer",
        severity="critical",
        confidence=1.0,
        seconds_per_step=0.0,
        scope=Affected(ranks=(1,), hosts=("node-a",)),
        evidence=(Evidence("memory of the cgroup", 15.9 * GIB, "bytes", 16.0 * GIB),),
        fixes=(Fix("give the job more memory or fewer prefetched batches", effort="outside the code"),),
        fatal=True,
    )
    return replace(
        failed(died, "torchrun ended the other ranks two seconds later."),
        job=Job(("torchrun", "train.py"), 1, 93.0, 2, name="killed"),
        ranks=(RankStrip(0, 100, False, "ended", 1.0, 301, 0.29), RankStrip(1, 101, False, "forward", 3.2, 301, 0.29)),
    )


def young() -> Report:
    """A job that started seconds ago: processes, but no step."""
    return Report(
        verdict=Verdict("inconclusive", None, "too young to judge", "No step has ended yet."),
        job=Job(("torchrun", "train.py"), None, 6.3, 2, running=True),
        throughput=Throughput(None, None, None, 2),
        step_time=StepTime(None, None, 0, 0),
        ranks=(RankStrip(0, 100, True, "start", 3.1, 0, None), RankStrip(1, 101, True, "start", 2.9, 0, None)),
        host=HostStrip("node-a", 8, 8, 3.1, 2.9),
    )


def inconclusive() -> Report:
    """A job without any measurement: every optional value is absent."""
    return Report(
        verdict=Verdict("inconclusive", None, "Too few steps", "2 steps were seen; 20 are needed."),
        job=Job(("true",), 0, 0.2, 0),
        throughput=Throughput(None, None, None, 0),
        step_time=StepTime(None, None, 0, 0),
        gaps=(ProbeGap("steps", "job", "no process trained", "python -I, -S or -E keeps the recorder out"),),
    )


def empty() -> Report:
    """None or an empty value wherever a report allows it."""
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


def many_ranks(count: int = 64, slow: int = 41) -> Report:
    """One slow rank among many."""
    others = {"input_wait": 0.002, "forward": 0.031, "backward": 0.069, "comm_exposed": 0.021, "optimizer": 0.002}
    late = {**others, "forward": 0.05, "comm_exposed": 0.002}
    about = Affected(ranks=(slow,))
    straggler = Finding("CMP007", f"rank {slow} computes slower than the others", "high", 0.9, 0.02, about)
    strips = [RankStrip(n, 9000 + n, True, "backward", 0.01 * (n % 7), 500, 0.125, 0.0) for n in range(count)]
    strips[slow] = replace(strips[slow], phase="forward", late_share=0.97)
    return replace(
        healthy(),
        verdict=Verdict("bottleneck", "CMP007", straggler.title, f"63 ranks wait for rank {slow} in every step."),
        job=Job(("srun", "python", "train.py"), None, 5000.0, count, running=True),
        findings=(straggler,),
        budget=Budget(late, {rank: late if rank == slow else others for rank in range(count)}),
        ranks=tuple(strips),
    )


def round_trip(report: Report) -> Report:
    return from_json(json.loads(json.dumps(report.as_json())))


_MADE = (bottleneck, running, healthy, hang, dead_rank, young, inconclusive, empty, hostile, many_ranks)
ALL = {make.__name__: make for make in _MADE}
