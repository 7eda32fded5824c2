"""Where programs that JAX has compiled are kept for the next process: a folder of the user's own, or nowhere.

A program kept is machine code that a later process runs, so that a folder into which anybody else may write is left
alone. Nothing ever fails for want of it: it saves seconds.
"""

from __future__ import annotations

import os
import stat
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

LEAST = 0.2
"""Seconds of compiling from which a program is kept."""


@cache
def keep_programs() -> Path | None:
    """Let JAX keep compiled programs in the user's cache folder; return it, or None where they are not kept there.

    `JAX_COMPILATION_CACHE_DIR` and `JAX_ENABLE_COMPILATION_CACHE` are left to have their way.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or "JAX_ENABLE_COMPILATION_CACHE" in os.environ:
        return None
    import jax

    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None:
        return None
    folder = _own_folder()
    if folder is not None:
        config.update("jax_compilation_cache_dir", str(folder))
        if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
            config.update("jax_persistent_cache_min_compile_time_secs", LEAST)
        # A disk that is full, or a file that something has broken, costs the compiling and nothing else.
        warnings.filterwarnings("ignore", message=".*persistent compilation cache")
    return folder


def _own_folder() -> Path | None:
    """Return the folder, made if need be, unless it cannot be written or others may write there too."""
    with suppress(OSError, RuntimeError):
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # The specification of XDG has relative paths ignored.
        home = base if base.is_absolute() else Path.home() / ".cache"
        folder = home / "clickharvest" / "programs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        shared = bool(about.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        foreign = hasattr(os, "getuid") and about.st_uid != os.getuid()
        if not shared and not foreign and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return None
