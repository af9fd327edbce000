"""One table for each rule: where it fires, its lines, its false alarms, what it names, the most it may promise. Not a test."""

from __future__ import annotations

from dataclasses import replace

import rule_cases as jobs
from comm_rule_tables import COMM_TABLES
from copy_rule_tables import COPY_TABLES
from gpu_rule_tables import GPU_TABLES
from host_rule_tables import HOST_TABLES
from input_rule_tables import INPUT_TABLES
from pace_rule_tables import PACE_TABLES
from rule_cases import SCRIPT, death, stands
from rule_table import Table, waits, warm
from storage_rule_tables import STORAGE_TABLES

from rn50_advisor.advisor.model.analysis import Coincidence
from rn50_advisor.advisor.model.findings import Where

WAIT = {"input_wait": ({"wait": 0.05}, {"wait": 0.0499})}
LINE = Where(SCRIPT, 42)
SQUEEZED = {"allowed": 2.0, "workers": 1, "wall": 0.95}  # room for another worker, if anybody needed one
EIGHT = {"workers": 8, "wall": 7.6}  # a ninth would make the batches an eighth faster
WRITING = (stands(0, phase="checkpoint", culprit=True), stands(1, waits=True))
WORKING = (stands(0, waits=True, phase="gap"), stands(1, culprit=True, phase="gap", working=True))
COMPILING = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, compiling=True))
SLEEPING = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, halted="asleep"))
EARLY = {"stalled": 20.0, "is_running": True, "ranks": SLEEPING}
FIRST = (replace(stands(0, waits=True, phase="backward"), step=0), replace(stands(1, waits=True), step=0))
BEGINS = {"ranks": FIRST}
COMPUTES = {"stalled": 31.0, "is_running": True, "ranks": WORKING}
INTERRUPTED = {"exit_code": None, "signal": 2}
ENDED = {"exit_code": None, "signal": 15}
IDLE = Coincidence("cpu.job_cores", "job", 2.0, 1.4, "cores")
BUSY = Coincidence("cpu.other_cores", "job", 0.1, 1.9, "cores")


