"""Faults of what ranks exchange: a slow network, buffers sent for nothing, and a needless search for unused parameters."""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.rules.communication.comm_cost import on_faster_links
from samples.faults.fixtures import SlowLoopback
from samples.faults.scenario import HEALTHY, Job, Promise, Remedy, Scenario, Truth, fault, sound_twin

vit = Job("faults/jobs/compute/vit_spawn.py")
wire = Job("faults/jobs/ranks/wire.py", ranks=2, start="one by one")
normed = Job("faults/jobs/ranks/syncbn.py", ranks=2, start="one by one")
metrics = Job("faults/jobs/ranks/metrics.py", ranks=2, start="one by one")
# Two towers with a contrastive loss on two ranks.
features = Job("faults/jobs/ranks/features.py", ranks=2, start="one by one")
buffers = Job("faults/jobs/ranks/buffers.py", ranks=2, start="one by one")


def carrying(gbit: float) -> Promise:
    """Returns the promise for a loopback of this rate. Two ranks share it, so each sends at half the rate."""

    def faster(a: Analysis) -> Saving | None:
        return on_faster_links(a, gbit / 8 / 2)

    return faster


VIT = vit("--steps=120")
SCENARIOS = (
    fault(
        "slow-wire",
        "COM001",
        wire("--hidden=512", "--steps=50"),
        SlowLoopback("1gbit"),
        fixed="--compress",
        suite="fast",
    ),
    fault(
        "slow-wire-made-free",
        "COM001",
        wire("--hidden=512", "--steps=50"),
        SlowLoopback("1gbit"),
        remedy=Remedy(fixtures=(), promise=carrying(math.inf)),
        note="what no link makes shorter is left: latencies, and what gloo does on the cores that compute",
    ),
    fault(
        "slower-wire-made-faster",
        "COM001",
        wire("--hidden=512", "--steps=30"),
        SlowLoopback("300mbit"),
        remedy=Remedy(fixtures=(SlowLoopback("1gbit"),), promise=carrying(1.0)),
        suite="all",
    ),
    fault(
        "slower-wire-made-free",
        "COM001",
        VIT,
        SlowLoopback("300mbit"),
        remedy=Remedy(fixtures=(), promise=carrying(math.inf)),
        suite="all",
    ),
    fault(
        "slower-wire-accumulating",
        "COM001",
        wire("--hidden=256", "--steps=45", "--accumulate=2"),
        SlowLoopback("300mbit"),
        fixed="--compress",
        suite="all",
    ),
    fault(
        "slow-wire-after-each-batch",
        "COM001",
        wire("--hidden=256", "--steps=40", "--accumulate=4", "--exchange-each"),
        SlowLoopback("1gbit"),
        fixed=wire("--hidden=256", "--steps=40", "--accumulate=4"),
        note="gradients are accumulated, and exchanged all the same after each batch",
    ),
    fault(
        "slow-wire-resnet18",
        "COM001",
        Job(
            "train.py",
            (
                "--synthetic",
                "--no-eval",
                "--workers=0",
                "--model=resnet18",
                "--image-size=32",
                "--batch-size=8",
                "--steps=35",
            ),
            ranks=2,
        ),
        SlowLoopback("2gbit"),
        remedy=Remedy(fixtures=(), promise=carrying(math.inf)),
        suite="all",
    ),
    fault(
        "slow-wire-under-several-buckets",
        "COM001",
        wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1"),
        SlowLoopback("3gbit"),
        fixed="--compress",
        note="the backward pass hides a good part of the exchange",
    ),
    fault(
        "slow-wire-and-slow-rank",
        "COM001",
        wire("--hidden=512", "--steps=50", "--slow-compute=40"),
        SlowLoopback("1gbit"),
        also=("CMP007",),
        noted=("COM001", "CMP007", "COM002"),
        fixed="--compress",
        note="the wire takes three times as long as one rank is late: it is no consequence of that",
    ),
    fault(
        "slow-rank-and-slow-wire",
        "CMP007",
        wire("--hidden=256", "--steps=60", "--slow-compute=120"),
        SlowLoopback("1gbit"),
        ranks=(1,),
        also=("COM001",),
        noted=("COM001", "CMP007", "COM002"),
        fixed=wire("--hidden=256", "--steps=60"),
        note="one rank is late by twice what the wire takes",
    ),
    fault(
        "slow-wire-a-little",
        "COM001",
        VIT,
        SlowLoopback("800mbit"),
        strength="just above",
        remedy=Remedy(fixtures=(SlowLoopback("1600mbit"),), promise=carrying(1.6)),
    ),
    fault("wire-that-suffices", "COM001", VIT, SlowLoopback("12gbit"), strength="just below"),
    fault(
        "one-bucket-for-all-gradients",
        "COM003",
        wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1000"),
        SlowLoopback("6gbit"),
        also=("COM001",),
        line="DistributedDataParallel(",
        fixed="--bucket-mb=2",
        suite="all",
        note="the exchange would fit beside the backward pass, and begins only after it",
    ),
    fault(
        "gradients-averaged-by-hand",
        "COM003",
        wire("--batch=512", "--layers=8", "--steps=50", "--by-hand"),
        SlowLoopback("6gbit"),
        also=("COM001",),
        says="DistributedDataParallel",
        fixed=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=2"),
        suite="all",
        note="as in tutorials: all_reduce for each parameter after backward()",
    ),
    fault(
        "one-bucket-beside-much-computing",
        "COM003",
        wire("--batch=768", "--layers=8", "--steps=40", "--bucket-mb=1000"),
        SlowLoopback("6gbit"),
        strength="just above",
        also=("COM001",),
        line="DistributedDataParallel(",
        fixed="--bucket-mb=2",
        suite="all",
    ),
    fault(
        "buckets-in-the-wrong-order",
        "COM003",
        wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1", "--last-first", "--find-unused"),
        SlowLoopback("6gbit"),
        also=("COM001",),
        noted=("COM004",),
        line="DistributedDataParallel(",
        fixed=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1", "--last-first"),
        suite="all",
        note="DDP sorts its buckets anew after the first step, but not while it searches for unused parameters",
    ),
    fault(
        "several-buckets",
        "COM003",
        wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1"),
        SlowLoopback("6gbit"),
        strength="just below",
    ),
    fault(
        "tiny-batches",
        ("COM010", "COM001"),
        wire("--batch=1", "--hidden=1024", "--layers=3", "--steps=150"),
        fixed=("--steps=60", "--accumulate=5"),
        note="loopback carries what it can: it is the batch that is small; on a slow machine the wire is true as well",
    ),
    fault(
        "batches-a-little-too-small",
        ("COM010", "COM001"),
        wire("--batch=12", "--hidden=1024", "--layers=3", "--steps=120"),
        strength="just above",
        fixed=("--steps=60", "--accumulate=4"),
        note="on a slow machine the wire is true as well",
    ),
    fault(
        "batches-that-suffice",
        "COM010",
        wire("--batch=96", "--hidden=1024", "--layers=3", "--steps=80"),
        strength="just below",
        also=("COM001",),
    ),
    fault(
        "sync-batch-norm",
        "COM006",
        normed("--layers=24", "--batch=32", "--steps=56"),
        also=("COM001", "COM002"),
        says="convert_sync_batchnorm",
        fixed=("--steps=80", "--plain"),
        note="what torch's layer does on GPUs, over gloo; its round trips are waited for by whoever comes first",
    ),
    fault(
        "sync-batch-norm-beside-much-computing",
        "COM006",
        normed("--layers=8", "--width=32", "--batch=64", "--steps=50"),
        strength="just above",
        also=("COM001", "COM002"),
        says="convert_sync_batchnorm",
        fixed="--plain",
    ),
    fault(
        "sync-batch-norm-of-small-batches",
        "COM006",
        normed("--layers=24", "--batch=8", "--steps=120"),
        strength="just below",
        also=("COM001",),
        note="eight samples a rank need statistics of all ranks; that their exchange takes the time is true",
    ),
    fault(
        "outputs-gathered-in-every-step",
        "COM011",
        metrics("--what=objects"),
        line="dist.all_gather_object(objects",
        fixed="--every=50",
    ),
    fault(
        "outputs-gathered-as-tensors",
        "COM011",
        metrics("--what=outputs"),
        line="dist.all_gather(everybody",
        fixed="--every=50",
        strength="just above",
    ),
    fault(
        "gradient-norms-averaged-one-by-one",
        "COM011",
        metrics("--what=norms"),
        line="dist.all_reduce(norm)",
        fixed="--every=50",
        note="between backward and optimizer, where a job without DDP would average its gradients",
    ),
    fault("loss-averaged-beside-much-computing", "COM011", metrics("--what=loss"), strength="just below"),
    fault(
        "features-gathered-for-a-contrastive-loss",
        "COM013",
        features("--batch=64", "--features=4096", "--width=16", "--steps=500"),
        line="dist.all_gather(parts, own",
        fixed=("--steps=600", "--once"),
    ),
    fault(
        "features-gathered-beside-much-computing",
        ("COM013", HEALTHY),
        features("--features=2048", "--steps=150"),
        line="dist.all_gather(parts, own",
        strength="just above",
        note="a tenth of the step",
        fixed=("--steps=200", "--once"),
    ),
    fault(
        "narrow-features-gathered-for-a-contrastive-loss",
        "COM013",
        features("--features=64", "--width=1024", "--steps=200"),
        strength="just below",
    ),
    fault(
        "masks-sent-in-every-step",
        "COM012",
        buffers("--longest=2048"),
        line="DistributedDataParallel(",
        fixed="--keep-own",
        note="each of four layers has a mask of 17 MB",
    ),
    fault(
        "masks-of-short-contexts-sent-in-every-step",
        "COM012",
        buffers("--longest=512"),
        line="DistributedDataParallel(",
        fixed="--keep-own",
        strength="just above",
        note="each of four layers has a mask of 1 MB",
    ),
    fault(
        "small-masks-sent-in-every-step",
        "COM012",
        buffers("--longest=192"),
        strength="just below",
        note="each of four layers has a mask of 147 kB",
    ),
    Scenario(
        name="search-for-unused-parameters",
        job=vit("--steps=150", "--depth=8", "--batch=4", "--find-unused"),
        truth=Truth(also=("COM004",), noted=("COM004",)),
        strength="clear",
        note="costs little on CPU, so that the verdict stays healthy or becomes COM004's; it must be reported",
    ),
    Scenario(
        name="search-for-unused-parameters-in-a-hundred-and-forty-steps",
        job=vit("--steps=140", "--depth=8", "--batch=4", "--find-unused"),
        truth=Truth(also=("COM004",), noted=("COM004",)),
        strength="just above",
        note="more than a quarter of the steps are inspected: some thirty-five",
    ),
    sound_twin(
        "search-for-unused-parameters-in-eighteen-steps",
        "COM004",
        vit("--steps=18", "--depth=8", "--batch=4", "--find-unused"),
        note="fewer than twenty inspected steps prove nothing about a branch that is taken now and then",
    ),
)
