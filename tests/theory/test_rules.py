"""The family of rules: what it promises, checked by simulation and by scipy.stats."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from proxlin import theory
from proxlin.theory.rules import POWER, Comparison, Share, compare_ratios

ENDS = st.floats(-3, 3)


@given(ENDS, ENDS, st.floats(0, 2))
def test_a_finding_is_what_the_interval_says(one, two, band):
    low, high = sorted((one, two))
    finding = Comparison((low + high) / 2, low, high, 5).finding(band)
    inside = max(abs(low), abs(high)) <= band
    assert (finding == "equal") == inside
    if not inside:
        assert (finding == "not resolved") == (low <= 0 <= high)
        assert finding != "more" or low > 0
        assert finding != "less" or high < 0


@given(ENDS, st.floats(0.01, 3), st.floats(0, 2), st.floats(1, 5))
def test_a_wider_interval_never_makes_two_methods_equal(mean, half, band, wider):
    """Fewer seeds are no evidence: what is not equal stays so, and what is not resolved too."""
    found = Comparison(mean, mean - half, mean + half, 9).finding(band)
    less = Comparison(mean, mean - wider * half, mean + wider * half, 9).finding(band)
    assert less in (found, "not resolved") or (found == "equal" and less != "equal")
    if found == "not resolved":
        assert less == "not resolved"


def test_what_could_have_been_seen_is_seen_as_often_as_promised():
    """Differences of the size `detectable` of a known spread are shown in about 80 % of the runs."""
    rng = np.random.default_rng(0)
    for m in (3, 10, 40):
        half = stats.t.ppf(0.975, m - 1) / math.sqrt(m)  # of the spread 1
        true = Comparison(0.0, -half, half, m).detectable
        runs = rng.normal(true, 1.0, (4000, m))
        shown = sum(theory.compare(run).finding() == "more" for run in runs)
        # the formula is that of the textbooks; exact power needs the noncentral t
        exact = stats.nct.sf(stats.t.ppf(0.975, m - 1), m - 1, true * math.sqrt(m))
        assert shown / 4000 == pytest.approx(exact, abs=0.03)
        assert exact == pytest.approx(POWER, abs=0.05)


def test_as_many_units_as_are_needed_tell_the_difference():
    """By the power of scipy's noncentral t, and one unit less would not have been enough."""
    spread = 2.0
    half = stats.t.ppf(0.975, 4) * spread / math.sqrt(5)
    found = Comparison(0.5, 0.5 - half, 0.5 + half, 5)
    for target in (0.5, 1.0, 3.0):
        m = found.needed(target)
        power = lambda m, target=target: stats.nct.sf(
            stats.t.ppf(0.975, m - 1), m - 1, target * math.sqrt(m) / spread
        )
        assert power(m) == pytest.approx(POWER, abs=0.04)
        # the normal approximation of the textbooks, which is a little less
        normal = ((1.96 + 0.8416) * spread / target) ** 2
        assert normal <= m <= normal + 4
    assert found.needed(0.0) is None and found.needed(1e-9) is None
    assert Comparison(1.0, -math.inf, math.inf, 1).needed(1.0) is None


def test_differences_of_one_unit_are_one_number():
    """Ten copies of a seed are no ten seeds."""
    values = np.array([0.25, 0.125, 0.5, 0.25])  # whose means are exact
    once = theory.compare(values)
    again = theory.compare(np.repeat(values, 10), np.repeat(np.arange(4), 10))
    assert again == once and once.units == 4
    mixed = theory.compare([1.0, 5.0, 2.0], units=["a", "b", "a"])
    assert mixed == theory.compare([1.5, 5.0])
    with pytest.raises(ValueError, match="3 differences, but 2 units"):
        theory.compare([1.0, 2.0, 3.0], units=[1, 2])


def test_nothing_is_compared_with_nothing():
    with pytest.raises(ValueError, match="no difference to compare"):
        theory.compare([])
    with pytest.raises(ValueError, match="no difference to compare"):
        theory.compare([], units=[])
    with pytest.raises(ValueError, match="no difference to compare"):
        compare_ratios([], [])
    with pytest.raises(ValueError, match="no interval without a number"):
        theory.t_interval([])


def test_ratios_are_shares():
    found = compare_ratios([1.21, 1.1], [1.1, 1.0])
    assert found.shown(found.mean) == pytest.approx(0.1)
    assert found.finding(0.11) == "equal" and found.finding(0.05) == "more"
    assert compare_ratios([0.0, 0.0], [0.0, 0.0]).finding() == "equal"
    assert found.shown(1e9) < math.inf
    with pytest.raises(ValueError, match="negative values"):
        compare_ratios([-1.0, 1.0], [1.0, 1.0])


