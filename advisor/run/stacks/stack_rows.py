"""Stored form of Python stacks: frames, and the text of the user's own line."""

from __future__ import annotations

from collections.abc import Sequence

from rn50_advisor.advisor.run.stacks.collection_calls import collection_call
from rn50_advisor.advisor.run.stacks.source_lines import source_line
from rn50_advisor.probes.documents.code_places import StackFrame, UserLine
from rn50_advisor.probes.documents.event_documents import KnownStack, ProfiledStack, StackProfile
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack, is_ours, user_frame
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack

_FRAMES_MAX = 30
# At work only while torch compiles; what runs compiled code is elsewhere in these packages.
COMPILERS = ("/torch/_dynamo/convert_frame.py", "/torch/_inductor/compile_fx.py")
# Before Python 3.12 these have frames of their own: what they do is done by the function that they stand in.
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_STACKS_MAX = 60  # of a profile, most frequent first; what is left out is counted


def training_thread(stacks: Sequence[ThreadStack], thread: int | None) -> ThreadStack | None:
    known = next((s for s in stacks if thread is not None and s.thread_id == thread), None)
    return known or next((s for s in stacks if s.main), None)


def described(stack: ThreadStack, *, with_text: bool = True) -> KnownStack:
    """Frames innermost first, and the user's own line. Its text is read from its file, which may lie on a server that no longer answers."""
    user = user_frame(stack.frames)
    return {
        "frames": [_frame_row(frame) for frame in stack.frames[:_FRAMES_MAX]],
        "user": _line(user, stack.frames, with_text=with_text) if user else None,
    }


def summed(stacks: Sequence[CountedStack], awake: Sequence[CountedStack] | None = None) -> StackProfile:
    """A profile of one thread: its most frequent stacks, as in `described`, and the number of its samples.

    `awake`: a second profile with as many samples, without those of the sleeping thread.
    """
    often = sorted(stacks, key=lambda stack: -stack.count)[:_STACKS_MAX]
    awake_at = {stack.frames: stack.count for stack in awake or ()}
    rows = []
    for stack in often:
        user = user_frame(stack.frames)
        row: ProfiledStack = {
            "count": stack.count,
            # without our own marks, which stand between the training loop and torch
            "frames": [_frame_row(frame) for frame in stack.frames if not is_ours(frame.file)],
            "user": _line(user, stack.frames) if user else None,
        }
        if awake is not None:
            row["awake"] = awake_at.get(stack.frames, 0)
        rows.append(row)
    return {"looks": sum(stack.count for stack in stacks), "stacks": rows}


def _frame_row(frame: Frame) -> StackFrame:
    return {"function": frame.function, "file": frame.file, "line": frame.line}


def _line(frame: Frame, stack: Sequence[Frame], *, with_text: bool = True) -> UserLine:
    """The user's line with its text: calls into C (a file's write, print) leave no frame of their own."""
    around = stack[stack.index(frame) :] if frame.function.endswith(_COMPREHENSIONS) else ()
    function = next(
        (f.function for f in around if f.file == frame.file and not f.function.endswith(_COMPREHENSIONS)), None
    )
    text = source_line(frame.file, frame.line).strip()[:200] if with_text else ""
    line: UserLine = {"function": function or frame.function, "file": frame.file, "line": frame.line, "text": text}
    depth = stack.index(frame)
    if text and (call := collection_call(frame, stack[depth - 1].function if depth else None)):
        line["collection"] = call
    return line
