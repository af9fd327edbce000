"""The page for a scrape: only where it was asked for, only one page, and never held up by a client."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from reading_samples import reading
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.outlets.metrics_page import ADDRESS_NAME, MetricsPage
from waiting import wait_for

parser = pytest.importorskip("prometheus_client.parser")
ENOUGH_S = 60.0


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[MetricsPage, str]]:
    """A page that listens, and its address."""
    outlet = MetricsPage("0")
    outlet.open(tmp_path)
    yield outlet, (tmp_path / ADDRESS_NAME).read_text().strip()
    outlet.close()
    assert not (tmp_path / ADDRESS_NAME).exists()


def fetched(address: str, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=ENOUGH_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, "", error.read().decode()


def test_a_scrape_gets_the_newest_reading_in_the_format_it_asks_for(page: tuple[MetricsPage, str]) -> None:
    outlet, address = page
    assert fetched(address)[2] == ""
    outlet.deliver(reading(run="mine"))
    status, kind, text = fetched(address)
    assert status == 200 and kind.startswith("text/plain")
    found = {s.name: s for family in parser.text_string_to_metric_families(text) for s in family.samples}
    assert found["rn50_advisor_job_running"].labels == {"run": "mine"}
    status, kind, text = fetched(address, Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")


def test_it_listens_to_this_host_alone_unless_told(page: tuple[MetricsPage, str]) -> None:
    assert page[1].startswith("127.0.0.1:") and not page[1].endswith(":0")
    assert MetricsPage("0.0.0.0:9400").place == "0.0.0.0:9400"
    assert MetricsPage("[::1]:9400").place == "[::1]:9400"


def test_there_is_nothing_but_the_metrics(page: tuple[MetricsPage, str]) -> None:
    status, _, text = fetched(page[1], "/")
    assert status == 404 and "/metrics" in text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9400", 200),
        ("127.0.0.1", 200),
        ("[::1]:9400", 200),
        (socket.gethostname(), 200),
        ("rebound.example:9400", 421),
        ("[", 421),
    ],
)
def test_a_browsers_page_cannot_read_it_under_a_name_of_its_own(
    host: str, status: int, page: tuple[MetricsPage, str]
) -> None:
    page[0].deliver(reading(run="mine"))
    code, _, text = fetched(page[1], Host=host)
    assert code == status and ("mine" in text) == (status == 200)


def test_where_the_network_may_read_it_any_name_does(tmp_path: Path) -> None:
    outlet = MetricsPage("0.0.0.0:0")
    outlet.open(tmp_path)
    port = (tmp_path / ADDRESS_NAME).read_text().strip().rpartition(":")[2]
    assert fetched(f"127.0.0.1:{port}", Host="node1.cluster")[0] == 200
    outlet.close()


@pytest.mark.parametrize("host", ["a" * 70, "a..b"])
def test_what_is_no_host_name_is_one_line(host: str) -> None:
    with pytest.raises(UsageError, match="is no host name"):
        MetricsPage(f"{host}:9400").check()


def test_a_client_that_says_a_byte_now_and_then_is_cut_off(
    page: tuple[MetricsPage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rn50_advisor.advisor.outlets import metrics_page

    monkeypatch.setattr(metrics_page, "_SERVED_WITHIN_S", 0.3)
    host, port = page[1].split(":")
    with socket.create_connection((host, int(port)), timeout=ENOUGH_S) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")

        def cut_off() -> bool:
            try:
                client.sendall(b"a")
                return client.recv(1, socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        wait_for(cut_off, "its end")


def test_clients_that_say_nothing_do_not_keep_a_scrape_out_for_long(
    page: tuple[MetricsPage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rn50_advisor.advisor.outlets import metrics_page

    outlet, address = page
    monkeypatch.setattr(metrics_page._Page, "timeout", 0.2)
    outlet.deliver(reading())
    host, port = address.split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(8)]

    def scraped() -> bool:
        try:
            return fetched(address)[0] == 200
        except OSError:  # refused, as long as others hold the places
            return False

    wait_for(scraped, "a scrape among silent clients")
    for client in silent:
        client.close()


def test_a_port_can_be_taken_again_at_once(tmp_path: Path) -> None:
    first = MetricsPage("0")
    first.open(tmp_path)
    address = (tmp_path / ADDRESS_NAME).read_text().strip()
    first.deliver(reading())
    assert fetched(address)[0] == 200
    first.close()
    second = MetricsPage(address)
    second.check()
    second.open(tmp_path)
    second.close()
