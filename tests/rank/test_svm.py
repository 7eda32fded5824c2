"""Propensity SVM-Rank: sums over pairs against explicit ones, optima against a brute-force dual solver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from sklearn.base import clone
from sklearn.svm import LinearSVC

from clickharvest.errors import ConvergenceWarning, InputError, NotIdentifiedError
from clickharvest.rank import (
    PropensitySVMRank,
    PropensitySVMRankCV,
    RankingData,
    SVMRank,
    ranking_data,
)
from clickharvest.rank import hinge as hinge_module
from clickharvest.rank import pairs as pairs_module
from clickharvest.rank import svm as svm_module
from clickharvest.rank.features import Features
from clickharvest.rank.hinge import PairwiseHinge, minimise_hinge
from clickharvest.rank.svm import click_hinge, grade_hinge

Array = NDArray[np.float64]
Pair = tuple[int, int, float]


def random_data(
    seed: int, *, lists: int = 12, most: int = 7, features: int = 4, share: float = 0.4, **more: Any
) -> RankingData:
    """Lists of 1 to `most` documents, some clicked several times with different propensities, some never."""
    random = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(random.integers(1, most + 1, lists))])
    x = random.normal(size=(starts[-1], features))
    rows = np.flatnonzero(random.random(starts[-1]) < share)
    clicked = np.concatenate([rows, random.choice(rows, len(rows) // 2)])
    propensity = random.choice([1.0, 0.5, 0.2, 0.05, 0.001], len(clicked))
    return ranking_data(x, starts, clicked, propensity, clicks=random.integers(1, 4, len(clicked)), **more)


def click_pairs(data: RankingData, C: float, clip: float) -> Iterator[Pair]:
    """Spell the definition out: pairs (i, j, cost) of every click record and every other document of its list."""
    for i, p, clicks in zip(data.clicked, data.propensity, data.clicks, strict=True):
        k = int(np.searchsorted(data.starts, i, side="right")) - 1
        for j in range(data.starts[k], data.starts[k + 1]):
            if j != i:
                yield int(i), j, C / data.clicks.sum() * clicks / max(p, clip)


def objective(w: Array, x: Array, pairs: list[Pair]) -> float:
    return 0.5 * float(w @ w) + sum(cost * max(0.0, 1 - float(w @ (x[i] - x[j]))) for i, j, cost in pairs)


def brute_force(x: Array, pairs: list[Pair]) -> float:
    """Return the least objective by an established solver that is given every pair; half of them mirrored."""
    sign = np.where(np.arange(len(pairs)) % 2, 1, -1)
    differences = np.array([x[i] - x[j] for i, j, _ in pairs]) * sign[:, None]
    costs = np.array([cost for *_, cost in pairs])
    svm = LinearSVC(loss="hinge", fit_intercept=False, C=1.0, tol=1e-10, max_iter=5_000_000, random_state=0)
    return objective(svm.fit(differences, sign, sample_weight=costs).coef_[0], x, pairs)


@pytest.mark.parametrize("width", [4.0, 0.3, 0.03])
@pytest.mark.parametrize("kind", ["clicks", "grades"])
@pytest.mark.parametrize("pairs_at_once", [1, 1_000_000])
def test_sums_are_those_of_the_pairs(
    width: float, kind: str, pairs_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs_module, "PAIRS_AT_ONCE", pairs_at_once)
    random = np.random.default_rng(1)
    data = random_data(2, lists=120, most=9)
    n = data.features.shape[0]
    grades = random.integers(0, 4, n)
    hinge = click_hinge(data, 3.0, 0.01) if kind == "clicks" else grade_hinge(grades, data.starts, n, 3.0)
    list_of = np.repeat(np.arange(len(data)), np.diff(data.starts))
    rivals = (list_of[:, None] == list_of) & ~np.eye(n, dtype=bool)
    if kind == "grades":
        rivals &= grades[:, None] > grades
    i, j = np.nonzero(rivals & (hinge.costs > 0)[:, None])
    c = hinge.costs[i]
    scores = random.normal(100, 0.6, n)
    u = 1 - scores[i] + scores[j]
    alpha = np.clip(u / width, 0, 1)
    loss = hinge.loss(scores, width)
    assert_allclose(loss.exact, np.sum(c * np.maximum(u, 0)))
    assert_allclose(loss.smooth, np.sum(c * (alpha * u - width / 2 * alpha**2)))
    assert_allclose(loss.excess, np.sum(c * (np.maximum(u, 0) - alpha * u)), atol=1e-9)
    assert_allclose(loss.gradient, np.bincount(j, c * alpha, n) - np.bincount(i, c * alpha, n), atol=1e-9)


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
@pytest.mark.parametrize(("seed", "clip"), [(0, 0.01), (1, 0.3), (2, 0.0)])
def test_optimum_equals_brute_force(C: float, seed: int, clip: float) -> None:
    data = random_data(seed)
    x, pairs = np.asarray(data.features.matrix), list(click_pairs(data, C, clip))
    least = brute_force(x, pairs)
    ranker = PropensitySVMRank(C=C, clip=clip).fit(data)
    assert_allclose(objective(ranker.coef_, x, pairs), least, rtol=1e-4)
    assert_allclose(ranker.objective_, objective(ranker.coef_, x, pairs), rtol=1e-9)
    assert ranker.gap_ <= 1.01e-4
    assert ranker.objective_ / (1 + ranker.gap_) <= least * (1 + 1e-12), "the certificate must be a lower bound"


def test_the_gap_shrinks_as_asked() -> None:
    data = random_data(5, lists=40)
    loose, tight = (PropensitySVMRank(C=10, tol=tol).fit(data) for tol in (1e-2, 1e-6))
    assert tight.gap_ <= 1.01e-6 < loose.gap_ <= 1.1e-2
    assert loose.objective_ / (1 + loose.gap_) <= tight.objective_ <= loose.objective_


def test_grades_equal_brute_force() -> None:
    random = np.random.default_rng(3)
    starts = np.array([0, 6, 7, 12, 18])
    x, grades = random.normal(size=(18, 3)), random.integers(0, 4, 18)
    list_of = np.repeat(np.arange(4), np.diff(starts))
    better = [(i, j) for i in range(18) for j in range(18) if list_of[i] == list_of[j] and grades[i] > grades[j]]
    n = len({i for i, _ in better})
    pairs = [(i, j, 2.0 / n) for i, j in better]
    ranker = SVMRank(C=2.0).fit(x, grades, starts)
    assert_allclose(objective(ranker.coef_, x, pairs), brute_force(x, pairs), rtol=1e-4)


def test_pages_of_one_query_may_share_a_list() -> None:
    data = random_data(7, lists=6)
    n_docs, records = data.features.shape[0], len(data.clicked)
    one_by_one = ranking_data(
        np.tile(np.asarray(data.features.matrix), (records, 1)),
        np.concatenate([[0], (data.starts[1:] + n_docs * np.arange(records)[:, None]).ravel()]),
        data.clicked + n_docs * np.arange(records),
        data.propensity,
        clicks=data.clicks,
    )
    together, apart = (PropensitySVMRank(tol=1e-6).fit(each) for each in (data, one_by_one))
    assert_allclose(apart.objective_, together.objective_, rtol=2e-6)
    assert_allclose(apart.coef_, together.coef_, atol=5e-3)


@pytest.mark.parametrize("kind", ["single", "csr", "coo"])
def test_single_precision_and_sparse_features(kind: str) -> None:
    data = random_data(8, lists=30)
    x = np.round(np.asarray(data.features.matrix) * (np.abs(data.features.matrix) > 0.7), 2)
    given: Any = {"single": x.astype(np.float32), "csr": csr_array(x), "coo": coo_array(x)}[kind]
    wanted, found = (
        PropensitySVMRank(C=5).fit(ranking_data(each, data.starts, data.clicked, data.propensity))
        for each in (x, given)
    )
    assert_allclose(found.objective_, wanted.objective_, rtol=2e-4)
    assert_allclose(found.predict(given), x @ found.coef_, rtol=1e-5, atol=1e-5)


def test_a_start_on_an_eighth_of_the_lists_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_data(9, lists=600, features=6)
    monkeypatch.setattr(hinge_module, "FEW", 10_000)
    plain = PropensitySVMRank(C=3, tol=1e-5).fit(data)
    parts = []

    def thin(hinge: PairwiseHinge) -> Any:
        part, rows = original(hinge)
        parts.append(part)
        assert_allclose(part.costs.sum(), hinge.costs.sum(), rtol=0.3)
        return part, rows

    original = PairwiseHinge.thin
    monkeypatch.setattr(hinge_module, "FEW", 300)
    monkeypatch.setattr(PairwiseHinge, "thin", thin)
    thinned = PropensitySVMRank(C=3, tol=1e-5).fit(data)
    assert [len(part.starts) - 1 for part in parts] == [75]
    assert_allclose(thinned.objective_, plain.objective_, rtol=2e-5)


def test_no_more_steps_are_taken_than_allowed() -> None:
    x, hinge = Features.of([[1.0], [0.0]]), PairwiseHinge(np.array([0.3, 0.0]), np.array([0, 2]))
    least = 0.3**2 / 2 + 0.3 * 0.7
    for steps in range(1, 6):
        solution = minimise_hinge(x, hinge, tol=1e-12, max_steps=steps)
        assert solution.steps <= steps
        assert solution.objective == pytest.approx(0.5 * solution.w[0] ** 2 + 0.3 * max(0.0, 1 - solution.w[0]))
        assert solution.objective - solution.gap <= least + 1e-12 <= solution.objective + 2e-12


def test_weights_undo_position_bias() -> None:
    """The logger shows good documents low: counted at face value clicks teach its order, weighted the true one."""
    random = np.random.default_rng(0)
    lists, size = 3_000, 6
    x = random.normal(size=(lists, size, 2))
    relevance = 1 / (1 + np.exp(-2 * x[:, :, 0]))
    rank = np.argsort(np.argsort(x[:, :, 0] + 1.5 * x[:, :, 1], axis=1), axis=1)
    propensity = (1.0 + rank) ** -1.5
    clicked = np.flatnonzero(random.random((lists, size)) < propensity * relevance)
    rows, starts = x.reshape(-1, 2), np.arange(lists + 1) * size
    naive = PropensitySVMRank().fit(ranking_data(rows, starts, clicked)).coef_
    fair = PropensitySVMRank().fit(ranking_data(rows, starts, clicked, propensity.ravel()[clicked])).coef_
    assert abs(fair[1]) < 0.15 * fair[0]
    assert abs(naive[1]) > 0.5 * abs(naive[0])


def test_scikit_learn_manners() -> None:
    ranker = PropensitySVMRank(C=3.0, clip=0.1)
    assert repr(ranker) == "PropensitySVMRank(C=3.0, clip=0.1)"
    data = random_data(0)
    ranker.fit(data)
    copy = clone(ranker)
    assert copy.get_params() == ranker.get_params()
    assert not hasattr(copy, "coef_")
    assert_allclose(copy.fit(data).coef_, ranker.coef_)
    assert copy.set_params(C=0.5).C == 0.5
    assert clone(PropensitySVMRankCV(costs=(1.0,), folds=3)).folds == 3
    with pytest.raises(InputError, match="no parameter 'D'"):
        ranker.set_params(D=1)
    with pytest.raises(InputError, match="not fitted"):
        clone(ranker).predict([[1.0] * 4])
    with pytest.raises(InputError, match="3 features: the ranker knows 4"):
        ranker.predict([[1.0] * 3])


def test_too_few_steps_warn() -> None:
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        PropensitySVMRank(C=10, tol=1e-8, max_iter=2).fit(random_data(4))


@pytest.mark.parametrize("params", [{"C": 0.0}, {"C": np.nan}, {"clip": -1.0}])
def test_costs_that_make_no_sense(params: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected"):
        PropensitySVMRank(**params).fit(random_data(0))


def test_nothing_to_learn_from() -> None:
    with pytest.raises(NotIdentifiedError, match="shares its list"):
        PropensitySVMRank().fit(ranking_data([[1.0], [2.0]], [0, 1, 2], [0, 1]))
    with pytest.raises(NotIdentifiedError, match="two grades"):
        SVMRank().fit([[1.0], [2.0]], [1, 1], [0, 2])
    with pytest.raises(InputError, match="a grade for each document"):
        SVMRank().fit([[1.0], [2.0]], [1], [0, 2])


@pytest.mark.parametrize("starts", [[0, 1], [1, 2], [0], [0, 3]])
def test_starts_that_do_not_hold_all_graded_documents(starts: list[int]) -> None:
    with pytest.raises(InputError, match="starts from 0 to their number"):
        SVMRank().fit([[1.0], [2.0]], [1, 0], starts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": [["a"], ["b"], ["c"]]}, "not numbers"),
        ({"features": [1.0, 2.0, 3.0]}, "1 dimensions"),
        ({"features": [[1.0], [np.inf], [0.0]]}, "infinite values"),
        ({"features": [[np.nan], [-np.inf], [0.0]]}, "infinite values"),
        ({"starts": [0, 2]}, "rise from 0"),
        ({"starts": [0, 2.5, 3]}, "whole numbers"),
        ({"clicked": [3]}, "rows from 0 to 2"),
        ({"propensity": [0.0]}, "1 propensity not above 0"),
        ({"propensity": [np.nan]}, "1 missing or infinite value: expected finite"),
        ({"propensity": [1.0, 1.0]}, "as many as clicked"),
        ({"clicks": [-1]}, "negative"),
        ({"query": ["a"]}, "each of the 2 lists"),
        ({"impressions": [-1, 1]}, "negative"),
    ],
)
def test_data_that_make_no_sense(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"features": [[1.0], [2.0], [3.0]], "starts": [0, 2, 3], "clicked": [0]}
    with pytest.raises(InputError, match=message):
        ranking_data(**given | change)


def memorable(lists_per_query: int) -> RankingData:
    """Queries whose clicked document only they know: a feature of its own, and nothing that other queries share."""
    queries, size = 40, 4
    random = np.random.default_rng(0)
    clicked = random.integers(0, size, queries)
    block = np.zeros((queries, size, queries * size))
    block[np.arange(queries)[:, None], np.arange(size), np.arange(queries * size).reshape(queries, size)] = 1.0
    lists = np.repeat(np.arange(queries), lists_per_query)
    starts = np.arange(len(lists) + 1) * size
    return ranking_data(block[lists].reshape(-1, queries * size), starts, starts[:-1] + clicked[lists], query=lists)


def test_folds_are_split_by_query() -> None:
    """Knowing the other lists of a query would put its document first; by query, it is any of four."""
    ranker = PropensitySVMRankCV(costs=[1.0, 10.0], clips=[0.1], folds=4).fit(memorable(5))
    assert all(1.9 < candidate.rank < 3.1 for candidate in ranker.candidates_)
    assert_allclose(ranker.predict(np.eye(160)).reshape(40, 4).argmax(axis=1), memorable(1).clicked % 4)


def test_cross_validation_judges_by_held_out_clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every candidate's rank is the SNIPS estimate of fits that did not see the query."""
    random = np.random.default_rng(1)
    lists, size, folds = 45, 6, 3
    x = random.normal(size=(lists * size, 3))
    starts = np.arange(lists + 1) * size
    clicked = (x[:, 0] + random.gumbel(size=len(x))).reshape(lists, size).argmax(axis=1) + starts[:-1]
    propensity = random.choice([1.0, 0.3, 0.05], lists)
    monkeypatch.setattr(svm_module, "SEARCH_TOL", 1e-7)
    ticks: list[float] = []
    ranker = PropensitySVMRankCV(
        costs=[3.0, 0.01], clips=[0.3, 0.01], folds=folds, seed=5, progress=lambda _: nullcontext(ticks.append)
    ).fit(ranking_data(x, starts, clicked, propensity))
    fold = np.random.default_rng(5).permutation(np.arange(lists) % folds)
    for candidate in ranker.candidates_:
        rank = np.zeros(lists)
        for k in range(folds):
            seen = np.flatnonzero(fold != k)
            docs = (starts[seen][:, None] + np.arange(size)).ravel()
            own = clicked[seen] - starts[seen] + np.arange(len(seen)) * size
            part = ranking_data(x[docs], np.arange(len(seen) + 1) * size, own, propensity[seen])
            scores = PropensitySVMRank(C=candidate.C, clip=candidate.clip, tol=1e-7).fit(part).predict(x)
            higher = scores.reshape(lists, size) >= scores[clicked][:, None]
            rank = np.where(fold == k, higher.sum(axis=1), rank)
        weights = 1 / np.maximum(propensity, 0.01)
        assert_allclose(candidate.rank, (weights @ rank) / weights.sum(), rtol=0.01)
    best = min(ranker.candidates_, key=lambda candidate: candidate.rank)
    assert [candidate.chosen for candidate in ranker.candidates_] == [one is best for one in ranker.candidates_]
    assert (ranker.C_, ranker.clip_) == (best.C, best.clip)
    assert len(ticks) == 4 * folds
    assert ticks == sorted(ticks)
    assert ticks[-1] == 1.0


