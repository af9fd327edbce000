"""Text for streams whose encoding knows no bars and arrows stays readable, in line, and never fails."""

from __future__ import annotations

import io

import pytest

from rn50_advisor.advisor.commands.screen_available import ERRORS, use_plain_glyphs


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("▲ Bottleneck ─── 1.4–1.6× · 3 µs", "^ Bottleneck --- 1.4-1.6x . 3 us"),
        ("workers: 0 → 4 ≥ ◀ here ✓ ✗ …", "workers: 0 > 4 > < here + x ."),
        ("compute ██▉▏", "compute ####"),
        ("日本 \udcff é", "?? ? ?"),
    ],
)
def test_each_character_becomes_one_that_can_be_written(text: str, written: str) -> None:
    use_plain_glyphs()
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors=ERRORS)
    stream.write(text)
    stream.flush()
    assert raw.getvalue().decode() == written and len(written) == len(text)


def test_what_an_encoding_has_is_left_as_it_is() -> None:
    use_plain_glyphs()
    assert "a–×\udcff".encode("utf-8", ERRORS) == "a–×?".encode()
    assert "µ × –".encode("latin-1", ERRORS) == "µ × -".encode("latin-1")
