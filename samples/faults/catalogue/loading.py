"""Input faults caused by computing: batches made in the training process, by too few or too many workers, or unevenly."""

from __future__ import annotations

from dataclasses import replace

from samples.faults.fixtures import Images, SmallSharedMemory
from samples.faults.scenario import Job, Scenario, Strength, fault

loading = Job("faults/jobs/input/loading.py")
LOADER = "data = DataLoader("
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# A net that computes about 35 ms a step, on pictures of 12 KB.
job = loading("--width=48")
stream = Job("faults/jobs/input/stream.py", ("--width=48",))
train = Job("train.py", ("--data={images}", "--no-eval"), environment=ONE_THREAD)
IN_PROCESS = (
    fault(
        "in-process",
        "DAT003",
        job("--transform=3", "--steps=70", ranks=2),
        line=(LOADER, "np.roll(picture, 1, -1)"),
        suite="fast",
        note="two ranks fill two cores: whether a worker for each gains a little or costs a little differs by machine",
    ),
    fault(
        "in-process-one-rank",
        "DAT003",
        job("--transform=2", "--steps=110"),
        line=LOADER,
        fixed=("--workers=1", "--persistent"),
    ),
    # same fixed job as the scenario above, so it runs once for all three
    fault(
        "worker-on-the-core-of-its-rank",
        "CPU007",
        job("--bind=1", "--transform=2", "--steps=110", "--workers=1", "--persistent"),
        fixed=job("--transform=2", "--steps=110", "--workers=1", "--persistent"),
    ),
    fault(
        "package-that-takes-the-cores",
        "CPU007",
        job("--library", "--transform=2", "--steps=110", "--workers=1", "--persistent"),
        line="import one_core",
        fixed=job("--transform=2", "--steps=110", "--workers=1", "--persistent"),
        note="the package binds the process when it is imported; its worker inherits that",
    ),
    fault(
        "worker-on-the-core-of-its-rank-a-little",
        "CPU007",
        job("--bind=1", "--transform=0.3", "--steps=200", "--workers=1", "--persistent"),
        strength="just above",
        fixed=job("--transform=0.3", "--steps=200", "--workers=1", "--persistent"),
    ),
    fault(
        "in-process-a-little",
        "DAT003",
        job("--transform=0.25", "--steps=250"),
        strength="just above",
        line=LOADER,
        fixed=("--workers=1", "--persistent"),
        note="about a tenth of the step",
    ),
    fault("in-process-next-to-nothing", "DAT003", job("--transform=0.05", "--steps=200"), strength="just below"),
    fault(
        "in-process-stream",
        "DAT003",
        stream("--passes=3", "--accumulate=2", "--steps=80"),
        line=LOADER,
        fixed="--workers=1",
        suite="all",
    ),
)

IMAGES = ("--model=resnet18", "--image-size=64", "--batch-size=16", "--steps=50")
SMALL_NET = ("--model=squeezenet1_1", "--image-size=48", "--batch-size=16", "--steps=75")
FILES = (fault("in-process-images", "DAT003", train(*IMAGES, "--workers=0"), fixed="--workers=1", suite="all"),)
# longer: the first evaluation starts its workers
AND_EVALUATION = ("--data={images}", *SMALL_NET[:-1], "--steps=150")
# images of 1000x750: this small net could train on several times what one worker decodes
LARGE_FILES = (
    fault("one-worker-for-large-images", "DAT004", train(*SMALL_NET, "--workers=1"), fixed="--workers=2", suite="all"),
    fault(
        "one-worker-and-evaluation",
        "DAT004",
        Job("train.py", (*AND_EVALUATION, "--workers=1"), environment=ONE_THREAD),
        fixed=Job("train.py", (*AND_EVALUATION, "--workers=2"), environment=ONE_THREAD),
        also=("LOP003",),
        note="the workers of both loaders live on: those that train rest while the others work",
        suite="all",
    ),
    fault("large-images-for-two-ranks", "DAT001", train(*SMALL_NET, "--workers=1", ranks=2), suite="all"),
)


def several_threads(name: str, *arguments: str, strength: Strength = "clear") -> Scenario:
    """Workers in which NumPy multiplies matrices, with a thread for each core as soon as they are large enough."""
    given = job(*arguments, "--steps=90", "--persistent")
    fixed = None if strength == "just below" else replace(given, environment={"OPENBLAS_NUM_THREADS": "1"})
    return fault(name, "CPU008", given, strength=strength, line=LOADER if fixed else "", fixed=fixed)


