"""Asks the metadata services of AWS, Google Cloud and Azure for the instance type. Only on request, since it uses the network.

Each service answers only on the link-local address. The requests ask only for the name of the instance type and send no data.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException

from rn50_advisor.advisor.instances.catalogue import Instance, by_name

ADDRESS = "http://169.254.169.254"  # of all three services; not routed, so the request does not leave the link
TIMEOUT_S = 0.8  # such a service answers within milliseconds; elsewhere nothing answers
_ANSWER_BYTES_MAX = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,63}")


@dataclass(frozen=True, slots=True)
class NamedInstance:
    """Answer of a metadata service. `instance` is None if the table does not list that name."""

    provider: str
    name: str
    instance: Instance | None


def ask(address: str = ADDRESS, timeout_s: float = TIMEOUT_S) -> NamedInstance | None:
    """Asks all three metadata services at once; None if none gives a valid answer."""
    services: tuple[tuple[str, Callable[[str, float], str]], ...] = (("AWS", _aws), ("GCP", _gcp), ("Azure", _azure))
    with ThreadPoolExecutor(len(services)) as pool:
        answers = list(pool.map(lambda service: _answer(service[1], address, timeout_s), services))
    for (provider, _), answer in zip(services, answers, strict=True):
        if answer is not None:
            return NamedInstance(provider, answer, by_name(answer))
    return None


def _answer(service: Callable[[str, float], str], address: str, timeout_s: float) -> str | None:
    try:
        name = service(address, timeout_s).strip()
    except (OSError, HTTPException, ValueError):
        return None
    return name if _NAME.fullmatch(name) else None


def _aws(address: str, timeout_s: float) -> str:
    """Uses version 2 of the service, which requires a token that a forged request from elsewhere could not fetch."""
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token, _ = _fetch(f"{address}/latest/api/token", lifetime, timeout_s, method="PUT")
    return _fetch(f"{address}/latest/meta-data/instance-type", {"X-aws-ec2-metadata-token": token}, timeout_s)[0]


def _gcp(address: str, timeout_s: float) -> str:
    """Returns the type in `projects/1234/machineTypes/a2-highgpu-8g`. Raises ValueError without the header that only Google sends."""
    url = f"{address}/computeMetadata/v1/instance/machine-type"
    text, headers = _fetch(url, {"Metadata-Flavor": "Google"}, timeout_s)
    if headers.get("Metadata-Flavor") != "Google":
        raise ValueError("not Google's service")
    return text.rsplit("/", 1)[-1]


def _azure(address: str, timeout_s: float) -> str:
    url = f"{address}/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text"
    return _fetch(url, {"Metadata": "true"}, timeout_s)[0]


def _fetch(url: str, headers: dict[str, str], timeout_s: float, *, method: str = "GET") -> tuple[str, dict[str, str]]:
    """Returns text and headers. Uses no proxy, since a proxy would report its own instance. Raises OSError, HTTPException or ValueError."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    request = urllib.request.Request(url, headers=headers, method=method)
    with opener.open(request, timeout=timeout_s) as answer:
        text = answer.read(_ANSWER_BYTES_MAX).decode("ascii", errors="strict")
        return text, dict(answer.headers)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a captive portal redirects every request to its own page."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None
