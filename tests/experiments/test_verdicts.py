"""Rules in configs, and verdicts by them: what a reader is told, and what is refused."""

import math

import pytest

from proxlin.errors import UserError
from proxlin.experiments import MODULES, experiments
from proxlin.experiments.engine.base import CLAIMS
from proxlin.experiments.engine.config import parse, profiles, shipped
from proxlin.experiments.engine.verdicts import verdict_of
from proxlin.experiments.regression import Config
from proxlin.theory import Comparison, Rule, Share, compare


def test_a_verdict_says_what_the_run_could_have_seen():
    rule = Rule("equal", band=0.01, seen=(0,))
    found = Comparison(math.log(1.01), math.log(0.95), math.log(1.07), 5, ratio=True)
    each = verdict_of("C8", rule, found, "PLI over SGD", seed=0)
    assert each.verdict == "not resolved" and each.units == "5 seeds"
    assert each.number == "PLI over SGD: +1.00 %"
    assert each.interval == "95 % [-5.00 %, +7.00 %]"
    assert each.visible == f"{100 * found.detectable:.2f} %"
    assert "Post hoc: results with seed 0" in each.rule
    # on the edge of the band no number of seeds decides
    assert each.needed == "no number of seeds is in reach"
    assert "Post hoc" not in verdict_of("C8", rule, found, "", seed=1).rule
    row = each.published("paper", ())
    assert row["verdict"] == "not resolved (no number of seeds is in reach)"
    nearer = compare([0.0, 0.1, -0.1, 0.05])
    needed = verdict_of("C8", rule, nearer, "", 1).needed
    assert needed == f"about {rule.needed(nearer)} seeds would decide"


def test_a_single_unit_shows_nothing():
    each = verdict_of("C4", Rule("more"), compare([1.0]), "", 1)
    assert each.verdict == "not resolved" and each.visible == "none"
    assert each.interval == "95 % [-inf, inf]"
    share = verdict_of("C3", Rule("at least"), Share(6, 6, 0.9), "runs", 1, "runs")
    assert share.number == "runs: 6 of 6" and share.needed.startswith("about 36 runs")


def test_every_claim_is_judged_by_a_rule_of_its_config():
    """Each study that judges states its rules, the same for both profiles."""
    judging = [each for each in experiments().values() if each.claims]
    named = {name for names in MODULES.values() for name in names}
    judged = set()
    for each in judging:
        if each.name in named:
            stated = each.config("quick")["rules"]
            assert stated == each.config("paper")["rules"]
            assert {name.partition("-")[0] for name in stated} == set(each.claims)
            judged |= set(each.claims)
    assert judged == set(CLAIMS)


def test_rules_are_shared_by_the_profiles_and_checked():
    found = profiles(b"[quick]\nn = 1\n[rules.C1]\nasks = 'more'\n", "a file")
    assert found == {"quick": {"n": 1, "rules": {"C1": {"asks": "more"}}}}
    quick = shipped("fig2")["quick"]
    rules = dict(quick["rules"])
    assert parse(Config, quick).rules["C5"] == Rule("equal", 0.01, 0.95, (0,))
    for wrong, word in (
        ({"C4-overall": rules["C4-overall"]}, "rules has to state"),
        ({**rules, "C5": {"asks": "better"}}, "asks 'better'"),
        ({**rules, "C5": {"asks": "equal", "bend": 1.0}}, "no setting bend"),
        ({**rules, "C5": "equal"}, "type Rule"),
        (3, "has to be a table"),
    ):
        with pytest.raises(UserError, match=word):
            parse(Config, {**quick, "rules": wrong})