# Epochs of 24 steps: many workers make most of an epoch's batches at once, at its start, and then none.
BURSTS = ("--transform=1", "--pictures=384", "--steps=240", "--persistent")
CROWD = ("--steps=120", "--workers=1", "--persistent")
SERVED = ("--transform=6", "--steps=120", "--pictures=480", "--evaluate=128", "--persistent", "--start=forkserver")
IN_BATCHES = ("--in-batches", "--passes=90", "--steps=90", "--persistent")
WORKERS = (
    fault(
        "too-few-workers",
        "DAT004",
        job("--transform=6", "--steps=90", "--workers=1", "--persistent"),
        line=LOADER,
        fixed="--workers=2",
    ),
    fault(
        "too-few-workers-a-little",
        "DAT004",
        job("--asleep=2.4", "--steps=150", "--workers=1", "--persistent"),
        strength="just above",
        line=LOADER,
        fixed="--workers=2",
    ),
    fault(
        "too-few-served-workers",
        "DAT004",
        job(*SERVED, "--workers=1"),
        line=LOADER,
        fixed="--workers=2",
        also=("LOP003",),
        note="forked by a server, and no children of their rank; another loader evaluates after each epoch",
        suite="all",
    ),
    fault(
        "too-few-workers-for-a-stream-in-batches",
        "DAT004",
        stream(*IN_BATCHES, "--workers=1"),
        line="data = DataLoader(Batches",
        fixed="--workers=2",
        suite="all",
    ),
    fault(
        "workers-take-turns",
        "DAT013",
        job("--asleep=4", "--lock", "--steps=120", "--workers=4", "--persistent"),
        line="with self.lock:",
        fixed=job("--asleep=4", "--steps=120", "--workers=4", "--persistent"),
    ),
    fault(
        "workers-take-turns-a-little",
        "DAT013",
        job("--asleep=2.8", "--lock", "--steps=140", "--workers=3", "--persistent"),
        strength="just above",
        line="with self.lock:",
        fixed=job("--asleep=2.8", "--steps=140", "--workers=3", "--persistent"),
    ),
    fault(
        "workers-take-short-turns",
        "DAT013",
        job("--asleep=1", "--lock", "--steps=140", "--workers=3", "--persistent"),
        strength="just below",
    ),
    fault(
        "ranks-on-one-core",
        "CPU007",
        job("--bind=0", "--steps=90", ranks=2),
        fixed=job("--steps=90", ranks=2),
        suite="all",
    ),
    fault("one-rank-on-one-core", "CPU007", job("--bind=1", "--steps=150"), strength="just below"),
    fault(
        "stream-that-fills-its-buffer",
        "DAT014",
        stream("--passes=12", "--steps=150", "--epochs=5", "--workers=1", "--persistent", "--shuffle=360"),
        line=LOADER,
        fixed=stream("--passes=12", "--steps=150", "--epochs=5", "--workers=1", "--persistent"),
        untouched=("forward", "backward"),
    ),
    fault(
        "stream-that-fills-a-smaller-buffer",
        "DAT014",
        stream("--passes=12", "--steps=150", "--epochs=5", "--workers=1", "--persistent", "--shuffle=110"),
        strength="just above",
        line=LOADER,
        fixed=stream("--passes=12", "--steps=150", "--epochs=5", "--workers=1", "--persistent"),
        untouched=("forward", "backward"),
    ),
    fault(
        "stream-with-a-small-buffer",
        "DAT014",
        stream("--passes=12", "--steps=150", "--epochs=3", "--workers=1", "--persistent", "--shuffle=16"),
        strength="just below",
    ),
    fault("cpus-exhausted", "DAT001", job("--transform=6", "--steps=55", "--workers=2", "--persistent", ranks=2)),
    fault(
        "sixteen-workers-on-few-cores",
        "DAT001",
        job("--transform=3", "--steps=70", "--workers=8", "--persistent", ranks=2),
        note="too many, but the cores would not suffice for any number: with one worker a rank it was as slow (0.98 times)",
    ),
    fault("twelve-workers-at-once", "DAT005", job(*BURSTS, "--workers=12"), line=LOADER, fixed="--workers=1"),
    fault(
        "eight-workers-at-once",
        "DAT005",
        job(*BURSTS, "--workers=8"),
        strength="just above",
        line=LOADER,
        fixed="--workers=1",
    ),
    fault("three-workers-at-once", "DAT005", job(*BURSTS, "--workers=3"), strength="just below"),
    fault(
        "transforms-on-the-cores-of-the-step",
        "DAT001",
        job("--transform=0.7", *CROWD, ranks=2),
        strength="just above",
        fixed="--transform=0.35",
    ),
    fault(
        "short-transforms-on-the-cores-of-the-step",
        "DAT001",
        job("--transform=0.2", *CROWD, ranks=2),
        strength="just below",
    ),
    several_threads("workers-of-several-threads", "--passes=4", "--side=256", "--workers=2"),
    several_threads("worker-of-several-threads", "--passes=2", "--side=256", "--workers=1", strength="just above"),
    several_threads(
        "workers-whose-products-are-small",
        "--transform=0.4",
        "--passes=1",
        "--side=48",
        "--workers=1",
        strength="just below",
    ),
    fault(
        "workers-restart",
        "DAT006",
        job("--transform=0.5", "--steps=200", "--pictures=160", "--workers=2"),
        line=LOADER,
        fixed="--persistent",
    ),
    fault(
        "workers-restart-every-twenty-steps",
        "DAT006",
        job("--transform=0.5", "--steps=280", "--pictures=320", "--workers=2"),
        strength="just above",
        line=LOADER,
        fixed="--persistent",
    ),
    fault(
        "workers-restart-seldom",
        "DAT006",
        job("--transform=0.5", "--steps=320", "--pictures=2400", "--workers=1"),
        strength="just below",
    ),
    fault(
        "workers-for-nothing",
        "DAT007",
        loading("--width=2", "--batch=96", "--steps=750", "--workers=1", "--persistent"),
        strength="just above",
        line=LOADER,
        fixed=loading("--width=2", "--batch=96", "--steps=750"),
    ),
    fault(
        "workers-for-small-tensors",
        "DAT007",
        loading("--width=2", "--batch=8", "--steps=3000", "--workers=2", "--persistent"),
        line=LOADER,
        fixed=loading("--width=2", "--batch=8", "--steps=3000"),
    ),
    fault(
        "workers-for-tensors-that-are-not-so-small",
        "DAT007",
        loading("--width=2", "--batch=192", "--steps=250", "--workers=1", "--persistent"),
        strength="just below",
    ),
    fault(
        "panoramas-among-snapshots",
        "DAT009",
        job("--transform=0.4", "--large=250", "--large-every=250", "--steps=220", "--workers=2", "--persistent"),
        fixed="--any-order",
        suite="all",
    ),
    fault(
        "panoramas-that-are-waited-for-by-nobody",
        "DAT009",
        job("--transform=0.4", "--large=60", "--large-every=250", "--steps=220", "--workers=2", "--persistent"),
        strength="just below",
        note="prefetched batches cover the slow ones",
    ),
)

