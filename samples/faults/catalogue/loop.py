"""Faults between the steps of a loop: checkpoints, logging, evaluation, waiting."""

from __future__ import annotations

from typing import Any

from samples.faults.catalogue.healthy import healthy
from samples.faults.scenario import Job, Scenario, Untouched, fault

SLICING = "faults/jobs/loop/slicing.py"
ANEW = ("--norms", "--anew", "--batch=8", "--layers=2")


def between(*arguments: str, ranks: int = 2) -> Job:
    return Job("faults/jobs/loop/between_steps.py", ("--out={out}", *arguments), ranks=ranks, start="one by one")


def validating(*arguments: str) -> Job:
    return Job("faults/jobs/ranks/validating.py", arguments, ranks=2, start="one by one")


def twice(*arguments: str) -> Job:
    return Job("faults/jobs/loop/twice.py", arguments)


def before_update(*arguments: str, ranks: int = 0) -> Job:
    return Job("faults/jobs/loop/before_update.py", ("--out={out}", *arguments), ranks=ranks, start="one by one")


def enriching(*arguments: str, ranks: int = 0) -> Job:
    return Job("faults/jobs/loop/enriching.py", arguments, ranks=ranks)


def slicing(*arguments: str, ranks: int = 0) -> Job:
    return Job(SLICING, ("--out={out}", *arguments), ranks=ranks)


def threads(*arguments: str, ranks: int = 0) -> Job:
    return Job("faults/jobs/loop/threads.py", arguments, ranks=ranks, start="one by one")


def compiled(*arguments: str) -> Job:
    return Job("faults/jobs/compute/compiled.py", arguments, ranks=0)


def texts(*arguments: str) -> Job:
    return Job("faults/jobs/compute/texts.py", arguments, ranks=0, start="one by one")


def averages(*arguments: str) -> Job:
    return Job("faults/jobs/loop/averages.py", arguments, ranks=0, start="one by one")


def replay(*arguments: str) -> Job:
    return Job("faults/jobs/loop/replay.py", arguments, ranks=0)


def constants(*arguments: str) -> Job:
    return Job("faults/jobs/loop/constants.py", arguments, ranks=0)


def boxes(*arguments: str) -> Job:
    return Job("faults/jobs/loop/boxes.py", arguments, ranks=0)


def signals(*arguments: str) -> Job:
    return Job("faults/jobs/loop/signals.py", arguments, ranks=0, start="one by one")


def hooks(*arguments: str) -> Job:
    return Job("faults/jobs/loop/hooks.py", arguments, ranks=0, start="one by one")


def debugging(*arguments: str) -> Job:
    return Job("faults/jobs/loop/debugging.py", arguments, ranks=0, start="one by one")


def untouched_by(rule: str, job: Job) -> tuple[Untouched, ...]:
    """Returns the phases that the fault does not affect.

    Waiting for the interpreter affects all phases; padding and anomaly detection belong to forward and backward. On several ranks, backward
    includes waiting for others. Waiting before the backward pass counts as forward; without a loader, so does everything after the update.
    """
    if rule in ("LOP006", "CMP010", "CMP013"):
        return ()
    if (
        rule in ("LOP007", "LOP008", "LOP009", "LOP010", "LOP011", "LOP012", "LOP013", "LOP014")
        or job.script == SLICING
    ):
        return () if job.ranks else ("backward",)
    return ("forward",) if job.ranks else ("forward", "backward")


def seeded(name: str, rule: str, job: Job, **more: Any) -> Scenario:
    return fault(name, rule, job, untouched=untouched_by(rule, job), **more)


