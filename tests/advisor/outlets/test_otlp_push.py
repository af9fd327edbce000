"""A receiver that decodes OTLP gets the series; a dead, slow or refusing one is a failure in a few words."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otlp_receiver import OtlpReceiver, attributes
from reading_samples import AT_UNIX_S, STARTED_UNIX_S, reading
from rn50_advisor.advisor.outlets import otlp_push
from rn50_advisor.advisor.outlets.otlp_push import OtlpPush
from rn50_advisor.advisor.outlets.outlet import NotDelivered
from rn50_advisor.advisor.outlets.run_series import series_of

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    for name in ("HTTP_PROXY", "http_proxy", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    server = OtlpReceiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.answering.set()
    server.shutdown()
    server.server_close()


def opened(url: str) -> OtlpPush:
    outlet = OtlpPush(url)
    outlet.open(Path("run"))
    return outlet


def test_a_collector_gets_every_series_with_its_unit_and_kind(receiver: OtlpReceiver) -> None:
    told = reading(run="mine")
    opened(receiver.url).deliver(told)
    ((path, _, document),) = receiver.requests
    assert path == "/v1/metrics"
    (resource,) = document.resource_metrics
    named = attributes(resource.resource)
    assert (named["service.name"], named["service.instance.id"], named["host.name"]) == (
        "rn50-advisor",
        "mine",
        "node0",
    )
    (scope,) = resource.scope_metrics
    found = {metric.name: metric for metric in scope.metrics}
    for family in series_of(told):
        metric = found.pop(family.otel_name)
        assert (metric.unit, metric.description) == (family.unit, family.what)
        total = family.kind == "total"
        points = metric.sum.data_points if total else metric.gauge.data_points
        assert [point.as_int if total else point.as_double for point in points] == [
            each.value for each in family.points
        ]
        assert [attributes(point) for point in points] == [each.labels for each in family.points]
        assert {point.time_unix_nano for point in points} == {round(AT_UNIX_S * 1e9)}
        if total:
            assert metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2  # cumulative
            assert {point.start_time_unix_nano for point in points} == {round(STARTED_UNIX_S * 1e9)}
    assert not found


def test_headers_and_resource_come_from_the_environment_as_for_every_exporter(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=abc")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "resnet")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=vision")
    opened(receiver.url).deliver(reading())
    ((_, headers, document),) = receiver.requests
    assert headers["api-key"] == "abc"
    named = attributes(document.resource_metrics[0].resource)
    assert (named["service.name"], named["team"]) == ("resnet", "vision")


def test_user_and_password_of_the_address_log_in(receiver: OtlpReceiver) -> None:
    outlet = opened(receiver.url.replace("//", "//user:pass@"))
    outlet.deliver(reading())
    ((_, headers, _),) = receiver.requests
    assert headers["authorization"] == "Basic " + base64.b64encode(b"user:pass").decode()
    assert outlet.place == f"{receiver.url}/v1/metrics" and outlet.secrets == ("user:pass",)


@pytest.mark.parametrize(
    ("status", "words"),
    [(403, "HTTP 403 Forbidden"), (404, "HTTP 404 Not Found"), (307, "HTTP 307 Temporary Redirect")],
)
def test_a_collector_that_refuses_is_a_failure_and_gets_no_header_elsewhere(
    status: int, words: str, receiver: OtlpReceiver
) -> None:
    outlet = opened(receiver.url)
    receiver.status = status
    with pytest.raises(NotDelivered, match=words):
        outlet.deliver(reading())
    assert {path for path, *_ in receiver.requests} == {"/v1/metrics"}
    receiver.status = 200
    outlet.deliver(reading())


def test_a_collector_that_does_not_answer_is_a_failure(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_push, "_ANSWERS_WITHIN_S", 0.2)
    receiver.answering.clear()
    with pytest.raises(NotDelivered, match="no answer in time"):
        opened(receiver.url).deliver(reading())


def test_a_collector_that_is_not_there_is_a_failure(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_push, "_ANSWERS_WITHIN_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotDelivered, match="Connection refused"):
        opened(f"http://user:s3cret@127.0.0.1:{port}?key=s3cret").deliver(reading())


def answering(monkeypatch: pytest.MonkeyPatch, head: bytes, each: bytes, *, pause_s: float) -> str:
    """The address of a receiver that says `head`, and then `each` without end."""
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client, contextlib.suppress(OSError):
                    client.recv(1 << 20)
                    client.sendall(head)
                    while True:
                        client.sendall(each)
                        time.sleep(pause_s)

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    url = answering(monkeypatch, b"HTTP/1.1 200 OK\r\n\r\n", bytes(1 << 16), pause_s=0.01)
    opened(url).deliver(reading())


def test_a_collector_that_answers_byte_by_byte_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_push, "_ANSWERS_WITHIN_S", 0.2)
    outlet = opened(answering(monkeypatch, b"HTTP/1.1 200 OK\r\nX: ", b"a", pause_s=0.05))
    for _ in range(2):
        with pytest.raises(NotDelivered, match="no answer in time"):
            outlet.deliver(reading())
