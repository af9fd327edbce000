"""Output that comes in pieces is masked as if it had come at once, and what is no secret is shown while its line goes on."""

from __future__ import annotations

import random

import pytest
from tests.harm.secret_corpus import GENERIC, HARMLESS, key_blocks, values

from rn50_advisor.advisor.store.secrets.secret_lines import MaskedLines


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_no_secret_comes_through_wherever_the_output_was_cut(size: int) -> None:
    secrets = [values(number)["hex"] for number in range(len(GENERIC))]
    texts = [template.replace("@S@", secret) for template, secret in zip(GENERIC, secrets, strict=True)]
    chosen = range(len(GENERIC)) if size > 1 else range(0, len(GENERIC), 9)
    lines = MaskedLines()
    data = "\n".join(texts[at] for at in chosen).encode()
    out = b"".join(lines.take(piece) for piece in pieces(data, size)) + lines.end()
    assert [texts[at] for at in chosen if secrets[at].encode() in out] == []


def test_harmless_output_comes_out_byte_for_byte() -> None:
    data = b"".join(text.encode() + b"\r\n" for text in HARMLESS) + b"\xff\xfe \x1b[31mred\x1b[0m \xe2\x96\x88\xe2"
    lines = MaskedLines()
    out = b""
    source = random.Random(5)
    while data:
        count = source.randint(1, 40)
        out += lines.take(data[:count])
        if source.random() < 0.5:
            out += lines.look()
        data = data[count:]
    out += lines.end()
    assert (
        out == b"".join(text.encode() + b"\r\n" for text in HARMLESS) + b"\xff\xfe \x1b[31mred\x1b[0m \xe2\x96\x88\xe2"
    )


@pytest.mark.parametrize(
    "bar", [b"\rEpoch 1:  10%|\xe2\x96\x88 | 5/100 [00:01<00:20, 4.5it/s]", b"Continue? [y/n] ", b"Password: "]
)
def test_a_line_that_goes_on_is_shown(bar: bytes) -> None:
    lines = MaskedLines()
    assert lines.take(bar) + lines.look() == bar
    assert not lines.waiting()


@pytest.mark.parametrize(
    "begin", ["token=", "token=hu00", "login with hf_abcdefghijklmnopq", "https://me:hu0", "--password ", "Pass: "]
)
def test_a_secret_that_is_printed_in_two_goes_is_masked_as_a_whole(begin: str) -> None:
    lines = MaskedLines()
    out = lines.take(b"loss 0.5 " + begin.encode()) + lines.look() + lines.take(b"nt9Xy7Zq1Wv3@h\n") + lines.end()
    assert b"nt9Xy7" not in out and b"hu00" not in out and b"hf_abc" not in out
    assert out.startswith(b"loss 0.5 ") and out.endswith(b"\n")


@pytest.mark.parametrize("kind", sorted(key_blocks()))
def test_a_private_key_is_masked_line_by_line(kind: str) -> None:
    text, part = key_blocks()[kind]
    lines = MaskedLines()
    out = b"".join(lines.take(line + b"\n") for line in text.encode().split(b"\n")) + lines.end()
    assert part.encode() not in out


def test_a_line_without_an_end_is_kept_within_bounds() -> None:
    lines = MaskedLines()
    out = sum(len(lines.take(b"word " * 2000)) for _ in range(100))
    assert out > 900_000
