"""Stored form of Python stacks: frames, and the text of the user's own line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

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
_TORCH = "/torch/"
_STACKS_MAX = 100  # of a profile, most frequent first; what is left out is counted
_ENOUGH = 5  # samples of a stack that is awake, of which a second profile with as many samples rarely has none

_Key = tuple[tuple[str, str, int], ...]  # file, function and line of each frame


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
    counted, woken = _alike(stacks), _alike(awake or ())
    often = sorted(counted.values(), key=lambda stack: -stack.count)[:_STACKS_MAX]
    found = None if awake is None else _awake(counted, woken)
    rows = []
    for stack in often:
        user = user_frame(stack.frames)
        row: ProfiledStack = {
            "count": stack.count,
            # without our own marks, which stand between the training loop and torch
            "frames": [_frame_row(frame) for frame in stack.frames if not is_ours(frame.file)],
            "user": _line(user, stack.frames) if user else None,
        }
        if found is not None:
            row["awake"] = found[stack.frames]
        rows.append(row)
    return {"looks": sum(stack.count for stack in stacks), "stacks": rows}


def _alike(stacks: Sequence[CountedStack]) -> dict[_Key, CountedStack]:
    """Stacks that differ in nothing but lines of torch's own functions as one, the most frequent of them. Short steps have hundreds."""
    alike: dict[_Key, CountedStack] = {}
    for stack in sorted(stacks, key=lambda stack: -stack.count):
        key = tuple(
            (f.file, f.function, 0 if _TORCH in f.file else f.line) for f in stack.frames if not is_ours(f.file)
        )
        known = alike.setdefault(key, replace(stack, count=0))
        alike[key] = replace(known, count=known.count + stack.count)
    return alike


def _awake(counted: Mapping[_Key, CountedStack], woken: Mapping[_Key, CountedStack]) -> dict[tuple[Frame, ...], int]:
    """Samples of each stack that found it awake. A second profile may miss rare stacks by chance: of all of those with the same innermost
    function, each has the same share.
    """
    found, rare = dict[tuple[Frame, ...], int](), defaultdict[tuple[str, str], list[CountedStack]](list)
    for key, stack in counted.items():
        if stack.count >= _ENOUGH:
            found[stack.frames] = woken[key].count if key in woken else 0
        else:
            rare[_innermost(stack)].append(stack)
    again = Counter[tuple[str, str]]()
    for key, stack in woken.items():
        if key not in counted or counted[key].count < _ENOUGH:
            again[_innermost(stack)] += stack.count
    for function, alike in rare.items():
        samples, before = sum(stack.count for stack in alike), 0
        awake = min(again[function], samples)
        for stack in alike:
            after = before + stack.count
            found[stack.frames] = awake * after // samples - awake * before // samples
            before = after
    return found


def _innermost(stack: CountedStack) -> tuple[str, str]:
    return stack.frames[0].file, stack.frames[0].function


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
