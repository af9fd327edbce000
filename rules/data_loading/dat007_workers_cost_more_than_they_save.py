"""Data loading: worker overhead exceeds the benefit.

What it does: finds a training DataLoader with workers whose batches take longer to wait for than to make.

Fires when: input wait is ≥ 5 % of the step, and ≥ 1.25 × the time to load the batch in the training process.

Why it is slow: a worker's batch passes through shared memory, a pipe and two wake-ups before the training loop has it.
If a batch is trivial to make (small tensors already in memory), this takes longer than making it in the training
process. Each tensor of a batch gets shared memory and a file descriptor of its own, so a list with a dict of small tensors
for each sample is slow to pass however few bytes it has.

Evidence: the input wait against the time to make a batch; the part of the wait that came after the batch was made.

Fix: `num_workers=0` at file and line; or no DataLoader at all: index the tensors by whole batches. For a batch of many
small tensors: merge them in `collate_fn`, one for each field, and split them in the training process.

Estimate: the worker forecast at zero workers: the batch is made in the training process. At worst that takes as long as
in a worker, without most of the kernel time spent there on shared memory. At best all of that time disappears, the
caches are warm, and nothing waits for a core. The kernel time that the training process spends on receiving batches
shrinks by half or disappears. Measured: 1.9 to 0.75 and 2.5 to 0.9 ms with one rank, 7.3 to 4.5 and 8.8 to 4.4 ms with
two ranks on two cores; forward and backward also went from 1.94 to 1.46 ms. Where other processes keep all
other cores busy, the training process computes no faster without workers than on the share of a core that the job gets now.

False alarms: workers that are too slow never make the loop wait longer than it takes to make one batch; only the
transfer to the loop does. If processes outside the job take the cores that workers wait for, that is their cause (CPU003).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.input.data_loaders import NO_WORKERS
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_DELAY_SHARE,
    FETCH_HAND_OVER_S,
    FETCH_WALL_S,
    LOADER_FORESEEN,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import (
    batches_made,
    common,
    cores_of,
    forecast_of,
    mean,
    model_of,
    strangers_share,
    training_loader,
    where_of,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Measured on two busy cores: 0.3 ms to pass each of 449 tensors, while copying 64 KB takes some 3 us.
_TENSORS_MIN = 32  # in a batch
_TENSOR_BYTES_MAX = 64_000  # on average
# Where other processes keep all other cores busy, a job gets as much CPU time without workers as with them. Steps of 4.5, 9.8, 45 and 21 ms
# beside one, two, two and six of them on two cores took 1.28, 1.19, 1.13 and 0.79 times what this gives.
_PACED = (0.8, 1.25)  # times that, at best and at worst
_SATURATED = 0.1  # of the allowed cores, at most, are idle


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step, model = a.by_rank(STEP_INPUT_WAIT_S), a.value(STEP_TIME_S), model_of(a)
    feeds = a.workers.feeds if a.workers else {}
    wait, making = common(waits), mean({rank: 0.5 * f.batches * sum(f.in_place_s) for rank, f in feeds.items()})
    making += _making_late_s(a)
    best, worst = _without_workers(a)
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if (
        min(a.by_rank(LOADER_WORKERS).values()) < 1
        or wait < t["input_wait"] * step
        or wait < t["hand_over"] * making
        or level is None
    ):
        return Clear(RULE.id)
    loader = training_loader(a, waits)
    after = a.by_rank(FETCH_HAND_OVER_S)
    present = int(max(a.by_rank(LOADER_WORKERS).values()))
    evidence = [
        input_evidence(a, wait, t["input_wait"]),
        Evidence.of(
            FETCH_WALL_S,
            making,
            wait / t["hand_over"],
            "to make a step's batches in the training process",
            form="explains",
        ),
    ]
    if after:
        evidence.append(
            Evidence.of(
                FETCH_HAND_OVER_S, mean(after), note="of the wait came after the batch was ready", form="continues"
            )
        )
    return Finding(
        rule=RULE.id,
        title="Data loading: worker-to-loop transfer slower than making the batch",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=tuple(evidence),
        fixes=(
            Fix.of(f"num_workers={present} → 0", NO_WORKERS, where_of(loader), "one line"),
            _merge(loader)
            or Fix("index the tensors by whole batches, without a DataLoader", "", where_of(loader), "small change"),
        ),
        saving=model.saving(best, worst, "batches made in the training process, simulated with this run's batch times"),
    )


def _without_workers(a: Analysis) -> tuple[float, float]:
    """Step time at best and at worst, at most today's."""
    step, alone = a.value(STEP_TIME_S), forecast_of(a).step_s(0)
    if not strangers_share(a) or (cores := cores_of(a)).idle > _SATURATED * cores.allowed:
        return alone
    paced = min(alone) / max(min(1.0, cores.job / model_of(a).ranks_of_host), 1e-9)
    best, worst = (min(step, max(s, share * paced)) for s, share in zip(alone, _PACED, strict=True))
    return best, worst


def _making_late_s(a: Analysis) -> float:
    """Seconds per step that making batches waits for cores busy outside the job, in workers and in the training process alike."""
    delays, batches = a.by_rank(FETCH_DELAY_SHARE), batches_made(a)
    late = {
        rank: batches.get(rank, 1.0) * delays.get(rank, 0.0) * wall for rank, wall in a.by_rank(FETCH_WALL_S).items()
    }
    return strangers_share(a) * mean(late)


def _merge(loader: LoaderFacts | None) -> Fix | None:
    """Fewer tensors to pass, if they are many and small."""
    if loader is None or not loader.batch_tensors or loader.batch_tensors < _TENSORS_MIN:
        return None
    if (loader.batch_bytes or 0) > _TENSOR_BYTES_MAX * loader.batch_tensors:
        return None
    where = Where(loader.collate_file, loader.collate_line) if loader.collate_file else where_of(loader)
    return Fix(
        f"{loader.batch_tensors} tensors per batch: concatenate them in collate_fn",
        "torch.cat or torch.stack for each field over all samples, and split them in the training process: "
        "each tensor is passed in shared memory of its own",
        where,
        "small change",
    )


RULE = rule(
    __name__,
    "Data loading: worker overhead exceeds the benefit",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, LOADER_WORKERS, FETCH_WALL_S, LOADER_FORESEEN),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "hand_over": Threshold(
            1.25, "times the time to make a batch: below it the gain is less than the difference between two runs"
        ),
    },
)
