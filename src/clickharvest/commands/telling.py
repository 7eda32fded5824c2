"""What commands tell of a model, whichever click model it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clickharvest.click_models.base import FittedModel


def users_of(model: FittedModel) -> str | None:
    """Return what kind of users the log shows, where `fit --model auto` has asked it."""
    users = model.info.get("users")
    return users if isinstance(users, str) else None


def described(model: FittedModel) -> dict[str, Any]:
    """Return what a model says of itself, with its budget and findings if it was checked, as JSON holds it."""
    told = model.describe()
    return {name: model.info[name] for name in ("budget", "findings") if name in model.info} | told