SHARED_MEMORY = (
    fault(
        "small-shared-memory",
        "DAT012",
        job("--batch=256", "--steps=60", "--workers=2", "--persistent"),
        SmallSharedMemory(8),
        ending="fails",
    ),
    fault(
        "shared-memory-nearly-full",
        "DAT012",
        job("--batch=64", "--steps=240", "--workers=2", "--prefetch=8", "--persistent", "--width=16"),
        SmallSharedMemory(14),
        strength="just above",
        note="the sixteen batches ahead and the one in use take 92 % of it, and one more would fit",
    ),
    fault(
        "shared-memory-that-suffices",
        "DAT012",
        job("--batch=256", "--steps=60", "--workers=1", "--persistent", "--width=16"),
        SmallSharedMemory(64),
        strength="just below",
    ),
)


BEHIND_A_THREAD = (
    fault(
        "too-few-workers-behind-a-thread",
        "DAT004",
        job("--transform=6", "--steps=90", "--workers=1", "--persistent", "--ahead"),
        line=LOADER,
        fixed="--workers=2",
        note="a thread of the script's own fetches from the loader; the loop waits at a queue",
        suite="all",
    ),
    fault(
        "workers-that-suffice-behind-a-thread",
        "DAT004",
        job("--transform=1", "--steps=200", "--workers=1", "--persistent", "--ahead"),
        strength="just below",
    ),
)


SCENARIOS = (
    *BEHIND_A_THREAD,
    *IN_PROCESS,
    *(replace(scenario, fixtures=(Images(per_class=32),)) for scenario in FILES),
    *(replace(scenario, fixtures=(Images(per_class=32, scale=2.0, val_per_class=8),)) for scenario in LARGE_FILES),
    *WORKERS,
    *SHARED_MEMORY,
)
