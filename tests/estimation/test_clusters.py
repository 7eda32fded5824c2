"""Clusters other than queries: the estimate stays, and error bars know that a user's clicks depend on each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.estimation.comparison import compare_models
from clickharvest.estimation.estimators import CPBM, PBM
from clickharvest.estimation.sample import make_sample
from clickharvest.harvesting.interventions import Interventions
from samples import logs

K, QUERIES, TASTE = 4, 150, 0.7


def simulated(seed: int, users: int = 40, pages: int = 150, taste: float = TASTE) -> Interventions:
    """Every page shows one document of a random query at a random position, p_k = 1 / k times what the user likes of k.

    The tastes of users for positions have mean 1, so that 1 / k is what all users together show.
    """
    random = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), pages)
    query, k = random.integers(QUERIES, size=len(user)), random.integers(K, size=len(user))
    liked = np.exp(taste * random.normal(size=(users, K)) - taste**2 / 2)
    click = random.random(len(user)) < random.uniform(0.1, 0.3, QUERIES)[query] / (k + 1) * liked[user, k]
    place = query * K + k
    rows, row = np.unique(place * (users + 1) + np.where(click, user + 1, 0), return_inverse=True)
    cell = rows // (users + 1)
    return Interventions(
        unit=cell // K,
        query=cell // K,
        position=cell % K + 1,
        exposure=np.bincount(place, minlength=QUERIES * K)[cell].astype(np.float64),
        clicks=np.bincount(row, weights=click).astype(np.int64),
        impressions=np.bincount(row),
        cluster=rows % (users + 1) - 1,
        cluster_kind="user",
    )


def with_device(interventions: Interventions) -> Interventions:
    return replace(interventions, contexts={"device": np.where(interventions.query % 3 == 0, "phone", "desk")})


def test_a_sample_keeps_every_click_and_display() -> None:
    divided = simulated(0)
    whole, parts = (make_sample(i, (1, 2, 3, 4)) for i in (divided.undivided(), divided))
    assert (parts.clustered_by, parts.n_queries, parts.n_clusters) == ("user", whole.n_clusters, 40)
    assert np.array_equal(np.unique(parts.whole), np.unique(whole.unit))
    for name in ("clicks", "impressions"):
        sums = [np.zeros((whole.n_units, K)) for _ in range(2)]
        for total, sample in zip(sums, (whole, parts), strict=True):
            np.add.at(total, (sample.whole, sample.position), getattr(sample, name))
        assert np.array_equal(*sums)
    exposure = np.zeros((whole.n_units, K))
    exposure[whole.unit, whole.position] = whole.exposure
    assert np.array_equal(parts.exposure, exposure[parts.whole, parts.position])
    cells = np.bincount(parts.unit)
    assert np.array_equal(cells, np.bincount(whole.unit)[parts.whole[np.cumsum(cells) - 1]])


@pytest.mark.parametrize(
    "model",
    [
        PBM(),
        PBM(intervals="sandwich"),
        CPBM(curve="power", penalty=1.0, intervals="sandwich"),
        CPBM(curve="linear", intervals=None),
    ],
)
def test_what_clusters_does_not_change_the_estimate(model: Any) -> None:
    divided = with_device(simulated(1))
    contexts = {"device": ["phone"]} if isinstance(model, CPBM) else None
    whole, parts = (model.fit(i).predict(contexts).propensity for i in (divided.undivided(), divided))
    assert parts == pytest.approx(whole, rel=1e-5)


def test_queries_given_as_clusters_are_queries() -> None:
    """Each query named as its own cluster gives the intervals that clustering by query gives."""
    plain = with_device(simulated(2).undivided())
    named = replace(plain, cluster=np.unique(plain.query, return_inverse=True)[1], cluster_kind="need")
    for intervals in ("auto", "sandwich"):
        one, two = (PBM(intervals=intervals).fit(i).predict() for i in (plain, named))  # type: ignore[arg-type]
        # A query without a click counts as a query, in Q / (Q − 1), but not as a cluster of clicks.
        assert two.lower == pytest.approx(one.lower, rel=1e-3)
        assert two.upper == pytest.approx(one.upper, rel=1e-3)


@logs(daily=20, nightly=50)
def test_intervals_by_user_hold_and_those_by_query_do_not(logs: int) -> None:
    """Clicks of a user depend on each other in all queries: 40 users are less than 150 queries let believe."""
    truth = 1 / np.arange(2, K + 1)
    inside = np.zeros((2, logs, K - 1), dtype=bool)
    for seed in range(logs):
        divided = simulated(100 + seed)
        for i, interventions in enumerate((divided.undivided(), divided)):
            found = PBM().fit(interventions).predict()
            inside[i, seed] = (found.lower[0, 1:] <= truth) & (truth <= found.upper[0, 1:])
    by_query, by_user = inside.mean(axis=(1, 2))
    assert by_query < 0.85
    assert 0.9 < by_user < 0.99


def test_a_model_tells_what_clusters() -> None:
    model = PBM().fit(simulated(3)).propensities_
    assert (model.info["clustered_by"], model.info["clusters"], model.info["queries"]) == ("user", 40, QUERIES)
    assert "150 queries, 40 users" in str(model).replace("\n", " ")
    assert "Intervals: clustered, by user," in str(model)
    plain = PBM().fit(simulated(3).undivided()).propensities_
    assert "by user" not in str(plain)
    assert plain.info["clustered_by"] == "query"


@pytest.mark.parametrize("users", [1, 2])
def test_too_few_clusters_give_no_error_bars(users: int) -> None:
    few = simulated(4, users=users, pages=3_000)
    with pytest.warns(HarvestWarning, match=rf"by user, and the clicks are of {users} users?: there are none to give"):
        found = PBM().fit(few).predict()
    assert np.isfinite(found.propensity).all()
    assert np.isnan(found.lower).all()


def test_all_pairs_is_by_query() -> None:
    with pytest.raises(InputError, match="cannot divide them by user"):
        PBM(objective="allpairs").fit(simulated(5))


def test_comparisons_are_by_user() -> None:
    divided = simulated(6)
    model = PBM(intervals=None).fit(simulated(7)).propensities_
    whole, parts = (compare_models({"ours": model}, i) for i in (divided.undivided(), divided))
    assert parts.scores == pytest.approx(whole.scores)
    assert (parts.queries, parts.clustered_by, whole.clustered_by) == (40, "user", "query")
    assert parts.gains[0].lower != pytest.approx(whole.gains[0].lower)
