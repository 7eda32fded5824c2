"""Browsing: the state in which a result was met, from the clicks above it on its page, inside the engine.

The state is (rank, rank of the last click strictly above), see `clickharvest.positions.states`: a window over each page
in the order of positions. It is fixed before the result itself is looked at, so that a unit's clicks may be compared
between its states as between its positions.
"""

from __future__ import annotations

from dataclasses import replace

import ibis

from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.ibis_inside import read_off
from clickharvest.positions.states import require_few, state_places

STATE = "_clickharvest_state"
"""The column of the number of a row's state."""


def browsing_log(log: ClickLog, *, named: bool = False) -> ClickLog:
    """Return the log with the number of every row's browsing state for its position.

    Args:
        log: the log.
        named: whether the log shall tell what the numbers stand for (`places`), which takes a look at the rows.

    Raises:
        InputError: the log does not tell pages, or they have no order: counts instead of single impressions, no page
            column, places instead of positions, pages of several queries or of one row each, several results at one
            position.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 3, "doc": list("abc"), "position": [1, 2, 3], "click": [0, 1, 0]}
        >>> log = browsing_log(read_log(pa.table(shown | {"page": [7, 7, 7]})))
        >>> log.engine.fetch(log.table.order_by("doc"), task="")["position"].to_pylist()
        [1, 2, 6]
    """
    _require_pages(log)
    columns = log.columns
    rank = columns["position"].cast("int64")
    clicked = (columns["clicks"] == 1).ifelse(rank, ibis.null("int64"))
    above = ibis.window(group_by=columns["page"], order_by=rank, preceding=(None, 1))
    last = clicked.max().over(above).coalesce(0)
    source = log.source.mutate(**{STATE: ((rank * (rank - 1)) // 2 + last + 1).cast("int64")})
    # The state is a column of its own, because a join cannot be on a window; the others are read off the new table.
    moved = read_off(columns, log.source, source)
    states = replace(log, source=source, columns=moved | {"position": source[STATE]})
    if not named:
        return states
    return replace(states, roles=log.roles | {"position": STATE}, places=state_places(deepest(log)))


def deepest(log: ClickLog) -> int:
    """Return the lowest position at which a log of positions shows anything.

    Raises:
        InputError: it is too low for browsing states.
    """
    found = log.engine.fetch(log.table.agg(ranks=log.table.position.max()), task="Looking at positions")
    ranks = int(found["ranks"][0].as_py())
    require_few(ranks)
    return ranks


def _require_pages(log: ClickLog) -> None:
    """Raise an InputError where rows do not tell what stood above them, and whether it was clicked."""
    if log.places is not None:
        raise InputError(
            f"a browsing model is of a list, where one result is above another: leave out --place "
            f"{','.join(log.places.columns)}, and name the column of ranks with --position"
        )
    if log.tallies:
        raise InputError(
            "a browsing model needs the clicks above every result, and a tally has counted them away: fit the logs "
            "that it was made of"
        )
    if "click" not in log.roles:
        raise InputError(
            f"a browsing model needs one row per impression with a page column, found counts "
            f"({log.roles['clicks']!r}, {log.roles['impressions']!r}): which results were clicked together is lost in "
            "them; give the log before it was counted"
        )
    if not log.has("page"):
        raise InputError(
            "a browsing model needs the page that each row stood on, to see the clicks above it: name the column with "
            "--page COLUMN"
        )
    page = log.roles["page"]
    t = log.table
    pages = t.group_by("page").agg(
        rows=t.count(), places=t.position.nunique(), queries=t.query.nunique(), lowest=t.position.max()
    )
    found = log.engine.fetch(
        pages.agg(
            pages=pages.count(),
            several=(pages.queries > 1).sum().fill_null(0),
            shared=(pages.rows > pages.places).sum().fill_null(0),
            longest=pages.rows.max(),
            lowest=pages.lowest.max(),
        ),
        task="Looking at pages",
    ).to_pylist()[0]
    if found["several"]:
        raise InputError(
            f"column {page!r}: {found['several']:,} of {found['pages']:,} pages show results of several queries, as a "
            "session does: clicks of other pages would count as clicks above; name a column that tells result pages "
            "apart with --page COLUMN"
        )
    if found["shared"]:
        raise InputError(
            f"column {page!r}: {found['shared']:,} of {found['pages']:,} pages show several results at one position, "
            "so that nothing tells what is above: where it is a session, name the column of result pages with --page; "
            "where blocks have positions of their own, keep one with --block COLUMN=VALUE"
        )
    if found["longest"] == 1 < found["lowest"]:
        raise InputError(
            f"column {page!r}: each of {found['pages']:,} pages shows one result alone, as a column that numbers rows "
            "does: clicks above would be missed; name the column that tells result pages apart with --page COLUMN"
        )
