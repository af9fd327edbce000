"""How the rules' predictions fared: computed from measured speed-ups, and kept as the published results have it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from samples.faults.gain_errors import PUBLISHED, TABLE, Measured, errors, left_out, measured, summary, unseen, written
from samples.faults.results import read_json
from samples.faults.score import Result

from rn50_advisor.advisor.verdict.likely_gain import ANY_RULE
from rn50_advisor.rules.registry import all_rules


def rows(rule: str, *, scenarios: int, gain: float, runs: int = 3) -> list[Measured]:
    return [Measured(rule, f"{rule} {n}", (1.2, 2.0), gain) for n in range(scenarios) for _ in range(runs)]


def test_the_table_is_what_the_published_results_say() -> None:
    """`python -m samples.faults.gain_errors` writes it."""
    assert TABLE.read_text(encoding="utf-8") == written(errors([*measured(read_json(PUBLISHED)), *unseen()]))


def test_a_rule_is_corrected_by_its_own_scenarios_where_it_has_many_and_by_others_where_not() -> None:
    others = rows("BBB001", scenarios=12, gain=1.9) + rows("CCC001", scenarios=12, gain=1.9)
    many, few = (errors(rows("AAA001", scenarios=cases, gain=1.3) + others) for cases in (12, 1))
    assert many["AAA001"].likely < 0 < many["BBB001"].likely
    assert few["AAA001"].likely > 0, "one scenario against the weight of three"
    assert many["AAA001"].measured == 36 and many["AAA001"].scenarios == 12


def test_a_scenario_is_held_against_what_the_others_say() -> None:
    others = rows("BBB001", scenarios=8, gain=1.9) + rows("CCC001", scenarios=8, gain=1.9)
    found = errors(rows("AAA001", scenarios=1, gain=1.3) + others)["AAA001"]
    assert (found.measured, found.held, found.near) == (3, 0, 0)
    found = errors(rows("AAA001", scenarios=8, gain=1.3) + others)["AAA001"]
    assert (found.measured, found.near) == (24, 24)


def test_rules_that_differ_in_their_likely_values_only_have_narrow_ranges() -> None:
    gains = {"AAA001": 1.3, "BBB001": 1.6, "CCC001": 1.9}
    found = errors([row for rule, gain in gains.items() for row in rows(rule, scenarios=8, gain=gain)])
    spread = found["CCC001"].likely - found["AAA001"].likely
    for rule in gains:
        assert found[rule].high - found[rule].low < 0.1 * spread
    assert found[ANY_RULE].high - found[ANY_RULE].low > spread, "a rule that was never tried may be as any of them"


def test_the_summary_counts_what_was_left_out_and_tells_long_steps_from_short_ones() -> None:
    alike = rows("AAA001", scenarios=8, gain=1.3) + rows("BBB001", scenarios=8, gain=1.9)
    long = [replace(row, step_s=0.2) for row in rows("CCC001", scenarios=1, gain=3.0)]
    told = left_out([*alike, *long], "CCC001")
    assert [each.held for each in told] == [False] * 3 and told[0].saving.speedup[1] < 3.0
    every = [*alike, *long]
    words = summary([each for rule in ("AAA001", "BBB001", "CCC001") for each in left_out(every, rule)])
    assert words.startswith("48 of 51 inside the range, 48 within 15 %")
    assert f"{told[0].half_width:.1%} in the median where a step takes 50 ms or more" in words


def test_unseen_jobs_count_as_cases_of_their_rules() -> None:
    known = {rule.id for rule in all_rules()}
    every = unseen()
    assert len({row.scenario for row in every}) == len(every)
    assert all(row.rule in known and row.bounds[0] < row.bounds[1] and not row.seeded for row in every)


def test_an_unseen_job_counts_more_than_a_seeded_one() -> None:
    seeds = [row for rule in ("AAA001", "BBB001", "CCC001") for row in rows(rule, scenarios=4, gain=1.3, runs=1)]
    job = Measured("AAA001", "a job", (1.2, 2.0), 1.9)
    as_seed, as_unseen = (errors([*seeds, replace(job, seeded=seeded)])["AAA001"] for seeded in (True, False))
    assert as_unseen.high > as_seed.high


def test_repetitions_of_a_scenario_weigh_no_more_than_one_run() -> None:
    often = [row for rule in ("AAA001", "BBB001", "CCC001") for row in rows(rule, scenarios=3, gain=1.3, runs=1)]
    often += rows("DDD001", scenarios=2, gain=1.9)
    once = errors(often)[ANY_RULE]
    more = errors([*often, *[Measured("AAA001", "AAA001 0", (1.2, 2.0), 1.3)] * 50])[ANY_RULE]
    assert more.likely == pytest.approx(once.likely, abs=0.05)


def result(**known: object) -> Result:
    return Result("a", "AAA001", "AAA001", "clear", verdict="AAA001", measured=1.5, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "cases"),
    [
        ({"predicted": (1.3, 1.8), "bounds": (1.2, 2.0)}, (1.2, 2.0)),
        ({"predicted": (1.2, 2.0), "allowance": 0.05}, (1.2, 2.0)),
        ({"predicted": (1.2 * 0.95, 2.0 * 1.05), "allowance": 0.0}, (1.2, 2.0)),
        ({"predicted": (1.0, 2.0 * 1.05), "allowance": 0.0}, (1.0 / 0.95, 2.0)),
    ],
    ids=["its own", "a version without variation", "with variation", "at its limit"],
)
def test_older_results_tell_the_two_cases_too(known: dict[str, object], cases: tuple[float, float]) -> None:
    [row] = measured([result(**known), result()])
    assert row.bounds == pytest.approx(cases)


@pytest.mark.parametrize(("likely", "near"), [(1.5, True), (1.5 / 1.16, False), (None, None)])
def test_a_likely_value_is_near_within_fifteen_percent(likely: float | None, near: bool | None) -> None:
    assert result(likely=likely).near is near
    assert likely is None or (abs(math.log(1.5 / likely)) <= math.log(1.15)) is near
