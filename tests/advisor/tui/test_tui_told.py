"""What the data lies on, and what the ranks exchange, on the screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

import screen_reports as samples
from tui_doubles import Reports, screen_text, settle, shown


async def test_what_the_data_lies_on_stands_before_the_facts_of_many_ranks():
    ranks = {str(rank): {"rank": rank} for rank in range(12)}
    report = replace(samples.input_bound(), facts={**ranks, "storage": {"lies on": "/data (ext4 on sdb)"}})
    async with shown(Reports(report), (100, 60)) as (app, pilot):
        await pilot.press("5")
        await settle(app, pilot)
        await pilot.press("end")
        await settle(app, pilot)
        text = screen_text(app)
        assert "data: lies on" in text and "/data (ext4 on sdb)" in text
        assert "the facts of 4 more" in text


@pytest.mark.parametrize(("size", "seen"), [((100, 40), True), ((80, 24), False)])
async def test_what_the_ranks_exchange_stands_below_them_where_there_is_room(size: tuple[int, int], seen: bool):
    report = replace(samples.input_bound(), facts={"exchange": {"the wire": "30 ms exposed"}})
    async with shown(Reports(report), size) as (app, pilot):
        await pilot.press("3")
        await settle(app, pilot)
        text = screen_text(app)
        assert ("Critical path · exchange" in text) == ("30 ms exposed" in text) == seen
