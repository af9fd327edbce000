"""The outlets that the options of `run` ask for. The process that starts the job imports this: standard library only, and only if asked."""

from __future__ import annotations

from rn50_advisor.advisor.outlets.endpoint import hide_arguments
from rn50_advisor.advisor.outlets.outlet import Outlet
from rn50_advisor.advisor.run.run_options import RunOptions


def asked_outlets(options: RunOptions) -> list[Outlet]:
    """Raises UsageError for an option that makes no sense."""
    outlets: list[Outlet] = []
    if options.metrics_file:
        from rn50_advisor.advisor.outlets.prometheus_text import MetricsFile  # noqa: PLC0415

        outlets.append(MetricsFile(options.metrics_file))
    if options.metrics_listen:
        from rn50_advisor.advisor.outlets.metrics_page import MetricsPage  # noqa: PLC0415

        outlets.append(MetricsPage(options.metrics_listen))
    if options.otlp:
        from rn50_advisor.advisor.outlets.otlp_push import OtlpPush  # noqa: PLC0415

        outlets.append(OtlpPush(options.otlp))
    if options.notify:
        from rn50_advisor.advisor.outlets.webhook import Webhook  # noqa: PLC0415

        outlets.append(Webhook(options.notify))
    return outlets


def check_outlets(options: RunOptions) -> None:
    """Refuses, before the job starts, what cannot work: a missing package, a port that is taken, a folder that cannot be written.

    Hides credentials in this process's command line. Raises UsageError or AdvisorError.
    """
    outlets = asked_outlets(options)
    hide_arguments(secret for outlet in outlets for secret in outlet.secrets)
    for outlet in outlets:
        outlet.check()
