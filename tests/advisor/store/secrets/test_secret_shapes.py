"""Credentials that show by their own shape."""

from __future__ import annotations

import re

import pytest

from rn50_advisor.advisor.store.secrets import secret_shapes


def test_every_rule_of_the_collection_can_be_used() -> None:
    """Each pattern compiles, and each has a word in lower case that leads to it."""
    rows = secret_shapes._rows()
    assert len(rows) > 200
    for number, (name, words, pattern) in enumerate(rows):
        assert re.compile(pattern)
        assert words and words == words.lower(), name
        assert any(number in numbers for numbers in secret_shapes._rules()[1].values()), name


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("", ""),
        ("epoch 3 loss 0.3141592653589793", ""),
        ("/data/imagenet/train/n01440764/n01440764_10026.JPEG", ""),
        ("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", ""),
        ("hf_short", ""),
        ("use hf_aB3dE5fG7hI9jK1lM3nO5pQ7rS now", "hf_aB3dE5fG7hI9jK1lM3nO5pQ7rS"),
        ("https://hooks.slack.com/services/T0/B0/abc123 ok", "T0/B0/abc123"),
        ("key AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ],
)
def test_credentials_are_found_where_they_stand(text: str, secret: str) -> None:
    assert {text[start:end] for start, end in secret_shapes.shape_spans(text)} == ({secret} if secret else set())
