"""What is used of Ibis beyond its documented interface."""

import subprocess
import sys

from clickharvest.logs.ibis_inside import COMPILERS

LOADED = f"""
import sys
from clickharvest.logs import DuckDBEngine
DuckDBEngine()
import ibis.backends.sql.compilers as compilers
known = [name for name in sys.modules if name.startswith(compilers.__name__ + ".")]
print(" ".join(sorted(name.rpartition(".")[2] for name in known)))
print(" ".join(getattr(compilers, name).__name__ for name in {list(COMPILERS.values())}))
print(getattr(compilers, "NoSuchCompiler", None))
"""


def test_an_engine_loads_its_own_compiler_and_finds_the_others_when_asked() -> None:
    """In a process of its own: other tests have loaded them all."""
    answer = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=120)
    loaded, found, unknown = answer.stdout.splitlines()
    assert "duckdb" in loaded.split()
    assert "snowflake" not in loaded.split()
    assert found.split() == list(COMPILERS.values())
    assert unknown == "None"
