"""Faults of the gradient exchange: a slow network, and a needless search for unused parameters."""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.rules.communication.comm_cost import on_faster_links
from samples.faults.fixtures import SlowLoopback
from samples.faults.scenario import Job, Promise, Remedy, Scenario, Truth


def wire(*arguments: str) -> Job:
    return Job("faults/jobs/wire.py", arguments, ranks=2, start="one by one")


def normed(*arguments: str) -> Job:
    return Job("faults/jobs/syncbn.py", arguments, ranks=2, start="one by one")


def carrying(gbit: float) -> Promise:
    """Returns the promise for a loopback of this rate. Two ranks share it, so each sends at half the rate."""

    def told(a: Analysis) -> Saving | None:
        return on_faster_links(a, gbit / 8 / 2)

    return told


VIT = Job("faults/jobs/vit_spawn.py", ("--steps=120",))
SCENARIOS = (
    Scenario(
        name="slow-wire",
        family="wire",
        job=wire("--hidden=512", "--steps=50"),
        fixtures=(SlowLoopback("1gbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(job=wire("--hidden=512", "--steps=50", "--compress")),
        fast=True,
    ),
    Scenario(
        name="slow-wire-made-free",
        family="wire",
        job=wire("--hidden=512", "--steps=50"),
        fixtures=(SlowLoopback("1gbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(fixtures=(), promise=carrying(math.inf)),
        note="what no link makes shorter is left: latencies, and what gloo does on the cores that compute",
    ),
    Scenario(
        name="slower-wire-made-faster",
        family="wire",
        job=wire("--hidden=512", "--steps=30"),
        fixtures=(SlowLoopback("300mbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(fixtures=(SlowLoopback("1gbit"),), promise=carrying(1.0)),
        variant=True,
    ),
    Scenario(
        name="slower-wire-made-free",
        family="wire",
        job=VIT,
        fixtures=(SlowLoopback("300mbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(fixtures=(), promise=carrying(math.inf)),
        variant=True,
    ),
    Scenario(
        name="slower-wire-accumulating",
        family="wire",
        job=wire("--hidden=256", "--steps=45", "--accumulate=2"),
        fixtures=(SlowLoopback("300mbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(job=wire("--hidden=256", "--steps=45", "--accumulate=2", "--compress")),
        variant=True,
    ),
    Scenario(
        name="slow-wire-after-each-batch",
        family="wire",
        job=wire("--hidden=256", "--steps=40", "--accumulate=4", "--exchange-each"),
        fixtures=(SlowLoopback("1gbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(job=wire("--hidden=256", "--steps=40", "--accumulate=4")),
        note="gradients are accumulated, and exchanged all the same after each batch",
    ),
    Scenario(
        name="slow-wire-resnet18",
        family="wire",
        job=Job(
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
        fixtures=(SlowLoopback("2gbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(fixtures=(), promise=carrying(math.inf)),
        variant=True,
    ),
    Scenario(
        name="slow-wire-under-several-buckets",
        family="wire",
        job=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1"),
        fixtures=(SlowLoopback("3gbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(job=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1", "--compress")),
        note="the backward pass hides a good part of the exchange",
    ),
    Scenario(
        name="slow-wire-and-slow-rank",
        family="wire",
        job=wire("--hidden=512", "--steps=50", "--slow-compute=40"),
        fixtures=(SlowLoopback("1gbit"),),
        truth=Truth(roots=("COM001",), also=("CMP007",), noted=("COM001", "CMP007", "COM002")),
        strength="clear",
        remedy=Remedy(job=wire("--hidden=512", "--steps=50", "--slow-compute=40", "--compress")),
        note="the wire takes three times as long as one rank is late: it is no consequence of that",
    ),
    Scenario(
        name="slow-rank-and-slow-wire",
        family="wire",
        job=wire("--hidden=256", "--steps=60", "--slow-compute=120"),
        fixtures=(SlowLoopback("1gbit"),),
        truth=Truth(roots=("CMP007",), ranks=(1,), also=("COM001",), noted=("COM001", "CMP007", "COM002")),
        strength="clear",
        remedy=Remedy(job=wire("--hidden=256", "--steps=60")),
        note="one rank is late by twice what the wire takes",
    ),
    Scenario(
        name="slow-wire-a-little",
        family="wire",
        job=VIT,
        fixtures=(SlowLoopback("800mbit"),),
        truth=Truth(roots=("COM001",)),
        strength="just above",
        remedy=Remedy(fixtures=(SlowLoopback("1600mbit"),), promise=carrying(1.6)),
    ),
    Scenario(
        name="wire-that-suffices",
        family="wire",
        job=VIT,
        fixtures=(SlowLoopback("12gbit"),),
        truth=Truth(never=("COM001",)),
        strength="just below",
    ),
    Scenario(
        name="one-bucket-for-all-gradients",
        family="wire",
        job=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1000"),
        fixtures=(SlowLoopback("6gbit"),),
        truth=Truth(roots=("COM003",), also=("COM001",), line="DistributedDataParallel("),
        strength="clear",
        remedy=Remedy(job=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=2")),
        note="the exchange would fit beside the backward pass, and begins only after it",
        variant=True,
    ),
    Scenario(
        name="gradients-averaged-by-hand",
        family="wire",
        job=wire("--batch=512", "--layers=8", "--steps=50", "--by-hand"),
        fixtures=(SlowLoopback("6gbit"),),
        truth=Truth(roots=("COM003",), also=("COM001",), says="DistributedDataParallel"),
        strength="clear",
        remedy=Remedy(job=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=2")),
        note="as in tutorials: all_reduce for each parameter after backward()",
        variant=True,
    ),
    Scenario(
        name="one-bucket-beside-much-computing",
        family="wire",
        job=wire("--batch=768", "--layers=8", "--steps=40", "--bucket-mb=1000"),
        fixtures=(SlowLoopback("6gbit"),),
        truth=Truth(roots=("COM003",), also=("COM001",), line="DistributedDataParallel("),
        strength="just above",
        remedy=Remedy(job=wire("--batch=768", "--layers=8", "--steps=40", "--bucket-mb=2")),
        variant=True,
    ),
    Scenario(
        name="buckets-in-the-wrong-order",
        family="wire",
        job=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1", "--last-first", "--find-unused"),
        fixtures=(SlowLoopback("6gbit"),),
        truth=Truth(roots=("COM003",), also=("COM001",), noted=("COM004",), line="DistributedDataParallel("),
        strength="clear",
        remedy=Remedy(job=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1", "--last-first")),
        note="DDP sorts its buckets anew after the first step, but not while it searches for unused parameters",
        variant=True,
    ),
    Scenario(
        name="several-buckets",
        family="wire",
        job=wire("--batch=512", "--layers=8", "--steps=50", "--bucket-mb=1"),
        fixtures=(SlowLoopback("6gbit"),),
        truth=Truth(never=("COM003",)),
        strength="just below",
    ),
    Scenario(
        name="tiny-batches",
        family="wire",
        job=wire("--batch=1", "--hidden=1024", "--layers=3", "--steps=150"),
        truth=Truth(roots=("COM010", "COM001")),
        strength="clear",
        remedy=Remedy(job=wire("--batch=1", "--hidden=1024", "--layers=3", "--steps=60", "--accumulate=5")),
        note="loopback carries what it can: it is the batch that is small; on a slow machine the wire is true as well",
    ),
    Scenario(
        name="batches-a-little-too-small",
        family="wire",
        job=wire("--batch=12", "--hidden=1024", "--layers=3", "--steps=120"),
        truth=Truth(roots=("COM010", "COM001")),
        strength="just above",
        remedy=Remedy(job=wire("--batch=12", "--hidden=1024", "--layers=3", "--steps=60", "--accumulate=4")),
        note="on a slow machine the wire is true as well",
    ),
    Scenario(
        name="batches-that-suffice",
        family="wire",
        job=wire("--batch=96", "--hidden=1024", "--layers=3", "--steps=80"),
        truth=Truth(never=("COM010",), also=("COM001",)),
        strength="just below",
    ),
    Scenario(
        name="sync-batch-norm",
        family="wire",
        job=normed("--layers=24", "--batch=32", "--steps=56"),
        truth=Truth(roots=("COM006",), also=("COM001", "COM002"), says="convert_sync_batchnorm"),
        strength="clear",
        remedy=Remedy(job=normed("--layers=24", "--batch=32", "--steps=80", "--plain")),
        note="what torch's layer does on GPUs, over gloo; its round trips are waited for by whoever comes first",
    ),
    Scenario(
        name="sync-batch-norm-beside-much-computing",
        family="wire",
        job=normed("--layers=8", "--width=32", "--batch=64", "--steps=50"),
        truth=Truth(roots=("COM006",), also=("COM001", "COM002"), says="convert_sync_batchnorm"),
        strength="just above",
        remedy=Remedy(job=normed("--layers=8", "--width=32", "--batch=64", "--steps=50", "--plain")),
    ),
    Scenario(
        name="sync-batch-norm-of-small-batches",
        family="wire",
        job=normed("--layers=24", "--batch=8", "--steps=120"),
        truth=Truth(never=("COM006",), also=("COM001",)),
        strength="just below",
        note="eight samples a rank need statistics of all ranks; that their exchange takes the time is true",
    ),
    Scenario(
        name="search-for-unused-parameters",
        family="wire",
        job=Job("faults/jobs/vit_spawn.py", ("--steps=150", "--depth=8", "--batch=4", "--find-unused")),
        truth=Truth(also=("COM004",), noted=("COM004",)),
        strength="clear",
        note="costs little on CPU, so that the verdict stays healthy or becomes COM004's; said it must be",
    ),
    Scenario(
        name="search-for-unused-parameters-in-a-hundred-and-forty-steps",
        family="wire",
        job=Job("faults/jobs/vit_spawn.py", ("--steps=140", "--depth=8", "--batch=4", "--find-unused")),
        truth=Truth(also=("COM004",), noted=("COM004",)),
        strength="just above",
        note="a quarter of the steps and more are stamped: some thirty-five looks",
    ),
    Scenario(
        name="search-for-unused-parameters-in-eighteen-steps",
        family="wire",
        job=Job("faults/jobs/vit_spawn.py", ("--steps=18", "--depth=8", "--batch=4", "--find-unused")),
        truth=Truth(never=("COM004",), silent=("COM004",)),
        strength="just below",
        note="fewer than twenty looks say nothing of a branch that is taken now and then",
    ),
)
