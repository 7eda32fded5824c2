"""Where things lie: the repository's folders, and the real data beside it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
EXPERIMENTS = ROOT / "experiments"
BENCHMARKS = ROOT / "benchmarks"
SHARED_DATA = ROOT.parent / "shared" / "data"
