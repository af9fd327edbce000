"""Rules, gaps and facts of a run on the screen."""

from __future__ import annotations

from dataclasses import replace

import report_samples as samples
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.report import OutcomeRow
from tui_doubles import Reports, screen_text, settle, shown


async def test_what_the_data_lies_on_stands_before_the_facts_of_many_ranks():
    ranks = {str(rank): {"rank": rank} for rank in range(12)}
    report = replace(samples.running(), facts={**ranks, "storage": {"location": "/data (ext4 on sdb)"}})
    async with shown(Reports(report), (100, 60)) as (app, pilot):
        await pilot.press("5")
        await settle(app, pilot)
        await pilot.press("end")
        await settle(app, pilot)
        text = screen_text(app)
        assert "data: location" in text and "/data (ext4 on sdb)" in text
        assert "the facts of 4 more" in text


async def test_what_was_not_measured_names_its_reason():
    async with shown(Reports(samples.running()), (100, 45)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        assert "not measured: no GPU seen" in screen_text(app)
        assert "no NVIDIA driver on this machine (expected on a CPU machine)" in screen_text(app)
        await pilot.press("5")
        await settle(app, pilot)
        text = screen_text(app)
        for part in (
            "3 fired · 1 crashed · 1 not measured · 6 clear",
            "✖ DAT002  crashed       ZeroDivisionError: division by zero",
            "CPU002: this kernel does not count stolen time",
            "CPU steal (host)",
            "→ run on the host to see it",
            "14.2 µs",
            "share of workers' time",
            "disabled to stay within budget: stacks",
            "2.8.0",
        ):
            assert part in text


async def test_rules_that_one_thing_keeps_from_looking_share_a_line_with_its_reason():
    unseen = [OutcomeRow(f"COM{n:03d}", "not_measured", ("comm.wire_s", f"other{n}")) for n in range(3)]
    unseen += [OutcomeRow(f"GPU{n:03d}", "not_measured", (f"gpu.value{n}",)) for n in range(3)]
    gaps = (ProbeGap("comm.wire_s", "job", "one rank: nothing to communicate"),)
    report = replace(samples.running(), gpus=(), gaps=gaps, outcomes=(OutcomeRow("DAT001", "clear"), *unseen))
    async with shown(Reports(report), (100, 45)) as (app, pilot):
        await pilot.press("5")
        await settle(app, pilot)
        text = screen_text(app)
        assert "– COM000 COM001 COM002: one rank: nothing to communicate" in text
        assert "– GPU000 GPU001 GPU002: no GPU seen" in text
        assert text.index("clear: DAT001") < text.index("COM000")


async def test_the_facts_of_a_run_are_readable():
    report = replace(
        samples.running(), environment={"mem_total_bytes": 2.0**35, "driver": None, "gpus": [], "smt": False}
    )
    async with shown(Reports(report), (100, 60)) as (app, pilot):
        await pilot.press("5")
        await settle(app, pilot)
        await pilot.press("end")
        await settle(app, pilot)
        rows = {line.strip(" │╭╰").split("  ")[0]: line for line in screen_text(app).split("\n")}
        assert "32.0 GiB" in rows["mem_total_bytes"]
        assert "–" in rows["driver"]
        assert " no" in rows["smt"]
        assert "gloo" in rows["backend"]
