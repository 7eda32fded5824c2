"""What the pages show is what happens: every block of code runs, and the site builds without a warning.

A page's blocks run one after the other, in one namespace and one folder of their own:

- ```` ```python ```` is executed, ```` ```console ```` gives the lines `$ clickharvest …` to the command line;
- ```` ```text ```` right after either is what it printed, a command's errors too; a line `…` stands for any lines;
- any other block with `title="name"` is a file of that name;
- `$ clickharvest …  # exit 3` ends with that code, others with 0; `$ pip`, `$ make` and `$ git` are not run;
- blocks after `<!-- needs spark -->` run in `test_spark.py`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import clickharvest
from clickharvest.checks import CHECKS
from clickharvest.click_models import CLICK_MODELS
from clickharvest.commands import app as cli
from clickharvest.errors import ClickharvestWarning
from clickharvest.estimation import OBJECTIVES
from clickharvest.logs.formats import FORMATS
from clickharvest.model import CURVES
from clickharvest.rank.exports import EXPORTS
from clickharvest.rank.learners import LEARNERS
from clickharvest.simulate import simulate_ab_log
from places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- needs (\w+) -->\n\Z")
REGISTRIES = (CURVES, OBJECTIVES, FORMATS, CLICK_MODELS, LEARNERS, EXPORTS)
SKIPPED = ("pip", "make", "git")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what follows the language, its text, its mark, what it should print."""

    language: str
    options: str
    text: str
    needs: str | None
    printed: str | None

    @property
    def title(self) -> str | None:
        found = re.search(r'title="([\w.-]+)"', self.options)
        return found and found[1]


def blocks_of(text: str) -> list[Block]:
    found = list(FENCE.finditer(text))
    blocks = []
    for match, following in zip_longest(found, found[1:]):
        needs = MARK.search(text[: match.start()])
        is_next = following is not None and following[1] == "text" and not text[match.end() : following.start()].strip()
        printed = following[3] if following is not None and is_next else None
        blocks.append(Block(match[1], match[2], match[3], needs and needs[1], printed))
    return blocks


def is_shown(expected: str, printed: str) -> bool:
    """Whether the lines expected are those printed, where `…` stands for any lines and ends of lines do not count."""
    wanted, there = (
        "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines()) for text in (expected, printed)
    )
    pattern = "".join(r"(?:.*\n)*" if line == "…\n" else re.escape(line) for line in wanted.splitlines(keepends=True))
    return re.fullmatch(pattern, there) is not None


def run_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)
    if words[0] in SKIPPED:
        return
    assert words[0] == "clickharvest", f"a command that cannot be tested: {line}"
    code = re.search(r"# exit (\d)$", line)
    monkeypatch.setattr(sys, "argv", words)
    assert cli._run() == (int(code[1]) if code else 0), line


