"""Masks secrets in output that comes in pieces: lines as they are finished, and of an unfinished one what can be no part of a secret."""

from __future__ import annotations

import re

from advisor.store.secrets import PEM_CHARACTERS_MAX, masked_between, open_private_key, secret_spans

_BATCH_BYTES = (
    8 << 10
)  # so long one search may keep the interpreter's lock from the thread that reads the job's terminal
_LINE_BYTES_MAX = 64 << 10  # a longer one is cut, where a word ends
_ENDS = re.compile(r"[\r\n](?=[^\r\n]*\Z)")
_KEY_BEGINS = "-----BEGIN PRIVATE KEY-----\n"
# What may come next: where it would be masked, it is the rest of a secret that begins before it.
_NEXT = "Zx9Q7c2V5b8N1m4K6j3HT0w"


class MaskedLines:
    """Not thread-safe. Bytes that belong to no secret come out as they were."""

    def __init__(self) -> None:
        self._line = ""  # unfinished; as Latin-1, so that every byte is one character
        self._shown = 0  # so much of it is out already
        self._key_left = 0  # characters that an open private key may still have

    def take(self, data: bytes) -> bytes:
        """What of all that came can go out now."""
        parts = []
        for at in range(0, len(data), _BATCH_BYTES):
            self._line += data[at : at + _BATCH_BYTES].decode("latin-1")
            end = _ENDS.search(self._line)
            if end is not None:
                parts.append(self._finish(end.end()))
            elif len(self._line) > _LINE_BYTES_MAX:
                parts.append(self._finish(self._line.rfind(" ") + 1 or len(self._line)))
        return "".join(parts).encode("latin-1")

    def waiting(self) -> bool:
        return len(self._line) > self._shown

    def look(self) -> bytes:
        """The unfinished line as far as it is safe: a progress bar, a prompt. For when nothing has come for a moment."""
        spans = self._spans(self._line + _NEXT)
        safe = min([begin for begin, end in spans if end > len(self._line)], default=len(self._line))
        safe = max(min(safe, len(self._line)), self._shown)
        text = masked_between(self._line, spans, self._shown, safe)
        self._shown = safe
        return text.encode("latin-1")

    def end(self) -> bytes:
        return self._finish(len(self._line)).encode("latin-1")

    def _finish(self, count: int) -> str:
        done = self._line[:count]
        text = masked_between(done, self._spans(done), min(self._shown, count), count)
        self._shown = max(0, self._shown - count)
        self._line = self._line[count:]
        key = open_private_key(_KEY_BEGINS + done if self._key_left else done)
        self._key_left = 0 if key is None else max(0, (self._key_left or PEM_CHARACTERS_MAX) - len(done))
        return text

    def _spans(self, text: str) -> list[tuple[int, int]]:
        if not self._key_left:
            return secret_spans(text)
        before = len(_KEY_BEGINS)
        return [
            (max(0, begin - before), end - before) for begin, end in secret_spans(_KEY_BEGINS + text) if end > before
        ]
