"""Who saw a row: the users that tests of a log count, or cluster by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine


def with_user(log: ClickLog, table: ir.Table) -> ir.Table:
    """Return rows of a log with users with a text column `_user`.

    Who is not known is somebody else on every page; without a page column such rows are left out.
    """
    known = table.user.cast("string")
    if log.has("page"):
        known = known.coalesce("page " + table.page.cast("string"))
    table = table.mutate(_user=known)
    return table.filter(table._user.notnull())


def pairs_of_counts(cells: ir.Table) -> ir.Table:
    """Return all pairs of a user's counts (`_user`, `pages` and what they are of), with their product."""
    other = cells.view()
    both = cells.join(other, cells._user == other._user, rname="other_{name}")
    return both.mutate(product=both.pages * both.other_pages)


def count_moments(
    cells: ir.Table, names: Mapping[str, Sequence[Any]], engine: Engine, task: str
) -> NDArray[np.float64]:
    """Return Σ_u n_u n_uᵀ over users, [counts, counts], counts being of all that have these names, the last fastest."""
    both = pairs_of_counts(cells)
    sums = both.group_by(*names, *(f"other_{name}" for name in names)).agg(product=both["product"].sum())
    places = {name: {value: i for i, value in enumerate(values)} for name, values in names.items()}
    found = np.zeros([len(values) for values in names.values()] * 2)
    for row in engine.fetch(sums, task=task).to_pylist():
        found[tuple(places[name][row[f"{of}{name}"]] for of in ("", "other_") for name in names)] = row["product"]
    size = math.prod(len(values) for values in names.values())
    return found.reshape(size, size)
