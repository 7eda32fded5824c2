"""What commands tell of a model, whichever click model it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clickharvest.click_models.base import FittedModel
    from clickharvest.report.verdict import Verdict


def verdict_of(model: FittedModel) -> Verdict | None:
    """Return whether a model can be relied on; None where there is no such judgement: it is made for examination."""
    from clickharvest.model.propensities import Propensities
    from clickharvest.report.verdict import judge

    return judge(model) if isinstance(model, Propensities) else None


def users_of(model: FittedModel) -> str | None:
    """Return what kind of users the log shows, where `fit --model auto` has asked it."""
    users = model.info.get("users")
    return users if isinstance(users, str) else None


def described(model: FittedModel) -> dict[str, Any]:
    """Return what a model says of itself with the verdict, if any, as JSON holds it."""
    verdict = verdict_of(model)
    return model.describe() | ({} if verdict is None else {"verdict": verdict.to_dict()})
