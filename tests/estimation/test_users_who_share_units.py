"""Clusters that share units: users who keep their arm of an A/B test, and whose clicks are far from evenly spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickharvest.estimation.estimators import CPBM, PBM
from clickharvest.estimation.pooling import Pooled, pool
from clickharvest.estimation.query_random_effects import clustered_covariance
from clickharvest.estimation.sample import make_sample
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.curves import Constant, Linear
from samples import logs

K = 5
POSITIONS = tuple(range(1, K + 1))


def a_b_test(seed: int, pages: np.ndarray, queries: int = 20, arms: int = 2, by: str = "user") -> Interventions:
    """Every user has one of two rankings of a query's five documents, p_k = 1 / k times what the user likes of k.

    Tastes are from 0 to 2, so that 1 / k is what all users together show.
    """
    random = np.random.default_rng(seed)
    users = len(pages)
    ranks = random.permuted(np.tile(np.arange(K), (arms, queries, 1)), axis=2)
    user = np.repeat(np.arange(users), pages)
    query = random.integers(queries, size=len(user))
    position = ranks[user % arms, query]
    likes = random.uniform(0, 2, (users, K))[user[:, None], position]
    click = random.random(position.shape) < random.uniform(0.05, 0.3, (queries, K))[query] * likes / (position + 1)
    unit = np.ravel(query[:, None] * K + np.arange(K))
    cell = unit * K + position.ravel()
    whose = np.where(click.ravel(), np.repeat(user, K) if by == "user" else unit, -1)
    moved = np.bincount(np.unique(cell) // K, minlength=queries * K)[unit] > 1
    rows, row = np.unique(np.stack([cell, whose], axis=1)[moved], axis=0, return_inverse=True)
    shown = np.bincount(row.ravel())
    return Interventions(
        unit=rows[:, 0] // K,
        query=rows[:, 0] // K // K,
        position=rows[:, 0] % K + 1,
        exposure=np.bincount(cell)[rows[:, 0]].astype(np.float64),
        clicks=np.where(rows[:, 1] >= 0, shown, 0),
        impressions=shown,
        cluster=rows[:, 1],
        cluster_kind=by,
    )


def zipf(users: int, pages: int) -> np.ndarray:
    share = 1 / np.arange(1, users + 1)
    return 1 + (pages * share / share.sum()).astype(int)


def fitted(interventions: Interventions) -> Pooled:
    sample = make_sample(interventions, POSITIONS)
    return pool(Constant(POSITIONS, 1, 0), sample)


@pytest.mark.parametrize("users", [4, 40, 400])
def test_never_narrower_than_the_models_own(users: int) -> None:
    interventions = a_b_test(users, zipf(users, 3_000))
    levels = replace(interventions, contexts={"half": interventions.query % 2})
    sample = make_sample(interventions, POSITIONS)
    rows = replace(sample, x=np.array([[0.0], [1.0]]), context=sample.query % 2)
    for fit in (pool(Constant(POSITIONS, 1, 0), sample), pool(Linear(POSITIONS, 1, 1), rows)):
        found = clustered_covariance(fit)
        assert fit.shares.shared
        assert found.overdispersion == 1
        own = np.linalg.inv(fit.information + fit.precision)
        assert np.linalg.eigvalsh(found.covariance - own).min() > -1e-8
    assert np.isfinite(CPBM(curve="power", penalty=1.0).fit(levels).predict({"half": [0, 1]}).upper).all()


def test_names_of_users_do_not_matter() -> None:
    interventions = a_b_test(2, zipf(30, 3_000))
    assert interventions.cluster is not None
    names = np.append(np.random.default_rng(0).permutation(30), -1)
    renamed = replace(interventions, cluster=names[interventions.cluster])
    found, again = (clustered_covariance(fitted(one)).covariance for one in (interventions, renamed))
    assert again == pytest.approx(found)


def test_positions_on_few_users_are_told() -> None:
    """Six users of Zipf's sizes are as good as four; of 300 alike nothing is said."""
    few, many = (str(PBM().fit(a_b_test(6, pages))) for pages in (zipf(6, 8_000), np.full(300, 30)))
    assert "users: with fewer than 5, what they have in common is mistaken for the position." in " ".join(few.split())
    assert "fewer than 5" not in many


def test_documents_have_their_units_to_themselves() -> None:
    assert not fitted(a_b_test(3, np.full(100, 20), by="doc")).shares.shared
    assert not fitted(a_b_test(3, np.full(100, 20)).undivided()).shares.shared


@logs(daily=12, nightly=60)
def test_intervals_hold_where_few_users_have_most_of_the_clicks(logs: int) -> None:
    truth = 1 / np.arange(2, K + 1)
    inside = np.zeros((logs, K - 1), dtype=bool)
    for seed in range(logs):
        found = PBM().fit(a_b_test(100 + seed, zipf(200, 6_000))).predict()
        inside[seed] = (found.lower[0, 1:] <= truth) & (truth <= found.upper[0, 1:])
    assert 0.9 < inside.mean() < 0.99


def test_pages_are_nearly_as_good_as_independent_clicks() -> None:
    """Of two results on a page one stands higher: residuals of its units differ by that, and not by overdispersion."""
    fit = fitted(a_b_test(5, np.ones(4_000, dtype=int), queries=1, arms=6))
    own = np.linalg.inv(fit.information + fit.precision)
    assert np.diag(clustered_covariance(fit).covariance) / np.diag(own) == pytest.approx(np.ones(K - 1), abs=0.2)
