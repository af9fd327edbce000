"""Metadata services of providers that answer, lie or stay silent."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rn50_advisor.advisor.instances.metadata import ask

Answers = Mapping[tuple[str, str], tuple[int, str, Mapping[str, str], Mapping[str, str]]]


@contextmanager
def service(answers: Answers) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A local HTTP server: (method, path) to (status, text, headers it sends, headers it wants)."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append((self.command, self.path))
            status, text, sends, wants = answers.get((self.command, self.path), (404, "", {}, {}))
            if any(self.headers.get(name) != value for name, value in wants.items()):
                status, text = 401, ""
            self.send_response(status)
            for name, value in sends.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = answer  # noqa: N815 - http.server calls them so

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


TOKEN = {"X-aws-ec2-metadata-token": "secret"}
LIFETIME = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
GOOGLE = {"Metadata-Flavor": "Google"}
AWS: Answers = {
    ("PUT", "/latest/api/token"): (200, "secret", {}, LIFETIME),
    ("GET", "/latest/meta-data/instance-type"): (200, "p4d.24xlarge", {}, TOKEN),
}
GCP: Answers = {
    ("GET", "/computeMetadata/v1/instance/machine-type"): (
        200,
        "projects/1234/machineTypes/a2-highgpu-8g",
        GOOGLE,
        GOOGLE,
    )
}
AZURE: Answers = {
    ("GET", "/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text"): (
        200,
        "Standard_ND96asr_v4",
        {},
        {"Metadata": "true"},
    )
}
LONG_S = 20.0  # a loaded machine may take its time; nobody waits for it where there is an answer


@pytest.mark.parametrize(("answers", "provider", "gpus"), [(AWS, "AWS", 8), (GCP, "GCP", 8), (AZURE, "Azure", 8)])
def test_each_provider_is_understood(answers: Answers, provider: str, gpus: int) -> None:
    with service(answers) as (address, _):
        named = ask(address, LONG_S)
    assert named is not None and named.provider == provider
    assert named.instance is not None and named.instance.gpus == gpus and named.instance.provider == provider


def test_an_instance_that_the_table_lacks_keeps_its_name() -> None:
    changed = {**AWS, ("GET", "/latest/meta-data/instance-type"): (200, "p9.96xlarge", {}, TOKEN)}
    with service(changed) as (address, _):
        named = ask(address, LONG_S)
    assert named is not None and named.name == "p9.96xlarge" and named.instance is None


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {("GET", "/latest/meta-data/instance-type"): (200, "p4d.24xlarge", {}, {})},  # no token: not the second version
        {("GET", "/computeMetadata/v1/instance/machine-type"): (200, "a/b/a2-highgpu-8g", {}, {})},  # not Google's own
        {**AWS, ("GET", "/latest/meta-data/instance-type"): (200, "<html>sign in</html>", {}, {})},
        {**AWS, ("GET", "/latest/meta-data/instance-type"): (200, "", {}, {})},
        {**AWS, ("GET", "/latest/meta-data/instance-type"): (302, "", {"Location": "http://127.0.0.1:1/"}, {})},
        {**AWS, ("GET", "/latest/meta-data/instance-type"): (200, "ü" * 500, {}, {})},
    ],
)
def test_what_is_no_such_service_is_no_answer(answers: Answers) -> None:
    with service(answers) as (address, _):
        assert ask(address, LONG_S) is None


def test_nothing_but_the_type_is_asked_for() -> None:
    with service(AWS) as (address, asked):
        ask(address, LONG_S)
    assert {path for _, path in asked} == {path for table in (AWS, GCP, AZURE) for _, path in table}


def test_nobody_listening_is_no_answer() -> None:
    with service({}) as (address, _):
        pass
    assert ask(address, LONG_S) is None


def test_a_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with service(AWS) as (address, _):
        assert ask(address, LONG_S) is not None
