"""Steps of 130 ms with a profile of 400 stack samples, of which a test gives some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recordings import FIRST_STEP_NS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event, Source

SCRIPT, LIBRARY = "/job/train.py", "/env/site-packages"
Call = tuple[str, str, int]  # function, file, line
MODULE = ("Module._call_impl", f"{LIBRARY}/torch/nn/modules/module.py", 1790)
TENSOR = ("Tensor.backward", f"{LIBRARY}/torch/_tensor.py", 640)
FETCHER = ("_MapDatasetFetcher.fetch", f"{LIBRARY}/torch/utils/data/_utils/fetch.py", 50)


def looks(count: int, *calls: Call, text: str = "", known: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """A number of stack samples; calls from the outermost one inwards. `text`, `known`: of the user's line."""
    frames = [
        {"function": name, "file": file, "line": at} for name, file, at in reversed((("<module>", SCRIPT, 90), *calls))
    ]
    user = next(frame for frame in frames if frame["file"].startswith("/job/"))
    return {"count": count, "frames": frames, "user": {**user, "text": text, **(known or {})}, **more}


def profile(*rows: Any, rank: int = 0, outside_share: float = 0.0) -> Event:
    samples = sum(row["count"] for row in rows)
    data = {"outside_share": outside_share, "looks": samples, "stacks": list(rows)}
    return Event(FIRST_STEP_NS, "profile", 100 + rank, rank, data)


def profiled(*rows: Any, source: str, model: int, backward: int, **more: Any) -> Analysis:
    """Half of the samples are in the backward pass, and what the rows leave of the rest is in the model; both at these lines of `train`."""
    rest = looks(200 - sum(row["count"] for row in rows), ("train", SCRIPT, model), MODULE)
    event = profile(*rows, looks(200, ("train", SCRIPT, backward), TENSOR), rest)
    given = {"sources": (Source(SCRIPT, "", source),), "facts": {100: {}}, **more}
    return analyse(recording({0: plan(60, forward=60)}, events=(event,), **given))
