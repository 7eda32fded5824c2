"""Rankers that know more than the log tells are seen, and so are positions where no result stood; chance is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.diagnosis import arm_scores
from clickharvest.diagnosis.diagnosing import compare_rankers
from clickharvest.diagnosis.findings import Finding
from clickharvest.diagnosis.laws import two_sided
from clickharvest.diagnosis.usual_position import usual_position_by_user
from clickharvest.harvesting.interventions import UnitKind
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log

ENGINE = DuckDBEngine()
QUERIES, DOCS, K = 20, 7, 5
UNITS: tuple[UnitKind, ...] = ("context", "query")


def pages(
    *,
    personal: float = 0.0,
    shuffled: float = 0.0,
    noise: float = 0.3,
    layout: float = 0.0,
    each: int = 1,
    devices: bool = False,
    n: int = 4_000,
    seed: int = 0,
) -> dict[str, Any]:
    """Return a log of two rankers whose results move from page to page, and by what users, or devices, like."""
    random = np.random.default_rng(seed)
    query, arm = random.integers(QUERIES, size=n), random.integers(2, size=n // each).repeat(each)
    quality, taste = random.beta(1, 2, (QUERIES, DOCS)), random.normal(0, 0.3, (2, QUERIES, DOCS))
    device = np.arange(n) % 2
    likes = random.normal(0, 0.7, (n // each, QUERIES, DOCS)).repeat(each, axis=0)[
        device if devices else np.arange(n), query
    ]
    score = quality[query] + taste[arm, query] + personal * likes + random.normal(0, noise, (n, DOCS))
    doc = np.argsort(-score, axis=1)[:, :K]
    steep = 0.8 + layout * arm[:, None]
    chance = (
        0.5 * quality[query[:, None], doc] * np.exp(np.take_along_axis(likes, doc, 1)) * np.arange(1, K + 1) ** -steep
    )
    position = np.tile(np.arange(1, K + 1), (n, 1))
    moved = np.where(random.random((n, 1)) < shuffled, random.permuted(position, axis=1), position)
    columns = {"page": np.arange(n), "user": np.arange(n) // each, "query": query, "ranker": np.array(["a", "b"])[arm]}
    columns["device"] = np.array(["desk", "phone"])[device]
    rows: dict[str, Any] = {name: np.repeat(column, K) for name, column in columns.items()}
    rows |= {"doc": (doc + DOCS * query[:, None]).ravel(), "position": moved.ravel()}
    return rows | {"click": (random.random(chance.shape) < chance).ravel().astype(int)}


def found(rows: dict[str, Any], **roles: Any) -> Finding:
    return usual(read_log(pa.table(rows), engine=ENGINE, validate=False, **({"user": ""} | roles)))


def usual(log: ClickLog) -> Finding:
    (finding,) = [one for one in compare_rankers(log) if one.name == "usual position"]
    return finding


def by_user(rows: dict[str, Any], **roles: Any) -> list[Finding]:
    return usual_position_by_user(read_log(pa.table(rows), engine=ENGINE, validate=False, **roles))


def test_rankers_that_know_what_users_like_are_seen() -> None:
    finding = found(pages(personal=0.3))
    assert finding.status == "warning"
    assert finding.value is not None
    assert finding.value > 0.2
    assert "too steep" in finding.sentence


def test_positions_that_were_logged_before_a_shuffle_are_seen() -> None:
    finding = found(pages(shuffled=0.3, noise=0.1))
    assert finding.status == "warning"
    assert finding.value is not None
    assert finding.value < -0.2
    assert "too flat" in finding.sentence


@pytest.mark.parametrize("layout", [0.0, 0.8])
def test_chance_and_another_layout_are_not(layout: float) -> None:
    """Users like what they like, and in one arm they read less far; the rankers know nothing of either."""
    for seed in range(3):
        finding = found(pages(layout=layout, seed=seed))
        assert finding.status != "warning"
        assert finding.p_value is not None
        assert finding.p_value > 0.01


def test_rankers_that_keep_their_order_are_not_tested() -> None:
    finding = found(pages(noise=0.0))
    assert (finding.status, finding.p_value) == ("ok", None)
    assert "one position" in finding.sentence


def test_one_ranker_has_nothing_to_be_compared_with() -> None:
    finding = found(pages() | {"ranker": np.repeat("a", 4_000 * K)})
    assert (finding.status, finding.p_value) == ("note", None)
    assert "cannot be tested" in finding.sentence


def test_a_log_of_which_nothing_moves_has_no_finding() -> None:
    rows = {
        "query": ["q"] * 4,
        "doc": list("abab"),
        "position": [1, 2] * 2,
        "click": [1, 0, 0, 1],
        "ranker": list("xxyy"),
    }
    assert "usual position" not in [one.name for one in compare_rankers(read_log(pa.table(rows)))]


def tallies(power: float, displays: int, seed: int = 0) -> pa.Table:
    """Return counts whose means are n θ e^{γ m}, the usual position m of a ranker being that of its displays."""
    random = np.random.default_rng(seed)
    units, arms = 60, 3
    n = displays * random.integers(1, 9, (units, arms, K))
    k = np.arange(1, K + 1)
    usual = (n * np.log(k)).sum(2) / n.sum(2)
    looks = random.uniform(0.3, 1.5, (arms, K))
    appeal = random.uniform(0.02, 0.1, (units, 1, 1))
    clicks = random.binomial(n, appeal * looks * np.exp(power * usual)[..., None])
    unit, arm, position = (index.ravel() for index in np.indices(n.shape))
    columns = {"query": unit // 3, "doc": unit, "ranker": arm, "position": position + 1}
    return pa.table(columns | {"impressions": n.ravel(), "clicks": clicks.ravel()})


@pytest.mark.parametrize(("displays", "tolerance"), [(100, 0.2), (10_000, 0.02)])
def test_the_power_is_found_beside_whatever_else_differs_between_rankers(displays: int, tolerance: float) -> None:
    """The one-step estimate is that of a small power, with an error that shrinks as displays grow."""
    for power in (0.0, 0.1, -0.1):
        log = read_log(tallies(power, displays), ranker="ranker", engine=ENGINE)
        finding = usual(log)
        assert finding.value is not None
        assert abs(finding.value - power) < tolerance


def test_a_power_that_is_certain_and_small_is_a_note() -> None:
    finding = usual(read_log(tallies(0.05, 100_000), ranker="ranker", engine=ENGINE))
    assert finding.status == "note"
    assert finding.p_value is not None
    assert finding.p_value < 0.001
    assert "too little to matter" in finding.sentence


def test_by_hand() -> None:
    """One document at position 1 with rankers a, which mostly shows it there, and b, which mostly shows it at 2.

    Of 30 displays at 1, 20 of a and 10 of b, 9 are clicked, 5 of them with b; position 2 is not clicked. Rankers at
    position 1 leave nothing of what is usual where one document is all there is; with a second one, whose rankers
    change places, the halves are each other's mirror image: s = ± half of the distance between what is usual.
    """
    counts = {  # document, ranker, position: displays, clicks
        ("d", "a", 1): (20, 4), ("d", "b", 1): (10, 5), ("d", "a", 2): (5, 0), ("d", "b", 2): (40, 0),
        ("e", "b", 1): (20, 4), ("e", "a", 1): (10, 5), ("e", "b", 2): (5, 0), ("e", "a", 2): (40, 0),
    }  # fmt: skip
    columns = dict(zip(("doc", "ranker", "position"), map(list, zip(*counts, strict=True)), strict=True))
    shown, clicks = map(list, zip(*counts.values(), strict=True))
    log = read_log(pa.table(columns | {"query": ["q"] * 8, "impressions": shown, "clicks": clicks}), ranker="ranker")
    finding = usual(log)
    far, near = 40 / 50 * np.log(2), 5 / 25 * np.log(2)
    s = {"near": -(far - near) / 3, "far": 2 * (far - near) / 3}  # Σ μ s = 0 of 6 clicks and 3
    score = 2 * (s["near"] * (4 - 6) + s["far"] * (5 - 3))
    information = 2 * (6 * s["near"] ** 2 + 3 * s["far"] ** 2)
    assert finding.value == pytest.approx(score / information)
    variance = information * (30 - 9) / 29
    assert finding.p_value == pytest.approx(two_sided(score, variance))


def test_rows_may_come_in_any_order_and_be_named_anyhow() -> None:
    rows = pages(personal=0.1, n=1_000)
    once = found(rows)
    order = np.random.default_rng(1).permutation(len(rows["page"]))
    other = {name: np.asarray(column)[order] for name, column in rows.items()}
    other["doc"] = np.array([f"document {one * 7919 % 1009}" for one in other["doc"]])
    other["ranker"] = np.where(other["ranker"] == "a", "new", "old")
    again = found(other)
    assert again.value == pytest.approx(once.value)
    assert again.p_value == pytest.approx(once.p_value)


def test_pages_of_a_user_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page eight times over tells no more than once, where the log says that it was the same user."""
    rows = pages(personal=0.05, n=1_500)
    often = {name: np.tile(np.asarray(column), 8) for name, column in rows.items()}
    often["page"] = np.arange(len(often["page"])) // K
    once, known = found(rows, user="user"), found(often, user="user")
    assert once.value == pytest.approx(known.value)
    assert once.p_value is not None
    assert known.p_value is not None
    assert known.p_value == pytest.approx(once.p_value, rel=0.5)
    monkeypatch.setattr(arm_scores, "MOST_ROWS", len(often["page"]) // 2)
    assert found(often, user="user").value != known.value, "half of the users are enough"


def test_few_queries_leave_users_to_tell() -> None:
    """On a home page users like different results; a log that does not name them looks more certain than it is."""
    rows = pages(each=20, n=8_000, noise=0.3) | {"query": np.zeros(8_000 * K, int)}
    known, unknown = found(rows, user="user"), found(rows)
    assert known.p_value is not None
    assert unknown.p_value is not None
    assert known.p_value > unknown.p_value


@pytest.mark.parametrize("ranker", ["", "ranker"])
def test_a_ranking_that_is_personal_is_seen_by_user_also_if_no_ranker_is_named(ranker: str) -> None:
    (finding,) = by_user(pages(personal=0.3, each=20), ranker=ranker)
    assert finding.status == "warning"
    assert finding.value is not None
    assert finding.value < -0.2
    assert "rankings are personal" in finding.sentence


def test_tastes_that_no_ranker_knows_of_are_no_matter() -> None:
    for seed in range(3):
        (finding,) = by_user(pages(each=20, seed=seed))
        assert finding.status != "warning"
        assert finding.p_value is not None
        assert finding.p_value > 0.01


def test_users_who_are_tired_of_what_they_saw_high_up() -> None:
    """Whoever has seen a result at the top twice leaves it, wherever it stands."""
    rows = pages(each=200, n=16_000)
    keys = rows["user"] * 1_000 + rows["doc"]
    seen = dict.fromkeys(keys, 0)
    for i, (key, position) in enumerate(zip(keys, rows["position"], strict=True)):
        rows["click"][i] *= seen[key] < 2
        seen[key] += position == 1
    (finding,) = by_user(rows)
    assert finding.status == "warning"
    assert finding.value is not None
    assert finding.value > 0.1
    assert "tired" in finding.sentence


def test_users_who_see_nothing_twice_tell_nothing() -> None:
    assert by_user(pages(each=1)) == []
    assert by_user(pages(n=200), user="") == []


def test_a_context_that_rankers_go_by_does_not_excuse_them_where_it_is_no_part_of_units() -> None:
    """With units of query and document alone, phones and desks for which rankings differ share them."""
    log = read_log(
        pa.table(pages(personal=0.6, devices=True, noise=0.1, n=20_000)), engine=ENGINE, user="", context=["device"]
    )
    told = {unit: [one for one in compare_rankers(log, unit) if one.name == "usual position"] for unit in UNITS}
    assert [one.status for one in told["query"]] == ["warning"]
    assert [one.status for one in told["context"]] == ["ok"]
