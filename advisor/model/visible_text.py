"""Removes control sequences and hidden characters from foreign text before a terminal or a page shows it.

Every output uses this module: the screen, the report's formats, and lines on stderr. The job's own output passes unchanged.
"""

from __future__ import annotations

import re
import unicodedata

# CSI sequences, strings (titles, clipboards, links: OSC, DCS, PM, APC, SOS) with or without their terminator, and short sequences.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]+")
# Format characters: they reorder their neighbours, take no room, or carry invisible text (tags, variation selectors, blank letters).
# Exceptions: Arabic number signs (U+0600 to U+0605), which are visible, and the selector that turns a sign into an emoji.
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_UNWRITABLE = re.compile("[\ud800-\udfff\ufffe\uffff]")
# Text that may have five marks on one letter: scripts with marks. Such text is then checked character by character.
_MAYBE_MARKS = re.compile(
    "[\u0300-\u1fff\u20d0-\u20ff\u2de0-\u2dff\u302a-\u309a\ua66f-\uabff\ufb1e\ufe0f-\ufe2f\U00010000-\U0001ffff]{6,}"
)
_MARKS_MAX = 4  # vowel, accent and cantillation of one Hebrew letter


def readable(text: str) -> str:
    """The text without escape sequences and hidden characters. The functions below remove control characters, as they know about lines."""
    if text.isascii() and "\x1b" not in text:
        return text
    text = _HIDDEN.sub("", _SEQUENCE.sub("", text))
    return _MAYBE_MARKS.sub(_with_few_marks, _UNWRITABLE.sub("\ufffd", text))


def on_one_line(text: str) -> str:
    """Readable text, with a space for each stretch of control characters and line breaks."""
    return text if text.isascii() and text.isprintable() else _CONTROL.sub(" ", readable(text))


def with_tabs(text: str) -> str:
    """Readable text on one line, with its tabs."""
    return text if text.isascii() and text.isprintable() else "\t".join(map(on_one_line, text.split("\t")))


def in_lines(text: str) -> str:
    """Readable text with its line breaks and tabs."""
    return _CONTROL_BUT_LINES.sub(" ", readable(text))


def coloured(text: str) -> str:
    """Readable text of one line of output, with its colours (SGR) and tabs but no other terminal control."""
    if text.isascii() and text.isprintable():
        return text
    parts = _COLOUR.split(text)
    parts[::2] = map(with_tabs, parts[::2])
    return "".join(parts)


def _with_few_marks(found: re.Match[str]) -> str:
    kept, marks = [], 0
    for character in found[0]:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks <= _MARKS_MAX:
            kept.append(character)
    return "".join(kept)
