"""The arXiv-like simulator: the paper's sizes, the design, the features, and interventions equal to a real harvest."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from clickharvest import Interventions, Rankings, Swap, diagnose, harvest, read_log
from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import COLUMNS
from clickharvest.simulate.arxiv import (
    GROUPS,
    PAPER_SIZES,
    QUERIES,
    SPLITS,
    THRESHOLDS,
    ArxivSimulation,
    Part,
    simulate_arxiv,
)


@pytest.fixture(scope="module")
def full() -> ArxivSimulation:
    return simulate_arxiv()


@pytest.fixture(scope="module")
def small() -> ArxivSimulation:
    return simulate_arxiv(queries=3000, seed=4)


def assert_same(ours: Interventions, theirs: Interventions) -> None:
    assert tuple(ours.contexts) == tuple(theirs.contexts)
    for name in COLUMNS:
        if name == "exposure":
            assert_allclose(ours.exposure, theirs.exposure, rtol=1e-12)
        else:
            assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    for name in ours.contexts:
        assert_array_equal(ours.contexts[name], theirs.contexts[name], err_msg=name)


class TestSizes:
    @pytest.mark.parametrize(("kind", "part"), PAPER_SIZES)
    def test_full_size_is_the_papers(self, full: ArxivSimulation, kind: str, part: Part) -> None:
        queries, clicks = PAPER_SIZES[kind, part]
        own = full.pages(part) & (full.is_complex == (kind == "complex"))
        assert own.sum() == queries
        assert full.clicks[own].sum() == pytest.approx(clicks, rel=0.04)

    def test_the_papers_totals(self) -> None:
        assert round(QUERIES, -2) == 138_600
        assert round(sum(clicks for _, clicks in PAPER_SIZES.values()), -3) == 112_000

    def test_smaller_logs_keep_the_proportions(self, small: ArxivSimulation) -> None:
        for (kind, part), (queries, _) in PAPER_SIZES.items():
            own = (small.is_swap == (part == "swap")) & (small.is_complex == (kind == "complex"))
            assert abs(own.sum() - 3000 * queries / QUERIES) <= 1

    def test_split_is_80_10_10(self, full: ArxivSimulation) -> None:
        sizes = [int(full.pages(split=split).sum()) for split in SPLITS]
        assert sum(sizes) == QUERIES
        assert_allclose(np.array(sizes) / QUERIES, [0.8, 0.1, 0.1], atol=1e-4)
        assert full.is_complex[full.pages(split="test")].mean() == pytest.approx(full.is_complex.mean(), abs=0.02)

    def test_bad_arguments(self, small: ArxivSimulation) -> None:
        with pytest.raises(InputError, match="expected 100 queries or more, 2 to 30 positions"):
            simulate_arxiv(positions=31)
        with pytest.raises(InputError, match="no feature group 'length'"):
            small.features("length")
        with pytest.raises(InputError, match="no part 'both'"):
            small.interventions(part="both")  # type: ignore[arg-type]


class TestTruth:
    def test_simple_queries_are_read_further_down(self, full: ArxivSimulation) -> None:
        simple, complex_ = full.curve(is_complex=False), full.curve(is_complex=True)
        assert simple[0] == complex_[0] == 1
        assert np.all(np.diff(simple) < 0)
        assert np.all(simple[1:] > 1.2 * complex_[1:])

    def test_every_group_matters_to_examination(self, full: ArxivSimulation) -> None:
        """Given the other groups and the kind, each still explains a part of the log steepness."""
        steepness = np.log(-np.log(full.examination[:10_000, 1]))

        def unexplained(groups: tuple[str, ...]) -> float:
            columns = full.features("complex", *groups).values()
            x = np.column_stack([np.ones(10_000), *(column[:10_000] for column in columns)])
            return float(np.square(steepness - x @ np.linalg.lstsq(x, steepness)[0]).sum())

        everything = unexplained(GROUPS)
        for group in GROUPS:
            assert unexplained(tuple(other for other in GROUPS if other != group)) > 1.2 * everything

    def test_clicks_follow_examination(self, full: ArxivSimulation) -> None:
        """The first result's clicks after a swap to k, over those where it stayed, are the true curve."""
        for kind in (True, False):
            own = full.is_swap & (full.shown == 21) & (full.is_complex == kind)
            top = np.argmax(full.original == 1, axis=1)
            clicked = full.clicks[np.arange(QUERIES), top]
            rates = np.array([clicked[own & (full.swap_rank == k)].mean() for k in range(1, 22)])
            truth = full.examination[own].mean(axis=0)
            assert_allclose(rates[1:].mean() / rates[0], truth[1:].mean(), rtol=0.15)

    def test_same_seed_same_log(self, small: ArxivSimulation) -> None:
        assert simulate_arxiv(queries=3000, seed=4).log.equals(small.log)
        assert not simulate_arxiv(queries=3000, seed=5).log.equals(small.log)


