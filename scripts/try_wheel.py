"""Build the wheel, install it into a clean environment outside the checkout, and run the README's commands from it.

The commands are read from README.md, so that what is shown there is what was tried. They run in a temporary folder, in
the order of the page, on a simulated log:

1. with the plain install: a command that needs an extra must say so in one line, name the extra, and exit with 2;
2. that extra is then installed, as the message says, and the command must work.

python3 scripts/try_wheel.py          # standard library alone
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXTRA = re.compile(r"pip install 'clickharvest\[(\w+)\]'")
PLAIN = ("check", "harvest", "fit", "propensities", "show", "weigh", "report", "simulate")
"""Commands that must work with the plain install."""
INSIDE = ("py.typed", "__init__.pyi", "rank/__init__.pyi", "report/assets/template.html", "report/assets/page.js")
"""Files, beside modules, without which the package does not work."""

READERS_FILES = """
import numpy as np
import pyarrow.parquet as pq
from clickharvest.simulate import simulate_ab_log

log = simulate_ab_log(pages=20_000, seed=0)[0]
pq.write_table(log, "clicks.parquet")
documents = log.group_by(["query", "doc"]).aggregate([])
price = np.random.default_rng(0).random(documents.num_rows)
pq.write_table(documents.append_column("price", [price]), "documents.parquet")
"""


def main() -> None:
    """Try the wheel; end with 1 where a command does not do as it should."""
    with tempfile.TemporaryDirectory(prefix="clickharvest-wheel-") as folder:
        work = Path(folder)
        python = make_environment(work / "environment")
        wheel = build_wheel(python, work / "dist")
        install(python, str(wheel))
        tell_size(python, work / "environment")
        run([str(python), "-c", READERS_FILES], work)
        failures = [line for line in readme_commands() if not works(line, python, wheel, work)]
    if failures:
        sys.exit(f"{len(failures)} of the README's commands do not work from the wheel: {'; '.join(failures)}")


def make_environment(folder: Path) -> Path:
    """Return the Python of a new virtual environment."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def build_wheel(python: Path, folder: Path) -> Path:
    """Return the wheel of this checkout, which must hold what the package needs beside its modules."""
    pip(python, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("clickharvest-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    if missing := [name for name in INSIDE if f"clickharvest/{name}" not in names]:
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
    return wheel


def install(python: Path, what: str) -> None:
    """Install a wheel, with or without extras."""
    pip(python, "install", what)


def pip(python: Path, *arguments: str) -> None:
    """Run pip, and end with what it says where it fails."""
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def tell_size(python: Path, environment: Path) -> None:
    """Print how much the plain install brings."""
    listed = run([str(python), "-m", "pip", "list", "--format", "freeze"], environment).stdout.split()
    packages = [line for line in listed if not line.startswith(("pip==", "setuptools=="))]
    size = sum(file.stat().st_size for file in environment.rglob("*") if file.is_file() and not file.is_symlink())
    print(f"Plain install: {len(packages)} packages, {size / 1e6:,.0f} MB", flush=True)


def readme_commands() -> list[str]:
    """Return the commands of the README's console blocks, without comments; `pip` is this script's business."""
    blocks = FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ ")]
    commands = [shlex.join(shlex.split(line.removeprefix("$ "), comments=True)) for line in lines]
    found = [command for command in commands if command.startswith("clickharvest ")]
    if not found:
        sys.exit("README.md shows no command: expected console blocks with lines $ clickharvest …")
    return found


def works(line: str, python: Path, wheel: Path, work: Path) -> bool:
    """Whether a command works, with the extra it asks for where it may ask for one."""
    words = [str(python.with_name("clickharvest")), *shlex.split(line)[1:]]
    ended = subprocess.run(words, cwd=work, capture_output=True, text=True, check=False)
    asked = EXTRA.search(ended.stderr)
    if ended.returncode == 2 and asked and words[1] not in PLAIN and ended.stderr.count("\n") == 1:
        print(f"asks for its extra: {line}\n    {ended.stderr.strip()}", flush=True)
        install(python, f"{wheel}[{asked[1]}]")
        ended = subprocess.run(words, cwd=work, capture_output=True, text=True, check=False)
    good = ended.returncode == 0
    print(f"{'works' if good else 'FAILS'}: {line}", flush=True)
    if not good:
        print(f"exit code {ended.returncode}\n{ended.stderr}", flush=True)
    return good


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that has to work."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)


if __name__ == "__main__":
    main()