def run_blocks(
    blocks: list[Block],
    namespace: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for block in blocks:
        capsys.readouterr()
        if block.language == "python":
            exec(compile(block.text, "page", "exec", dont_inherit=True), namespace)  # noqa: S102
        elif block.language == "console":
            with warnings.catch_warnings():
                if "Warning: " in (block.printed or ""):  # any other is an error
                    warnings.simplefilter("always", ClickharvestWarning)
                for line in block.text.replace("\\\n", " ").splitlines():
                    if line.startswith("$ "):
                        run_line(line.removeprefix("$ "), monkeypatch)
        elif block.title:
            Path(block.title).write_text(block.text)
        captured = capsys.readouterr()
        printed = captured.out + (captured.err if block.language == "console" else "")
        assert block.printed is None or is_shown(block.printed, printed), f"{block.text}\nprints\n{printed}"


def prepare(page: Path) -> dict[str, Any]:
    """Return the names that a page takes for granted, and write the files it does: those of its reader."""
    if page.name == "README.md":
        pq.write_table(simulate_ab_log(pages=4_000, seed=0)[0], "clicks.parquet")
    if page.name != "boosting.md":
        return {}
    random = np.random.default_rng(0)
    sizes = np.full(50, 6)
    x = random.normal(size=(sizes.sum(), 3))
    click = random.random(len(x)) < 0.3
    return {"x": x, "sizes": sizes, "click": click, "ips_weight": random.uniform(1, 9, len(x))}


@pytest.fixture(autouse=True)
def new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def registries() -> Iterator[None]:
    """Forget what a page has added to the registries."""
    kept = [(registry, dict(registry)) for registry in (*(thing.things for thing in REGISTRIES), CHECKS)]
    yield
    for registry, things in kept:
        for name, thing in list(registry.items()):
            if name not in things and not (thing.__module__ or "").startswith("clickharvest."):
                del registry[name]


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_do_what_they_show(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = [block for block in blocks_of(page.read_text()) if block.needs is None]
    run_blocks(blocks, prepare(page), monkeypatch, capsys)


def test_a_wrong_block_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file, code = (
        '```csv title="a.csv"\nquery,doc\n```\n',
        '```python\nfrom pathlib import Path\nprint(Path("a.csv").read_text())\n```\n',
    )
    right = f"{file}{code}```text\nquery,doc\n```\n"
    run_blocks(blocks_of(right), {}, monkeypatch, capsys)
    wrong = (
        f"{file}{code}```text\nquery\n```\n",
        "```python\nraise ValueError\n```\n",
        "```console\n$ clickharvest check nowhere.csv\n```\n",
        "```console\n$ clickharvest --version # exit 3\n```\n",
        "```console\n$ rm -rf nothing\n```\n",
    )
    for text in wrong:
        with pytest.raises((AssertionError, ValueError)):
            run_blocks(blocks_of(text), {}, monkeypatch, capsys)


def test_dots_stand_for_any_lines() -> None:
    assert is_shown("a\n…\nd\n", "a\nb\nc\nd\n")
    assert is_shown("a \n", "a\n\n")
    assert not is_shown("a\n…\nd\n", "a\nb\n")
    assert not is_shown("a\n", "a\nb\n")
    assert not is_shown("a.\n", "ab\n")


def public_names() -> dict[str, Any]:
    """Every name that the package and its rooms export, by its shortest path; rooms are sections, not names."""
    found: dict[str, Any] = {}
    seen: set[tuple[str, int]] = set()
    modules = [clickharvest]
    while modules:
        home = modules.pop(0)
        for name in getattr(home, "__all__", None) or own_names(home):
            value = getattr(home, name)
            if inspect.ismodule(value):
                modules.append(value)
            elif not name.startswith("_") and (name, id(value)) not in seen:
                seen.add((name, id(value)))
                found[f"{home.__name__}.{name}"] = value
    return found


def own_names(module: types.ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__
    ]


def test_the_api_page_has_every_public_name_once() -> None:
    listed = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    public = public_names()
    assert {"clickharvest.CPBM", "clickharvest.model.Power", "clickharvest.estimation.ClickShare"} <= public.keys()
    assert not public.keys() - set(listed), "add them to docs/api.md"
    assert not set(listed) - public.keys(), "not public under this path: export them in their room, or list them less"


def test_public_names_are_explained() -> None:
    for name, value in public_names().items():
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), f"{name} has no docstring"
            plain = name.rpartition(".")[2]
            assert not (value.__doc__ or "").startswith(f"{plain}("), f"{name} has only its signature as docstring"


def imported(code: str) -> Iterator[tuple[str, str | None]]:
    """The modules of clickharvest that a piece of Python imports, and the names it takes from them."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "clickharvest":
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.partition(".")[0] == "clickharvest")


def strangers(code: str) -> list[str]:
    """The imports of a piece of Python that are not public: of a module, or of a name that it does not export."""
    homes = {path.rpartition(".")[0] for path in public_names()}
    found = []
    for home, name in imported(code):
        module = importlib.import_module(home)
        exported = getattr(module, "__all__", None) or own_names(module)
        if home not in homes or (name is not None and name not in exported):
            found.append(home if name is None else f"{home}.{name}")
    return found


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda page: page.name)
def test_pages_import_what_is_public(page: Path) -> None:
    text = page.read_text()
    codes = [text] if page.suffix == ".py" else [b.text for b in blocks_of(text) if b.language == "python"]
    for code in codes:
        assert not strangers(code), page.name


def test_an_import_of_what_is_not_public_is_noticed() -> None:
    assert not strangers("from clickharvest import CPBM, simulate\nimport numpy, clickharvest.rank\n")
    assert strangers("from clickharvest.model.onnx import export_onnx") == ["clickharvest.model.onnx.export_onnx"]
    assert strangers("from clickharvest.rank import LEARNERS, tables") == [
        "clickharvest.rank.LEARNERS",
        "clickharvest.rank.tables",
    ]
    assert strangers("def f():\n    import clickharvest.rank.data as d\n") == ["clickharvest.rank.data"]


class Requests(HTMLParser):
    """What a page loads by itself."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "source", "video", "audio", "object", "embed"):
            self.found += [value for name, value in attrs if value and name in ("src", "href", "data", "srcset")]


def test_the_site_builds_strictly_and_requests_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the docs extra is not installed")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml"), "-d", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    pages = sorted(site.rglob("*.html"))
    assert {f"{page.stem}.html" for page in PAGES[1:]} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text()
        assert "Content-Security-Policy" in text
        loaded = Requests(text).found
        assert loaded
        assert not [address for address in loaded if re.match(r"(?:https?:)?//", address)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", style.read_text()), style


def script(name: str) -> Any:
    """A script of the documentation, as a module."""
    specification = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_pictures_are_what_the_script_draws() -> None:
    for name, picture in script("draw_pictures").pictures().items():
        assert (ROOT / "docs" / name).read_text() == picture, f"run docs/draw_pictures.py: {name} is out of date"


def test_the_picture_of_the_report_can_be_taken_again(tmp_path: Path) -> None:
    picture = ROOT / "docs" / "report.png"
    taker = script("draw_report")
    assert png_size(picture) == (taker.WIDTH, taker.HEIGHT)
    assert picture.stat().st_size < 300_000
    browser = taker.find_browser()
    if browser is None:
        pytest.skip("Chromium is not installed: scripts/debian-packages installs it")
    taker.draw_report(tmp_path / "again.png", browser)
    assert png_size(tmp_path / "again.png") == png_size(picture)


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])


