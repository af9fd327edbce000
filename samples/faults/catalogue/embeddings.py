"""Tables of embeddings whose gradients are dense, though a batch uses few of their rows."""

from __future__ import annotations

from samples.faults.catalogue.healthy import healthy
from samples.faults.scenario import Job, Scenario, Strength, fault

clicks = Job("faults/jobs/compute/clicks.py")


def dense(name: str, *arguments: str, strength: Strength = "clear", says: str = "embed.weight") -> Scenario:
    """A table that is fixed by sparse gradients, with a second optimizer for it where the first takes none."""
    job = clicks(*arguments)
    if strength == "just below":
        # Adam takes a noticeable part of the step, and its fused form less of it
        return fault(name, "CMP019", job, strength=strength, also=("CMP014",))
    return fault(
        name,
        "CMP019",
        job,
        strength=strength,
        line="nn.Embedding(",
        says=says,
        fixed="--sparse",
    )


SCENARIOS = (
    dense("embedding-gradients-dense", "--steps=250"),
    dense("embedding-gradients-dense-of-a-huge-table", "--steps=80", "--rows=2000000"),
    dense(
        "embedding-gradients-dense-beside-wide-layers",
        "--steps=200",
        "--rows=200000",
        "--width=1024",
        strength="just above",
    ),
    dense(
        "embedding-gradients-dense-of-a-small-table",
        "--steps=250",
        "--rows=60000",
        "--width=1024",
        strength="just below",
    ),
    dense("embedding-gradients-dense-under-sgd", "--steps=500", "--optimizer=SGD", says="in SGD for this table"),
    dense("embedding-gradients-dense-under-adagrad", "--steps=120", "--optimizer=Adagrad", "--rows=1000000"),
    dense(
        "embedding-gradients-dense-of-a-tiny-table",
        "--steps=200",
        "--rows=30000",
        "--width=1024",
        "--optimizer=SGD",
        strength="just below",
    ),
    healthy(
        "healthy-tied-embeddings",
        clicks("--tied", "--rows=4000", "--dim=64", "--optimizer=SGD", "--steps=250"),
        note="the sound twin of a table with dense gradients: the head has the same weight, and reaches all rows",
    ),
    healthy(
        "healthy-embeddings-in-use",
        clicks("--rows=8000", "--batch=2048", "--optimizer=SGD", "--steps=250"),
        note="the sound twin of a table with dense gradients: a batch uses nearly all of its rows",
    ),
)
