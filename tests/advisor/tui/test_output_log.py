"""The job's output: lines in order, progress bars in place, colours kept, bursts coalesced, searchable."""

from __future__ import annotations

import pytest

import report_samples as samples
from rn50_advisor.advisor.run.launch.output_lines import NewOutput, OutputTail
from rn50_advisor.advisor.tui.output_log import MOST_LINES, OutputLog
from tui_doubles import Lines, Reports, screen_text, settle, shown, until


async def test_the_newest_line_is_in_sight_while_the_pane_is_closed():
    async with shown(Reports(samples.running()), (80, 24), output=Lines("first", "\x1b[31mlast\x1b[0m")) as (
        app,
        pilot,
    ):
        await until(pilot, lambda: "last" in screen_text(app))
        assert "first" not in screen_text(app)


@pytest.mark.parametrize(
    ("size", "modes"), [((80, 24), ["closed", "alone", "closed"]), ((100, 30), ["closed", "beside", "alone", "closed"])]
)
async def test_o_opens_and_closes_the_output(size, modes):
    async with shown(Reports(samples.running()), size, output=Lines("a", "b")) as (app, pilot):
        seen = [app.output_mode]
        for _ in modes[1:]:
            await pilot.press("o")
            await settle(app, pilot)
            seen.append(app.output_mode)
            assert bool(app.query_one("#output").region) == (app.output_mode != "closed")
        assert seen == modes


async def test_a_high_terminal_opens_with_the_output_beside():
    async with shown(Reports(samples.running()), (140, 45), output=Lines("hello from the job")) as (app, pilot):
        await until(pilot, lambda: "hello from the job" in screen_text(app))
        assert app.query_one("#output").region


async def test_a_progress_bar_stays_one_line():
    output = Lines("epoch 1", " 1%|▏ | 1/100")
    async with shown(Reports(samples.running()), (140, 45), output=output) as (app, pilot):
        log = app.query_one(OutputLog)
        await until(pilot, lambda: len(log.lines) == 2)
        for step in (2, 3):
            output.lines[-1] = f" {step}%|▏ | {step}/100"
            await until(pilot, lambda step=step: log.lines[-1].endswith(f"{step}/100"))
        output.lines.append("epoch 2")
        await until(pilot, lambda: len(log.lines) == 3)
        assert log.lines == ["epoch 1", " 3%|▏ | 3/100", "epoch 2"]
        assert screen_text(app).count("/100") == 1


async def test_bars_below_each_other_stay_as_many_lines(tmp_path):
    path = tmp_path / "output.log"
    path.write_text("begin\n\repoch: 0/9\n\rbatch: 0/9\x1b[A")
    tail = OutputTail(path)
    async with shown(Reports(samples.running()), (140, 45), output=tail) as (app, pilot):
        log = app.query_one(OutputLog)
        await until(pilot, lambda: len(log.lines) == 3)
        with path.open("a") as file:
            for step in (1, 2, 9):
                file.write(f"\n\rbatch: {step}/9\x1b[A\repoch: {step}/9")
                file.flush()
                await until(pilot, lambda step=step: log.lines == ["begin", f"epoch: {step}/9", f"batch: {step}/9"])
        await until(pilot, lambda: "epoch: 9/9" in screen_text(app))
        assert screen_text(app).count("/9") == 2
    tail.close()


async def test_colours_of_the_job_are_kept():
    async with shown(Reports(samples.running()), (140, 45), output=Lines("\x1b[1;31mred\x1b[0m plain")) as (
        app,
        pilot,
    ):
        log = app.query_one(OutputLog)
        await until(pilot, lambda: log.lines)
        red, plain = [s for s in log.render_line(0) if s.text.strip()][:2]
        assert red.text == "red"
        assert red.style.color.number == 1
        assert red.style.bold
        assert plain.text.strip() == "plain"
        assert not plain.style.bold


async def test_a_burst_of_lines_is_one_update():
    output = Lines("before")
    async with shown(Reports(samples.running()), (140, 45), output=output) as (app, pilot):
        log = app.query_one(OutputLog)
        await until(pilot, lambda: log.total == 1)
        before = log.updates
        output.lines += [f"line {i}" for i in range(5000)]
        await until(pilot, lambda: log.total == 5001)
        assert log.updates == before + 1
        assert log.lines[-1] == "line 4999"
        await until(pilot, lambda: "line 4999" in screen_text(app))
        await pilot.press("2")
        await until(pilot, lambda: app.query_one("#views").current == "findings")


async def test_scroll_back_is_bounded_and_the_order_kept():
    async with shown(Reports(samples.running()), (140, 45), output=Lines()) as (app, _pilot):
        log = app.query_one(OutputLog)
        log.receive(NewOutput(15_000, tuple(f"a{i}" for i in range(15_000))))
        log.receive(NewOutput(30_000, tuple(f"b{i}" for i in range(15_000))))
        assert len(log.lines) == MOST_LINES
        assert log.lines[0] == "a10000"
        assert log.lines[-1] == "b14999"
        assert log.total == 30_000