class TestDesign:
    def test_pages_are_filled_from_the_top(self, small: ArxivSimulation) -> None:
        for position in (small.position, small.original, *small.rank):
            expected = np.where(np.arange(1, 22) <= small.shown[:, None], np.arange(1, 22), 0)
            assert_array_equal(np.sort(position, axis=1)[:, -21:], np.sort(expected, axis=1))

    def test_a_swap_changes_two_places(self, small: ArxivSimulation) -> None:
        moved = (small.position != small.original).sum(axis=1)
        assert_array_equal(moved, np.where(small.swap_rank > 1, 2, 0))
        assert not np.any(moved[~small.is_swap])

    def test_rankers_and_swaps_are_uniform(self, full: ArxivSimulation) -> None:
        assert_allclose(np.bincount(full.ranker) / QUERIES, 1 / 3, atol=0.006)
        drawn = np.bincount(full.swap_rank[full.is_swap & (full.shown == 21)], minlength=22)[1:]
        assert_allclose(drawn / drawn.sum(), 1 / 21, rtol=0.15)
        assert full.swap_rank[full.is_swap & (full.shown == 3)].max() == 3

    def test_the_check_finds_nothing_amiss(self, small: ArxivSimulation) -> None:
        log = read_log(small.log.filter(pc.invert(small.log["swap"])), context=["complex"])
        diagnosis = diagnose(log, design=Rankings(small.rankings, {"f1": 1, "f2": 1, "f3": 1}))
        assert diagnosis.identified


class TestFeatures:
    def test_groups_have_the_papers_sizes(self, small: ArxivSimulation) -> None:
        assert [len(small.features(group)) for group in GROUPS] == [10, 10, 5, 10, 35]
        for group in THRESHOLDS:
            assert all(set(np.unique(column)) <= {0, 1} for column in small.features(group).values())

    def test_shares_sum_to_one(self, small: ArxivSimulation) -> None:
        assert_allclose(small.result_dist.sum(axis=1), 1, rtol=1e-5)
        few = small.results <= 4
        counts = small.result_dist[few] * small.results[few, None]
        assert_allclose(counts, np.rint(counts), atol=1e-5)

    def test_one_category_at_most(self, small: ArxivSimulation) -> None:
        named, *which = small.features("category").values()
        assert_array_equal(np.sum(which, axis=0), named)

    def test_sessions_count_their_queries(self, full: ArxivSimulation) -> None:
        order = np.lexsort((np.arange(QUERIES), full.session))
        session, place = full.session[order], full.ord_in_session[order]
        begins = np.flatnonzero(np.diff(session, prepend=-1))
        assert_array_equal(place, np.arange(QUERIES) - np.repeat(begins, np.diff(np.r_[begins, QUERIES])) + 1)
        assert (full.ord_in_session > 15).sum() > 1000

    def test_thresholds_split_the_queries(self, full: ArxivSimulation) -> None:
        shares = np.array([column.mean() for group in THRESHOLDS for column in full.features(group).values()])
        assert np.all((shares > 0.0005) & (shares < 0.995))


class TestInterventions:
    @pytest.mark.parametrize("features", [(), ("complex",), ("category", "result_dist")])
    def test_ab_equals_the_harvest(self, small: ArxivSimulation, features: tuple[str, ...]) -> None:
        table = small.log_with(*features)
        table = table.filter(pc.invert(table["swap"]))
        context = [name for group in features for name in small.features(group)]
        design = Rankings(small.rankings, {"f1": 1, "f2": 1, "f3": 1})
        theirs = harvest(read_log(table, context=context, validate=False), design=design)
        assert_same(small.interventions(part="ab", features=features), theirs)

    def test_swap_equals_the_harvest_of_full_pages(self, small: ArxivSimulation) -> None:
        assert_same(*self._swapped(small, 21, Swap.uniform(21)))

    @pytest.mark.parametrize("shown", [2, 5, 13])
    def test_swap_equals_the_harvest_of_short_pages(self, small: ArxivSimulation, shown: int) -> None:
        """A rank beyond the page changes nothing, just as rank 1."""
        chances = {1: (22 - shown) / 21} | dict.fromkeys(range(2, shown + 1), 1 / 21)
        assert_same(*self._swapped(small, shown, Swap(chances)))

    @staticmethod
    def _swapped(small: ArxivSimulation, shown: int, design: Swap) -> tuple[Interventions, Interventions]:
        log = small.log.filter(pc.and_(small.log["swap"], pa.array(small.shown[small.log["page"].to_numpy()] == shown)))
        theirs = harvest(read_log(log, context=["complex"], validate=False), design=design)
        ours = small.interventions(part="swap", features=["complex"])
        ours = ours.take(small.shown[ours.query] == shown)
        _, unit = np.unique(ours.unit, return_inverse=True)
        return Interventions(**(vars(ours) | {"unit": unit})), theirs

    def test_exposures_are_probabilities(self, small: ArxivSimulation) -> None:
        ab, swap = small.interventions(), small.interventions(part="swap")
        assert np.bincount(ab.unit, ab.exposure).max() <= 1 + 1e-9
        assert_allclose(np.bincount(swap.unit, swap.exposure), 1)

    def test_parts_of_the_split_are_disjoint_and_complete(self, small: ArxivSimulation) -> None:
        parts = [small.interventions(split=split) for split in SPLITS]
        assert sum(len(part) for part in parts) == len(small.interventions())
        assert len(np.unique(np.concatenate([np.unique(part.query) for part in parts]))) == sum(
            len(np.unique(part.query)) for part in parts
        )


def test_needs_numpy_and_scipy_alone() -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(['ibis', 'duckdb', 'pyarrow', 'sklearn', 'pandas']))"
    work = "from clickharvest.simulate.arxiv import simulate_arxiv; simulate_arxiv(queries=500).interventions()"
    subprocess.run([sys.executable, "-c", f"{blocked}; {work}"], check=True)
