"""Affine: what stands high is trusted, so that a click depends on the position even when a result is seen.

    E[click | unit u, position k] = a_k c_u + b_k

with the unit's click rate c_u at the anchor: see `model.affine` for what that says, `estimation.affine` for how it is
found. A log is weighed by corrected clicks, (C − n b_k) / a_k, whose expectation is that of clicks at the anchor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from clickharvest.click_models.base import ClickModel
from clickharvest.errors import InputError
from clickharvest.progress import Progress, silent
from clickharvest.words import count, spell_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clickharvest.diagnosis.findings import Finding
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.affine import AffineModel
    from clickharvest.scoring import Cells
    from clickharvest.weights import Clip

COLUMNS = ("click_slope", "click_offset", "corrected_click", "correction_supported")
"""The columns that weighing adds to those of a log."""


@dataclass(frozen=True)
class CorrectionReport:
    """What correcting the clicks of a log did.

    Attributes:
        rows: rows of the log.
        clicks: clicks in them.
        corrected: sum of the corrected clicks: about so many clicks would all displays have got at the anchor.
        unsupported_rows: rows at positions without an estimate: their correction is empty.
        unsupported_clicks: clicks in those rows.
        unsupported_positions: those positions.
    """

    rows: int
    clicks: int
    corrected: float
    unsupported_rows: int
    unsupported_clicks: int
    unsupported_positions: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON holds it."""
        return asdict(self) | {"unsupported_positions": list(self.unsupported_positions)}

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
        return "\n".join(lines)


@dataclass(frozen=True)
class Affine(ClickModel):
    """Affine clicks; fields are those of `AffineClicks`."""

    name: ClassVar[str] = "affine"
    about: ClassVar[str] = "a result that stands high is trusted, and clicked more readily once it is seen"

    intervals: str | None = "auto"
    anchor: int = 1
    seed: int = 0
    progress: Progress = silent

    def fit(self, interventions: Interventions) -> AffineModel:
        """Return slopes and offsets."""
        from clickharvest.estimation.affine import AffineClicks

        if self.intervals not in (None, "auto", "clustered"):
            raise InputError(f"--intervals {self.intervals}: those of the model affine are clustered; leave it out")
        with_bars = self.intervals is not None
        return AffineClicks(anchor=self.anchor, intervals=with_bars, progress=self.progress).fit(interventions).affine_

    def check(self, interventions: Interventions) -> Sequence[Finding]:
        """Return whether trust shows among documents of one query too.

        Queries that people read to different depths look like trust to this model: a click far down then comes from a
        query where all results are clicked more. Documents of one query compared with each other do not.
        """
        from clickharvest.diagnosis.findings import WEAK, Finding, spell_p
        from clickharvest.estimation.model_checks import trust_bias

        with self.progress("Checking the model"):
            found = trust_bias(interventions.clicked(), anchor=self.anchor, seed=self.seed)
        name = "trust within queries"
        if found.p_value is None or found.value is None:
            return [Finding(name, "note", "Too few queries to see whether trust shows among results of one query too.")]
        told = f"({spell_p(found.p_value)})"
        if found.p_value < WEAK and found.value > 0:
            sentence = f"Among results of one query too, clicks on good ones fall less steeply {told}, as with trust."
            return [Finding(name, "ok", sentence, found.value, found.p_value)]
        sentence = (
            f"Among results of one query there is no sign of trust {told}: if offsets are needed all the same, queries "
            "may differ in how far people read, which this model mistakes for trust. Prefer fit --model examination."
        )
        return [Finding(name, "warning", sentence, found.value, found.p_value)]

    @classmethod
    def load(cls, header: Mapping[str, Any], tensors: Mapping[str, Any]) -> AffineModel:
        """Return the model of a file."""
        from clickharvest.model.affine import affine_from_file

        return affine_from_file(header, tensors)

    @classmethod
    def weigh(
        cls, log: ClickLog, fitted: Any, path: Path, *, clip: Clip, normalise: bool, policy_aware: bool
    ) -> CorrectionReport:
        """Write a log with slope, offset and corrected click of every row."""
        asked = {"--clip": clip is not None, "--normalise": normalise, "--policy-aware": policy_aware}
        if given := [option for option, is_given in asked.items() if is_given]:
            raise InputError(
                f"{given[0]}: the model affine corrects clicks, (click - offset) / slope, and has no weights; leave it "
                "out, or weigh with a model of examination"
            )
        return correct_to_parquet(log, fitted, path)


