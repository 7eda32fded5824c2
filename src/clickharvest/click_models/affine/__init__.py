"""Affine: users trust what stands high, so that a click depends on the position even when the result is seen.

    E[click | unit u, position k] = a_k c_u + b_k

with the unit's click rate c_u at the anchor: `fitted` explains the parameters, `estimating` how they are estimated. A
log is weighed by corrected clicks, (C − n b_k) / a_k, whose expectation is that of clicks at the anchor.

Contexts of a few categories have slopes and offsets of their own; others fall into classes (`levels`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.affine.fitted import AffineModel
from clickharvest.click_models.affine.levels import (
    MOST_LEVELS,
    AffineLevels,
    fit_levels,
    level_values,
    levels_of,
    spell_level,
)
from clickharvest.click_models.base import ClickModel, Header, Tensors
from clickharvest.errors import InputError
from clickharvest.progress import Progress, silent
from clickharvest.words import count, spell_positions

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.checks import Checked, Finding
    from clickharvest.harvesting.interventions import Interventions, UnitKind
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.weights.weighing import Clip, Trust

AnyAffine = AffineModel | AffineLevels

COLUMNS = ("click_slope", "click_offset", "corrected_click", "correction_supported")
"""The columns that weighing adds to those of a log."""
JOINED = ("_clickharvest_slope", "_clickharvest_offset", "_clickharvest_sd", "_clickharvest_supported")
"""The columns of slope, offset, their standard deviation and whether they are supported, while a log is corrected."""
NOT_OF_AFFINE = ("relevance", "hidden column")
"""Checks that do not hold where the curve depends on the result, or that fit examination."""
CLEAR = 0.01
"""p-value up to which trust is found within queries; queries of very unequal steepness lead to p-values just above."""
MOST_NAMED, MOST_CELLS = 6, 10_000
"""Contexts that a report names, and cells above which it names none."""


@dataclass(frozen=True)
class CorrectionReport:
    """Report on the corrected clicks of a log.

    Attributes:
        rows: rows of the log.
        clicks: clicks in them.
        corrected: sum of the corrected clicks: about as many clicks as all displays would have got at the anchor.
        unsupported_rows: rows at positions, or in contexts, without an estimate: their correction is empty.
        unsupported_clicks: clicks in those rows.
        unsupported_positions: those positions.
        unsupported_contexts: contexts in which no position has an estimate, in words.
    """

    rows: int
    clicks: int
    corrected: float
    unsupported_rows: int
    unsupported_clicks: int
    unsupported_positions: tuple[int, ...]
    unsupported_contexts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON holds it."""
        lists = ("unsupported_positions", "unsupported_contexts")
        return asdict(self) | {name: list(getattr(self, name)) for name in lists}

    def __str__(self) -> str:
        lines = [
            f"Corrected {count(self.clicks, 'click')} in {count(self.rows, 'row')}: at the anchor, all that was shown "
            f"would have got about {count(self.corrected, 'click')}.",
            "Rows without a click have a corrected click too: use all rows, and sum or average corrected_click.",
        ]
        if self.unsupported_rows:
            where = f"position{'s' if len(self.unsupported_positions) > 1 else ''}"
            what = f"rows: {self.unsupported_rows:,}, clicks: {self.unsupported_clicks:,}"
            lines.append(
                f"Cannot tell {where} {spell_positions(self.unsupported_positions)} ({what}): corrected_click is empty "
                "there; leave these rows out."
            )
        if self.unsupported_contexts:
            lines.append(f"Cannot tell any position where {'; or '.join(self.unsupported_contexts)}.")
        return "\n".join(lines)


