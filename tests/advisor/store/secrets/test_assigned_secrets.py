"""A value is a secret by the name it is assigned to, and its span ends where the value ends."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.store.secrets.assigned_secrets import assigned_spans, looks_random, option_spans, tag_spans


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("token=S3cretS3cret rest", "S3cretS3cret"),
        ('{"token": "S3cret S3cret", "lr": 1}', "S3cret S3cret"),
        ("Authorization: Bearer S3cretS3cret", "Bearer S3cretS3cret"),
        ('("token", "S3cretS3cret")', "S3cretS3cret"),
        ("token: |\n  S3cret\n  S3cret\nlr: 1", "  S3cret\n  S3cret\n"),
        ('api_key = decoded("S3cretS3cret")', "S3cretS3cret"),
        ("(password=S3cretS3cret)", "S3cretS3cret"),
    ],
)
def test_the_span_of_an_assigned_value_is_the_value(text: str, secret: str) -> None:
    assert [text[begin:end] for begin, end in assigned_spans(text)] == [secret]


@pytest.mark.parametrize("text", ["tokenizer=gpt2", "max_tokens=4096", 'columns = ["token", "label"]', "token = None"])
def test_a_plain_value_is_none(text: str) -> None:
    assert assigned_spans(text) == []


def test_options_and_tags_hold_theirs() -> None:
    text = "['--token', 'S3cretS3cret'] <password>S3cretS3cret</password> <name>resnet</name>"
    assert [text[begin:end] for begin, end in [*option_spans(text), *tag_spans(text)]] == ["S3cretS3cret"] * 2


def test_a_random_word_mixes_letters_and_digits_evenly() -> None:
    assert looks_random("9b1f7c44e0ad8836fe21")
    assert not any(map(looks_random, ("resnet50", "home/user/run2024", "aaaaaaaa1111", "validation")))