def correct_to_parquet(log: ClickLog, model: AffineModel, path: str | Path) -> CorrectionReport:
    """Write all rows and columns of a log, and slope, offset and corrected click, straight into a Parquet file.

    `corrected_click` is (C − n b_k) / a_k with the clicks C and displays n of the row (1 in a log of single displays).
    It is empty at positions that are not supported, and `correction_supported` false.

    Raises:
        InputError: names clash, positions are empty, or the log has places instead.
    """
    import ibis

    from clickharvest.scoring import count_cells, own_columns

    if log.places is not None:
        raise InputError(
            f"the model speaks of positions of a list, and the log was read with places by "
            f"{', '.join(log.places.columns)}: leave --place out, and name the column of positions with --position"
        )
    if clash := [name for name in log.source.columns if name.lower() in COLUMNS]:
        raise InputError(
            f"the log has a column {clash[0]!r} already, which is one that weighing adds ({', '.join(COLUMNS)}): "
            "rename it or leave it out"
        )
    with log.engine.output(Path(path)) as partial:
        cells = count_cells(log)
        position = cells.counts("position")
        predicted = model.predict()
        at = np.minimum(np.searchsorted(model.shown, position), len(model.shown) - 1)
        fine = (np.array(model.shown)[at] == position) & predicted.supported[at]
        slope, offset = (np.where(fine, column[at], 1.0) for column in (predicted.slope, predicted.offset))
        joined = cells.join({COLUMNS[0]: slope, COLUMNS[1]: offset, COLUMNS[3]: fine})
        clicks, shown = (log.columns[name].cast("float64") for name in ("clicks", "impressions"))
        corrected = (clicks - shown * joined.click_offset) / joined.click_slope
        found = {COLUMNS[0]: joined.click_slope, COLUMNS[1]: joined.click_offset, COLUMNS[2]: corrected}
        told = {name: joined.correction_supported.ifelse(value, ibis.null("float64")) for name, value in found.items()}
        table = joined.select(**own_columns(log), **told, **{COLUMNS[3]: joined.correction_supported})
        report = _report(log, model, cells, fine)
        metadata = {"what": "corrected clicks", "anchor": model.anchor, **report.to_dict()}
        log.engine.write_parquet(table, partial, metadata=metadata, task="Correcting")
    return report


def _report(log: ClickLog, model: AffineModel, cells: Cells, fine: NDArray[np.bool_]) -> CorrectionReport:
    position, clicks, rows = (cells.counts(name) for name in ("position", "clicks", "rows"))
    shown = rows
    if "click" not in log.roles:  # counted rows: displays are not their number
        at = log.source.select(position=log.columns["position"].cast("int64"), shown=log.columns["impressions"])
        sums = log.engine.fetch(
            at.group_by("position").agg(shown=at.shown.sum().cast("int64")), task="Counting displays"
        )
        by_position = dict(zip(sums["position"].to_pylist(), sums["shown"].to_pylist(), strict=True))
        shown = np.array([by_position[k] for k in position.tolist()])
    return CorrectionReport(
        rows=int(rows.sum()),
        clicks=int(clicks.sum()),
        corrected=float(np.nansum(model.correct(clicks, position, shown))),
        unsupported_rows=int(rows[~fine].sum()),
        unsupported_clicks=int(clicks[~fine].sum()),
        unsupported_positions=tuple(np.unique(position[~fine]).tolist()),
    )
