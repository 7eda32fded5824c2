"""Do the tests notice? Small changes to the code, one at a time, and whether a test of the room fails.

    make benchmark-mutants
    .venv/bin/python benchmarks/mutants.py --room rank --jobs 2
    .venv/bin/python benchmarks/mutants.py --only 3f2a90c11d

`mutations.py` says what is changed and what is left alone. Of all mutants of a module a share is drawn by the hash of
seed and id, so that a change to one function does not draw others anew. Everything runs in a temporary copy of the
tree. First every test file of a room runs once on unchanged code, to learn which lines each test runs; then each mutant
meets the tests that run its line, quickest files first, and if it outlives those, the others of files that run its
module, up to `BUDGET` seconds of tests in all. A test that hangs has noticed too.

What is known is kept in `benchmarks/data/mutants`, by the contents of the mutated file: an interrupted run goes on, and
a later one runs again what changed, and survivors where tests changed. A run with the default options writes the table
in `docs/contributing.md`. Exits with 1 where fewer than `BAR` of the mutants are noticed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from typing import Any

from mutations import Mutant, mutants_of
from tables import write_between_markers

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DATA = HERE / "data" / "mutants"
PAGE = ROOT / "docs" / "contributing.md"
COPIED = ("src", "tests", "benchmarks", "docs", "scripts", "pyproject.toml", "README.md", "mkdocs.yml", "Makefile")

ROOMS = ("estimation", "checks", "rank", "weights")
BESIDE = {"rank": ("tests/commands/test_rank_command.py",)}
"""Tests of a room that stand elsewhere."""
COUNT, LEAST, SEED, BAR = 320, 4, 11, 0.9
"""Mutants drawn over all modules, and of each at least; the seed; the share that tests must notice."""
UNSEEN_COUNT, UNSEEN_SEED = 120, 12
"""A second draw. Survivors of the first got tests, so that its score flatters; those of this one are never shown."""
BUDGET = 150.0
"""Seconds of tests, as measured on unchanged code, that a mutant meets at most."""
NOTICED = ("killed", "timeout")

EQUIVALENT: dict[str, str] = {
    "de8f5de745": "the last axis is the default of `take_along_axis`",
    "35e29c391f": "how exactly a smoothed loss is minimised: speed alone",
    "71a7d720be": "the gap is never exactly as large as its tolerance",
}
"""Survivors that no test can notice, by id, and why."""

Record = dict[str, Any]
Baseline = dict[str, Any]


def main() -> None:
    """Draw mutants, run what is not known yet, and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", choices=ROOMS, help="mutants of one room only")
    parser.add_argument("--module", help="mutants of modules whose path holds this")
    parser.add_argument("--only", nargs="*", help="mutants by id")
    parser.add_argument("--count", type=int, default=COUNT, help="mutants drawn over all rooms")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the draw")
    parser.add_argument("--jobs", type=int, default=1, help="mutants run at a time")
    parser.add_argument("--list", action="store_true", help="print the mutants drawn and what is known of them")
    parser.add_argument("--again", action="store_true", help="forget what is known of the mutants drawn")
    options = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    drawn = draw(options.count, options.seed)
    if options.only:
        drawn = [m for m in all_mutants() if m.id in options.only]
    wanted = [
        mutant
        for mutant in drawn
        if (options.room is None or room_of(mutant.file) == options.room)
        and (options.module is None or options.module in mutant.file)
    ]
    whole = options.room is options.module is options.only is None and options.count == COUNT and options.seed == SEED
    seen = {mutant.id for mutant in drawn}
    unseen = [m for m in draw(UNSEEN_COUNT, UNSEEN_SEED) if m.id not in seen] if whole and not options.list else []
    known = read_known()
    if not options.list:
        missing = [mutant for mutant in (*wanted, *unseen) if options.again or not is_known(mutant, known)]
        known |= run_all(missing, options.jobs, {mutant.id for mutant in unseen}) if missing else {}
    records, aside = ([known[key] for m in part if (key := key_of(m)) in known] for part in (wanted, unseen))
    for record in records:
        if options.list or options.only or record["status"] not in NOTICED:
            print(told(record))
    table = summary(records, aside, len(all_mutants()))
    print(table)
    if whole and not options.list:
        publish(table, records)
    sys.exit(0 if score(records) >= BAR else 1)


