"""Browsing: whether a result is examined depends on its position and on the last click above it on the page.

    Pr(click | unit u, position k, last click above at j, context x) = γ_{kj}(x) r_u

is the user browsing model of Dupret and Piwowarski (2008). A model holds the propensities γ_{kj}(x) relative to
position 1 with nothing clicked above (`fitted`, which numbers the states (k, j)). They are estimated by click shares
over states (`estimating`). A state is fixed before its result is looked at, so that clicks of a unit may be compared
between its states as between its positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from clickharvest.click_models.base import Header, PageModel, Tensors
from clickharvest.click_models.browsing.fitted import (
    BrowsingPropensities,
    StatePropensities,
    n_states,
    require_few,
    state_places,
)
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.logs.log_facts import PagesOfSize, selected_pages
from clickharvest.model.loading import from_file
from clickharvest.model.propensities import Propensities
from clickharvest.words import clean_text

if TYPE_CHECKING:
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog

STATE = "_clickharvest_state"
"""The column of the number of a row's state."""


@dataclass(frozen=True)
class Browsing(PageModel):
    """The user browsing model, estimated by click shares.

    Attributes:
        intervals: `"clustered"` (`query_random_effects`), which `"auto"` is, or None.
        anchor: the position that others are relative to, with no click above it.
        seed: kept with the model; the fit has no randomness.
        progress: shows what is being done, see `clickharvest.progress`; nothing by default.

    Example:
        >>> from clickharvest import read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> model, log = Browsing(), read_log(simulate_ab_log(pages=3_000)[0])
        >>> model.fit(model.harvest(log)).propensity_of(rank=[1, 2, 2], last_click=[0, 0, 1]).shape
        (3,)
    """

    name: ClassVar[str] = "browsing"
    about: ClassVar[str] = "as examination, which the last click above changes"

    def harvest(self, log: ClickLog, **how: Any) -> Interventions:
        """Return the interventions of a log by browsing state; `how` are the arguments of `harvesting.harvest`.

        Raises:
            InputError: the log does not tell pages, or exposures are by design.
            NotIdentifiedError: pages without a click are missing.
        """
        require_pages(log, how.get("design"))
        if (lowest := how.get("max_position")) is not None:
            how["max_position"] = n_states(lowest)
        return super().harvest(_numbered(log), **how)

    def fit(self, interventions: Interventions) -> BrowsingPropensities:
        """Return the propensities of browsing states."""
        from clickharvest.click_models.browsing.estimating import fit_states

        return fit_states(
            interventions, anchor=self.anchor, intervals=self.intervals, seed=self.seed, progress=self.progress
        )

    @classmethod
    def load(cls, header: Header, tensors: Tensors) -> BrowsingPropensities:
        """Return the propensities of a file."""
        read = from_file(header, tensors)
        leaning = header["leaning"]
        if not isinstance(leaning, list) or not all(type(number) is int for number in leaning):
            raise InputError(f"its unlinked states are {clean_text(leaning)}: expected numbers of states; fit again")
        states = StatePropensities(
            read.curve, read.params, read.encoder, read.shown, read.draws, read.draws_kind, {}, None, read.support,
            read.places, tuple(leaning),
        )  # fmt: skip
        return BrowsingPropensities(states, read.info, read.provenance)

    @classmethod
    def place(cls, log: ClickLog, fitted: Any) -> tuple[ClickLog, Propensities]:
        """Return the log by browsing state, and the propensities of its states."""
        states = browsing_log(log, named=True)
        assert states.places is not None
        return states, fitted.reaching(int(states.places.labels[-1][0]))


