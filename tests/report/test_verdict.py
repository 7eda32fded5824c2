"""The verdict: each reason by itself, and that nothing wrong is called trustworthy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.diagnosis.findings import Finding
from clickharvest.estimation.estimators import CPBM, PBM
from clickharvest.estimation.fitting import FEWEST
from clickharvest.harvesting.collecting import harvest
from clickharvest.logs.reading import read_log
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.model.support import ColumnSupport, Support
from clickharvest.report.evidence import gather_evidence
from clickharvest.report.reasons import Grounds
from clickharvest.report.sensitivity import penalty_moves
from clickharvest.report.verdict import LEAST_CLUSTERS, judge, kept_checks
from clickharvest.simulate import simulate_ab_log

FINE = (
    Finding("connectivity", "ok", "Linked.", 1.0),
    Finding("drift with position", "ok", "None.", 0.01, 0.5),
    Finding("clicks above", "ok", "None.", 1.05, 0.6),
    Finding("usual position", "ok", "None.", 0.01, 0.5),
)
CHECKS = (Finding("transitivity", "ok", "Agree.", 1.0, 0.4), Finding("trust bias", "ok", "None.", 0.001, 0.7))
GOOD = Grounds(FINE, CHECKS, same_data=True, moved=0.4)


def curve(spans: dict[int, float], queries: float = 100.0, **info: Any) -> Propensities:
    """A model without context whose 95 % interval spans a factor at each position; no number where it is infinite."""
    linked = tuple(k for k, span in spans.items() if np.isfinite(span))
    b = -np.log(linked)[1:]
    sd = np.log([spans[k] for k in linked[1:]]) / 2 / 1.959964
    draws = b + sd * np.array([[-1.0], [0.0], [1.0]])
    support = Support((), (None, *[queries] * len(b)))
    shape = make_curve("constant", linked, 1, 0)
    return Propensities(shape, {"b": b}, None, tuple(spans), draws, "clustered", info, support=support)


def swap(findings: tuple[Finding, ...], name: str, **changes: Any) -> tuple[Finding, ...]:
    return tuple(replace(finding, **changes) if finding.name == name else finding for finding in findings)


SHARP = curve({1: 1, 2: 1.2, 3: 1.3})


def test_the_verdict_knows_how_many_clusters_error_bars_take() -> None:
    assert LEAST_CLUSTERS == FEWEST


def test_a_sharp_curve_of_a_log_without_alarms_is_trustworthy() -> None:
    verdict = judge(SHARP, GOOD)
    assert verdict.word == "trustworthy"
    assert "14 % or better" in verdict.why  # √1.3
    assert verdict.advice.startswith("Use it for weights at positions 1-3")


@pytest.mark.parametrize(
    ("model", "word", "why", "advice"),
    [
        (
            curve({1: 1, 2: 1.2, 3: 2.5}),
            "with care",
            "position 3 examination is known to a factor of up to 2.5",
            "swap",
        ),
        (
            curve({1: 1, 2: 1.2, 3: 12}),
            "with care",
            "position 3 the interval spans a factor of 10",
            "positions 1-2 alone",
        ),
        (curve({1: 1, 2: 11, 3: 12}), "cannot tell", "positions 2-3 the interval spans", "Do not use it for weights"),
        (curve({1: 1, 2: 1.2, 3: np.inf}), "with care", "compares position 3 with position 1", "ranks 1 and 3"),
        (curve({1: 1, 2: 1.2}, queries=3.0), "cannot tell", "rests on fewer than 5 queries", "more queries"),
        (replace(SHARP, draws=None, draws_kind=None), "cannot tell", "no error bars", "--intervals none"),
        (replace(SHARP, draws=None, draws_kind=None, info={"queries": 1}), "cannot tell", "one query", "five queries"),
        (
            replace(SHARP, draws=None, draws_kind=None, info={"queries": 2, "clusters": 2}),
            "cannot tell",
            "All clicks are of 2 queries,",
            "five queries",
        ),
        (
            replace(SHARP, draws=None, draws_kind=None, info={"queries": 90, "clusters": 2, "clustered_by": "device"}),
            "cannot tell",
            "all clicks are of 2 values of device: too few to tell how far another value of device would be",
            "Fit again without --cluster device, or name one of which there are more.",
        ),
        (
            replace(SHARP, draws=None, draws_kind=None, info={"queries": 90, "clusters": 3, "clustered_by": "device"}),
            "cannot tell",
            "no error bars",
            "--intervals none",
        ),
        (replace(SHARP, info={"status": "ran out of iterations before"}), "cannot tell", "did not reach", "Fit again"),
        (replace(SHARP, info={"status": "failed: not finite"}), "cannot tell", "did not reach", "Fit again"),
    ],
)
def test_what_the_model_says_of_itself(model: Propensities, word: str, why: str, advice: str) -> None:
    verdict = judge(model, GOOD)
    assert verdict.word == word
    assert why in verdict.why
    assert advice in verdict.advice


@pytest.mark.parametrize(
    ("grounds", "word", "why"),
    [
        (None, "with care", "was not tested here"),
        (replace(GOOD, same_data=False), "with care", "not the data that the model was fitted on"),
        (replace(GOOD, moved=1.2), "with care", "leaves its own interval"),
        (replace(GOOD, findings=FINE[:1] + FINE[2:]), "with care", "whether results change while they move"),
        (replace(GOOD, findings=FINE[:2] + FINE[3:]), "with care", "whether people stop at a good result"),
        (replace(GOOD, findings=FINE[:3]), "with care", "whether rankers put a result higher for people who want it"),
        (replace(GOOD, findings=swap(FINE, "usual position", value=0.2)), "with care", "put a result higher"),
        (
            replace(GOOD, findings=swap(FINE, "usual position", status="note", p_value=None)),
            "with care",
            "put a result",
        ),
        (replace(GOOD, checks=()), "with care", "good results are read otherwise"),
        (replace(GOOD, checks=swap(CHECKS, "trust bias", value=0.2)), "with care", "good results are read otherwise"),
        (replace(GOOD, findings=swap(FINE, "clicks above", value=0.5)), "with care", "stop at a good result"),
    ],
)
def test_what_nobody_has_looked_at(grounds: Grounds | None, word: str, why: str) -> None:
    verdict = judge(SHARP, grounds)
    assert verdict.word == word
    assert why in verdict.why


ALARMS = [
    ("drift with position", -0.1, "cannot tell", "lose clicks over time move down"),
    ("drift with position", 0.1, "cannot tell", "lose clicks over time move up"),
    ("usual position", 0.8, "cannot tell", "higher for people who want it more"),
    ("usual position", -0.8, "cannot tell", "did not stand where the log says"),
    ("clicks above", 0.5, "cannot tell", "stop reading once a result above has served them"),
    ("clicks above", 0.95, "with care", "stop reading once a result above has served them"),
    ("clicks above", 2.0, "cannot tell", "read on below good results"),
    ("trust bias", 0.3, "with care", "trust what stands high"),
    ("transitivity", 3.0, "with care", "different stories"),
]


@pytest.mark.parametrize(("name", "value", "word", "why"), ALARMS)
def test_an_alarm_of_a_bias(name: str, value: float, word: str, why: str) -> None:
    alarm = {"status": "warning", "p_value": 1e-9, "value": value}
    verdict = judge(SHARP, replace(GOOD, findings=swap(FINE, name, **alarm), checks=swap(CHECKS, name, **alarm)))
    assert verdict.word == word
    assert why in verdict.why
    # .05 / 5 checks: below it a weak sign counts, above it does not.
    for p_value, expected in ((0.009, "with care"), (0.011, "trustworthy")):
        size = {"clicks above": 1.05, "usual position": 0.2}.get(name, 0.001)
        weak = {"status": "note", "p_value": p_value, "value": size}
        told = judge(SHARP, replace(GOOD, findings=swap(FINE, name, **weak), checks=swap(CHECKS, name, **weak)))
        assert told.word == expected


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("single clicks", "cannot tell"),
        ("repeated clicks", "cannot tell"),
        ("context of clicks", "cannot tell"),
        ("one click a page", "with care"),
        ("unequal pages", "with care"),
        ("missing rows", "with care"),
        ("clicked through", "with care"),
        ("one user", "with care"),
        ("few users", "with care"),
        ("clicks by ranker", "with care"),
        ("depth by ranker", "with care"),
    ],
)
def test_a_log_of_the_wrong_kind_costs_the_good_word(name: str, word: str) -> None:
    verdict = judge(SHARP, replace(GOOD, findings=(*FINE, Finding(name, "warning", "Found."))))
    assert verdict.word == word
    assert "checks below" not in verdict.advice, "a manager is told what to do"
    assert judge(SHARP, replace(GOOD, findings=(*FINE, Finding(name, "note", "Found.")))).word == "trustworthy"


def test_few_users_are_no_matter_where_users_cluster() -> None:
    few = replace(GOOD, findings=(*FINE, Finding("few users", "warning", "Few.", 30.0)))
    assert judge(SHARP, few).word == "with care"
    by_user = replace(SHARP, info=dict(SHARP.info) | {"clustered_by": "user"})
    assert judge(by_user, few).word == "trustworthy"


def test_where_pages_have_one_click_trust_may_be_competition() -> None:
    trust = swap(CHECKS, "trust bias", status="warning", value=0.3, p_value=1e-9)
    one = replace(GOOD, findings=(*FINE, Finding("one click a page", "warning", "One.", 0.0)), checks=trust)
    reasons = [judge(SHARP, one), *judge(SHARP, one).also]
    assert any("results compete for the one click" in reason.why for reason in reasons)
    assert not any("--model affine" in reason.advice for reason in reasons)


def test_a_home_page_is_known_by_its_users() -> None:
    """One query is all there is: where users cluster, they tell how well it is known."""
    home = curve({1: 1, 2: 1.2, 3: 1.3}, queries=1.0)
    assert judge(home, GOOD).word == "cannot tell"
    by = {"clustered_by": "user", "clustered": {"effective_queries": [600.0, 600.0, 600.0]}}
    one = replace(GOOD, findings=(*FINE, Finding("dominance", "warning", "One query.", 1.0)))
    verdict = judge(replace(home, info=dict(home.info) | by), one)
    assert verdict.word == "with care"
    assert not verdict.also
    assert "fewer than 5 queries" in verdict.why
    assert verdict.advice == "Use them for these queries alone."
    few = by | {"clustered": {"effective_queries": [3.0, 3.0, 3.0]}}
    verdict = judge(replace(home, info=dict(home.info) | few), GOOD)
    assert verdict.word == "cannot tell"
    assert "fewer than 5 users" in verdict.why


def test_where_users_cluster_more_of_them_are_asked_for() -> None:
    rough = curve({1: 1, 2: 1.2, 3: 3})
    assert "3 times as many clicks" in judge(rough, GOOD).advice
    by_user = replace(rough, info=dict(rough.info) | {"clustered_by": "user"})
    assert "clicks of about 3 times as many users" in judge(by_user, GOOD).advice


def test_positions_that_the_model_has_never_heard_of_count() -> None:
    """Where nothing below position 2 ever moved, the harvest has no row of it, and every position it has is known."""
    half = swap(FINE, "connectivity", status="blocking", value=0.25)
    verdict = judge(SHARP, replace(GOOD, findings=half))
    assert verdict.word == "with care"
    assert "alone" in verdict.why


def test_other_alarms_count_where_they_touch_the_model() -> None:
    ranker = Finding("ranker and device", "warning", "Depends.", 0.2, 1e-9)
    design = replace(GOOD, findings=(*FINE, ranker), realised=False)
    assert judge(SHARP, replace(design, realised=True)).word == "trustworthy"
    assert judge(SHARP, design).word == "cannot tell"
    assert judge(replace(SHARP, info={"objective": "allpairs"}), replace(design, realised=True)).word == "cannot tell"
    for name in ("sample ratio", "dominance", "repetition", "something new"):
        warning = Finding(name, "warning", "Something.", 0.2)
        assert judge(SHARP, replace(GOOD, findings=(*FINE, warning))).word == "with care"
    matters = Finding("context matters", "note", "Depends.", 99.0, 1e-9)
    assert judge(SHARP, replace(GOOD, checks=(*CHECKS, matters))).why.startswith(
        "Contexts are read to different depths"
    )
    nothing = Finding("connectivity", "blocking", "Nothing is linked.", 0.0)
    assert judge(SHARP, replace(GOOD, findings=(nothing, *FINE[1:]))).word == "cannot tell"


def test_drift_is_told_before_what_else_it_looks_like() -> None:
    alarm = {"status": "warning", "value": 0.8, "p_value": 1e-9}
    both = swap(swap(FINE[::-1], "drift with position", **alarm), "usual position", **alarm)
    verdict = judge(SHARP, replace(GOOD, findings=both))
    assert "lose clicks over time" in verdict.why
    assert "wanted more" in verdict.also[0].why


@pytest.mark.parametrize(
    ("value", "word", "why"),
    [
        (-0.8, "cannot tell", "higher for people who want them more"),
        (0.8, "with care", "seen it higher up before"),
        (-0.05, "trustworthy", ""),
    ],
)
def test_an_alarm_of_users_who_usually_see_a_result_elsewhere(value: float, word: str, why: str) -> None:
    alarm = Finding("usual position by user", "warning", "Found.", value, 1e-9)
    verdict = judge(SHARP, replace(GOOD, findings=(*FINE, alarm)))
    assert verdict.word == word
    assert why in verdict.why


def test_users_may_tell_what_rankers_that_are_not_named_cannot() -> None:
    by_user = replace(FINE[3], name="usual position by user")
    assert judge(SHARP, replace(GOOD, findings=(*FINE[:3], by_user))).word == "trustworthy"
    blind = replace(by_user, value=0.2)
    assert judge(SHARP, replace(GOOD, findings=(*FINE[:3], blind))).word == "with care"


def test_a_usual_position_that_matters_too_little_is_no_bias() -> None:
    small = swap(FINE, "usual position", status="note", value=0.05, p_value=1e-9)
    assert judge(SHARP, replace(GOOD, findings=small)).word == "trustworthy"


def test_rankers_that_show_a_result_at_one_position_need_no_test() -> None:
    still = swap(FINE, "usual position", value=None, p_value=None)
    assert judge(SHARP, replace(GOOD, findings=still)).word == "trustworthy"


def test_drift_does_not_touch_exposures_by_design() -> None:
    for name in ("drift with position", "usual position"):
        found = swap(FINE, name, status="warning", p_value=1e-9)
        assert judge(SHARP, replace(GOOD, findings=found, realised=False)).word == "trustworthy"
    assert judge(SHARP, replace(GOOD, findings=FINE[:1] + FINE[2:], realised=False)).word == "trustworthy"


def test_the_worst_reason_comes_first_and_none_is_lost() -> None:
    alarm = swap(FINE, "clicks above", status="warning", p_value=1e-9, value=0.5)
    verdict = judge(curve({1: 1, 2: 1.2, 3: 3}), replace(GOOD, findings=alarm, same_data=False))
    assert verdict.word == "cannot tell"
    assert [reason.word for reason in verdict.also] == ["with care", "with care"]
    assert "served" in verdict.why


@pytest.mark.parametrize(
    ("factor", "told"),
    [
        (2.5, "At position 3 how often a click leads to bought is known to a factor of up to 2.5 only."),
        (12, "so the log cannot tell how often a click there leads to bought."),
    ],
)
def test_a_model_of_purchases_is_not_judged_as_one_of_examination(factor: float, told: str) -> None:
    verdict = judge(replace(curve({1: 1, 2: 1.2, 3: factor}), info={"outcome": "bought"}), GOOD)
    assert told in verdict.why


@pytest.mark.parametrize(
    ("devices", "told"),
    [("abc", ", and 1 more kind of queries is like that."), ("abcd", ", and 2 more kinds of queries are like that.")],
)
def test_one_more_kind_of_queries_is_no_plural(devices: str, told: str) -> None:
    encoder = ContextEncoder.fit({"device": ["a", *devices]})
    n = len(devices) + 1  # and what training never had
    shape = make_curve("linear", (1, 2), 1, n)
    support = Support((ColumnSupport(((1, 2), *[(1,)] * (len(devices) - 1))),), (None, 50.0))
    params = {"b": np.log([0.5]), "W": np.zeros((n, 1))}
    flat = np.zeros(n + 1)
    flat[-1] = np.log(0.5)
    draws = flat + np.outer([-1.0, 0.0, 1.0], np.full(len(flat), 0.001))
    model = Propensities(shape, params, encoder, (1, 2), draws, "sandwich", support=support)
    assert judge(model, GOOD).why.endswith(told)


def test_kinds_of_queries_that_are_known_worse_are_named() -> None:
    encoder = ContextEncoder.fit({"device": ["desk", "desk", "phone"]})
    shape = make_curve("linear", (1, 2), 1, 3)
    params = {"b": np.log([0.5]), "W": np.zeros((3, 1))}
    flat = np.zeros(4)
    flat[3] = np.log(0.5)
    for sd, linked, why in (
        (1.5, (1, 2), "For queries with device phone, the interval at position 2 spans a factor of 10"),
        (0.5, (1, 2), "For queries with device phone, examination at position 2 is known to a factor of up to 7"),
        (0.01, (1,), "For queries with device phone, the number at position 2 is not supported (device: "),
        (0.01, (1, 2), None),
    ):
        draws = flat + np.outer([-1.0, 0.0, 1.0], [0.01, sd, 0.0, 0.01])
        support = Support((ColumnSupport(((1, 2), linked)),), (None, 50.0))
        model = Propensities(shape, params, encoder, (1, 2), draws, "sandwich", support=support)
        verdict = judge(model, GOOD)
        assert verdict.word == ("trustworthy" if why is None else "with care")
        assert why is None or verdict.why.startswith(why)


def test_forged_checks_are_left_out() -> None:
    for checks in ("no", [{"surprise": 1}], [{"name": "a", "status": "odd", "sentence": "b"}]):
        assert kept_checks(replace(SHARP, info={"checks": checks})) == ()
    odd = [{"name": "clicks above", "status": "warning", "sentence": "b", "value": "much", "p_value": 0.0}]
    assert judge(replace(SHARP, info={"checks": odd})).word == "cannot tell"


@pytest.mark.parametrize(("pages", "queries", "word"), [(60, 20, "cannot tell"), (800, 1, "cannot tell")])
@pytest.mark.filterwarnings("ignore")
def test_thin_logs_are_not_trusted(pages: int, queries: int, word: str) -> None:
    log = read_log(simulate_ab_log(pages=pages, queries=queries, seed=1)[0], context=["device"])
    model = CPBM(curve="linear").fit(harvest(log)).propensities_
    assert judge(model, gather_evidence(log, model).grounds).word == word


def test_the_curve_is_fitted_with_other_penalties() -> None:
    log = read_log(simulate_ab_log(pages=1_500, queries=100, seed=2)[0], context=["device"])
    interventions = harvest(log)
    pooled = PBM().fit(interventions).propensities_
    weaker, stronger = penalty_moves(pooled, interventions)
    assert (weaker.factor, stronger.factor) == (0.1, 10.0)
    ridge = CPBM(curve="linear", penalty=1.0).fit(interventions).propensities_
    assert ridge.encoder is not None
    again = CPBM(curve="linear", penalty=10.0).fit(interventions).propensities_
    move = penalty_moves(ridge, interventions)[1]
    typical = {"device": [ridge.encoder.parts[0].levels[0]]}
    np.testing.assert_allclose(move.propensity, again.predict(typical).propensity[0], rtol=1e-6)
    own = ridge.predict(typical)
    half = (np.log(own.upper[0]) - np.log(own.lower[0])) / 2
    shares = np.abs(np.log(move.propensity / own.propensity[0]))[1:] / half[1:]
    assert move.typical == pytest.approx(shares.max())
    assert move.position == own.positions[1:][int(shares.argmax())]
    assert penalty_moves(PBM(intervals="sandwich").fit(interventions).propensities_, interventions) == ()