TABLES: dict[str, Table] = {
    **COMM_TABLES,
    **COPY_TABLES,
    **GPU_TABLES,
    **HOST_TABLES,
    **INPUT_TABLES,
    **PACE_TABLES,
    **STORAGE_TABLES,
    "DAT001": Table(
        jobs.dat001,
        lines={
            **WAIT,
            "computing": ({"cpu": 0.7, "delay": 0.0}, {"cpu": 0.699, "delay": 0.0}),
            "spare_share": ({"busy": 13.61}, {"busy": 13.59}),
            "spare_cores": ({"allowed": 2.0, "busy": 1.51}, {"allowed": 2.0, "busy": 1.49}),
            "busy": ({**SQUEEZED, "busy": 1.6, "working": 0.849}, {**SQUEEZED, "busy": 1.6, "working": 0.85}),
            "gain": (
                {**SQUEEZED, "busy": 1.6, "working": 0.95, "wall": 2.02},
                {**SQUEEZED, "busy": 1.6, "working": 0.95, "wall": 2.01},
            ),
            "crowding": ({"wait": 0.03, "crowd": 0.1}, {"wait": 0.03, "crowd": 0.0999}),
            "workers_share": ({"wait": 0.03, "crowd": 0.4, "wall": 1.5}, {"wait": 0.03, "crowd": 0.4, "wall": 1.49}),
        },
        false_alarms={
            "threads that crowd each other beside workers with little to do": {"wait": 0.03, "crowd": 0.4, "wall": 0.1},
            "a neighbour takes the cores": {"wait": 0.03, "crowd": 0.15, "others": 8.0},
            "one worker at its limit, idle cores beside it": {"workers": 1, "busy": 3.0},
            "a quota looks like idle cores": {"busy": 2.0},
            "workers blocked on reads": {"cpu": 0.3, "delay": 0.0},
            "a wait for batches that are made already": {"wait": 0.07, "handed": 0.06},
            "loading in the training process": {"workers": 0},
        },
        severities=waits("wait"),
        where=LINE,
        best=({"wait": 0.4}, 1 / 0.6),
        also_fires={
            "waiting for a core counts as computing": {"cpu": 0.4, "delay": 0.4},
            "a step that computes on the same cores waits for them, not for input": {"wait": 0.01, "crowd": 0.4},
        },
    ),
    "DAT002": Table(
        jobs.dat002,
        lines={
            **WAIT,
            "blocked": ({"blocked": 0.5}, {"blocked": 0.499}),
            "bytes_per_sample": ({"read_mb": 0.004096}, {"read_mb": 0.004095}),
        },
        false_alarms={
            "a sleep or a lock in the dataset reads nothing": {"read_mb": 0.0},
            "the page cache serves the data": {"read_mb": 0.0001},
            "computing, not blocked": {"blocked": 0.2},
        },
        severities=waits("wait"),
        where=LINE,
        best=({"wait": 0.4}, warm(1 / 0.6)),
        also_fires={"a network mount shows no blocks": {"read_mb": 0.0, "network": 1.0}},
    ),
    "DAT003": Table(
        jobs.dat003,
        lines={**WAIT, "hand_over": ({"wall": 0.002}, {"wall": 0.0019})},
        false_alarms={
            "tiny data in memory": {"wait": 0.03, "wall": 0.03},
            "a garbage collection that may have come in a fetch": {"wait": 0.06, "gc": 0.02},
            "batches made faster than any worker hands them over": {"wait": 0.4, "wall": 0.0005},
            "workers load": {"workers": 2},
        },
        severities=waits("wait"),
        where=LINE,
        best=({"cores": 4.0, "job_cores": 3.6}, 1 / 0.9),
    ),
    "DAT004": Table(
        jobs.dat004,
        lines={
            **WAIT,
            "busy": ({"busy": 0.85}, {"busy": 0.849}),
            "spare_share": ({"idle": 2.41}, {"idle": 2.39}),
            "spare_cores": ({**EIGHT, "allowed": 2.0, "idle": 0.5}, {**EIGHT, "allowed": 2.0, "idle": 0.49}),
            "gain": ({"allowed": 2.0, "idle": 0.4, "wall": 2.699}, {"allowed": 2.0, "idle": 0.4, "wall": 2.7}),
        },
        false_alarms={
            "workers that wait for indices": {"busy": 0.5},
            "part of a core idle, and one worker more among many hardly helps": {**EIGHT, "allowed": 2.0, "idle": 0.49},
            "no core left for another worker": {"idle": 0.2},
            "workers that take turns at a lock": {"values_too": {"loader.lock_share": 0.3}},
            "the gaps of a full host, however much a core would help": {"allowed": 2.0, "idle": 0.29},
            "loading in the training process": {"workers": 0},
        },
        severities=waits("wait"),
        where=LINE,
        best=({"wall": 5.0}, 1 / (5.0 / 7)),
        also_fires={"a neighbour leaves part of a core, and it helps even at worst": {"allowed": 2.0, "idle": 0.4}},
    ),
    "DAT008": Table(
        jobs.dat008,
        lines={
            "excess": ({"wait": 0.1}, {"wait": 0.0999}),
            "late": ({"late": 0.5}, {"late": 0.49}),
            "slower": (
                {"wait": 0.5, "others": 0.2, "busy": 0.3, "slower": 1.11},
                {"wait": 0.5, "others": 0.2, "busy": 0.3, "slower": 1.09},
            ),
        },
        false_alarms={
            "trouble that all ranks share": {"wait": 0.3, "others": 0.3},
            "all are short of data, and the last one gets it as fast": {"wait": 0.5, "others": 0.3, "slower": 1.05},
            "batches of the others take as long as the step": {"wait": 0.9, "busy": 0.1, "made": 0.91, "slower": 1.04},
            "ranks that take turns": {"late": 0.3},
            "the rank that waits longer is not the last to come": {"late": 0.0},
        },
        severities=(({"wait": 0.35}, "critical"), ({"wait": 0.2}, "high"), ({"wait": 0.12}, "medium")),
        ranks=(1,),
        where=Where(SCRIPT, 57),
        best=({"wait": 0.3, "busy": 0.9}, warm(1 / 0.9)),
    ),
    "CMP007": Table(
        jobs.cmp007,
        lines={
            "ratio": ({"slow": 0.6, "usual": 0.5}, {"slow": 0.715, "usual": 0.6}),
            "excess": ({"slow": 0.1, "usual": 0.05}, {"slow": 0.0999, "usual": 0.05}),
            "part": (
                {"slow": 0.5, "usual": 0.25, "elsewhere": 0.25},
                {"slow": 0.5, "usual": 0.25, "elsewhere": 0.2501},
            ),
            "late": ({"late": 0.5}, {"late": 0.49}),
        },
        false_alarms={
            "all ranks are as slow": {"slow": 0.9, "usual": 0.9},
            "ranks that take turns": {"late": 0.3},
            "ranks that compute little": {"slow": 0.03, "usual": 0.01},
            "a heap that shrinks and grows in each step": {
                "slow": 0.7,
                "usual": 0.5,
                "values": {"step.compute_s": {0: 0.5, 1: 0.7}, "step.system_s": {0: 0.01, 1: 0.16}},
            },
            "a rank that is late for something else": {"slow": 0.5, "usual": 0.4, "elsewhere": 0.4},
        },
        severities=(
            ({"usual": 0.6}, "critical"),
            ({"usual": 0.8}, "high"),
        ),
        ranks=(1,),
        best=({"usual": 0.8}, warm(1 / 0.8)),
    ),
    "COM001": Table(
        jobs.com001,
        lines={"wire": ({"wire": 0.15}, {"wire": 0.1499})},
        false_alarms={"waiting for a straggler": {"wire": 0.02, "values": {"comm.skew_s": 0.5}}},
        severities=(({"wire": 0.30}, "critical"), ({"wire": 0.15}, "high")),
        best=({"wire": 0.2}, 1 / 0.88),
    ),
    "COM002": Table(
        jobs.com002,
        lines={
            "skew": ({"skew": 0.15}, {"skew": 0.1499}),
            "rotating_skew": ({"skew": 0.25, "late": 0.5, "other": 0.5}, {"skew": 0.249, "late": 0.5, "other": 0.5}),
            "late": (
                {"skew": 0.15, "late": 0.25, "other": 0.3, "costs": 0.9},
                {"skew": 0.15, "late": 0.249, "other": 0.3, "costs": 0.9},
            ),
            "costs": (
                {"skew": 0.15, "late": 0.4, "other": 0.3, "costs": 0.851},
                {"skew": 0.15, "late": 0.4, "other": 0.3, "costs": 0.849},
            ),
        },
        false_alarms={
            "the ordinary spread of two processes": {"skew": 0.05},
            "ranks that share cores take turns": {"skew": 0.2, "late": 0.45, "other": 0.45},
            "one that is the last by chance, and by little": {"skew": 0.16, "late": 0.72, "other": 0.2, "costs": 0.75},
            "a heap that shrinks and grows in each step": {"skew": 0.2, "faults": 0.1},
            "little of the wait is its quota's": {"skew": 0.2, "late": 0.17, "other": 0.3, "costs": 0.9, "held": 0.05},
        },
        severities=(({"skew": 0.30}, "critical"), ({"skew": 0.15}, "high")),
        also_fires={
            "seldom the last, for its quota": {"skew": 0.2, "late": 0.17, "other": 0.3, "costs": 0.9, "held": 0.6}
        },
        ranks=(1,),
        best=({"skew": 0.3}, 1 / 0.7),
    ),
    "CPU001": Table(
        jobs.cpu001,
        lines={"held": ({"held": 0.05}, {"held": 0.0499}), "periods": ({"periods": 0.05}, {"periods": 0.0499})},
        false_alarms={
            "a quota that is never reached": {"held": 0.0, "periods": 0.0},
            "throttled, but nobody waits for that rank": {"rest": 0.99},
        },
        severities=(({"rest": 0.5}, "critical"), ({"rest": 0.8}, "high"), ({"rest": 0.9}, "medium")),
        ranks=(1,),
        best=({"rest": 0.9}, warm(1 / 0.9)),
    ),
    "CPU002": Table(
        jobs.cpu002,
        lines={"steal": ({"steal": 0.05}, {"steal": 0.0499})},
        false_alarms={"bare metal reads nothing": {"steal": 0.0}},
        severities=waits("steal"),
        best=({"steal": 0.2}, 1 / 0.8),
    ),
    "CPU003": Table(
        jobs.cpu003,
        lines={
            "delay": ({"delay": 0.10}, {"delay": 0.0999}),
            "other_cores": ({"others": 4.0}, {"others": 3.99}),
            "busy": ({"busy": 13.6}, {"busy": 13.59}),
        },
        false_alarms={
            "the job's own workers and threads crowd it": {"others": 0.5},
            "idle cores are left": {"busy": 9.0},
            "a launcher that does a little": {"others": 0.5, "helpers": 0.3},
        },
        severities=waits("delay"),
        best=({"delay": 0.3}, warm(1 / 0.7)),
        also_fires={"helpers of the job's own": {"others": 0.0, "helpers": 8.0}},
    ),
    "LOP001": Table(
        jobs.lop001,
        lines={
            "share": ({"spent": 0.03}, {"spent": 0.0299}),
            "writing": ({"spent": 0.01, "gap": 0.2, "saving": 0.5}, {"spent": 0.01, "gap": 0.2, "saving": 0.499}),
        },
        false_alarms={"a small share of the time": {"spent": 0.01, "gap": 0.02, "saving": 0.9}},
        severities=(*waits("spent"), ({"spent": 0.04}, "low")),
        ranks=(0,),
        where=Where(SCRIPT, 88),
        best=({"spent": 0.2, "other": 0.9}, warm(1 / 0.9)),
    ),
    "LOP002": Table(
        jobs.lop002,
        lines={"gap": ({"spent": 0.05}, {"spent": 0.0499}), "output": ({"output": 0.5}, {"output": 0.499})},
        false_alarms={"the loop computes there": {"output": 0.2}},
        severities=waits("spent"),
        where=Where(SCRIPT, 71),
        best=({"spent": 0.2}, warm(1 / 0.8)),
    ),
    "LOP003": Table(
        jobs.lop003,
        lines={"share": ({"spent": 0.10}, {"spent": 0.0999}), "evaluations": ({"times": 2}, {"times": 1})},
        false_alarms={"a short trial that evaluates once at its end": {"times": 1, "spent": 0.4}},
        severities=(({"spent": 0.30}, "critical"), ({"spent": 0.15}, "high"), ({"spent": 0.12}, "medium")),
        best=({"spent": 0.3}, warm(1 / 0.73)),
    ),
    "LOP004": Table(
        jobs.lop004,
        lines={
            "gap": ({"spent": 0.05}, {"spent": 0.0499}),
            "seconds": ({"spent": 0.0002, "step_s": 0.001}, {"spent": 0.000199, "step_s": 0.001}),
            "output": ({"output": 0.499}, {"output": 0.5}),
        },
        false_alarms={
            "a few metrics": {"spent": 0.03},
            "schedule and accuracy of a step of a millisecond": {"spent": 0.00015, "step_s": 0.001},
            "output, which is LOP002's": {"output": 0.9},
        },
        severities=waits("spent"),
        where=Where(SCRIPT, 93),
        best=({"spent": 0.2}, warm(1 / 0.8)),
        also_fires={"no stack samples could be had": {"output": None, "seen": False}},
    ),
    "LOP005": Table(
        jobs.lop005,
        lines={
            "seconds": ({"total": 120.0, "run": 500.0}, {"total": 119.9, "run": 500.0}),
            "share": ({"total": 100.0, "run": 1000.0}, {"total": 99.9, "run": 1000.0}),
            "run": ({"total": 90.0, "run": 600.0}, {"total": 90.0, "run": 599.9}),
        },
        false_alarms={
            "a short run, most of it start-up": {"total": 40.0, "run": 60.0},
            "a long run has a long start-up only where it is a share of it": {"total": 100.0, "run": 5000.0},
            "a run that goes on": {"total": 100.0, "run": 700.0, "running": True},
        },
        severities=(({}, "low"), ({"total": 900.0}, "low")),
        also_fires={
            "two minutes are long in a long run": {"total": 130.0, "run": 90_000.0},
            "two minutes are long while it runs": {"total": 130.0, "run": 140.0, "running": True},
        },
    ),
    "RUN001": Table(
        jobs.run001,
        lines={
            "seconds": ({"stalled": 30.0}, {"stalled": 29.9}),
            "times_p99": ({"stalled": 50.0, "p99": 5.0}, {"stalled": 49.9, "p99": 5.0}),
            "checkpoint_seconds": (
                {"stalled": 600.0, "ranks": WRITING},
                {"stalled": 599.0, "ranks": WRITING},
            ),
            "compile_seconds": (
                {"stalled": 600.0, "ranks": COMPILING},
                {"stalled": 599.0, "ranks": COMPILING},
            ),
            "working_seconds": ({"stalled": 600.0, "ranks": WORKING}, {"stalled": 599.0, "ranks": WORKING}),
            "first_step_seconds": ({**BEGINS, "stalled": 300.0}, {**BEGINS, "stalled": 299.0}),
            "early_seconds": ({**EARLY, "stalled": 15.0}, {**EARLY, "stalled": 14.9}),
        },
        false_alarms={
            "long steps": {"stalled": 300.0, "p99": 60.0},
            "one stands and the others go on": {"stalled": 300.0, "others_moved": True},
            "it may be at work": {**EARLY, "ranks": (SLEEPING[0], stands(1, culprit=True))},
            "nobody is seen to wait for it": {**EARLY, "ranks": (stands(0), SLEEPING[1])},
            "its loader fills up": {
                **EARLY,
                "ranks": (SLEEPING[0], stands(1, culprit=True, halted="asleep", phase="input_wait")),
            },
            "it evaluates": {
                **EARLY,
                "ranks": (SLEEPING[0], stands(1, culprit=True, halted="asleep", phase="evaluation")),
            },
            "two stand": {**EARLY, "ranks": (SLEEPING[0], SLEEPING[1], stands(2, culprit=True, halted="asleep"))},
            "a process alone": {**EARLY, "ranks": (SLEEPING[1],)},
            "a short pause that is over": {**EARLY, "ended": True},
            "a short pause of a job that has ended": {**EARLY, "is_running": False},
            "long steps, and it sleeps": {**EARLY, "p99": 2.1},
            "the first step compiles and tunes": {**BEGINS, "stalled": 120.0},
            "in its first step a rank is at work": {
                "stalled": 120.0,
                "ranks": (FIRST[0], replace(WORKING[1], step=0)),
                "is_running": True,
            },
            "it computes, not for long yet": {**COMPUTES, "stalled": 29.0},
            "it computes, and steps are long": {**COMPUTES, "p99": 3.2},
            "it evaluates for long": {**COMPUTES, "ranks": (WORKING[0], replace(WORKING[1], phase="evaluation"))},
            "it compiles": {**COMPUTES, "ranks": (WORKING[0], replace(WORKING[1], compiling=True))},
            "two compute": {**COMPUTES, "ranks": (*WORKING, replace(WORKING[1], rank=2))},
            "others are not seen to wait for it": {**COMPUTES, "ranks": (stands(0, phase="gap"), WORKING[1])},
        },
        severities=(
            ({}, "critical"),
            ({"ended": True}, "high"),
            ({"ended": True, "resumed": True}, "low"),
            (EARLY, "high"),
            (COMPUTES, "high"),
        ),
        also_fires={
            "a rank that was stopped, wherever it stands": {
                **EARLY,
                "ranks": (SLEEPING[0], stands(1, culprit=True, halted="stopped", phase="evaluation")),
            },
            "one that computes while all others wait": COMPUTES,
            "one that sleeps in the first step": {
                "stalled": 31.0,
                "is_running": True,
                "ranks": (FIRST[0], replace(SLEEPING[1], step=0, phase="start")),
            },
        },
        ranks=(1,),
        where=Where(SCRIPT, 33),
    ),
    "RUN002": Table(
        jobs.run002,
        lines={},
        false_alarms={
            "nobody died": {"deaths": ()},
            "the user pressed Ctrl-C": {"deaths": (death(0, **INTERRUPTED), death(1, **INTERRUPTED))},
            "Ctrl-C, caught by Python": {"deaths": (death(0, exception="KeyboardInterrupt: "), death(1, signal=15))},
            "a time limit ended the whole job": {"deaths": (death(0, **ENDED), death(1, **ENDED)), "exit_code": 124},
            "a loader worker died, its rank lives": {"deaths": (death(0, role="worker", signal=9),)},
        },
        severities=(({}, "critical"),),
        ranks=(1,),
    ),
    "RUN003": Table(
        jobs.run003,
        lines={
            "ratio": ({"after": 1.10}, {"after": 1.0999}),
            "alike": ({"after": 1.40, "alike": True}, {"after": 1.3999, "alike": True}),
            "steps": ({"steps": (40.0, 40.0)}, {"steps": (200.0, 39.0)}),
            "seconds": ({"lasted": 8.0}, {"lasted": 7.9}),
        },
        false_alarms={
            "the machine's moods": {"after": 1.35, "alike": True, "number": None},
            "a job that is slower keeps fewer cores busy": {"after": 1.35, "alike": True, "seen": (IDLE,)},
            "too little came before": {"steps": (39.0, 200.0)},
            "a bump of little cost that is over": {"until": 300.0, "lost": 0.015},
            "nothing changed": {"changes": ()},
        },
        severities=(
            ({"after": 1.43}, "critical"),
            ({"after": 1.2}, "high"),
            ({"after": 1.12}, "medium"),
            ({"until": 300.0, "lost": 0.06}, "medium"),
        ),
        ranks=(1,),
        best=({"lost": 0.01}, warm(1.4)),
        step_s=1.4,
        also_fires={"all ranks slow down alike while a neighbour came": {"after": 1.2, "alike": True, "seen": (BUSY,)}},
    ),
    "RUN004": Table(
        jobs.run004,
        lines={
            "share": ({"share": 0.03}, {"share": 0.0299}),
            "events": ({"events": 5}, {"events": 4}),
        },
        false_alarms={"stalls without a period": {"pulse": None}},
        severities=(
            ({"share": 0.30}, "critical"),
            ({"share": 0.05}, "medium"),
            ({"share": 0.04}, "low"),
            ({"share": 0.3, "coincides": "an evaluation"}, "info"),
        ),
        where=Where(SCRIPT, 93),
        best=({"share": 0.2}, warm(1 / 0.8)),
    ),
}
