"""Sends a run's series to an OpenTelemetry collector, or whatever takes OTLP over HTTP, with the exporter of the OpenTelemetry SDK.

Headers, certificates and compression come from the environment (OTEL_EXPORTER_OTLP_HEADERS, ...), as for every exporter.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rn50_advisor.advisor import __version__
from rn50_advisor.advisor.outlets.endpoint import parse_endpoint
from rn50_advisor.advisor.outlets.outlet import NotDelivered, Outlet, RunReading, check_installed
from rn50_advisor.advisor.outlets.timed_call import TimedCalls

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.metrics.export import Metric, MetricExporter, MetricsData
    from opentelemetry.sdk.resources import Resource

    from rn50_advisor.advisor.outlets.run_series import SeriesFamily

SERVICE = "rn50-advisor"
SCOPE = "rn50_advisor"
METRICS_PATH = "/v1/metrics"
_ANSWERS_WITHIN_S = 2.5  # shorter than the wait for the last reading
_UNANSWERED_MAX = 8  # requests whose answer still trickles in


class OtlpPush(Outlet):
    name = "metrics.otlp"

    def __init__(self, url: str) -> None:
        """`url`: of the collector, with or without /v1/metrics. Raises UsageError."""
        self._endpoint = parse_endpoint(url, "--otlp", path=METRICS_PATH)
        self.place, self.secrets = self._endpoint.place, self._endpoint.secrets
        self._exporter: MetricExporter | None = None
        self._session: Any = None

    def check(self) -> None:
        for module in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"):
            check_installed("--otlp", module)

    def open(self, run: Path) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415 - an extra

        self._session = _session(self._endpoint.login)
        self._exporter = OTLPMetricExporter(
            endpoint=self._endpoint.url, timeout=_ANSWERS_WITHIN_S, session=self._session
        )

    def deliver(self, reading: RunReading) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult  # noqa: PLC0415

        assert self._exporter is not None
        self._session.outcome = ""
        try:
            sent = self._exporter.export(metrics_data(reading)) is MetricExportResult.SUCCESS
        except Exception as error:
            if not self._session.outcome:
                raise
            raise NotDelivered(self._session.outcome) from error  # older exporters pass on what `requests` raises
        if self._session.outcome or not sent:
            raise NotDelivered(self._session.outcome or "the exporter could not send")


def metrics_data(reading: RunReading) -> MetricsData:
    """The reading as the SDK's values."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    from rn50_advisor.advisor.outlets.run_series import series_of  # noqa: PLC0415 - not where the job is started

    metrics = [_metric(family, reading) for family in series_of(reading)]
    scope = ScopeMetrics(InstrumentationScope(SCOPE, __version__), metrics, schema_url="")
    return MetricsData([ResourceMetrics(_resource(reading), [scope], schema_url="")])


def _metric(family: SeriesFamily, reading: RunReading) -> Metric:
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        AggregationTemporality,
        Gauge,
        Metric,
        NumberDataPoint,
        Sum,
    )

    total = family.kind == "total"
    since_ns = round(reading.started_unix_s * 1e9) if total else 0
    at_ns = round(reading.at_unix_s * 1e9)
    points = [
        NumberDataPoint(dict(point.labels), since_ns, at_ns, int(point.value) if total else point.value)
        for point in family.points
    ]
    data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if total else Gauge(points)
    return Metric(family.otel_name, family.what, family.unit, data)


def _resource(reading: RunReading) -> Resource:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES count more than our own attributes."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415

    own: Mapping[str, str] = {
        "service.name": SERVICE,
        "service.version": __version__,
        "service.instance.id": reading.run,
        "host.name": reading.host,
    }
    return Resource.create(own).merge(OTELResourceDetector().detect())


def _session(login: tuple[str, str] | None) -> Any:
    """A session of requests that keeps how the last request ended, is bounded in time and size, follows no redirect and logs in."""
    import requests  # noqa: PLC0415 - comes with the exporter

    class Session(requests.Session):
        outcome = ""

        def __init__(self) -> None:
            super().__init__()
            self._in_time = TimedCalls(_UNANSWERED_MAX)

        def send(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
            how["allow_redirects"] = False  # the headers may hold a token, which is for this address alone
            how["stream"] = True
            if login is not None:
                word = base64.b64encode(":".join(login).encode()).decode()
                request.headers["Authorization"] = f"Basic {word}"
            try:
                answer = self._answer(request, how)
            except requests.RequestException as error:
                self.outcome = _cause(error)
                raise
            self.outcome = "" if HTTPStatus.OK <= answer.status_code < HTTPStatus.MULTIPLE_CHOICES else _said(answer)
            return answer

        def _answer(self, request: requests.PreparedRequest, how: dict[str, Any]) -> requests.Response:
            send = super().send

            def work() -> requests.Response:
                answer = send(request, **how)
                answer._content = b""  # never read: it may be endless, and the status says it all
                answer.close()
                return answer

            try:
                return self._in_time(work, _ANSWERS_WITHIN_S)
            except TimeoutError as error:
                raise requests.ReadTimeout(error) from None

    return Session()


def _said(answer: requests.Response) -> str:
    try:
        return f"HTTP {answer.status_code} {HTTPStatus(answer.status_code).phrase}"
    except ValueError:
        return f"HTTP {answer.status_code}"


def _cause(error: BaseException) -> str:
    """What the system said, from the innermost error: the outer ones quote the address."""
    seen: BaseException | None = error
    words = type(error).__name__
    for _ in range(10):
        if seen is None:
            break
        reason = getattr(seen, "reason", None)
        if isinstance(seen, OSError) and seen.strerror:
            words = seen.strerror
        elif isinstance(seen, TimeoutError):
            words = "no answer in time"
        inner = [each for each in seen.args if isinstance(each, BaseException)]
        seen = (
            reason if isinstance(reason, BaseException) else inner[0] if inner else seen.__cause__ or seen.__context__
        )
    return words