def test_held_out_clicks_are_judged_with_the_clip_asked_for() -> None:
    """Clipped at 1 all clicks count alike: the rank is their plain mean. By default the smallest clip judges."""
    random = np.random.default_rng(2)
    x = random.normal(size=(240, 3))
    starts = np.arange(61) * 4
    clicked = (x[:, 0] + random.gumbel(size=240)).reshape(60, 4).argmax(axis=1) + starts[:-1]
    data = ranking_data(x, starts, clicked, np.where(x[clicked, 0] > 0, 1.0, 0.02))
    options: dict[str, Any] = {"costs": [1.0], "clips": [0.01, 0.3], "folds": 3}
    ranks = {
        clip: [one.rank for one in PropensitySVMRankCV(**options, evaluation_clip=clip).fit(data).candidates_]
        for clip in (None, 0.01, 1.0)
    }
    assert ranks[None] == ranks[0.01]
    assert [rank * 60 for rank in ranks[1.0]] == pytest.approx([round(rank * 60) for rank in ranks[1.0]])
    assert all(abs(one - other) > 0.1 for one, other in zip(ranks[1.0], ranks[0.01], strict=True))


def test_folds_count_queries_with_a_click() -> None:
    """Three of eight queries were clicked: three folds are possible, each with one of them, and four are not."""
    random = np.random.default_rng(0)
    data = ranking_data(random.normal(size=(24, 2)), np.arange(9) * 3, [4, 10, 22])
    ranker = PropensitySVMRankCV(costs=[1.0, 2.0], clips=[0.1], folds=3).fit(data)
    assert all(1 <= candidate.rank <= 3 for candidate in ranker.candidates_)
    with pytest.raises(InputError, match="4 folds of 3 queries with a click"):
        PropensitySVMRankCV(costs=[1.0, 2.0], clips=[0.1], folds=4).fit(data)


def test_cross_validation_refuses() -> None:
    data = random_data(0)
    with pytest.raises(InputError, match="folds of"):
        PropensitySVMRankCV(folds=50).fit(data)
    with pytest.raises(InputError, match="choose from"):
        PropensitySVMRankCV(costs=[]).fit(data)
    only = PropensitySVMRankCV(costs=[2.0], clips=[0.1]).fit(data)
    assert (only.C_, only.candidates_) == (2.0, [])
