"""Jobs in which nothing is worth fixing: computing takes the time."""

from __future__ import annotations

from samples.faults.fixtures import Burners, Compiler, CpuQuota, Images
from samples.faults.scenario import Fixture, Job, Scenario, Suite, Truth

between = Job("faults/jobs/loop/between_steps.py")
cifar = Job("faults/jobs/compute/cifar.py")
vit = Job("faults/jobs/compute/vit_spawn.py")
attention = Job("faults/jobs/layers/attention.py")
before_update = Job("faults/jobs/loop/before_update.py")
loading = Job("faults/jobs/input/loading.py")
unusual = Job("faults/jobs/compute/unusual.py")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def healthy(name: str, job: Job, *fixtures: Fixture, suite: Suite = "usual", note: str = "") -> Scenario:
    return Scenario(name=name, job=job, fixtures=fixtures, truth=Truth(), strength="none", suite=suite, note=note)


SCENARIOS = (
    healthy("healthy-two-ranks", between("--out={out}", "--steps=150", "--width=48", ranks=2), suite="fast"),
    healthy("healthy-resnet18", cifar("--model=resnet18", "--steps=110")),
    healthy("healthy-vgg19", cifar("--model=vgg19", "--steps=30", "--batch=8")),
    healthy("healthy-vit-spawned", vit("--steps=150")),
    healthy(
        "healthy-frozen-layers",
        cifar("--model=resnet18", "--steps=250", "--head-only", "--frozen"),
        note="the optimizer gets what learns, and nothing else has gradients",
    ),
    healthy("healthy-attention-fused", attention("--attention=fused")),
    healthy(
        "healthy-attention-that-drops-weights",
        attention("--attention=parts", "--drop=0.1"),
        note="on a CPU no fused operation drops weights",
    ),
    healthy(
        "healthy-stream-accumulating",
        Job("faults/jobs/input/stream.py", ("--accumulate=4", "--width=48", "--steps=50", "--workers=1")),
    ),
    healthy(
        "healthy-images-one-worker",
        Job(
            "train.py",
            ("--data={images}", "--model=resnet50", "--image-size=64", "--batch-size=16", "--workers=1", "--steps=40"),
            environment=ONE_THREAD,
        ),
        Images(per_class=32),
    ),
    healthy("healthy-compiled", cifar("--model=squeezenet1_1", "--steps=160", "--batch=64", "--compile"), Compiler()),
    healthy(
        "healthy-perceptron-accumulating",
        Job("faults/jobs/ranks/wire.py", ("--hidden=1024", "--batch=32", "--accumulate=8", "--steps=50"), ranks=2),
        note="many parameters, but sent only after every eighth batch",
    ),
    healthy(
        "healthy-clipping",
        before_update("--out={out}", "--clip=norm", "--hidden=2048", "--steps=200"),
        note="many parameters for little work: clipping takes a tenth of the step",
    ),
    healthy("healthy-clipping-by-hand", before_update("--out={out}", "--clip=by-hand", "--hidden=2048", "--steps=200")),
    healthy(
        "healthy-seldom-saving",
        between("--out={out}", "--steps=240", "--width=48", "--checkpoint-every=110", "--evaluate-every=110"),
        note="saves and evaluates twice, for a hundredth of the time",
    ),
    healthy(
        "healthy-wide-quota",
        vit("--steps=150"),
        CpuQuota(16.0),
        note="a quota that is never reached throttles nobody",
    ),
    healthy(
        "healthy-beside-a-neighbour",
        loading("--steps=200", "--width=48"),
        Burners(1),
        note="one thread, one neighbour, two cores: nobody waits for a core",
    ),
    healthy(
        "healthy-many-idle-workers",
        loading("--steps=120", "--width=80", "--workers=6", "--persistent"),
        note="more workers than cores, but they have next to nothing to do",
    ),
    healthy(
        "healthy-beside-its-own-threads",
        Job("faults/jobs/loop/threads.py", ("--steps=1500", "--decode", "--asleep=3", "--fused")),
        note="one thread decodes a picture for each step, and lets go of the interpreter meanwhile; three sleep",
    ),
    healthy(
        "healthy-updating-inside-the-backward",
        unusual("inside-backward", "--steps=250"),
        note="each gradient is used as soon as it is there: nothing of the backward is time between steps",
    ),
    healthy(
        "healthy-wasserstein",
        unusual("wasserstein", "--steps=600"),
        note="every fifth step takes twice as long, since the generator learns in it",
    ),
    healthy(
        "healthy-lazily-regularised",
        unusual("lazily-regularised", "--steps=600"),
        note="every sixteenth step takes twice as long, for a penalty",
    ),
    healthy(
        "healthy-unfreezing",
        unusual("unfreezing", "--steps=750"),
        note="from step 500 on all of the model learns",
    ),
    healthy(
        "healthy-growing-pictures",
        unusual("growing-pictures", "--steps=900"),
        note="from step 600 on pictures have four times as many pixels",
    ),
    healthy("healthy-two-models", unusual("two-models", "--steps=900")),
    healthy(
        "healthy-keeping-pictures",
        unusual("keeping-pictures", "--steps=500"),
        note="a data set keeps what it has read: memory grows for as long as the first epoch lasts, and there is enough",
    ),
    healthy(
        "healthy-short-steps",
        unusual("short-steps", "--steps=6000"),
        note="a schedule and an accuracy take a twentieth of a millisecond",
    ),
    healthy(
        "healthy-lstm",
        Job("faults/jobs/compute/tiny_operations.py", ("lstm", "--steps=2000")),
        note="the sound twin of a cell that is called step by step",
    ),
    healthy(
        "healthy-average-of-weights",
        Job(
            "faults/jobs/loop/averages.py",
            ("--model=mobilenet_v3_small", "--size=64", "--average=at-once", "--batch=16", "--steps=150"),
            ranks=0,
            start="one by one",
        ),
        note="the sound twin of an average of the weights by tensor",
    ),
    healthy(
        "healthy-small-numbers",
        Job("faults/jobs/compute/shrinking.py", ("--noise=1e-3",)),
        note="the sound twin of momentum that becomes denormal: inputs fall nearly silent, and numbers stay normal",
    ),
)
