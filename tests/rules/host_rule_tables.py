"""Tables of the rules on threads, collections, memory and DDP's search. Not a test."""

from __future__ import annotations

import host_rule_cases as jobs
from host_rule_cases import trend
from rule_cases import SCRIPT, death
from rule_table import Table, waits, warm

from rn50_advisor.advisor.model.findings import Where

COPIED = {"role": "worker", "copied": True, "processes": 4, "first": 100.0}

HOST_TABLES: dict[str, Table] = {
    "CPU005": Table(
        jobs.cpu005,
        lines={
            "threads": ({"threads": 21, "ranks": 1}, {"threads": 20, "ranks": 1}),
            "waiting": ({"waiting": 4.0, "ranks": 8, "delay": 0.31}, {"waiting": 3.99, "ranks": 8, "delay": 0.31}),
            "helping": ({"waiting": 2.201}, {"waiting": 2.199}),
            "delay": ({"delay": 0.05}, {"delay": 0.0499}),
        },
        false_alarms={
            "threads that sleep, as on a GPU job": {"threads": 64, "waiting": 0.05, "delay": 0.001},
            "training threads wait for workers, not the threads that help them": {"waiting": 2.0, "delay": 0.9},
            "more ranks than cores, each with one thread": {"threads": 1, "ranks": 40},
            "as many threads as cores beside a busy neighbour": {"threads": 8, "waiting": 12.0, "others": 8.0},
        },
        severities=(
            ({"delay": 0.43}, "critical"),
            ({"delay": 0.42}, "high"),
            ({"ranks": 1, "threads": 64, "delay": 0.40}, "high"),  # four tenths of the wait are what is sure
            ({"threads": 64, "waiting": 28.0}, "low"),  # the wait may be the other rank's time to compute
            ({"threads": 64, "waiting": 44.0, "delay": 0.40}, "high"),
        ),
        best=({"ranks": 1, "threads": 64, "delay": 0.2}, warm(1 / (0.5 * 0.8))),
        also_fires={"all delay is the job's own, though the cores are full": {"others": 0.0}},
    ),
    "CPU007": Table(
        jobs.cpu007,
        lines={
            "beyond": ({"bound": 15.0}, {"bound": 15.01}),
            "free": ({"free": 0.5}, {"free": 0.49}),
            "in_fetch": ({"delay": 0.0, "wait": 0.6, "in_fetch": 0.2}, {"delay": 0.0, "wait": 0.6, "in_fetch": 0.1999}),
            "delay": ({"delay": 0.10}, {"delay": 0.0999}),
        },
        false_alarms={
            "each has a core of its own": {"delay": 0.01},
            "all cores are busy": {"free": 0.2},
            "a container that has no more": {"allowed": 1.0, "free": 0.5},
        },
        severities=waits("delay"),
        best=({"delay": 0.3}, warm(1 / 0.7)),
        also_fires={
            "workers on the core of their rank": {"delay": 0.02, "in_fetch": 0.8, "wait": 0.5},
            "a job that binds itself": {"allowed": 1.0, "free": 0.0, "given": 16.0},
        },
    ),
    "CPU008": Table(
        jobs.cpu008,
        lines={
            "cores": ({"cores": 1.6}, {"cores": 1.59}),
            "share": ({"share": 0.25}, {"share": 0.2499}),
            "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
            "crowding": ({"wait": 0.03, "crowd": 0.1}, {"wait": 0.03, "crowd": 0.0999}),
            "workers_share": ({"wait": 0.03, "crowd": 0.4, "wall": 1.21}, {"wait": 0.03, "crowd": 0.4, "wall": 1.19}),
            "delay": ({"delay": 0.15}, {"delay": 0.1499}),
        },
        false_alarms={
            "cores that idle, on which they shorten each batch": {"delay": 0.02, "busy": 8.0},
            "a thread that hands over the little that a worker makes": {"cores": 0.1},
            "batches that come in time": {"wait": 0.01},
        },
        severities=(
            ({"wait": 0.6, "delay": 0.6}, "critical"),
            ({"wait": 0.4}, "high"),
            ({"wait": 0.1}, "medium"),
            ({"wait": 0.05}, "low"),
        ),
        where=Where(SCRIPT, 42),
        best=(
            {"wait": 0.4},
            warm(1 / (1 - 1.7 * 0.4 * 0.4)),
        ),  # so much of the workers' CPU time is lost, and as much of the wait
    ),
    "CPU006": Table(
        jobs.cpu006,
        lines={
            "share": ({"lost": 0.02}, {"lost": 0.0199}),
            "pause": ({"lost": 0.001, "pause": 0.05}, {"lost": 0.001, "pause": 0.0499}),
        },
        false_alarms={
            "young collections": {"lost": 0.003, "own": 0.003, "pause": 0.002},
            "a rank that collects while it would wait anyway": {"lost": 0.0, "own": 0.04, "pause": 0.04},
        },
        severities=(
            ({"lost": 0.30}, "critical"),
            ({"lost": 0.15}, "high"),
            ({"lost": 0.05}, "medium"),
            ({"lost": 0.04}, "low"),
            ({"lost": 0.001, "pause": 0.2}, "low"),
        ),
        best=({"lost": 0.2}, 1 / 0.75),
    ),
    "LOP006": Table(
        jobs.lop006,
        lines={
            "waiting": ({"share": 0.05}, {"share": 0.0499}),
            "sure": ({"error": 0.0666}, {"error": 0.0667}),
        },
        false_alarms={
            "a thread that prefetches has it for a twentieth of the time": {"share": 0.04},
            "it sleeps, but not for the interpreter": {"share": 0.0, "asleep": 0.4},
            "a look or two by chance": {"share": 0.07, "error": 0.03},
            "another rank takes as long": {"other": 1.0},
            "nobody looks where no time is unexplained": {"looked": False, "asleep": 0.02},
        },
        severities=waits("share"),
        ranks=(1,),
        where=Where(SCRIPT, 77),
        best=({"share": 0.4, "other": 0.8}, warm(1 / 0.8)),
    ),
    "LOP007": Table(
        jobs.lop007,
        lines={"waiting": ({"waits": 0.05}, {"waits": 0.0499})},
        false_alarms={
            "it sleeps, but in none of the script's lines": {"waits": 0.01, "asleep": 0.4},
            "too few looks at the line to name it": {"samples": 9},
            "nobody looks where no time is unexplained": {"seen": False, "asleep": 0.04},
        },
        severities=waits("waits"),
        where=Where(SCRIPT, 77),
        best=({"waits": 0.4}, warm(1 / 0.6)),
    ),
    "LOP008": Table(
        jobs.lop008,
        lines={"preparing": ({"spends": 0.05}, {"spends": 0.0499})},
        false_alarms={
            "too few looks at the line to name it": {"samples": 9},
            "a forward pass that is as long as usual, and nobody looked": {"seen": False, "forward": 0.33},
        },
        severities=waits("spends"),
        where=Where(SCRIPT, 57),
        best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
    ),
    "LOP009": Table(
        jobs.lop009,
        lines={"measuring": ({"spends": 0.05}, {"spends": 0.0499})},
        false_alarms={
            "too few looks at the line to name it": {"samples": 9},
            "a forward pass that is as long as usual, and nobody looked": {"seen": False, "forward": 0.33},
        },
        severities=waits("spends"),
        where=Where(SCRIPT, 57),
        best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 0.915))),
    ),
    "MEM001": Table(
        jobs.mem001,
        lines={
            "pressure": ({"pressure": 0.05}, {"pressure": 0.0499}),
            "short": ({"held": 0.9}, {"held": 0.899}),
            "swap_in": ({"held": 0.5, "swapped": 1.0}, {"held": 0.5, "swapped": 0.99}),
            "limit": ({"pressure": 0.0, "held": 0.95}, {"pressure": 0.0, "held": 0.949}),
            "left_mb": (
                {"pressure": 0.0, "held": 0.96, "limit": 25000.0},
                {"pressure": 0.0, "held": 0.96, "limit": 25100.0},
            ),
        },
        false_alarms={
            "a neighbour's pressure, with room of our own": {"held": 0.5},
            "pages joined into huge ones on a host with room": {"held": None, "pressure": 0.4},
            "a limit full of page cache": {"pressure": 0.0, "held": 0.3},
            "a little swapped in long ago, on a kernel without pressure": {
                "pressure": None,
                "held": 0.4,
                "swapped": 0.1,
            },
        },
        severities=(
            ({"pressure": 0.30}, "critical"),
            ({"pressure": 0.29}, "high"),
            ({"pressure": 0.15}, "high"),
            ({"pressure": 0.14}, "medium"),
            ({"pressure": 0.0, "held": 0.99}, "low"),
        ),
        best=({"pressure": 0.2}, 1 / 0.8),
        also_fires={
            "swap on a kernel without pressure": {"pressure": None, "held": None, "swapped": 8.0},
            "a host without memory, and no limit": {"held": None, "host_left": 0.05},
        },
    ),
    "MEM002": Table(
        jobs.mem002,
        lines={
            "growth": ({"per_minute": 20.0}, {"per_minute": 19.9}),
            "steps": (
                {"seconds": 50.0, "steps": 200.0, "first": 100.0},
                {"seconds": 50.0, "steps": 199.0, "first": 100.0},
            ),
            "steps_seconds": (
                {"seconds": 20.0, "steps": 900.0, "first": 100.0},
                {"seconds": 19.9, "steps": 900.0, "first": 100.0},
            ),
            "seconds": (
                {"seconds": 60.0, "steps": 9.0, "first": 100.0},
                {"seconds": 59.9, "steps": 9.0, "first": 100.0},
            ),
            "lasting": ({"bend": 0.7}, {"bend": 0.701}),
        },
        false_alarms={
            "nothing moves": {"per_minute": 0.0},
            "an allocator that settles": {"bend": 0.9},
            "one jump, after an evaluation": {"bend": 0.0},
            "memory that is given back": {"per_minute": -60.0},
            "a short run": {"seconds": 15.0, "steps": 5000.0, "first": 10.0},
        },
        severities=(
            ({"headroom": 599.0}, "critical"),
            ({"headroom": 601.0}, "high"),
            ({"headroom": 3601.0}, "medium"),
            ({"headroom": 43201.0}, "low"),
            ({"headroom": None}, "low"),
            ({"deaths": (death(1, oom_killed=True),)}, "critical"),
        ),
        ranks=(1,),
        also_fires={
            "copies of what workers inherited": {"trends": (trend(**COPIED, left_mb=4000.0),)},
            "a short run that the OOM killer ended": {
                "seconds": 15.0,
                "first": 100.0,
                "deaths": (death(1, oom_killed=True),),
            },
        },
    ),
    "COM004": Table(
        jobs.com004,
        lines={"iterations": ({"searched": 20.0}, {"searched": 19.0})},
        false_alarms={
            "a graph that leaves parts out": {"used": 1.0},
            "DDP does not search": {"searched": 0.0, "other": 0.0},
            "one rank was looked at too seldom": {"other": 3.0},
        },
        severities=(({}, "low"),),
        where=Where(SCRIPT, 51),
    ),
}