async def test_scrolling_back_stops_following_and_f_follows_again():
    output = Lines(*(f"line {i}" for i in range(200)))
    async with shown(Reports(samples.running()), (100, 30), output=output) as (app, pilot):
        await pilot.press("o", "o")
        log = app.query_one(OutputLog)
        await until(pilot, lambda: "line 199" in screen_text(app))
        await pilot.press("pageup")
        await until(pilot, lambda: not log.follow and "line 199" not in screen_text(app))
        top = log.scroll_offset.y
        output.lines += ["one more"]
        await until(pilot, lambda: log.total == 201)
        assert log.scroll_offset.y <= top
        assert "scrolled back" in screen_text(app)
        await pilot.press("f")
        await until(pilot, lambda: "one more" in screen_text(app))
        assert "following" in screen_text(app)


async def test_search_finds_the_newest_match_then_older_ones():
    output = Lines(*("loss nan" if i in (20, 120) else f"line {i}" for i in range(200)))
    async with shown(Reports(samples.running()), (100, 30), output=output) as (app, pilot):
        await pilot.press("o")
        await until(pilot, lambda: "line 199" in screen_text(app))
        await pilot.press("slash", *"NAN".lower(), "enter")
        await until(pilot, lambda: "line 121" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "line 21" in screen_text(app))
        await pilot.press("backspace", *"never", "enter")
        await until(pilot, lambda: "not found" in screen_text(app))
        await pilot.press("escape")
        await settle(app, pilot)
        assert not app.query_one("#needle").display


async def test_typing_a_search_triggers_no_keys_of_the_screen():
    async with shown(Reports(samples.running()), (100, 30), output=Lines("x")) as (app, pilot):
        await pilot.press("o", "slash", "q", "2", "o")
        await settle(app, pilot)
        assert app.query_one("#needle").value == "q2o"
        assert app.query_one("#views").current == "overview"
        assert app.return_value is None


async def test_long_lines_and_control_characters_stay_within_the_pane():
    nasty = "x" * 500_000 + "\x1b[2J\x1b[H\x07"
    async with shown(Reports(samples.running()), (140, 45), output=Lines(nasty, "after\x1b[2Kit")) as (app, pilot):
        log = app.query_one(OutputLog)
        await until(pilot, lambda: log.total == 2)
        for y in range(2):
            strip = log.render_line(y)
            assert strip.cell_length == log.scrollable_content_region.width
            assert "\x1b" not in strip.text
            assert "\x07" not in strip.text


async def test_wide_characters_can_be_scrolled_to_their_end():
    async with shown(Reports(samples.running()), (80, 30), output=Lines("世" * 100)) as (app, pilot):
        await pilot.press("o")
        await settle(app, pilot)
        assert app.query_one(OutputLog).virtual_size.width == 200


async def test_output_that_cannot_be_read_is_said_in_the_pane():
    class Broken(Lines):
        def lines_since(self, n):
            raise OSError(5, "Input/output error")

    async with shown(Reports(samples.running()), (140, 45), output=Broken()) as (app, pilot):
        await until(pilot, lambda: "Input/output error" in screen_text(app))
        assert "▲ BOTTLENECK" in screen_text(app)


async def test_the_tail_of_a_real_log_is_shown_as_a_terminal_would(tmp_path):
    path = tmp_path / "output.log"
    tail = OutputTail(path)
    async with shown(Reports(samples.running()), (140, 45), output=tail) as (app, pilot):
        log = app.query_one(OutputLog)
        with path.open("w") as file:
            for text, last in (
                ("epoch 1\n", "epoch 1"),
                ("  0%|   | 0/2", "  0%|   | 0/2"),
                ("\r 50%|█  | 1/2", " 50%|█  | 1/2"),
                ("\r\x1b[2K\r", None),
                ("\r100%|███| 2/2\n", "100%|███| 2/2"),
                ("\x1b[32mdone\x1b[0m", "done"),
            ):
                file.write(text)
                file.flush()
                if last:
                    await until(pilot, lambda last=last: log.last_line().replace("\x1b[32m", "").startswith(last))
        assert [line.replace("\x1b[32m", "").replace("\x1b[0m", "") for line in log.lines] == [
            "epoch 1",
            "100%|███| 2/2",
            "done",
        ]
        await until(pilot, lambda: "100%|███| 2/2" in screen_text(app))
    tail.close()


async def test_a_line_that_did_not_change_is_no_update(tmp_path):
    path = tmp_path / "output.log"
    path.write_text("same")
    tail = OutputTail(path)
    async with shown(Reports(samples.running()), (140, 45), output=tail) as (app, pilot):
        log = app.query_one(OutputLog)
        await until(pilot, lambda: log.lines == ["same"])
        assert not log.would_change(tail.lines_since(1))
        assert log.updates == 1
    tail.close()
