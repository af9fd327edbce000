"""Tables of the rules on workers: how many, how often started, what they hand over and through what. Not a test."""

from __future__ import annotations

import input_rule_cases as jobs
from rule_cases import SCRIPT, death
from rule_table import Table, waits, warm

from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.input.sample_cost import SharedLock

LINE = Where(SCRIPT, 42)
BUS = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. Workers are out of shared memory."
NO_ROOM = "RuntimeError: unable to allocate shared memory(shm) for file </torch_7_1_0>: No space left on device (28)"
CUT_OFF = 'RuntimeError: Caught RuntimeError in DataLoader worker process 0.\n  File "storage.py", line 1220, in _new_shared\n    un'
QUICK = {"first": 0.05, "wall": 0.05}
STOPPED = {"exit_code": None, "signal": 2}

INPUT_TABLES: dict[str, Table] = {
    "DAT005": Table(
        jobs.dat005,
        lines={
            "threads": ({"workers": 12}, {"workers": 11}),  # and two that train
            "waiting": ({"in_fetch": 0.4, "cpu": 0.6}, {"in_fetch": 0.399, "cpu": 0.6}),
            "spare_share": ({"job_cores": 13.09}, {"job_cores": 13.11}),  # half a core of it is the system's
            "spare_cores": ({"cores": 2.0, "job_cores": 0.99}, {"cores": 2.0, "job_cores": 1.01}),
            "others": ({"others": 3.99}, {"others": 4.0}),
        },
        false_alarms={
            "exhausted cores: fewer workers make no less work": {"job_cores": 16.0},
            "as many workers as keep up with the step": {"workers": 3},
            "workers that mostly find a core at once": {"in_fetch": 0.2, "cpu": 0.7},
            "workers that crowd each other alone, and nobody waits for their batches": {"delay": 0.0},
            "an epoch begins with a buffer that is filled": {"delay": 0.0, "start": 0.4, "wall": 0.04},
            "new workers of each epoch start, and are soon done": {"delay": 0.0, "start": 0.4, "persistent": False},
            "neighbours take the cores": {"others": 8.0, "job_cores": 4.0},
        },
        severities=(
            ({"delay": 0.4, "job_cores": 1.0}, "critical"),
            ({"delay": 0.39, "job_cores": 1.0}, "high"),
            ({"delay": 0.19, "job_cores": 1.0}, "medium"),
        ),
        where=LINE,
        best=({"delay": 0.3}, 1 / 0.75),
        also_fires={
            "only the workers wait for a core, the training thread a little": {"delay": 0.1},
            "they make the first batches of epochs all at once": {"delay": 0.0, "start": 0.4},
        },
    ),
    "DAT006": Table(
        jobs.dat006,
        lines={
            "start": ({**QUICK, "start": 0.05}, {**QUICK, "start": 0.0499}),
            "epochs": ({"epochs": 1.0}, {"epochs": 0.0}),
        },
        false_alarms={
            "a single epoch": {"epochs": 0.0},
            "workers that live on": {"persistent": True},
            "loading in the training process": {"workers": 0},
            "a sampler that sorts all samples before the epoch": {"index": 1.9},
            "workers that live on, of a loader made for each of two folds": {
                "persistent": True,
                "made": 2,
                "epochs": 8.0,
            },
            "an index that each iterator of an IterableDataset reads anew": {"length": None, "first": 1.95},
        },
        severities=(
            (
                {"start": 0.45, "first": 0.9, "wall": 0.9},
                "critical",
            ),  # a fifth of it stays at best, two fifths at worst
            ({"start": 0.3, "first": 0.6, "wall": 0.6}, "high"),
            ({"start": 0.15, "first": 0.3, "wall": 0.3}, "medium"),
        ),
        where=LINE,
        best=({}, warm(1 / 0.82)),
        also_fires={
            "new workers open their files again": {"first": 1.8},
            "workers that were to live on, of a loader that is made anew": {"persistent": True, "made": 3},
            "an iterator for each step": {"steps": 1.0, "wall": 0.0, "first": 0.0},
        },
    ),
    "DAT007": Table(
        jobs.dat007,
        lines={
            "input_wait": ({"wait": 0.05, "wall": 0.01}, {"wait": 0.0499, "wall": 0.01}),
            "hand_over": ({"wall": 0.4003}, {"wall": 0.4005}),  # a fifth of it was spent in line for a core
        },
        false_alarms={
            "workers that are too slow": {"wall": 1.2},
            "loading in the training process": {"workers": 0},
            "several batches a step, each worth its worker": {"wall": 0.15, "batches": 4.0},
        },
        severities=(
            ({"wait": 0.325}, "critical"),
            ({"wait": 0.324}, "high"),
            ({"wait": 0.181}, "high"),
            ({"wait": 0.18}, "medium"),
        ),
        where=LINE,
        best=({}, 1 / 0.604814854),  # 0.6394 s, with the caches warm
    ),
    "DAT009": Table(
        jobs.dat009,
        lines={
            "behind": ({"behind": 0.05}, {"behind": 0.0499}),
            "slow": ({"slow": 2.0}, {"slow": 1.99}),
            "lag": ({"slow": 1.0, "lag": 1.25}, {"slow": 1.0, "lag": 1.2499}),
        },
        false_alarms={
            "workers that are too slow leave nothing ready": {"behind": 0.0},
            "workers out of step by a moment": {"slow": 1.3},
        },
        severities=(({"behind": 0.4}, "critical"), ({"behind": 0.39}, "high"), ({"behind": 0.19}, "medium")),
        where=LINE,
        best=({"wall": 1.8}, 1 / 0.9),
        also_fires={"one rank's slow batches stop all": {"only": 0.0}},
    ),
    "DAT011": Table(
        jobs.dat011,
        lines={
            "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
            "share": ({"share": 0.4}, {"share": 0.3999}),
            "crowding": ({"wait": 0.03, "crowd": 0.1}, {"wait": 0.03, "crowd": 0.0999}),
        },
        false_alarms={
            "decoding dominates, which is no transform": {"share": 0.1},
            "nobody waits for the loader": {"wait": 0.01},
            "a batch that hardly computes": {"cpu": 0.02, "delay": 0.0},
        },
        severities=(({"wait": 0.4}, "critical"), ({"wait": 0.3}, "high"), ({"wait": 0.15}, "medium")),
        where=Where(SCRIPT, 33),
        also_fires={
            "in the training process": {"workers": 0, "wall": 0.4},
            "with cores to spare": {"busy": 4.5, "workers": 2, "wall": 1.9},
        },
    ),
    "DAT013": Table(
        jobs.dat013,
        lines={
            "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
            "waiting": ({"share": 0.3}, {"share": 0.2999}),
        },
        false_alarms={
            "nobody waits for batches": {"wait": 0.0},
            "a lock that is held for a moment": {"share": 0.05},
            "the training process waits for a lock of its own": {"workers": 0},
        },
        severities=waits("wait"),
        where=Where(SCRIPT, 61),
        best=({"wall": 2.0}, warm(1 / 0.6)),
        also_fires={"a server that all workers ask, behind a library's data set": {"lock": SharedLock("server")}},
    ),
    "DAT014": Table(
        jobs.dat014,
        lines={
            "start": ({"start": 0.0701}, {"start": 0.0699}),  # making a batch is 0.02 of it
            "epochs": ({"epochs": 1.0}, {"epochs": 0.99}),
        },
        false_alarms={
            "workers that are started anew": {"persistent": False, "length": 80, "first": 1.5},
            "workers of a loader that is made anew": {"made": 3, "length": 80, "first": 1.5},
            "a stream in new workers, which take the time": {"persistent": False, "first": 0.3},
            "no more than making a batch": {"wall": 1.6},
            "sixteen workers that begin at once on four cores": {"workers": 8, "cores": 4.0, "wall": 0.4},
        },
        severities=(({"start": 0.33}, "critical"), ({"start": 0.2}, "high"), ({"start": 0.1}, "medium")),
        where=LINE,
        best=({"start": 0.22}, warm(1 / 0.8)),
        also_fires={
            "a stream fills its buffer in new workers too": {"persistent": False, "first": 1.5},
            "a sampler orders a large data set": {"length": 10**8},
            "in the training process": {"workers": 0, "length": 10**8},
            "a sampler orders a large data set while new workers wait": {
                "persistent": False,
                "length": 10**8,
                "index": 1.5,
            },
            "an iterator for each step, from workers that live on": {"steps": 1.0, "wall": 0.05, "length": 80},
        },
    ),
    "DAT015": Table(
        jobs.dat015,
        lines={"index": ({"index": 0.05}, {"index": 0.0499})},
        false_alarms={"torch's own samplers": {"index": 0.001}},
        severities=(({"index": 0.4}, "critical"), ({"index": 0.2}, "high"), ({"index": 0.1}, "medium")),
        where=LINE,
        best=({"index": 0.2}, warm(1 / 0.8)),
        also_fires={"an iterator for each step": {"steps": 1.0}},
    ),
    "DAT012": Table(
        jobs.dat012,
        lines={"full": ({"full": 0.9}, {"full": 0.8999})},
        false_alarms={
            "nobody hands batches over there": {"workers": 0},
            "a data set is kept there, and plenty is left": {"total_mb": 160_000.0},
            "twice as much is left as all workers hand over": {"total_mb": 2000.0, "batch_mb": 6.0},
            "a worker ended by something else": {"full": 0.1, "deaths": (death(0, role="worker", signal=9),)},
            "the user pressed Ctrl-C": {"full": 0.1, "deaths": (death(0, **STOPPED), death(1, **STOPPED))},
        },
        severities=(({}, "medium"), ({"deaths": (death(1, exception=BUS),)}, "critical")),
        where=LINE,
        also_fires={
            "less than twice as much is left": {"total_mb": 2000.0, "batch_mb": 6.5},
            "a worker met SIGBUS": {"full": 0.1, "deaths": (death(1, role="worker", signal=7, exit_code=None),)},
            "its rank says so": {"full": 0.1, "deaths": (death(1, exception=BUS),)},
            "the traceback is cut off": {"full": 0.1, "deaths": (death(1, exception=CUT_OFF),)},
            "it could not write its batch": {"full": 0.1, "deaths": (death(1, exception=NO_ROOM),)},
        },
    ),
}
