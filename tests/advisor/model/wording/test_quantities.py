"""Quantities read the same everywhere, and what is unknown is a dash."""

from __future__ import annotations

import math

import pytest

from rn50_advisor.advisor.model.wording import quantities as fmt


@pytest.mark.parametrize(
    ("x", "unit", "text"),
    [
        (0, "", "0"),
        (64, "", "64"),
        (64.0, "", "64"),
        (3.14159, "", "3.14"),
        (12.345, "", "12.3"),
        (123.45, "", "123"),
        (1234.5, "samples/s", "1,234 samples/s"),
        (16621, "samples/s", "16,621 samples/s"),
        (999_999, "", "1.00 M"),
        (25_600_000, "", "25.6 M"),
        (3.2e9, "B/s", "3.20 GB/s"),
        (0.0123, "", "0.0123"),
        (-5.5, "W", "-5.50 W"),
        (None, "W", "–"),
        (math.nan, "", "–"),
        (math.inf, "", "–"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(x, unit, text):
    assert fmt.number(x, unit) == text


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (0, "0 s"),
        (8.5e-4, "850 µs"),
        (2e-8, "20.0 ns"),
        (6.9e-18, "<1 ns"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.00 s"),
        (4.561, "4.56 s"),
        (59.94, "59.9 s"),
        (59.96, "1m 00s"),
        (187, "3m 07s"),
        (3599.7, "1h 00m"),
        (7500, "2h 05m"),
        (270_000, "3d 03h"),
        (-2, "-2.00 s"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_durations_choose_their_unit(s, text):
    assert fmt.duration(s) == text


@pytest.mark.parametrize(("s", "text"), [(None, "–"), (-3, "0:00"), (7.9, "0:07"), (754, "12:34"), (3723, "1:02:03")])
def test_clock_is_a_position(s, text):
    assert fmt.clock(s) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (1000, "1000 B"), (1024, "1.00 KiB"), (1.5 * 2**30, "1.50 GiB"), (2**60, "1,024 PiB"), (None, "–")],
)
def test_bytes_are_binary(n, text):
    assert fmt.bytes_(n) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.413, "41 %"), (0.042, "4.2 %"), (0.0001, "<0.1 %"), (0, "0 %"), (1, "100 %"), (None, "–"), (math.nan, "–")],
)
def test_shares_are_percent(x, text):
    assert fmt.share(x) == text


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ((1.4, 1.6), "1.4–1.6×"),
        ((1.04, 1.07), "1.04–1.07×"),
        ((1.42, 1.44), "1.42–1.44×"),
        ((2.0, 2.0), "2.00×"),
        ((12, 15), "12–15×"),
        (None, "–"),
        ((math.nan, 2), "–"),
    ],
)
def test_speedups_are_ranges(pair, text):
    assert fmt.speedup_range(pair) == text


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ((0.012, 0.018), "12–18 ms"),
        ((0.5, 1.2), "0.50–1.20 s"),
        ((0.0012, 0.0018), "1.2–1.8 ms"),
        ((60, 120), "1m 00s – 2m 00s"),
        ((0, 0), "0 s"),
        ((0.02, 0.02), "20.0 ms"),
        (None, "–"),
    ],
)
def test_seconds_share_one_unit(pair, text):
    assert fmt.seconds_range(pair) == text


@pytest.mark.parametrize(
    ("x", "unit", "text"),
    [
        (4.0, "steps/s", "4.00 steps/s"),
        (1234.0, "samples/s", "1,234 samples/s"),
        (0.0, "steps/s", "0 steps/s"),
        (None, "steps/s", "–"),
    ],
)
def test_rates_keep_their_decimals(x, unit, text):
    assert fmt.rate(x, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.25, "s", "250 ms"),
        (250, "ms", "250 ms"),
        (2**20, "bytes", "1.00 MiB"),
        (0.5, "share", "50 %"),
        (50, "%", "50 %"),
        (1.5, "×", "1.50×"),
        (3, "workers", "3 workers"),
        ("eth0", "", "eth0"),
        ("", "", "–"),
        (None, "s", "–"),
    ],
)
def test_evidence_is_written_by_its_unit(value, unit, text):
    assert fmt.quantity(value, unit) == text


def test_cuts_are_marked():
    assert fmt.shorten("waiting for input", 8) == "waiting…"
    assert fmt.shorten("short", 8) == "short"
    assert fmt.shorten_path("/data/project/loader.py", 10) == "…loader.py"
    assert fmt.shorten("x", 0) == "" == fmt.shorten_path("x", 0)


@pytest.mark.parametrize(
    ("metric", "value", "unit", "words", "text"),
    [
        ("step.input_wait_s", 0.25, "s", "input wait", "250 ms"),
        ("loader.workers", 4.0, "workers", "loader workers", "4"),
        ("cpu.other_cores", 1.3, "cores", "cores used by other processes", "1.30 cores"),
        ("host.mem_bytes", 1024.0, "bytes", "host mem", "1.00 KiB"),
        ("fetch.read_mb_per_s", 50.0, "MB/s", "loader read rate", "50 MB/s"),
        ("storage.read_mb_s", 50.0, "MB/s", "read throughput", "50 MB/s"),
        ("storage.epoch_mb", 50.0, "MB", "bytes requested per epoch", "50 MB"),
        ("cpu.steal_share", 0.1, "share", "CPU steal", "10 %"),
        ("gpu.throttled_share", 0.6, "", "throttled time", "60 %"),
        ("stack", "augment (a.py:7)", "", "stack", "augment (a.py:7)"),
        ("NCCL_P2P_DISABLE", "1", "", "NCCL_P2P_DISABLE", "1"),
        ("gap", 0.25, "s", "time between steps", "250 ms"),
        ("quota.throttled_s_per_s", 0.4, "s/s", "time throttled by the quota", "40 %"),
    ],
)
def test_evidence_says_its_unit_once(metric, value, unit, words, text):
    assert fmt.metric_words(metric) == words
    assert fmt.amount(value, unit, metric) == text


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (("GPU003", "GPU001", "GPU002", "COM005"), "COM005, GPU001–003"),
        (("CMP008", "CMP009", "COM010", "COM009"), "CMP008–009, COM009–010"),
        (("DAT009", "DSK010", "MINE", "MINF"), "DAT009, DSK010, MINE, MINF"),
        ((), ""),
    ],
)
def test_ids_of_rules_are_joined_in_runs(ids: tuple[str, ...], text: str) -> None:
    assert fmt.rule_ids(ids) == text
