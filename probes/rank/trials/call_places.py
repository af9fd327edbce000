"""Whether a call is the one that a request means: at its place in the job's code, or anywhere but in torch itself.

Torch calls itself: a worker of a DataLoader sets its number of threads.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..facts.process_facts import jobs_frames, torchs_folder

if TYPE_CHECKING:
    from types import FrameType

_DEPTH_MAX = 200  # frames of a stack


class CallPlace:
    """`file` None: the call may be anywhere in the job or in its libraries."""

    def __init__(self, file: Any, line: Any) -> None:
        try:
            self._folder = os.getcwd()  # names of code may be relative to it; the job may leave it later
        except OSError:
            self._folder = os.sep  # it was deleted
        self.file = self._whole(file) if isinstance(file, str) and file else None
        self.line = int(line) if line else 0
        self._same: dict[str, bool] = {}  # file name of code -> True if it is the file

    def is_here(self) -> bool:
        """True if the running call of the job's is meant. One that a library makes for the job's line is made by that line."""
        frames = jobs_frames(1)
        if self.file is None:
            caller = next(frames, None)
            return caller is not None and not caller.f_code.co_filename.startswith(torchs_folder())
        return any(self._calls(frame) for frame in islice(frames, _DEPTH_MAX))

    def _calls(self, frame: FrameType) -> bool:
        name = frame.f_code.co_filename
        same = self._same.get(name)
        if same is None:
            same = self._same[name] = self._whole(name) == self.file
        if not same:
            return False
        first, last = lines_of_call(frame)
        return not self.line or first <= self.line <= last

    def _whole(self, name: str) -> str:
        return os.path.realpath(os.path.join(self._folder, name))


def class_of_torch(made: Any) -> Any:
    """The class that the job has made an object of, or that its own class derives from; None if neither is torch's.

    A constructor also runs for torch's classes that derive from its own: `Adam` for an `AdamW`, which is another call in the job.
    """
    return next((kind for kind in type(made).__mro__ if kind.__module__.partition(".")[0] == "torch"), None)


def lines_of_call(frame: FrameType) -> tuple[int, int]:
    """First and last line of the call that this frame is in. Before Python 3.11 only its first line is known."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is not None:
        first, last = next(islice(positions(), frame.f_lasti // 2, None), (None, None))[:2]
        if first is not None and last is not None:
            return first, last
    return frame.f_lineno or 0, frame.f_lineno or 0
