"""A reading model is a browsing model times what the places of readers tell beyond it.

    log p_place(x) = log γ_state(x) + log h_place

Both are linear in their parameters, so that the two make one curve over places, whose context effects are those of the
place's browsing state.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.browsing import BrowsingPropensities, StatePropensities
from clickharvest.model.curves import Params, flatten_params, make_curve, unflatten_params
from clickharvest.model.propensities import Propensities
from clickharvest.model.support import ColumnSupport, Support
from clickharvest.positions.places import Places
from clickharvest.positions.states import number_of

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def states_of_places(places: Places) -> Integers:
    """Return the number of the browsing state that each place is in, [places].

    Example:
        >>> states_of_places(Places(("position", "distance"), ((1, 0), (3, 0), (3, 2)))).tolist()
        [1, 4, 5]
    """
    rank, distance = (np.array(places.values(column), np.int64) for column in range(2))
    return number_of(rank, np.where(distance > 0, rank - distance, 0))


def times_browsing(interventions: Interventions, base: BrowsingPropensities) -> Interventions:
    """Return interventions whose exposures are multiplied with γ, so that click shares tell what is beyond it."""
    states, number = _states(base, interventions.places)
    params = {name: states.curve.anchored(values, np) for name, values in states.params.items()}
    state = number[interventions.position - 1] - 1
    log_p: Array = params["b"][state]
    if states.encoder is not None:
        x = states.encoder.transform({name: interventions.contexts[name] for name in states.context})
        for feature, effects in zip(x.T, params["W"], strict=True):
            log_p = log_p + feature * effects[state]
    return replace(interventions, exposure=interventions.exposure * np.exp(log_p))


def compose(base: BrowsingPropensities, beyond: Propensities) -> Propensities:
    """Return the propensities of places, of a browsing model and of what places tell beyond it.

    Intervals: a free place makes up for whatever γ is wrong by in an average context, so that their error there is that
    of `beyond`; what contexts change has the error of the browsing model.

    Args:
        base: the browsing model.
        beyond: constant propensities by place, fitted to `times_browsing`.
    """
    states, number = _states(base, beyond.places)
    positions = beyond.curve.positions
    like = number[np.array(positions) - 1] - 1
    curve = make_curve(states.curve.name, positions, beyond.curve.anchor, states.curve.n_features)

    def gathered(params: Params) -> Params:
        columns = {name: states.curve.anchored(values, np)[..., like] for name, values in params.items()}
        return {name: np.delete(values, curve.anchor_index, axis=-1) for name, values in columns.items()}

    own = gathered(states.params)
    params = own | {"b": own["b"] + beyond.params["b"]}
    draws = None
    if beyond.draws is not None:
        parts = [[flatten_params(params | {"b": own["b"] + draw}) for draw in beyond.draws.astype(np.float64)]]
        if states.draws is not None and states.encoder is not None:
            others = (gathered(unflatten_params(draw.astype(np.float64), states.params)) for draw in states.draws)
            parts.append([flatten_params(params | {"W": other["W"]}) for other in others])
        draws = _together(flatten_params(params), [np.array(part) for part in parts])
    return replace(
        beyond,
        curve=curve,
        params=params,
        encoder=states.encoder,
        draws=draws,
        support=_support(states.support, beyond.support, positions, like + 1),
    )


def _states(base: BrowsingPropensities, places: Places | None) -> tuple[StatePropensities, Integers]:
    """Return the propensities of the states of places, and the number of the state of each place."""
    assert places is not None
    return base.reaching(max(int(rank) for rank in places.values(0))), states_of_places(places)


def _together(middle: Array, parts: list[Array]) -> NDArray[np.float32]:
    """Return points whose covariance (divisor: points − 1) is the sum of those of several sets of points."""
    points = sum(len(part) for part in parts)
    wider = [middle + np.sqrt((points - 1) / (len(part) - 1)) * (part - middle) for part in parts]
    return np.concatenate(wider).astype(np.float32)


def _support(
    of_states: Support | None, of_places: Support | None, positions: tuple[int, ...], state: Integers
) -> Support | None:
    """Return what the data speak of: of a value of a context, at the places whose states it is supported in."""
    if of_states is None or of_places is None:
        return of_places
    columns = []
    for column in of_states.columns:
        linked = (tuple(k for k, own in zip(positions, state, strict=True) if own in known) for known in column.linked)
        columns.append(ColumnSupport(tuple(linked), column.rare, column.reach))
    return Support(tuple(columns), of_places.queries)
