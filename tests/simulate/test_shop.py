"""The simulated shop: clicks follow the truth that it tells, and rankers leave room for a better one."""

from __future__ import annotations

import numpy as np
import pytest

from clickharvest.simulate.shop import simulate_shop


def test_clicks_fall_with_position_as_the_truth_says() -> None:
    shop = simulate_shop(pages=20_000, seed=1)
    log = {name: shop.log[name].to_numpy(zero_copy_only=False) for name in shop.log.column_names}
    truth = shop.truth()
    examined = truth["examination"].to_numpy().reshape(2, 10)
    assert np.array_equal(examined, shop.examination)
    assert truth["device"].to_pylist() == ["desktop"] * 10 + ["phone"] * 10
    cells, cell = np.unique(log["doc"] * 10 + log["position"] - 1, return_inverse=True)
    clicks, shown = (
        np.stack(
            [
                np.bincount(cell[log["device"] == device], column[log["device"] == device], len(cells))
                for device in shop.devices
            ]
        )
        for column in (log["click"], np.ones(len(cell)))
    )
    often = (shown >= 50).all(axis=0)
    # The same document at the same position: its relevance cancels between devices.
    desktop, phone = clicks[:, often] / shown[:, often]
    expected = desktop * (examined[1] / examined[0])[cells[often] % 10]
    assert phone.sum() == pytest.approx(expected.sum(), rel=0.05)


def test_users_come_back_on_one_device_and_pages_are_whole() -> None:
    shop = simulate_shop(pages=2_000, seed=2)
    pages = shop.log.group_by("page").aggregate([("doc", "count_distinct"), ("user", "count_distinct")])
    assert set(pages["doc_count_distinct"].to_pylist()) == {10}
    assert set(pages["user_count_distinct"].to_pylist()) == {1}
    users = shop.log.group_by("user").aggregate([("device", "count_distinct"), ("page", "count_distinct")])
    assert set(users["device_count_distinct"].to_pylist()) == {1}
    assert np.mean(users["page_count_distinct"].to_numpy()) > 3
    assert shop.log.equals(simulate_shop(pages=2_000, seed=2).log)
    assert not shop.log.equals(simulate_shop(pages=2_000, seed=3).log)


def test_rankers_share_an_error_as_large_as_relevance() -> None:
    shop = simulate_shop(pages=10, seed=4)
    errors = shop.shown - shop.best
    lengths = np.linalg.norm([shop.best, *shop.shown.mean(axis=0)[None]], axis=1)
    assert np.isclose(lengths[0], 1.5)
    assert (errors @ errors.T).mean() > 0.5
    best = shop.first_relevance(shop.best)
    assert all(shop.first_relevance(weights) < best - 0.05 for weights in shop.shown)
    assert shop.relevance.mean() < best < shop.relevance.max(axis=1).mean()