def test_shares():
    """36 of 36 show 90 %, 35 do not; what could have been seen is a binomial's."""
    assert Share(36, 36, 0.9).low >= 0.9 > Share(35, 35, 0.9).low
    assert Share(6, 6, 0.9).needed() == 36 and Share(1, 1, 0.8).needed() == 17
    assert Share(4, 12, 0.8).needed() <= 12
    assert Share(9, 10, 0.9).needed() is None
    for trials, promised in ((40, 0.9), (200, 0.8)):
        found = Share(trials, trials, promised)
        least = found.detectable
        refuted = [Share(x, trials, promised).high < promised for x in range(trials)]
        power = stats.binom.pmf(range(trials), trials, least)[refuted].sum()
        assert power == pytest.approx(POWER) and least < promised
    assert Share(3, 3, 0.5).detectable is None and Share(0, 0, 0.5).detectable is None
    never = Share(50, 50, 1.0)
    assert 1 - never.detectable**50 == pytest.approx(POWER)


ASKED = {
    # asks: (inside, above, below, across the upper edge, around everything)
    "more": ("equal beyond the rule", "reproduced", "not reproduced"),
    "less": ("equal beyond the rule", "not reproduced", "reproduced"),
    "equal": ("reproduced", "not reproduced", "not reproduced"),
    "not more": ("reproduced", "not reproduced", "reproduced"),
}


@pytest.mark.parametrize("asks", ASKED)
def test_a_rule_judges_an_interval(asks):
    rule = theory.Rule(asks, band=1.0)
    places = ((-0.5, 0.9), (1.5, 2.0), (-2.0, -1.5))
    judged = tuple(rule.judge(Comparison(0.0, *ends, 5)) for ends in places)
    assert judged == ASKED[asks]
    assert rule.judge(Comparison(0.0, -3.0, 3.0, 5)) == "not resolved"
    # an interval above 0 that crosses the band: a difference, but perhaps none that matters
    crossing = {"more": "reproduced", "less": "not reproduced"}
    assert rule.judge(Comparison(0.0, 0.5, 2.0, 5)) == crossing.get(
        asks, "not resolved"
    )


def test_the_units_that_would_decide():
    """With so many units of the same mean and spread the rule decides; and not with half of them."""
    rng = np.random.default_rng(1)
    for asks, mean in product(ASKED, (0.2, 0.9, 2.0)):
        rule = theory.Rule(asks, band=0.5)
        values = rng.normal(mean, 3.0, 5)
        values = (values - values.mean()) / values.std(ddof=1) * 3.0 + mean
        needed = rule.needed(theory.compare(values))
        assert needed is not None

        def decided(m: int, mean=mean, rule=rule) -> bool:
            half = stats.t.ppf(0.975, m - 1) * 3.0 / math.sqrt(m)
            found = Comparison(mean, mean - half, mean + half, m)
            return rule.judge(found) != "not resolved"

        assert decided(needed) and not decided(max(2, needed // 3))


def test_rules_of_shares_and_wrong_rules():
    always = theory.Rule("always")
    assert always.judge(Share(9, 9, 1.0)) == "reproduced"
    assert always.judge(Share(8, 9, 1.0)) == "not reproduced"
    assert always.judge(Share(0, 0, 1.0)) == "not resolved"
    least = theory.Rule("at least")
    assert least.judge(Share(36, 36, 0.9)) == "reproduced"
    assert least.judge(Share(4, 12, 0.8)) == "not reproduced"
    assert least.judge(Share(12, 12, 0.9)) == "not resolved"
    assert least.needed(Share(12, 12, 0.9)) == 36
    with pytest.raises(TypeError, match="'at least' judges a Share"):
        least.judge(theory.compare([1.0, 2.0]))
    with pytest.raises(TypeError, match="'more' judges a Comparison"):
        theory.Rule("more").judge(Share(1, 1, 1.0))
    with pytest.raises(ValueError, match="asks 'better'"):
        theory.Rule("better")
    with pytest.raises(ValueError, match="band"):
        theory.Rule("more", band=-1.0)
    for asks in (*ASKED, "at least", "always"):
        assert theory.Rule(asks, band=0.02).sentence().startswith("Reproduced if")