STEPS = ("--width=48", "--steps=150")
ALONE = ("--width=48", "--steps=280")  # for one rank, whose steps are shorter
MOBILE = ("--model=mobilenet_v3_small", "--size=64")
SCENARIOS = (
    seeded(
        "compiled-for-each-length",
        "CMP012",
        compiled(),
        fixed=compiled("--pad"),
        line="@torch.compile(",
        also=("CPU006", "LOP004", "RUN004"),
        note="what dynamo leaves behind is collected, and a step that compiles stands out",
    ),
    seeded(
        "compiled-for-few-lengths",
        "CMP012",
        compiled("--steps=700", "--first=60", "--every=100"),
        strength="just above",
        fixed=compiled("--steps=700", "--pad"),
        line="@torch.compile(",
        also=("CPU006", "LOP004", "RUN004"),
    ),
    seeded("compiled-in-the-first-steps", "CMP012", compiled("--last=45"), strength="just below"),
    seeded(
        "anomaly-detection-left-on",
        "CMP010",
        between("--anomaly=150", *ALONE[:1], "--steps=150", ranks=0),
        fixed=between(*ALONE[:1], "--steps=150", ranks=0),
    ),
    seeded(
        "anomaly-detection-in-the-first-steps",
        "CMP010",
        between("--anomaly=30", *ALONE[:1], "--steps=150", ranks=0),
        strength="just below",
    ),
    seeded(
        "checkpoints",
        "LOP001",
        between("--checkpoint-every=5", "--steps=150"),
        line="torch.save(",
        fixed=between("--checkpoint-every=10", "--steps=150"),
        also=("LOP004",),
        suite="fast",
        note="emptying the old file and making the state pass outside torch.save: time between steps, on the same lines",
    ),
    seeded(
        "checkpoints-of-one-rank",
        "LOP001",
        between("--checkpoint-every=30", "--checkpoint-megabytes=60", *ALONE, ranks=0),
        strength="just above",
        line="torch.save(",
        fixed=between("--checkpoint-every=60", "--checkpoint-megabytes=60", *ALONE, ranks=0),
    ),
    seeded(
        "checkpoints-seldom",
        "LOP001",
        between("--checkpoint-every=90", "--checkpoint-megabytes=8", "--width=48", "--steps=200"),
        strength="just below",
    ),
    seeded(
        "checkpoints-through-memory",
        "LOP001",
        between(
            "--checkpoint-every=5", "--checkpoint-megabytes=30", "--through-memory", "--steps=150", *ALONE[:1], ranks=0
        ),
        says="between_steps.py",
        fixed=between(
            *("--checkpoint-every=20", "--checkpoint-megabytes=30", "--through-memory", "--steps=150", *ALONE[:1]),
            ranks=0,
        ),
        note="made in memory by torch.save, and written by the function that called it, as Lightning does",
    ),
    seeded(
        "logging-without-a-loader",
        "LOP002",
        slicing("--write-log=15", "--steps=250"),
        line="file.",
        says="write_log",
        fixed=slicing("--write-log=15", "--every=10", "--steps=250"),
        suite="all",
    ),
    seeded(
        "slow-rank-without-a-loader",
        "CMP007",
        slicing("--views=2", "--steps=200", ranks=2),
        ranks=(1,),
        fixed=slicing("--steps=200", ranks=2),
        suite="all",
    ),
    seeded(
        "short-pause-without-a-loader",
        "LOP004",
        slicing("--pause=0.8", "--steps=250"),
        strength="just below",
    ),
    seeded(
        "evaluation-without-a-loader",
        "LOP003",
        between("--check=16", "--steps=200", *ALONE[:1], ranks=0),
        line="check(model, torch.rand",
        fixed=between("--check=16", "--every=10", "--steps=200", *ALONE[:1], ranks=0),
        note="with a line printed each time, which is little of it",
        suite="all",
    ),
    seeded(
        "logging",
        "LOP002",
        between("--write-log=60", "--steps=100"),
        line="file.",
        says="write_log",
        fixed=between("--write-log=60", "--every=10", "--steps=100"),
        suite="fast",
    ),
    seeded(
        "logging-a-little",
        "LOP002",
        between("--write-log=5", *ALONE, ranks=0),
        strength="just above",
        fixed=between("--write-log=5", "--every=10", *ALONE, ranks=0),
    ),
    seeded("logging-hardly", "LOP002", between("--write-log=0.8", *STEPS), strength="just below"),
    seeded(
        "logging-before-the-update",
        "LOP002",
        before_update("--write-norms=60", "--steps=100", ranks=2),
        line="file.",
        says="write_norms",
        fixed=before_update("--write-norms=60", "--every=10", "--steps=100", ranks=2),
    ),
    seeded(
        "histograms-before-the-update",
        "LOP004",
        before_update("--histograms=32", "--clip=norm", *ALONE[:1], "--steps=200"),
        says="histograms",
        fixed=before_update("--histograms=32", "--clip=norm", "--every=10", *ALONE[:1], "--steps=200"),
        suite="all",
    ),
    seeded(
        "a-pause-before-the-update",
        "LOP004",
        before_update("--wait=30", "--steps=150"),
        line="time.sleep(",
        fixed=before_update("--wait=30", "--every=10", "--steps=150"),
    ),
    seeded(
        "histograms-seldom-before-the-update",
        "LOP004",
        before_update("--histograms=32", "--clip=norm", "--every=10", *ALONE[:1], "--steps=200"),
        strength="just below",
        suite="all",
    ),
    seeded(
        "evaluation",
        "LOP003",
        between("--evaluate-every=5", "--steps=150"),
        fixed=between("--evaluate-every=50", "--steps=150"),
        suite="fast",
    ),
    seeded(
        "evaluation-a-little",
        "LOP003",
        between("--evaluate-every=20", "--evaluate-batches=9", *ALONE, ranks=0),
        strength="just above",
        fixed=between("--evaluate-every=60", "--evaluate-batches=9", *ALONE, ranks=0),
    ),
    fault(
        "all-ranks-validate-everything",
        "LOP003",
        validating(),
        line="DataLoader(held_out",
        says="distribute it",
        fixed=validating("--share"),
    ),
    fault(
        "all-ranks-validate-a-little-of-everything",
        "LOP003",
        validating("--held-out=2560"),
        strength="just above",
        line="DataLoader(held_out",
        says="distribute it",
        fixed=validating("--held-out=2560", "--share"),
    ),
    fault(
        "all-ranks-validate-everything-seldom",
        "LOP003",
        validating("--held-out=1024", "--every=40"),
        strength="just below",
    ),
    fault(
        "model-called-again-for-the-accuracy",
        "LOP016",
        twice("--for=accuracy"),
        line="accuracy(model(inputs), labels)",
        fixed=twice("--for=accuracy", "--once"),
    ),
    fault(
        "encoder-called-again-for-a-second-loss",
        "LOP016",
        twice("--for=loss"),
        line="again = self.encoder(inputs)",
        fixed=twice("--for=loss", "--once"),
    ),
    fault(
        "distances-computed-again",
        "LOP016",
        twice("--for=distances", "--batch=1024", "--steps=150"),
        line="torch.cdist(hidden, hidden).amax",
        fixed=twice("--for=distances", "--batch=1024", "--steps=150", "--once"),
        strength="just above",
    ),
    fault("model-with-dropout-called-twice", "LOP016", twice("--for=accuracy", "--dropout=0.1"), strength="just below"),
    seeded("evaluation-seldom", "LOP003", between("--evaluate-every=40", *STEPS), strength="just below"),
    seeded(
        "pause",
        "LOP004",
        between("--pause=60", "--steps=100"),
        line="time.sleep(",
        says="after_step",
        fixed=between("--pause=60", "--every=10", "--steps=100"),
        suite="fast",
    ),
    seeded(
        "pause-a-little",
        "LOP004",
        between("--pause=4", *ALONE, ranks=0),
        strength="just above",
        line="time.sleep(",
        fixed=between("--pause=4", "--every=10", *ALONE, ranks=0),
    ),
    seeded("pause-hardly", "LOP004", between("--pause=0.8", *STEPS), strength="just below"),
    seeded(
        "average-of-weights-by-tensor",
        "LOP004",
        averages("--batch=4", "--steps=150"),
        line="kept.data = DECAY",
        says="all tensors at once",
        fixed=averages("--average=at-once", "--batch=4", "--steps=150"),
    ),
    seeded(
        "average-of-weights-by-tensor-a-little",
        "LOP004",
        averages(*MOBILE, "--steps=250"),
        strength="just above",
        line="kept.data = DECAY",
        fixed=averages(*MOBILE, "--average=at-once", "--steps=250"),
    ),
    seeded(
        "average-of-weights-by-tensor-hardly",
        "LOP004",
        averages(*MOBILE, "--batch=64", "--steps=60"),
        strength="just below",
    ),
    seeded(
        "features-from-a-server",
        "LOP007",
        enriching("--answer=10", "--steps=300"),
        line="urlopen(",
        says="features",
        fixed=enriching("--answer=10", "--steps=300", "--ahead"),
        suite="all",
    ),
    seeded(
        "features-in-the-model-of-one-rank",
        "LOP007",
        enriching("--rest=20", "--in-model", "--rank=1", "--steps=200", ranks=2),
        line="time.sleep(",
        ranks=(1,),
    ),
    seeded(
        "features-a-little",
        "LOP007",
        enriching("--rest=3.2", "--steps=300"),
        strength="just above",
        line="time.sleep(",
        fixed=enriching("--rest=3.2", "--steps=300", "--ahead"),
    ),
    seeded(
        "features-hardly",
        "LOP007",
        enriching("--rest=0.6", "--steps=300"),
        strength="just below",
    ),
    seeded(
        "batches-made-ready-in-the-loop",
        "LOP008",
        enriching("--compute=10", "--steps=300", "--workers=1"),
        line="store.features(pictures)",
        says="enriching.py",
        fixed=enriching("--compute=10", "--steps=300", "--in-workers"),
    ),
    seeded(
        "batches-made-ready-in-the-loop-of-one-rank",
        "LOP008",
        enriching("--compute=20", "--rank=1", "--steps=200", "--workers=1", ranks=2),
        line="store.features(pictures)",
        ranks=(1,),
        suite="all",
    ),
    seeded(
        "batches-made-ready-in-the-loop-a-little",
        "LOP008",
        enriching("--compute=3", "--steps=300", "--workers=1"),
        strength="just above",
        line="store.features(pictures)",
        fixed=enriching("--compute=3", "--steps=300", "--in-workers"),
        also=("DAT007",),
        note="the worker's own batches are cheap: without it they would cost less than to hand them over",
    ),
    seeded(
        "batches-hardly-made-ready-in-the-loop",
        "LOP008",
        enriching("--compute=0.6", "--steps=300"),
        strength="just below",
    ),
    seeded(
        "batches-drawn-by-permuting-all",
        "LOP010",
        replay("--draw=permute"),
        line="np.random.permutation(",
        says="permutes",
        fixed=replay(),
    ),
    seeded(
        "batches-drawn-by-permuting-all-of-a-small-memory",
        "LOP010",
        replay("--draw=permute", "--items=15000", "--steps=5000"),
        strength="just above",
        line="np.random.permutation(",
        fixed=replay("--items=15000", "--steps=5000"),
    ),
    seeded(
        "batches-drawn-by-permuting-few",
        "LOP010",
        replay("--draw=permute", "--items=1500", "--width=768", "--steps=1200"),
        strength="just below",
    ),
    seeded(
        "queue-that-moves-all-its-items",
        "LOP010",
        replay("--queue=list"),
        line="self.waiting.pop(0)",
        says="deque",
        fixed=replay("--queue=deque"),
    ),
    seeded(
        "rows-made-a-tensor-one-by-one",
        "LOP010",
        replay("--rows", "--batch=512", "--steps=3000"),
        line="torch.tensor(states)",
        says="join the arrays",
        fixed=replay("--batch=512", "--steps=3000"),
    ),
    seeded(
        "columns-of-rows-made-tensors-one-by-one",
        "LOP010",
        replay("--fields", "--batch=512", "--steps=3000"),
        line=("torch.tensor(row.state)", "row = Row("),
        says="join the arrays",
        fixed=replay("--batch=512", "--steps=3000"),
    ),
    seeded(
        "records-joined-to-all-earlier-ones",
        "LOP010",
        replay("--record=join", "--steps=6000"),
        line="torch.cat([self.joined",
        fixed=replay("--record=append", "--steps=6000"),
        also=("RUN003",),
        note="steps become longer and longer",
    ),
    seeded(
        "smoothing-in-the-forward-pass",
        "LOP011",
        signals("--smooth=numpy", "--steps=2500"),
        line="np.convolve(row, KERNEL",
        says="Non-PyTorch compute inside the step",
        fixed=signals("--steps=4000"),
    ),
    seeded(
        "smoothing-in-the-forward-pass-a-little",
        "LOP011",
        signals("--smooth=numpy", "--times=3", "--steps=3000"),
        strength="just above",
        fixed=signals("--times=3", "--steps=4000"),
    ),
    seeded(
        "smoothing-in-the-forward-pass-hardly",
        "LOP011",
        signals("--smooth=numpy", "--times=1", "--width=1024", "--steps=1500"),
        strength="just below",
    ),
    fault(
        "histograms-of-gradients-in-every-step",
        "LOP013",
        hooks("--steps=400"),
        line="self.keep(",
        says="hundredth",
        fixed=hooks("--steps=600", "--every=100"),
        also=("LOP012",),
    ),
    fault(
        "histograms-of-activations-in-every-step",
        "LOP013",
        hooks("--of=activations", "--steps=400", "--width=64"),
        line="self.keep(",
        fixed=hooks("--of=activations", "--steps=600", "--width=64", "--every=100"),
        strength="just above",
        also=("LOP012",),
    ),
    fault(
        "hooks-registered-in-every-step",
        "LOP013",
        hooks(*ANEW, "--of=activations", "--steps=300"),
        line="module.register_forward_hook(",
        says="once, before the loop",
        fixed=hooks(*ANEW, "--of=activations", "--steps=900", "--removed"),
        also=("LOP012",),
    ),
    fault(
        "hooks-of-gradients-registered-in-every-step",
        "LOP013",
        hooks(*ANEW, "--steps=150"),
        line="p.register_hook(",
        says="once, before the loop",
        fixed=hooks(*ANEW, "--steps=900", "--removed"),
        also=("LOP012",),
    ),
    fault(
        "hooks-of-updates-registered-in-every-step",
        "LOP013",
        hooks(*ANEW, "--of=updates", "--steps=150"),
        line="optimizer.register_step_post_hook(",
        fixed=hooks(*ANEW, "--of=updates", "--steps=600", "--removed"),
        also=("LOP012",),
        suite="all",
    ),
    fault(
        "handlers-added-in-every-step",
        "LOP013",
        hooks(*ANEW, "--of=messages", "--steps=600"),
        line="logger.addHandler(",
        says="once, before the loop",
        fixed=hooks(*ANEW, "--of=messages", "--steps=1500", "--removed"),
        also=("LOP002",),
        suite="all",
    ),
    fault(
        "hooks-that-seldom-work-registered-in-every-step",
        "LOP013",
        hooks(*ANEW, "--of=activations", "--every=1000", "--steps=300"),
        strength="just below",
    ),
    healthy(
        "healthy-hooks-removed-in-every-step",
        hooks("--of=activations", "--norms", "--anew", "--removed", "--every=10", "--steps=250"),
        note="the sound twin of hooks that pile up: as many are registered, and removed again",
    ),
    fault(
        "norms-of-gradients-in-every-step",
        "LOP013",
        hooks("--norms", "--width=192", "--steps=300"),
        strength="just below",
    ),
    fault(
        "gradients-formatted-for-a-silent-logger",
        "LOP015",
        debugging("--width=512", "--steps=1500"),
        line='logger.debug(f"{name}: {norms}")',
        fixed=debugging("--width=512", "--steps=2500", "--lazily"),
        also=("LOP004",),
    ),
    fault(
        "gradients-of-a-wide-model-formatted-for-a-silent-logger",
        ("LOP015", "LOP004"),
        debugging("--steps=500"),
        line=('logger.debug(f"{name}: {norms}")', "norms = parameter.grad"),
        strength="just above",
        also=("LOP004", "LOP015"),
        note="more than 1000 numbers are formatted in short, and their norms take twice as long as the text: either may be the verdict",
    ),
    fault(
        "sizes-of-gradients-formatted-for-a-silent-logger",
        "LOP015",
        debugging("--width=512", "--sizes-alone", "--steps=1500"),
        strength="just below",
    ),
    seeded(
        "targets-set-box-by-box",
        "LOP012",
        boxes("--boxes=20"),
        line="for picture in range(len(boxes)):",
        says="Python loop over tensor elements",
        fixed=boxes("--boxes=20", "--assign=tensors"),
    ),
    seeded(
        "targets-set-box-by-box-a-little",
        "LOP012",
        boxes("--boxes=6"),
        strength="just above",
        fixed=boxes("--boxes=6", "--assign=tensors"),
    ),
    seeded("targets-set-box-by-box-hardly", "LOP012", boxes("--boxes=1"), strength="just below"),
    seeded(
        "positions-in-each-forward-pass",
        "LOP014",
        constants("--batch=1", "--length=2048", "--layers=1", "--steps=2000"),
        line="table = positions(",
        says="Loop-invariant compute",
        fixed=constants("--batch=1", "--length=2048", "--layers=1", "--steps=2500", "--make=once"),
    ),
    seeded(
        "graph-normalised-in-each-forward-pass",
        "LOP014",
        constants("--of=graph", "--width=64", "--steps=1200"),
        strength="just above",
        line="graph = normalised(",
        fixed=constants("--of=graph", "--width=64", "--steps=1500", "--make=once"),
    ),
    seeded(
        "positions-beside-much-computing",
        "LOP014",
        constants("--batch=8", "--layers=8", "--steps=150"),
        strength="just below",
    ),
    seeded(
        "weights-of-the-loss-outside-torch",
        "LOP011",
        signals("--weigh=numpy", "--steps=2000"),
        line="np.",
        says="Non-PyTorch compute inside the step: weights",
        fixed=signals("--weigh=tensors", "--steps=4000"),
        note="no metrics: the backward pass uses what they assign",
    ),
    seeded(
        "metrics-before-the-backward-pass",
        "LOP009",
        enriching("--measure=10", "--steps=300"),
        line="metrics(scores",
        says="histogram",
        fixed=enriching("--measure=10", "--every=10", "--steps=300"),
    ),
    seeded(
        "metrics-before-the-backward-pass-a-little",
        "LOP009",
        enriching("--measure=3", "--steps=300"),
        strength="just above",
        fixed=enriching("--measure=3", "--every=10", "--steps=300"),
    ),
    seeded(
        "metrics-seldom-before-the-backward-pass",
        "LOP009",
        enriching("--measure=5", "--every=10", "--steps=300"),
        strength="just below",
    ),
    seeded(
        "thread-without-a-pause",
        "LOP006",
        threads("--busy=20", "--rest=20", "--steps=1000"),
        line="json.",
        says="send_metrics",
        fixed=threads("--busy=20", "--rest=20", "--steps=1000", "--process"),
    ),
    seeded(
        "thread-with-long-pauses",
        "LOP006",
        threads("--busy=8", "--rest=32", "--steps=1600"),
        strength="just above",
        fixed=threads("--busy=8", "--rest=32", "--steps=1600", "--process"),
    ),
    seeded(
        "thread-that-hardly-works",
        "LOP006",
        threads("--busy=1", "--rest=49", "--steps=1500"),
        strength="just below",
    ),
    seeded(
        "thread-on-one-rank",
        "LOP006",
        threads("--busy=20", "--rest=20", "--steps=450", "--rank=1", ranks=2),
        says="send_metrics",
        ranks=(1,),
        fixed=threads("--busy=20", "--rest=20", "--steps=450", "--rank=1", "--process", ranks=2),
        suite="all",
    ),
    seeded(
        "padding-to-the-maximum",
        "CMP013",
        texts("--length=200"),
        line="loader = DataLoader(",
        fixed=texts("--steps=800"),
    ),
    seeded(
        "padding-a-little",
        "CMP013",
        texts("--shortest=80", "--longest=120", "--length=128"),
        strength="just above",
        line="loader = DataLoader(",
        fixed=texts("--shortest=80", "--longest=120", "--grouped"),
    ),
    seeded("padding-hardly", "CMP013", texts("--shortest=104", "--longest=120", "--length=128"), strength="just below"),
)
