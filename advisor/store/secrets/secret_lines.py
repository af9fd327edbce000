"""Masks secrets in streamed output: releases finished lines, and of an unfinished line the part that cannot belong to a secret."""

from __future__ import annotations

import codecs
import re

from rn50_advisor.advisor.store.secrets.masking import masked_between
from rn50_advisor.advisor.store.secrets.secret_spans import PEM_CHARACTERS_MAX, open_private_key, secret_spans

# Bounds how long one search holds the GIL: the thread that reads the job's terminal waits meanwhile.
_BATCH_BYTES = 8 << 10
_BLOCK_BYTES_MAX = 4 << 10
_LINE_BYTES_MAX = 64 << 10  # a longer line is cut at the end of a word
_END = re.compile(rb"[\r\n](?=[^\r\n]*\Z)")
# Text whose secret may be on the next line: `password: |` and its indented lines, or `name: TOKEN` without a value yet.
_OPEN_BLOCK = re.compile(
    rb"(?:\A|\n)(?:[^\n]{0,200}:[ \t]*[|>][+-]?[ \t]*\r?\n(?:[ \t]+[^\n]*\n)*|[^\n]{0,200}\bname\"?:[^\n]{0,200}\n)\Z"
)
_KEY_START = "-----BEGIN PRIVATE KEY-----\n"
# A possible continuation of a line: if it would be masked, the line ends within a secret.
_NEXT = "Zx9Q7c2V5b8N1m4K6j3HT0w"


class MaskedLines:
    """Masks a stream line by line. Not thread-safe. Bytes that belong to no secret pass unchanged."""

    def __init__(self) -> None:
        self._line = b""  # unfinished
        self._shown = 0  # bytes of it that are already released
        self._key_left = 0  # characters that an open private key may still have

    def take(self, data: bytes) -> bytes:
        """Accepts bytes and returns those that can be released now."""
        parts = []
        for at in range(0, len(data), _BATCH_BYTES):
            self._line += data[at : at + _BATCH_BYTES]
            end = _END.search(self._line)
            if end is not None and len(self._line) <= _LINE_BYTES_MAX:
                count = end.end()
                block = _OPEN_BLOCK.search(self._line[max(0, count - _BLOCK_BYTES_MAX) : count])
                if block:
                    count = max(0, count - _BLOCK_BYTES_MAX) + block.start()
                parts.append(self._finish(count))
            elif end is not None:
                parts.append(self._finish(end.end()))
            elif len(self._line) > _LINE_BYTES_MAX:
                parts.append(self._finish(self._line.rfind(b" ") + 1 or len(self._line)))
        return b"".join(parts)

    def waiting(self) -> bool:
        return len(self._line) > self._shown

    def look(self) -> bytes:
        """Releases the safe part of the unfinished line (a progress bar, a prompt). Call it when no output came for a moment."""
        line = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(self._line)  # without half a character
        spans = self._spans(line + _NEXT)
        safe = min([begin for begin, end in spans if end > len(line)], default=len(line))
        first = len(_text(self._line[: self._shown]))
        safe = max(min(safe, len(line)), first)
        self._shown = len(_bytes(line[:safe]))
        return _bytes(masked_between(line, spans, first, safe))

    def end(self) -> bytes:
        return self._finish(len(self._line))

    def _finish(self, count: int) -> bytes:
        done, first = _text(self._line[:count]), len(_text(self._line[: min(self._shown, count)]))
        masked = masked_between(done, self._spans(done), first, len(done))
        self._shown = max(0, self._shown - count)
        self._line = self._line[count:]
        key = open_private_key(_KEY_START + done if self._key_left else done)
        self._key_left = 0 if key is None else max(0, (self._key_left or PEM_CHARACTERS_MAX) - len(done))
        return _bytes(masked)

    def _spans(self, text: str) -> list[tuple[int, int]]:
        if not self._key_left:
            return secret_spans(text)
        before = len(_KEY_START)
        return [
            (max(0, begin - before), end - before) for begin, end in secret_spans(_KEY_START + text) if end > before
        ]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
