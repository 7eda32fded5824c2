"""How many threads linear algebra has while a model is fitted."""

from __future__ import annotations

from threadpoolctl import threadpool_info, threadpool_limits

from clickharvest.estimation.devices import on_one_thread


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_linear_algebra_has_one_thread_and_then_as_many_as_before() -> None:
    @on_one_thread
    def fit(number: int, *, more: int) -> tuple[int, set[int]]:
        """Fit."""
        return number + more, threads()

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        assert fit(1, more=2) == (3, {1})
        assert threads() == before
    assert (fit.__name__, fit.__doc__) == ("fit", "Fit.")