@dataclass(frozen=True)
class Affine(ClickModel):
    """Affine clicks, E[C | u, k] = a_k c_u + b_k: examination, and trust in what stands high.

    The interventions must contain the units without a click, as `harvest` does by default.

    Attributes:
        intervals: `"clustered"`, by query, which `"auto"` means, or None.
        anchor: the position whose clicks are the unit.
        seed: seed of the check; the fit has no randomness.
        progress: shows what is being done, see `clickharvest.progress`; nothing by default.

    Example:
        Trust alone brings a click to a tenth of the displays at position 1: c_2 = (c_1 − .1) / 2.

        >>> from clickharvest.harvesting import Interventions
        >>> random, relevance = np.random.default_rng(0), np.linspace(0.1, 0.8, 300)
        >>> shown = np.full((300, 2), 400)
        >>> clicks = random.binomial(shown, np.column_stack([0.1 + relevance, relevance / 2]))
        >>> unit = np.repeat(np.arange(300), 2)
        >>> model = Affine().fit(Interventions(
        ...     unit=unit, query=unit // 3, position=np.tile([1, 2], 300), exposure=np.full(600, 400.0),
        ...     clicks=clicks.ravel(), impressions=shown.ravel()))
        >>> model.slope.round(1).tolist(), model.offset.round(2).tolist()
        ([1.0, 0.5], [0.0, -0.05])
    """

    name: ClassVar[str] = "affine"
    about: ClassVar[str] = "a result that stands high is trusted, and clicked more readily once it is seen"

    intervals: str | None = "auto"
    anchor: int = 1
    seed: int = 0
    progress: Progress = silent

    def fit(self, interventions: Interventions) -> AnyAffine:
        """Return slopes and offsets, of every level of the context where there is one."""
        from clickharvest.click_models.affine.estimating import fit_affine
        from clickharvest.click_models.examination import Examination

        if self.intervals not in (None, "auto", "clustered"):
            raise InputError(f"--intervals {self.intervals}: those of the model affine are clustered; leave it out")

        def fit(rows: Interventions) -> AffineModel:
            return fit_affine(rows, anchor=self.anchor, intervals=self.intervals is not None, progress=self.progress)

        if not interventions.contexts:
            return fit(interventions)
        steepness = Examination(curve="power", intervals=None, anchor=self.anchor, progress=self.progress)
        return fit_levels(interventions, fit, steepness.fit)

    def check(
        self,
        data: ClickLog | Interventions,
        interventions: Interventions,
        fitted: Any,
        *,
        unit: UnitKind = "context",
        further: Sequence[Finding] = (),
        **options: Any,
    ) -> Checked:
        """Return the findings of the checks on clicks on the average result, and whether queries show trust, too."""
        from clickharvest.checks import Finding, read_displays
        from clickharvest.checks.checking import displays_of
        from clickharvest.click_models.average import check_average
        from clickharvest.logs.click_log import ClickLog

        displays = read_displays(data, unit) if isinstance(data, ClickLog) else displays_of(data)
        lines = Finding(
            "slopes and offsets", "ok", "Slopes and offsets are as exact as the curve of the average result."
        )
        if (errors := fitted.correction_errors()) is not None:
            sentence = "Corrected clicks of the best and the worst of a hundred results have errors of their own."
            lines = replace(lines, severity="note", sentence=sentence, effect=0 * errors, standard_error=errors)
        further = [*further, trust_within_queries(interventions, fitted, self.anchor, self.seed), lines]
        return check_average(
            displays, fitted.average, left_out=NOT_OF_AFFINE, further=further, seed=self.seed, **options
        )

    @classmethod
    def load(cls, header: Header, tensors: Tensors) -> AnyAffine:
        """Return the model of a file."""
        kind = AffineLevels if "levels" in header else AffineModel
        return kind.from_file(header, tensors)

    @classmethod
    def weigh(
        cls,
        log: ClickLog,
        fitted: Any,
        path: Path,
        *,
        clip: Clip,
        normalise: bool,
        policy_aware: bool,
        trust: Trust = "checked",
        **outcome: Any,
    ) -> CorrectionReport:
        """Write a log with slope, offset and corrected click of every row."""
        options = {"--clip": clip is not None, "--normalise": normalise, "--policy-aware": policy_aware}
        options |= {"--trust all": trust == "all"}
        if given := [option for option, is_given in options.items() if is_given]:
            raise InputError(
                f"{given[0]}: the model affine corrects clicks, (click - offset) / slope, and has no weights; leave it "
                "out, or weigh with a model of examination"
            )
        return correct_to_parquet(log, fitted, path)


def trust_within_queries(
    interventions: Interventions, fitted: AnyAffine | None = None, anchor: int = 1, seed: int = 0
) -> Finding:
    """Return whether documents of one query show trust, too.

    Queries that users read to different depths look like trust to this model: a click far down then comes from a query
    whose results are all clicked more. A comparison of documents of one query is free of that, and of differences
    between contexts: each level has its own curve, and classes of contexts have that of the examination model.
    """
    from scipy.special import ndtr

    from clickharvest.checks import Evidence, Finding
    from clickharvest.checks.checking import displays_of
    from clickharvest.checks.relevance import effect_of_relevance
    from clickharvest.click_models.examination import Examination

    rows, classes = interventions.clicked(), getattr(fitted, "classes", None)
    if classes is None:
        rows = by_level(rows)
        curve = Examination(curve="linear" if rows.contexts else "constant", intervals=None, anchor=anchor).fit(rows)
    else:
        curve = classes.propensities
    by_relevance = effect_of_relevance(Evidence(displays_of(rows), curve, seed=seed), within=True)
    name = "trust within queries"
    if by_relevance is None:
        return Finding(name, "note", "Too few queries to see whether trust shows among results of one query too.")
    effect, error = (float(side[-1]) for side in by_relevance)
    p = float(2 * ndtr(-abs(effect) / error))
    p_value, clear = f"(p = {p:.2g})", p < CLEAR
    if clear and effect > 0:
        sentence = f"Among results of one query too, clicks on good ones fall less steeply {p_value}, as with trust."
        return Finding(name, "ok", sentence, p=p)
    sentence = (
        f"Among results of one query {'good ones fall more steeply' if clear else 'there is no sign of trust'} "
        f"{p_value}{', the contrary of trust' if clear else ''}: if offsets are needed all the same, queries may "
        "differ in how far people read, which this model mistakes for trust."
    )
    return Finding(name, "warning", sentence, "prefer fit --model examination", p=p)


