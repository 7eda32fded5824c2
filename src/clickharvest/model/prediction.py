"""Predictions: propensities of given contexts, as arrays and as a table. NumPy alone; Arrow to make the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.model.budget import CANNOT_TELL, STATES, USABLE, why_cannot_tell
from clickharvest.model.contexts import Table, column_names
from clickharvest.model.support import Doubt, Mask, rests_on_few, spell_queries
from clickharvest.positions.places import RESULTS, Places
from clickharvest.words import first_line

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Prediction:
    """Propensities of n contexts at K positions, relative to the anchor.

    Attributes:
        positions: every position of the data, ascending, [K].
        propensity: p_k(x) / p_anchor(x), [n, K]; NaN at positions that nothing links to the anchor.
        lower: lower ends of the intervals, [n, K]; NaN where unsupported, or without draws.
        upper: upper ends of the intervals, [n, K], likewise.
        supported: whether the data have this context at this position, [n, K], see `model.support`. The anchor is
            supported in every context that training had.
        doubts: why and where not.
        queries: effective queries that a position rests on, [K]; None where they are unknown.
        places: what positions stand for, where they are numbers of places and not of a list.
        codes: index of the state of each number in `budget.STATES`, [n, K]; None: nothing is known but `supported`.
        anchor: position that numbers are relative to.
        untold: why supported numbers can have the state `cannot tell`.
    """

    positions: tuple[int, ...]
    propensity: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    supported: Mask
    doubts: tuple[Doubt, ...] = ()
    queries: tuple[float | None, ...] | None = None
    places: Places | None = None
    codes: NDArray[np.int8] | None = None
    anchor: int = 1
    untold: str = why_cannot_tell(None)

    @property
    def state(self) -> NDArray[np.str_]:
        """What is known of each number: `usable`, `with care` or `cannot tell`, [n, K], see `model.budget`."""
        if self.codes is None:
            return np.where(self.supported, USABLE, CANNOT_TELL)
        return np.array(STATES)[self.codes]

    @property
    def cannot_tell(self) -> Mask:
        """Where the state is `cannot tell`, [n, K]."""
        cannot_tell: Mask = self.state == CANNOT_TELL
        return cannot_tell

    @property
    def where(self) -> dict[str, list[Any]]:
        """The columns that tell where, [K]: `position`; of places also those of `places`, one of which may be it."""
        number = {"position": list(self.positions)}
        if self.places is None:
            return number
        labels = [self.places.labels[k - 1] for k in self.positions]
        columns = {column: [label[i] for label in labels] for i, column in enumerate(self.places.columns)}
        return columns if "position" in columns else number | columns

    def clipped(self) -> NDArray[np.float64]:
        """Return the propensities that weights are made of by default, [n, K].

        Where the state is `cannot tell`, it is that of `nearest_trusted`, or of `nearest_trusted_places`.

        Example:
            >>> p, codes = np.array([[1.0, 0.5, 0.05]]), np.array([[0, 1, 2]], dtype=np.int8)
            >>> Prediction((1, 2, 3), p, p, p, np.ones((1, 3), dtype=bool), codes=codes).clipped()
            array([[1. , 0.5, 0.5]])
        """
        n, k = self.propensity.shape
        anchor, trusted = self.positions.index(self.anchor), ~self.cannot_tell
        if self.places is None:
            return np.take_along_axis(self.propensity, nearest_trusted(trusted, anchor), axis=1)
        rows = np.repeat(np.arange(n), k)
        number = np.tile(self.positions, n)
        at = nearest_trusted_places(
            trusted[rows], anchor, self.propensity[rows], self.positions, self.places, self.places, number
        )
        clipped: NDArray[np.float64] = self.propensity[rows, at].reshape(n, k)
        return clipped

    def notes(self) -> NDArray[np.object_]:
        """Return a note on each number, [n, K]; None where there is nothing to say.

        It says why the number is not supported, else why its state is `cannot tell`, else on how few queries it rests.

        Example:
            >>> p, codes = np.array([[1.0, 0.5, 0.3, 0.1]]), np.array([[0, 1, 2, 2]], dtype=np.int8)
            >>> doubt = Doubt("device: a value that training never had", np.array([[False, False, False, True]]))
            >>> prediction = Prediction(
            ...     (1, 2, 3, 4), p, p, p, ~doubt.where, (doubt,), (None, 3.0, 9.0, 9.0), codes=codes)
            >>> prediction.state[0].tolist()
            ['usable', 'with care', 'cannot tell', 'cannot tell']
            >>> for note in prediction.notes()[0]:
            ...     print(note)
            None
            rests on 3 queries
            cannot tell: may be off by more than a factor of two
            device: a value that training never had
        """
        notes = np.full(self.propensity.shape, None, dtype=object)
        for k, queries in enumerate(self.queries or ()):
            if queries is not None and rests_on_few(queries):
                notes[:, k] = spell_queries(queries)
        notes[self.cannot_tell] = f"{CANNOT_TELL}: {self.untold}"
        for doubt in reversed(self.doubts):
            notes[np.broadcast_to(doubt.where, notes.shape)] = doubt.why
        return notes

    def to_arrow(self, contexts: Table | None = None) -> pa.Table:
        """Return one row per context row and position.

        Columns: those of `contexts` (all of them, in their order), then `position, propensity, lower, upper,
        propensity_state`; null stands for NaN. Of places, `position` is the number, and their own columns follow it;
        one of these that is called `position` stands in its stead.

        Args:
            contexts: the table that was predicted for; None adds no columns.

        Example:
            >>> one, nothing = np.ones((1, 2)), np.full((1, 2), np.nan)
            >>> prediction = Prediction((1, 2), one, nothing, nothing, np.array([[True, True]]))
            >>> prediction.to_arrow({"device": ["phone"]}).drop_columns(["lower", "upper"]).to_pylist()[1]
            {'device': 'phone', 'position': 2, 'propensity': 1.0, 'propensity_state': 'usable'}
        """
        import pyarrow as pa

        n, k = self.propensity.shape
        contexts = {} if contexts is None else contexts
        names = column_names(contexts)
        if clash := [name for name in (*RESULTS, *self.where) if name in names]:
            raise InputError(f"the contexts have a column {clash[0]!r}, which is one of the result: rename it")
        try:
            table = pa.table({name: _arrow(contexts[name]) for name in names})
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"the contexts cannot be converted to an Arrow table: {first_line(error)}") from error
        if names and table.num_rows != n:
            raise InputError(f"the contexts have {table.num_rows:,} rows, the prediction {n:,}: give the same table")
        rows = np.repeat(np.arange(n), k)
        results = {
            **{name: np.tile(_column(values), n) for name, values in self.where.items()},
            **{name: getattr(self, name).ravel() for name in ("propensity", "lower", "upper")},
            "propensity_state": self.state.ravel(),
        }
        columns = {name: table[name].take(pa.array(rows)) for name in names}
        return pa.table(columns | {name: pa.array(column, from_pandas=True) for name, column in results.items()})


def _column(values: list[Any]) -> NDArray[Any]:
    """Return values as one column: whole numbers, numbers, or texts as they are."""
    if any(isinstance(value, str) for value in values):
        return np.array(values, dtype=object)
    whole = all(isinstance(value, int) for value in values)
    return np.array(values, dtype=np.int64 if whole else np.float64)


def _arrow(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray | pa.Array):
        return column
    return column.to_arrow() if hasattr(column, "to_arrow") else pa.array(column, from_pandas=True)


def nearest_trusted(trusted: Mask, anchor: int) -> NDArray[np.int64]:
    """Return for each of K positions, by index, itself if trusted, else the last trusted one above: [n, K].

    Where none is above, it is the first one below; the anchor is always trusted.

    Args:
        trusted: where the state is not `cannot tell`, [n, K].
        anchor: index of the anchor.

    Example:
        >>> nearest_trusted(np.array([[True, True, False, False], [False, False, True, False]]), anchor=0).tolist()
        [[0, 1, 1, 1], [0, 0, 2, 2]]
    """
    known = trusted.copy()
    known[:, anchor] = True
    above = np.maximum.accumulate(np.where(known, np.arange(known.shape[1]), -1), axis=1)
    return np.where(above >= 0, above, known.argmax(axis=1)[:, None])


def nearest_trusted_places(
    trusted: Mask,
    anchor: int,
    log_p: NDArray[np.float64],
    positions: Sequence[int],
    places: Places,
    wanted: Places,
    place: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return for each of n results the index of its place among K if trusted, else of a middling one like it: [n].

    That is the median, by log p, of the trusted places that share most columns with it.

    Args:
        trusted: where the state is not `cannot tell`, [n, K].
        anchor: index of the anchor, which is always trusted.
        log_p: of the K places, [n, K].
        positions: their numbers.
        places: what these numbers mean.
        wanted: the places of results.
        place: the number of each result's place in it, [n].
    """
    known = trusted.copy()
    known[:, anchor] = True
    kind = np.unique(np.column_stack([place, np.packbits(known, axis=1)]), axis=0, return_inverse=True)[1].ravel()
    chosen = np.empty(len(place), dtype=np.int64)
    numbers = places.numbers_of(wanted)
    for rows in np.split(np.argsort(kind, kind="stable"), np.cumsum(np.bincount(kind))[:-1]):
        at = int(place[rows[0]])
        candidates = np.array(positions)[known[rows[0]]].tolist()
        number = numbers[at - 1]
        alike = (number,) if number in candidates else places.nearest(wanted.labels[at - 1], candidates)
        among = np.searchsorted(positions, alike)
        ranked = np.argsort(log_p[rows][:, among], axis=1, kind="stable")
        chosen[rows] = among[ranked[:, len(among) // 2]]
    return chosen