def test_the_page_of_commands_is_what_the_options_say() -> None:
    reference = script("reference")
    page = reference.write_page()
    assert (ROOT / "docs" / "commands.md").read_text() == page, "out of date: run python docs/reference.py"
    for name, (command, _) in reference.commands().items():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        shared = page.partition("\n## Shared options\n")[2] if "Also the shared options" in section else ""
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.opts[0] != "--help-all":
                assert parameter.opts[0] in section + shared, f"{name} {parameter.opts[0]}"


def test_every_command_is_on_the_first_page() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    assert set(listed) == set(script("reference").commands())


def test_files_the_readme_points_at_exist() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", PAGES[0].read_text()):
        assert (ROOT / target).exists()


def test_the_readme_counts_the_table_of_coverage() -> None:
    """How many kinds of logs are covered as they should be, and which are not."""
    text = (ROOT / "benchmarks" / "tables" / "coverage.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines() if line.startswith("| ")][1:]
    covered = {name: float(share.partition("%")[0]) for name, share in rows if "%" in share}
    close, honest = ({name for name, share in covered.items() if a <= share <= b} for a, b in ((93, 98), (90, 99)))
    told = " ".join(PAGES[0].read_text().split())
    missed = ", ".join(f"{name} ({share}%)" for name, share in covered.items() if name not in honest)
    assert f"93 to 98 % of the true values in {len(close)} of {len(covered)} kinds" in told
    assert f"and 90 to 99 % in {len(honest)}." in told
    assert f"Outside 90 to 99 % pointwise: {missed or 'no cell'}." in told


def test_the_gate_and_the_table_of_coverage_have_the_same_cells() -> None:
    text = (ROOT / "benchmarks" / "tables" / "coverage.md").read_text()
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")][1:]
    kept = json.loads((ROOT / "benchmarks" / "gate.json").read_text())
    assert rows == [name for name in kept if name in rows]
    assert len(rows) == 17


def test_unknown_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="attribute nothing"):
        clickharvest.nothing  # noqa: B018