def by_level(interventions: Interventions) -> Interventions:
    """Return interventions with their levels as one context column; unchanged where there are many, or no context."""
    if not interventions.contexts:
        return interventions
    levels, level = levels_of(interventions.contexts)
    return interventions if len(levels) > MOST_LEVELS else replace(interventions, contexts={"level": level.astype(str)})


def correct_to_parquet(log: ClickLog, model: AnyAffine, path: str | Path) -> CorrectionReport:
    """Write all rows and columns of a log, with slope, offset and corrected click, straight into a Parquet file.

    `corrected_click` is (C − n b_k) / a_k with the clicks C and displays n of the row (1 in a log of single displays).
    At positions without support, it is empty and `correction_supported` is false.

    Raises:
        InputError: names clash, positions are empty, or the log has places instead.
    """
    with log.engine.output(Path(path)) as partial:
        table, report = correct_log(log, model)
        metadata = {"what": "corrected clicks", "anchor": model.anchor, **report.to_dict()}
        log.engine.write_parquet(table, partial, metadata=metadata, task="Correcting")
    return report


def correct_log(log: ClickLog, model: AnyAffine) -> tuple[ir.Table, CorrectionReport]:
    """Return the log as `correct_to_parquet` writes it, as an expression not yet run, and the report on it."""
    import ibis

    from clickharvest.weights.scoring import own_columns

    if clash := [name for name in log.source.columns if name.lower() in COLUMNS]:
        raise InputError(
            f"the log has a column {clash[0]!r} already, which is one that weighing adds ({', '.join(COLUMNS)}): "
            "rename it or leave it out"
        )
    joined, report = join_lines(log, model)
    clicks, shown = (log.columns[name].cast("float64") for name in ("clicks", "impressions"))
    slope, offset, _, supported = (joined[name] for name in JOINED)
    columns = dict(zip(COLUMNS, (slope, offset, (clicks - shown * offset) / slope), strict=False))
    columns = {name: supported.ifelse(value, ibis.null("float64")) for name, value in columns.items()}
    return joined.select(**own_columns(log), **columns, **{COLUMNS[3]: supported}), report


def join_lines(log: ClickLog, model: AnyAffine) -> tuple[ir.Table, CorrectionReport]:
    """Return the log's source with the columns `JOINED`, those of `Lines`, and the report on them.

    Without support, slopes are 1 and offsets 0.
    """
    from clickharvest.weights.scoring import count_cells

    if log.places is not None:
        raise InputError(
            f"the model is of positions of a list, and the log was read with places by "
            f"{', '.join(log.places.columns)}: leave --place out, and name the column of positions with --position"
        )
    if missing := [name for name in model.context if name not in log.context]:
        raise InputError(f"the model depends on the context column {missing[0]!r}: read the log with it")
    cells = count_cells(log, model.context, shown=log.columns["impressions"])
    contexts = cells.contexts
    position, clicks, rows, shown = (cells.counts(name) for name in ("position", "clicks", "rows", "shown"))
    lines = model.lines(position, contexts)
    supported = lines.supported
    report = CorrectionReport(
        rows=int(rows.sum()),
        clicks=int(clicks.sum()),
        corrected=float(((clicks - shown * lines.offset) / lines.slope)[supported].sum()),
        unsupported_rows=int(rows[~supported].sum()),
        unsupported_clicks=int(clicks[~supported].sum()),
        unsupported_positions=tuple(np.unique(position[~supported]).tolist()),
        unsupported_contexts=_unsupported_contexts(contexts, supported),
    )
    return cells.join(dict(zip(JOINED, lines, strict=True))), report


def _unsupported_contexts(contexts: Mapping[str, Any], supported: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return the contexts in which no cell is supported, in words."""
    if not contexts or len(supported) > MOST_CELLS:
        return ()
    rows = level_values(contexts)
    known = {row for row, has_support in zip(rows, supported, strict=True) if has_support}
    return tuple(spell_level(list(contexts), row) for row in sorted(set(rows) - known)[:MOST_NAMED])
