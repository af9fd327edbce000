"""Where secrets stand in a text, in whatever way it is written, with work bounded by its length."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.harm.secret_corpus import key_blocks

from rn50_advisor.advisor.store.secrets.masking import MASK, redact_argv, redact_text
from rn50_advisor.advisor.store.secrets.secret_spans import merged_spans, open_private_key, secret_spans


@pytest.mark.parametrize(
    "text",
    [
        "https://h/?q=%26token%3DS3cretS3cret",
        "https://h/?q=%2526token%253DS3cretS3cret",
        "to\x1b[31mken=S3cretS3cret",
        r"\"token\": \"S3cretS3cret\"",
    ],
    ids=["percent", "percent twice", "colour", "escaped"],
)
def test_a_secret_is_found_through_the_way_it_is_written(text: str) -> None:
    begin = text.index("S3cret")
    assert any(first <= begin and begin + 12 <= last for first, last in secret_spans(text))


def test_spans_come_in_order_and_apart_from_each_other() -> None:
    assert merged_spans([(5, 9), (1, 3), (2, 4), (9, 9), (9, 12)]) == [(1, 4), (5, 12)]


def test_a_private_key_that_does_not_end_in_the_text_is_found() -> None:
    assert open_private_key("a -----BEGIN RSA PRIVATE KEY-----\nMIIE") == 2
    assert open_private_key("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----") is None


def test_private_keys_are_masked_as_a_whole() -> None:
    assert (
        redact_text("a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nb")
        == f"a\n{MASK}\nb"
    )


@pytest.mark.parametrize("name", sorted(key_blocks()))
def test_a_private_key_is_masked(name: str) -> None:
    text, part = key_blocks()[name]
    assert part not in redact_text(text)
    assert part not in "".join(redact_argv(text.split("\n")))


def test_the_values_of_secret_variables_are_masked_wherever_they_turn_up() -> None:
    code = "from rn50_advisor.advisor.store.secrets.masking import redact_text; print(redact_text('cannot log in as correcthorse, sorry'))"
    variables = {**os.environ, "WANDB_API_KEY": "correcthorse", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == f"cannot log in as {MASK}, sorry\n"


HOSTILE = (
    *(
        "a=",
        "key=1,",
        "token=[",
        'token="',
        "token='x ",
        "token = ",
        "--token ",
        "--token -",
        "http://",
        "http://a:b@",
        "a:b@",
        "%41",
    ),
    *(
        "%25",
        "token%3D",
        "\\x41",
        "\\",
        "\x1b[31m",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN ",
        "-",
        "<token>",
        "name: key ",
    ),
    *(
        "basic QUJD",
        "mysql -p ",
        "eyJ",
        "token: |\n  a\n",
        "token: {",
        "authorization: digest ",
        "adobe adafruit sumo key= ",
        "a.",
    ),
    *("password: ", "token=a.b.c('", "key key ", "1:AA", "A1b2C3d4", "x", "&quot;", "name: key value: "),
)


def test_the_work_is_bounded_by_the_length_of_the_text() -> None:
    """100 KB of what invites backtracking, each; what is quadratic takes minutes, and the limit is on the work, not on the clock."""
    code = """
import resource, sys
from rn50_advisor.advisor.store.secrets.secret_spans import secret_spans
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
for piece in sys.argv[1:]:
    secret_spans(piece * (100_000 // len(piece)))
"""
    subprocess.run([sys.executable, "-c", code, *HOSTILE], check=True)
