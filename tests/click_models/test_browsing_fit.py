"""The browsing model against known truths, and where it must come out as the position-based one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

from clickharvest.checks import Evidence, read_displays
from clickharvest.checks.clicks_above import HeldOutGain, held_out_gain
from clickharvest.click_models.browsing import Browsing, browsing_log
from clickharvest.click_models.browsing.estimating import pool_states, state_sample
from clickharvest.click_models.browsing.fitted import number_of, states_of
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation.estimators import PBM
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.interventions import Interventions
from clickharvest.logs.reading import read_log
from clickharvest.model.curves import Constant, Linear

RANKS = 4
GAMMA = {(1, 0): 1.0, (2, 0): 0.5, (2, 1): 0.8, (3, 0): 0.4, (3, 1): 0.2, (3, 2): 0.9, (4, 0): 0.3, (4, 1): 0.1}
GAMMA |= {(4, 2): 0.35, (4, 3): 0.7}
"""A truth that follows no law."""


def simulated(
    pages: int, *, seed: int = 0, queries: int = 60, gamma: Any = GAMMA, context: bool = False, shallow: float = 0.0
) -> pa.Table:
    """A log of four documents a query, in random order, whose users browse; phones look half as often below a click.

    Every other query is read less far down: its users look k^-shallow times as often.
    """
    random = np.random.default_rng(seed)
    query = random.integers(queries, size=pages)
    order = np.argsort(random.random((pages, RANKS)), axis=1)
    relevance = random.uniform(0.1, 0.7, (queries, RANKS))
    phone = random.random(pages) < 0.5
    clicked, last = np.zeros((pages, RANKS), bool), np.zeros(pages, int)
    for k in range(1, RANKS + 1):
        p = np.array([gamma[k, j] for j in range(k)])[last] * np.where(phone & (last > 0) & context, 0.5, 1.0)
        p = p * np.where(query % 2, k**-shallow, 1.0)
        clicked[:, k - 1] = random.random(pages) < p * relevance[query, order[:, k - 1]]
        last[clicked[:, k - 1]] = k
    columns = {
        "page": np.repeat(np.arange(pages), RANKS), "query": np.repeat(query, RANKS), "doc": order.ravel(),
        "position": np.tile(np.arange(1, RANKS + 1), pages), "click": clicked.ravel().astype(int),
    }  # fmt: skip
    return pa.table(columns | {"device": np.repeat(np.where(phone, "phone", "desk"), RANKS)})


def harvested(log: pa.Table, **options: Any) -> Interventions:
    return harvest(browsing_log(read_log(log, **options)), clicked_only=True)


def gain_of(table: pa.Table) -> HeldOutGain:
    log = read_log(table)
    fitted = PBM(intervals=None).fit(harvest(log, clicked_only=True)).propensities_
    gain = held_out_gain(Evidence(read_displays(log), fitted))
    assert gain is not None
    return gain


@pytest.fixture(scope="module")
def interventions() -> Interventions:
    return harvested(simulated(40_000))


def test_a_truth_without_a_law_is_found(interventions: Interventions) -> None:
    model = Browsing().fit(interventions)
    predicted = model.predict()
    rank, last = states_of(predicted.positions)
    truth = np.array([GAMMA[int(k), int(j)] for k, j in zip(rank, last, strict=True)])
    log_error = np.log(predicted.propensity[0] / truth)
    sd = (np.log(predicted.upper[0] / predicted.lower[0]) / 3.92)[1:]
    assert np.abs(log_error).max() < 0.2
    assert np.abs(log_error[1:] / sd).max() < 4
    assert (np.abs(log_error[1:]) < 1.96 * sd).mean() >= 0.75
    assert predicted.supported.all()
    below = model.info["click_above"]["next"]
    assert below["lower"] > 1.3  # .8 / .5, .9 / .4 and .7 / .3
    assert model.propensity_of([3, 9], [2, 5]) == pytest.approx(predicted.propensity[0, [5, 9]])


def begun_anew(k: Any, last: Any) -> Any:
    """Users look by 1 / k, and begin anew below a click, .6 of them."""
    return np.where(last > 0, 0.6 / np.maximum(k - last, 1), 1 / k)


def sparse_log(seed: int, *, anew: bool = True, ranks: int = 20, pages: int = 1_500, queries: int = 60) -> pa.Table:
    """Two orders a query of results that few click: most states are met, and never clicked."""
    random = np.random.default_rng(seed)
    query = random.integers(queries, size=pages)
    order = np.argsort(random.random((queries, 2, ranks)), axis=2)[query, random.integers(2, size=pages)]
    relevance = random.beta(1, 9, (queries, ranks))
    clicked, last = np.zeros((pages, ranks), bool), np.zeros(pages, int)
    for k in range(1, ranks + 1):
        clicked[:, k - 1] = random.random(pages) < begun_anew(k, last * anew) * relevance[query, order[:, k - 1]]
        last[clicked[:, k - 1]] = k
    return pa.table({
        "page": np.repeat(np.arange(pages), ranks), "query": np.repeat(query, ranks), "doc": order.ravel(),
        "position": np.tile(np.arange(1, ranks + 1), pages), "click": clicked.ravel().astype(int),
    })  # fmt: skip


def test_states_are_not_chosen_by_their_clicks() -> None:
    """Of 210 states 70 happen to have clicks; laws read off these alone make numbers 1.7 times too high."""
    errors, covered = [], []
    for seed in range(3):
        predicted = Browsing().fit(harvested(sparse_log(seed))).predict()
        told = np.flatnonzero(predicted.supported[0])[1:]
        truth = begun_anew(*states_of(np.array(predicted.positions)[told]))
        errors += np.log(predicted.propensity[0, told] / truth).tolist()
        covered += ((predicted.lower[0, told] < truth) & (truth < predicted.upper[0, told])).tolist()
    assert abs(np.mean(errors)) < 0.2
    assert np.mean(covered) > 0.85


def test_the_anchor_is_a_position_like_any_other() -> None:
    interventions = harvested(sparse_log(0))
    first, other = (
        np.log(Browsing(anchor=k, intervals=None).fit(interventions).predict().propensity[0]) for k in (1, 2)
    )
    none = number_of(np.arange(1, 21), 0) - 1
    assert_allclose((first - first[1])[none], (other - other[1])[none], atol=0.01)


def test_states_that_happened_to_be_clicked_are_no_sign_of_browsing() -> None:
    """By those alone, clicks above would gain .036 per click where users look by position."""
    gains = [gain_of(sparse_log(seed, anew=False)).gain for seed in range(3)]
    assert np.mean(gains) < 0.01


def test_without_clicks_above_it_is_the_position_based_model() -> None:
    """Every page shows one result, but for one without a click."""
    log = simulated(8_000, seed=1)
    clicks = log["click"].to_numpy().reshape(-1, RANKS).sum(axis=1)
    page = np.arange(log.num_rows).reshape(-1, RANKS)
    page[np.flatnonzero(clicks == 0)[0]] = log.num_rows
    alone = log.set_column(0, "page", pa.array(page.ravel()))
    ours = Browsing().fit(harvested(alone))
    theirs = PBM().fit(harvest(read_log(alone), clicked_only=True)).propensities_.predict()
    none = number_of(np.arange(1, RANKS + 1), 0) - 1
    predicted = ours.predict()
    assert_allclose(predicted.propensity[0, none], theirs.propensity[0], rtol=2e-3)
    assert_allclose(predicted.lower[0, none], theirs.lower[0], rtol=5e-3)
    assert ours.info["click_above"] == {"next": None, "further": None}
    assert set(ours.states.leaning) == set(range(1, 11)) - set(none + 1)
    assert not predicted.supported[0, ours.states.leaning[0] - 1]
    assert np.isnan(predicted.lower[0, ours.states.leaning[0] - 1])
    assert "lean on those without a click" in " ".join(str(ours).split())


def test_context_changes_looking_below_a_click() -> None:
    model = Browsing().fit(harvested(simulated(40_000, seed=2, context=True), context=["device"]))
    predicted = model.predict({"device": ["desk", "phone"]}).propensity
    _, last = states_of(model.states.curve.positions)
    ratio = predicted[1] / predicted[0]
    assert_allclose(ratio[last > 0], 0.5, rtol=0.25)
    assert_allclose(ratio[last == 0], 1, rtol=0.15)
    with pytest.raises(InputError, match="depends on context"):
        model.predict()


@pytest.mark.parametrize("curve", [Constant, Linear])
def test_the_slope_of_the_evidence_is_that_of_differences(curve: Any) -> None:
    context = ["device"] if curve is Linear else []
    sample, _, _ = state_sample(harvested(simulated(4_000, seed=3), context=context), 1)
    fit = pool_states(curve(sample.positions, 1, sample.x.shape[1]), sample)
    assert fit.prior is not None
    linear = fit.information @ fit.theta + fit.score
    at = np.log([0.3, 0.25, 0.2, 0.4, 0.1, 0.2, 0.05])
    _, slope = fit.prior.evidence(at, fit.information, linear)
    for i in np.flatnonzero(fit.prior.learned):
        step = 1e-5 * (np.arange(7) == i)
        up, down = (fit.prior.evidence(at + sign * step, fit.information, linear)[0] for sign in (1, -1))
        assert slope[i] == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-4)


def test_users_who_begin_anew_are_likely_whatever_their_curve() -> None:
    """A bump stands at a rank without a click above, and at a distance below one: ranks there deviate by themselves."""
    sample, _, _ = state_sample(harvested(simulated(2_000, seed=3)), 1)
    prior = pool_states(Constant(sample.positions, 1, 0), sample).prior
    assert prior is not None
    curve = np.log([1, 0.4, 0.2, 0.9])
    rank, last = states_of(np.arange(2, 11))
    anew = np.where(last > 0, np.log(0.6) + curve[rank - last - 1], curve[rank - 1])
    spread = np.array([1.0, 1.0, 1.0, 0.01, 1.0, 1.0, 1.0])
    far, near = (anew @ prior.matrix(np.where(np.arange(7) == 1, own, spread)) @ anew for own in (0.01, 1.0))
    assert near < 10 < far / 10


def test_held_out_queries_tell_who_browses() -> None:
    gain = gain_of(simulated(20_000))
    assert gain.is_clear
    assert "explain clicks better" in gain.sentence
    flat = {(k, j): 1 / k for k, j in GAMMA}
    none = gain_of(simulated(6_000, seed=4, gamma=flat))
    assert not none.explains
    assert abs(none.gain) < 0.005
    assert "do not clearly explain" in none.sentence


def test_a_click_that_ends_the_page_leaves_fewer_clicks_below_and_the_gain_is_clear() -> None:
    stops = {(k, j): (0.3 if j else 1.0) / k for k, j in GAMMA}
    gain = gain_of(simulated(20_000, gamma=stops))
    assert gain.is_clear
    assert gain.times == pytest.approx(0.3, abs=0.05)


def test_queries_that_are_read_to_different_depths_do_not_browse() -> None:
    """Who clicked above is of a query that is read far down; at one rank, of one query, that tells nothing."""
    flat = {(k, j): 1 / k for k, j in GAMMA}
    within = gain_of(simulated(20_000, seed=7, gamma=flat, shallow=2.0))
    assert not within.explains
    assert abs(within.gain) < 1e-3


def test_one_query_has_no_error_bars() -> None:
    one = harvested(simulated(2_000, seed=5, queries=1))
    with pytest.warns(match="there are none to give with fewer than 3"):
        model = Browsing().fit(one)
    assert np.isnan(model.predict().lower).all()


def test_pages_with_a_click_on_everything_or_on_nothing() -> None:
    """The last click is right above, or there is none, where nothing but the top was clicked ever."""
    log = simulated(3_000, seed=6)
    all_of_it = np.repeat(np.arange(3_000) % 2, RANKS)
    model = Browsing().fit(harvested(log.set_column(log.column_names.index("click"), "click", pa.array(all_of_it))))
    predicted = model.predict()
    met = number_of(np.arange(2, RANKS + 1), np.arange(1, RANKS)) - 1
    assert_allclose(predicted.propensity[0, met], 2, rtol=0.1)
    assert set(model.states.leaning) == set(range(2, 11)) - set(met + 1)


def test_a_state_that_one_query_links_has_an_interval_that_knows_it() -> None:
    """Only query 0 was ever clicked at 4 below a click at 1; its users look there thrice as often as others would."""
    whole = harvested(simulated(12_000, seed=7))
    state = int(number_of(4, 1))
    kept = whole.take((whole.position != state) | (whole.query == 0))
    predicted = Browsing().fit(kept).predict()
    everyone = Browsing().fit(whole).predict()
    width, usual = (np.log(p.upper[0, state - 1] / p.lower[0, state - 1]) for p in (predicted, everyone))
    assert width > 1.5 * usual


def test_nothing_linked_is_said_so() -> None:
    rows = {"page": [1, 1, 2, 2], "query": ["q"] * 4, "doc": ["a", "b", "b", "a"], "position": [1, 2, 1, 2]}
    with pytest.raises(NotIdentifiedError, match="no browsing state is linked to position 1 with no click above"):
        Browsing().fit(harvested(pa.table(rows | {"click": [1, 0, 0, 0]})))


def test_nonsense_is_refused(interventions: Interventions) -> None:
    with pytest.raises(InputError, match="no intervals 'bootstrap' of a browsing model"):
        Browsing(intervals="bootstrap").fit(interventions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Browsing(intervals=None).fit(interventions)
    with pytest.raises(InputError, match="a last click is at or below its result"):
        model.propensity_of([2], [2])