def modules(room: str) -> list[Path]:
    """Return the modules of a room; names alone, as in `__init__`, cannot be mutated."""
    base = ROOT / "src" / "clickharvest" / room
    files = sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]
    return [file for file in files if file.name != "__init__.py"]


def room_of(file: str) -> str:
    return Path(file).parts[2].removesuffix(".py")


def all_mutants() -> list[Mutant]:
    """Return every mutant of every room."""
    return [
        mutant
        for room in ROOMS
        for file in modules(room)
        for mutant in mutants_of(room, file.relative_to(ROOT).as_posix(), file.read_bytes())
    ]


def draw(count: int, seed: int) -> list[Mutant]:
    """Return a share of each module's mutants, the same of each, those with the least hashes of seed and id."""
    by_file: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in all_mutants():
        by_file[mutant.file].append(mutant)
    total = sum(len(own) for own in by_file.values())
    drawn = []
    for own in by_file.values():
        size = min(len(own), max(LEAST, round(count * len(own) / total)))
        drawn += sorted(own, key=lambda m: digest(f"{seed} {m.id}"))[:size]
    return drawn


def digest(*parts: str | bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.encode() if isinstance(part, str) else part)
    return whole.hexdigest()[:16]


def key_of(mutant: Mutant) -> str:
    """Return what a result holds for: the contents of the file, and the change."""
    return f"{digest((ROOT / mutant.file).read_bytes())}:{mutant.id}"


def test_files(room: str) -> list[str]:
    """Return the files with tests of a room: those that mirror it, some beside, and its own examples."""
    folder = ROOT / "tests" / room
    files = sorted(folder.rglob("test_*.py")) if folder.is_dir() else [ROOT / "tests" / f"test_{room}.py"]
    base = ROOT / "src" / "clickharvest" / room
    examples = base if base.is_dir() else base.with_suffix(".py")
    paths = [file.relative_to(ROOT).as_posix() for file in (*files, examples)]
    return [*paths, *BESIDE.get(room, ())]


def tests_digest(room: str) -> str:
    files = [ROOT / name for name in test_files(room) if name.endswith(".py")]
    return digest(*(file.read_bytes() for file in files), helpers_digest())


def helpers_digest() -> str:
    """Return the digest of what tests of several rooms import."""
    files = sorted(file for file in (ROOT / "tests").glob("*.py") if not file.name.startswith("test_"))
    return digest(*(file.read_bytes() for file in files))


def read_known() -> dict[str, Record]:
    file = DATA / "results.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {record["key"]: record for record in map(json.loads, lines)}


def is_known(mutant: Mutant, known: dict[str, Record]) -> bool:
    """Whether a result still holds: a survivor must have outlived the tests of today, unless none can notice it."""
    record = known.get(key_of(mutant))
    if record is None:
        return False
    settled = record["status"] in NOTICED or mutant.id in EQUIVALENT
    return settled or bool(record["tests"] == tests_digest(room_of(mutant.file)))


def environment(tree: Path, **more: str) -> dict[str, str]:
    """Return the environment of a test run: the package of a tree, and the plugin."""
    places = os.pathsep.join(str(tree / name) for name in ("src", "benchmarks/mutants"))
    return {**os.environ, "PYTHONPATH": places, **more}


DAILY = "not spark and not nightly"
QUIET = ("-q", "-p", "mutant_plugin", "-p", "no:cacheprovider", "-m", DAILY, "--no-header", "--tb=line")


