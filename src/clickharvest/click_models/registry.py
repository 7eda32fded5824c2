"""The click models there are. This folder is the list of them: one module each, named like the model."""

from __future__ import annotations

from typing import Any

from clickharvest.registry import Registry

EXAMINATION = "examination"
"""The click model that is meant where none is named, and that files which name none hold."""
AUTO = "auto"
"""What stands for the choice by the log where a click model is named, see `choosing`."""
BESIDES = ("average", "base", "choosing", "registry")
"""Modules of this folder that hold what models are made with."""
CLICK_MODELS: Registry[Any] = Registry("click model", __package__, besides=BESIDES)
"""The click models by name, listed without importing them; a subclass of `ClickModel` with a `name` adds itself."""
