"""How many threads linear algebra has while a model is fitted, and problems that threads share."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from clickharvest.estimation.threads import in_threads, on_one_thread


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


@pytest.mark.parametrize("workers", [1, 3])
def test_results_of_threads_come_in_order_and_items_are_asked_for_one_by_one(workers: int) -> None:
    asked = []

    def items() -> Iterator[int]:
        for item in range(9):
            asked.append(item)
            yield item

    def square(item: int) -> int:
        time.sleep(0.02 if item == 0 else 0.0)
        return item**2

    found = in_threads(square, items(), workers)
    assert next(found) == 0
    assert len(asked) <= workers + 1
    assert list(found) == [item**2 for item in range(1, 9)]


def test_what_a_thread_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda item: 1 / item, [1, 0, 2], 2))
