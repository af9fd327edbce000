"""What a scrape or a file holds is what prometheus_client itself writes and reads; a file is replaced whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from reading_samples import ended, reading
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.outlets.outlet import NotDelivered
from rn50_advisor.advisor.outlets.prometheus_text import MetricsFile, NewestReading, registry_of
from rn50_advisor.advisor.outlets.run_series import series_of

exposition = pytest.importorskip("prometheus_client.exposition")
parser = pytest.importorskip("prometheus_client.parser")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.exposition")
openmetrics_parser = pytest.importorskip("prometheus_client.openmetrics.parser")


def test_both_formats_of_prometheus_read_back_as_the_series_of_the_newest_reading() -> None:
    newest = NewestReading()
    newest.reading = reading(run='a "quoted"\n\\run')
    expected = {
        (family.prometheus_name, frozenset(point.labels.items())): point.value
        for family in series_of(newest.reading)
        for point in family.points
    }
    for write, read in (
        (exposition.generate_latest, parser.text_string_to_metric_families),
        (openmetrics.generate_latest, openmetrics_parser.text_string_to_metric_families),
    ):
        families = list(read(write(registry_of(newest)).decode()))
        found = {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}
        assert found == expected
        assert all(family.documentation and family.type in ("gauge", "counter") for family in families)


def test_promtool_finds_nothing_to_complain_about_in_names_and_types() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("NAMES ARE NOT LINTED HERE: there is no promtool (apt-get install prometheus)")
    newest = NewestReading()
    for newest.reading in (reading(), ended(3)):
        text = exposition.generate_latest(registry_of(newest))
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_before_the_first_reading_there_is_nothing_not_even_of_this_process() -> None:
    assert exposition.generate_latest(registry_of(NewestReading())) == b""


def samples(text: str) -> dict[str, float]:
    return {s.name: s.value for family in parser.text_string_to_metric_families(text) for s in family.samples}


def test_a_reader_in_a_loop_never_finds_half_a_file(tmp_path: Path) -> None:
    outlet = MetricsFile(str(tmp_path / "job.prom"))
    outlet.deliver(reading())
    whole, over, seen = (tmp_path / "job.prom").read_text(), threading.Event(), set[str]()

    def look() -> None:
        while not over.is_set():
            seen.add((tmp_path / "job.prom").read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(100):
        outlet.deliver(ended(0))
        outlet.deliver(reading())
    over.set()
    reader.join()
    outlet.deliver(ended(0))
    assert seen <= {whole, (tmp_path / "job.prom").read_text()} and seen
    assert [path.name for path in tmp_path.iterdir()] == ["job.prom"]


def test_it_holds_what_the_newest_reading_says(tmp_path: Path) -> None:
    outlet = MetricsFile(str(tmp_path / "job.prom"))
    outlet.check()
    assert list(tmp_path.iterdir()) == []
    outlet.deliver(reading())
    assert samples((tmp_path / "job.prom").read_text())["rn50_advisor_job_running"] == 1.0
    outlet.deliver(ended(3))
    after = samples((tmp_path / "job.prom").read_text())
    assert (after["rn50_advisor_job_running"], after["rn50_advisor_job_exit_code"]) == (0.0, 3.0)
    assert "rn50_advisor_samples_per_second" not in after


def test_a_relative_name_is_of_the_folder_that_run_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outlet = MetricsFile("job.prom")
    monkeypatch.chdir("/")
    outlet.deliver(reading())
    assert (tmp_path / "job.prom").exists()


def test_a_name_that_node_exporter_does_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not end with \.prom"):
        MetricsFile(str(tmp_path / "job.txt"))


def test_a_file_of_ours_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    file = tmp_path / "job.prom"
    MetricsFile(str(file)).deliver(reading())
    outlet = MetricsFile(str(file))  # the next run
    outlet.check()
    outlet.deliver(ended(0))
    file.write_text("")
    outlet.check()
    (tmp_path / "other.prom").write_text("smartmon_device_active 1\n")
    for make, words in (
        (lambda: file.write_text("smartmon_device_active 1\n"), "holds something else"),
        (lambda: file.symlink_to("other.prom"), "is a link"),
        (lambda: os.mkfifo(file), "is no regular file"),
        (file.mkdir, "is no regular file"),
    ):
        file.unlink()
        make()
        before = file.lstat()
        with pytest.raises(UsageError, match=words):
            outlet.check()
        with pytest.raises(NotDelivered, match=words):  # it came while the job ran
            outlet.deliver(reading())
        assert file.lstat() == before
    assert (tmp_path / "other.prom").read_text() == "smartmon_device_active 1\n"


def test_a_file_that_somebody_else_has_in_a_shared_folder_is_refused_before_the_job_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outlet = MetricsFile(str(tmp_path / "job.prom"))
    outlet.deliver(reading())
    tmp_path.chmod(0o1777)
    outlet.check()
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UsageError, match="belongs to somebody else"):
        outlet.check()
