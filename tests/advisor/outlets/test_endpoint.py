"""What may be shown of an address, and that a list of processes does not show the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.outlets.endpoint import parse_endpoint


def test_credentials_and_query_are_not_shown() -> None:
    found = parse_endpoint("https://us%40er:p%3Aw@host:4318/base?key=abc", "--otlp", path="/v1/metrics")
    assert found.url == "https://host:4318/base/v1/metrics?key=abc"
    assert found.login == ("us@er", "p:w")
    assert found.place == "https://host:4318/base/v1/metrics" and found.host == "https://host:4318"
    assert found.secrets == ("us%40er:p%3Aw", "key=abc")
    assert not [word for word in ("p:w", "p%3Aw", "abc") if word in repr(found)]


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://host", "http://host/v1/metrics"),
        ("http://host/", "http://host/v1/metrics"),
        ("http://host:1/v1/metrics", "http://host:1/v1/metrics"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
    ],
)
def test_the_path_of_the_signal_is_appended_once(given: str, url: str) -> None:
    assert parse_endpoint(given, "--otlp", path="/v1/metrics").url == url


@pytest.mark.parametrize("given", ["", "host:1", "ftp://host", "http://", "http://s3cret@host:x", "http://[::1"])
def test_what_is_no_address_is_refused_without_quoting_it(given: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_endpoint(given, "--otlp")
    assert "s3cret" not in raised.value.message + raised.value.hint


def test_words_are_overwritten_in_the_command_line_of_the_process_and_nothing_else() -> None:
    code = (
        "import sys; from rn50_advisor.advisor.outlets.endpoint import hide_arguments; "
        "hide_arguments(['us:pässword', '', 'absent']); "
        "print(open('/proc/self/cmdline', 'rb').read().split(bytes(1))[-4:-1], sys.argv[1:])"
    )
    arguments = ["--otlp", "http://us:pässword@host", "train.py"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    hidden = "x" * len("us:pässword".encode())
    assert done.stdout.strip() == f"{[b'--otlp', f'http://{hidden}@host'.encode(), b'train.py']} {arguments}"