def copy_tree(folder: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
        elif source.exists():
            shutil.copy2(source, folder / name)
    return folder


def baseline(room: str, tree: Path) -> Baseline:
    """Return the seconds of each test of a room and the lines that it runs, on unchanged code."""
    whole: Baseline = {"seconds": {}, "lines": {}}
    sources = digest(*(file.read_bytes() for file in sorted((ROOT / "src").rglob("*.py"))))
    shared = helpers_digest()
    for name in test_files(room):
        own = (ROOT / name).read_bytes() if name.endswith(".py") else b""
        kept = DATA / f"lines-{digest(sources, shared, name, own)}.json"
        if not kept.exists():
            print(f"Which lines {name} runs", flush=True)
            wanted = environment(tree, MUTANTS_LINES=str(kept))
            command = [sys.executable, "-m", "pytest", *QUIET, name]
            done = subprocess.run(command, cwd=tree, env=wanted, capture_output=True, text=True)
            if done.returncode != 0:
                kept.unlink(missing_ok=True)
                sys.exit(f"{name} fails on unchanged code:\n{done.stdout[-3_000:]}{done.stderr[-2_000:]}")
        found = json.loads(kept.read_text(encoding="utf-8"))
        whole["seconds"] |= found["seconds"]
        for test, files in found["lines"].items():
            own_lines = whole["lines"].setdefault(test, {})
            for file, lines in files.items():
                own_lines[file] = sorted({*own_lines.get(file, ()), *lines})
    return whole


def plans(mutant: Mutant, base: Baseline) -> list[list[str]]:
    """Return the tests to run, file by file: those that run the mutated lines, then all of files that run the module.

    What a fixture runs for several tests counts as run by the first of them.
    """
    lines = {test: set(files.get(mutant.file, ())) for test, files in base["lines"].items() if test}
    at_import = set(base["lines"].get("", {}).get(mutant.file, ()))
    of_line = {test for test, ran in lines.items() if ran & set(mutant.lines)}
    files = {test.partition("::")[0] for test, ran in lines.items() if ran - at_import}
    beside = {test for test in base["seconds"] if test.partition("::")[0] in files}
    seconds = {test: took for test, took in base["seconds"].items() if not math.isnan(took)}
    left, found = BUDGET, []
    for tests in (of_line, beside - of_line):
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in sorted(tests & seconds.keys(), key=seconds.__getitem__):
            by_file[test.partition("::")[0]].append(test)
        mirror = Path(mutant.file).stem
        for file in sorted(by_file, key=lambda name: (mirror not in name, sum(seconds[t] for t in by_file[name]))):
            chosen = []
            for test in by_file[file]:
                if seconds[test] <= left:
                    left -= seconds[test]
                    chosen.append(test)
            found.append(chosen)
    return [chosen for chosen in found if chosen]


class Workshop:
    """A copy of the tree, and a process that runs tests in it; `test_server.py` says why."""

    def __init__(self, folder: Path) -> None:
        self.tree = copy_tree(folder)
        command = [sys.executable, "-u", str(HERE / "mutants" / "test_server.py")]
        self.server = subprocess.Popen(
            command, cwd=self.tree, env=environment(self.tree), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, tests: list[str]) -> tuple[str, str]:
        """Return whether one of the tests failed or hung, and which failed."""
        names, output = self.tree / "tests-to-run.txt", self.tree / "output.txt"
        names.write_text("\n".join(tests), encoding="utf-8")
        request = {"arguments": [*QUIET, "-x", f"@{names}"], "output": str(output), "timeout": 60 + 5 * BUDGET}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        ended = self.server.stdout.readline().strip()
        text = output.read_text(encoding="utf-8", errors="replace")
        if ended == "0":
            return "survived", ""
        if ended in ("timeout", f"-{signal.SIGPROF:d}"):
            return "timeout", ""
        failed = [line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if not ended or not (failed or ended.startswith("-")):
            sys.exit(f"pytest ended with {ended!r} and no failed test: {text[-3_000:]}")
        return "killed", failed[0].split(" - ")[0].partition(" ")[2] if failed else f"signal {ended}"

    def close(self) -> None:
        self.server.terminate()
        self.server.wait()


def run_one(mutant: Mutant, base: Baseline, shop: Workshop, known_by: dict[str, str]) -> Record:
    """Change the file in the copy, run the tests, and put it back."""
    file = shop.tree / mutant.file
    source, begin = file.read_bytes(), time.perf_counter()
    status, killer = "survived", ""
    try:
        rewrite(file, mutant.apply(source))
        for tests in plans(mutant, base):
            status, killer = shop.run(tests)
            if status in NOTICED:
                break
    finally:
        rewrite(file, source)
    return {
        **known_by,
        "id": mutant.id,
        "file": mutant.file,
        "place": mutant.place,
        "line": mutant.lines[0],
        "operator": mutant.operator,
        "before": mutant.before,
        "after": mutant.after,
        "status": status,
        "killer": killer,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def rewrite(file: Path, source: bytes) -> None:
    """Write a module, and drop its compiled form: one as long and of the same second would pass for the new one's."""
    file.write_bytes(source)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()


def run_all(missing: list[Mutant], jobs: int, unseen: set[str]) -> dict[str, Record]:
    """Run mutants in copies of the tree, one for each job, and write down each result as it comes."""
    found: dict[str, Record] = {}
    # Of the tree as it is copied now: it may change while mutants run.
    tests = {room: tests_digest(room) for room in ROOMS}
    keys = {mutant.id: {"key": key_of(mutant), "tests": tests[room_of(mutant.file)]} for mutant in missing}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bases = baselines({room_of(mutant.file) for mutant in missing}, Path(folder) / "unchanged")
        shops: Queue[Workshop] = Queue()
        for i in range(jobs):
            shops.put(Workshop(Path(folder) / str(i)))

        def run(mutant: Mutant) -> Record:
            shop = shops.get()
            try:
                return run_one(mutant, bases[room_of(mutant.file)], shop, keys[mutant.id])
            finally:
                shops.put(shop)

        with ThreadPoolExecutor(jobs) as pool, (DATA / "results.jsonl").open("a", encoding="utf-8") as file:
            for done, record in enumerate(pool.map(run, missing), start=1):
                found[record["key"]] = record
                file.write(json.dumps(record) + "\n")
                file.flush()
                shown = "of the second draw" if record["id"] in unseen else told(record)
                print(f"{done}/{len(missing)} {shown}", flush=True)
        while not shops.empty():
            shops.get().close()
    return found


def baselines(rooms: set[str], folder: Path) -> dict[str, Baseline]:
    """Return what tests run on unchanged code, for each room; a test must pass there, and be found by its name."""
    tree = copy_tree(folder)
    bases = {room: baseline(room, tree) for room in sorted(rooms)}
    shop = Workshop(folder.with_name("names"))
    for room, base in bases.items():
        status, failed = shop.run([*base["seconds"], "--collect-only"])
        if status != "survived":
            sys.exit(f"tests of {room} are not found by their names: {failed}")
    shop.close()
    return bases


def told(record: Record) -> str:
    where = f"{record['file'].removeprefix('src/clickharvest/')}:{record['line']} {record['place']}"
    change = f"{record['before']}  ⟶  {record['after']}"
    return f"{record['status']:8} {record['seconds']:5.0f} s  {record['id']} {where} [{record['operator']}] {change}"


def score(records: list[Record]) -> float:
    """Return the share noticed, equivalent mutants left out."""
    noticed = [record["status"] in NOTICED for record in records]
    alike = sum(record["id"] in EQUIVALENT and record["status"] not in NOTICED for record in records)
    return sum(noticed) / max(len(noticed) - alike, 1)


def summary(records: list[Record], aside: list[Record], of: int) -> str:
    """Return the table: how many mutants of each room were noticed, and of the second draw."""
    parts = {f"`{room}`": [r for r in records if room_of(r["file"]) == room] for room in ROOMS}
    parts |= {f"all, of {of:,} possible": records, "second draw, no test written for it": aside}
    lines = ["| room | mutants | killed | hung | equivalent | survived | noticed |", "|---|--:|--:|--:|--:|--:|--:|"]
    for name, own in parts.items():
        alike = sum(record["id"] in EQUIVALENT and record["status"] not in NOTICED for record in own)
        count = Counter(record["status"] for record in own)
        cells = [len(own), count["killed"], count["timeout"], alike, count["survived"] - alike]
        lines += [f"| {name} | {' | '.join(map(str, cells))} | {score(own):.1%} |"] if own else []
    return "\n".join(lines)


def publish(table: str, records: list[Record]) -> None:
    """Write the table and the survivors into the page."""
    left = [record for record in records if record["status"] not in NOTICED]
    lines = []
    for record in sorted(left, key=lambda r: (r["id"] in EQUIVALENT, r["file"], r["line"])):
        where = f"{record['file'].removeprefix('src/clickharvest/')}, {record['place']}"
        change = f"`{record['before']}` → `{record['after']}`".replace("|", "\\|")
        reason = EQUIVALENT.get(record["id"], "no test yet")
        lines.append(f"| `{record['id']}` | {where} | {change} | {reason} |")
    survivors = "\n".join(["| id | where | change | why it lives |", "|---|---|---|---|", *lines])
    measured = (
        f"Measured on {datetime.now(UTC):%-d %B %Y} with seeds {SEED} and {UNSEEN_SEED}: `make benchmark-mutants`. "
        "Survivors of the first draw got tests, unless listed below; the second tells how mutants fare that nobody has "
        "looked at, those that no test can notice counted as survivors."
    )
    text = f"{measured}\n\n{table}\n\n{survivors}" if lines else f"{measured}\n\n{table}"
    write_between_markers(PAGE, "mutants", text)


if __name__ == "__main__":
    main()