def browsing_log(log: ClickLog, *, named: bool = False) -> ClickLog:
    """Return the log with the number of every row's browsing state for its position.

    Args:
        log: the log.
        named: whether the log gets a table of its states (`places`), which takes a look at the rows.

    Raises:
        InputError: the log has no pages of single impressions in an order, or too low positions.
        NotIdentifiedError: pages without a click are missing.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 3, "doc": list("abc"), "position": [1, 2, 3], "click": [0, 1, 0]}
        >>> log = browsing_log(read_log(pa.table(shown | {"page": [7, 7, 7]})))
        >>> log.engine.fetch(log.table.order_by("doc"), task="")["position"].to_pylist()
        [1, 2, 6]
    """
    require_pages(log)
    states = _numbered(log)
    if not named:
        return states
    lowest = log.engine.fetch(log.table.agg(ranks=log.table.position.max()), task="Looking at positions")
    ranks = int(lowest["ranks"][0].as_py())
    require_few(ranks)
    return replace(states, roles=log.roles | {"position": STATE}, places=state_places(ranks))


def _numbered(log: ClickLog) -> ClickLog:
    """Return the log with the number of every row's browsing state for its position."""
    import ibis

    from clickharvest.logs.ibis_inside import read_off

    columns = log.columns
    rank = columns["position"].cast("int64")
    clicked = (columns["clicks"] == 1).ifelse(rank, ibis.null("int64"))
    above = ibis.window(group_by=columns["page"], order_by=rank, preceding=(None, 1))
    last = clicked.max().over(above).coalesce(0)
    source = log.source.mutate(**{STATE: ((rank * (rank - 1)) // 2 + last + 1).cast("int64")})
    # The state is a column of its own, because a join cannot be on a window; the others are read off the new table.
    moved = read_off(columns, log.source, source)
    return replace(log, source=source, columns=moved | {"position": source[STATE]})


def require_pages(log: ClickLog, design: Any = None) -> None:
    """Refuse a log in which it is unknown what stood above each row, and whether that was clicked.

    Raises:
        InputError: it is unknown.
        NotIdentifiedError: pages without a click are missing.
    """
    if design is not None:
        raise InputError(
            "browsing states come about by clicks, not by design: leave out what tells where documents could have "
            "been shown (--rankings, --swap, --placements, --placement, --team-draft)"
        )
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
    page, t = log.roles["page"], log.table
    pages = t.group_by("page").agg(
        rows=t.count(), places=t.position.nunique(), queries=t.query.nunique(), lowest=t.position.max(),
        clicks=t.clicks.sum(),
    )  # fmt: skip
    pages = pages.mutate(size=pages.rows.log2().floor())
    by_size = pages.group_by("size").agg(
        pages=pages.count(),
        several=(pages.queries > 1).sum().fill_null(0),
        shared=(pages.rows > pages.places).sum().fill_null(0),
        longest=pages.rows.max(),
        lowest=pages.lowest.max(),
        clicked=(pages.clicks > 0).sum(),
        clicks=pages.clicks.sum(),
    )
    sizes = log.engine.fetch(by_size, task="Looking at pages").to_pylist()
    total = {name: sum(one[name] for one in sizes) for name in ("pages", "several", "shared")}
    total |= {name: max(one[name] for one in sizes) for name in ("longest", "lowest")}
    if total["several"]:
        raise InputError(
            f"column {page!r}: {total['several']:,} of {total['pages']:,} pages show results of several queries, as a "
            "session does: clicks of other pages would count as clicks above; name a column that tells result pages "
            "apart with --page COLUMN"
        )
    if total["shared"]:
        raise InputError(
            f"column {page!r}: {total['shared']:,} of {total['pages']:,} pages show several results at one position, "
            "so that nothing tells what is above: where it is a session, name the column of result pages with --page; "
            "where blocks have positions of their own, keep one with --block COLUMN=VALUE"
        )
    if total["longest"] == 1 < total["lowest"]:
        raise InputError(
            f"column {page!r}: each of {total['pages']:,} pages shows one result alone, as a column that numbers rows "
            "does: clicks above would be missed; name the column that tells result pages apart with --page COLUMN"
        )
    by_size = [PagesOfSize(*(int(one[name]) for name in PagesOfSize._fields)) for one in sizes]
    if selected := selected_pages(by_size):
        raise NotIdentifiedError(
            f"{selected}, as where pages without one are missing from the log: users then seem to read on wherever "
            "nothing above is clicked; give a log of all pages, or fit --model examination"
        )
