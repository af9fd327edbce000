"""The page for a scrape: only where it was asked for, only one page, and never held up by a client."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from reading_samples import reading
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
