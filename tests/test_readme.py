"""Every block of every document runs, and what the documents list is what the program has."""

from __future__ import annotations

import os
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from approval import begins_approved, is_approved
from attack.case import patience
from ci_steps import ci_steps
from outcomes import HARDWARE
from readme_blocks import Block, blocks_of, without_environment
from warm import EveryWarm, write_python

from precision_debug import registry
from precision_debug.cli.compare import build_parser
from precision_debug.cli.doctor import PAGES as PAGES_OF_CODE
from precision_debug.report.layout import COLUMNS

ROOT = Path(__file__).parent.parent
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
TRANSLATED = {ENGLISH: CHINESE, **{page.with_name(page.name.replace(".zh.md", ".md")): page
                                   for page in sorted((ROOT / "docs").rglob("*.zh.md"))}}  # fmt: skip
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ENGLISH, CHINESE, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").glob("*/README.md")), *PAGES]
CHINESE_LETTERS = re.compile("[\u4e00-\u9fff]")
SITE = re.compile(r"https://(?:github\.com/precision-debug/precision_debug/(?:blob|tree)"
                  r"|raw\.githubusercontent\.com/precision-debug/precision_debug)/main/")  # fmt: skip
TIMEOUT_S = 300
FORBIDDEN_FILES = {"utils.py"}
"""Of the house rules: none is called so."""


def rows_of_table(document: Path, header: str) -> list[list[str]]:
    """Cells of the tables whose header line starts so."""
    rows, inside = [], False
    for line in document.read_text(encoding="utf-8").splitlines():
        if line.startswith(header):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory, warm: EveryWarm) -> dict[str, str]:
    """An environment in whose PATH `python` is the interpreter of these tests, warm for what documents type."""
    folder = tmp_path_factory.mktemp("bin")
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **write_python(folder, warm["onnxruntime"])}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """A working copy for each document; its blocks run in it from top to bottom."""

    class Copies(dict[Path, Path]):
        def __missing__(self, document: Path) -> Path:
            folder = tmp_path_factory.mktemp(document.stem.replace(".", "_")) / "copy"
            shutil.copytree(ROOT, folder, ignore=_left_out)
            for block in blocks_of(document):
                if block.file:
                    (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                    (folder / block.file).write_text(block.text, encoding="utf-8")
                    if block.file.endswith("pyproject.toml"):
                        _install(folder / block.file)
            self[document] = folder
            return folder

    return Copies()


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Caches everywhere; at the root also environments, build results and earlier reports."""
    found = {name for name in names if name == "__pycache__"}
    if Path(folder) == ROOT:
        found |= {name for name in names if re.match(r"\.(?!gitignore)|build$|dist$", name)}
    if Path(folder) == ROOT / "output":
        found = set(names) - {".gitignore"}
    return found


def _install(project: Path) -> None:
    """Write beside a pyproject.toml the metadata that `pip install -e` would, so that its entry points are found."""
    text = project.read_text(encoding="utf-8")
    name, version = (re.findall(rf'^{key} = "(.+)"$', text, re.MULTILINE)[0] for key in ("name", "version"))
    folder = project.parent / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    lines = []
    for group, entries in re.findall(r'^\[project\.entry-points\."(.+)"\]\n((?:.+\n)+)', text, re.MULTILINE):
        lines += [f"[{group}]", entries.replace('"', "")]
    assert lines, f"{project}: no entry points"
    (folder / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def _label(block: Block) -> str:
    return f"{block.document.relative_to(ROOT)}:{block.line}"


# a Chinese document's blocks are the English one's, see test_both_languages_say_the_same
@pytest.mark.in_order
@pytest.mark.parametrize(
    "block", [b for d in DOCUMENTS if d not in TRANSLATED.values() for b in blocks_of(d) if b.runs], ids=_label
)
def test_block_runs(block: Block, copies: dict[Path, Path], interpreter: dict[str, str]) -> None:
    folder = copies[block.document]
    if block.language == "python":
        (folder / "readme_block.py").write_text(block.text, encoding="utf-8")
        commands = [("python readme_block.py", 0)]
    else:
        commands = [(without_environment(line), status) for line, status in block.commands]
    installed = {str(path.parent) for path in folder.glob("*/*.dist-info")}
    paths = [str(folder), str(folder / "backends"), *installed, os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        **interpreter,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    for command, status in commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=patience(TIMEOUT_S),
            check=False,
        )
        said = f"$ {command}\n{done.stdout}\n{done.stderr}"
        saturates = "ort_int8" in block.text and not HARDWARE["exact_8_bit_sums"]()  # as README says
        assert done.returncode in ({status, 1} if saturates else {status}), said
        assert "Traceback" not in done.stderr, said


@pytest.mark.quick
def test_every_document_has_blocks_that_run_and_reasons_for_those_that_do_not() -> None:
    for document in DOCUMENTS:
        blocks = blocks_of(document)
        fences = len(re.findall(r"^```", document.read_text(encoding="utf-8"), re.MULTILINE))
        assert fences == 2 * len(blocks), f"{document}: a fence that is not read"
        assert blocks or document in PAGES, document
        assert all(len(block.not_run) > 10 for block in blocks if block.not_run), document
        assert all(block.language for block in blocks), f"{document}: a block without a language"


@pytest.mark.quick
def test_the_readme_opens_with_the_two_commands_and_ci_types_them() -> None:
    for document in (ENGLISH, CHINESE):
        first, second = blocks_of(document)[:2]
        assert first.text.count("\n") == second.text.count("\n") == 1
        assert begins_approved(without_environment(first.text))
        assert is_approved(without_environment(second.text), 2)
        assert "-e '.[onnx]'" in first.text
        assert "-e '.[test]'" in second.text
    typed = [line.strip() for step in ci_steps().steps(ROOT, []) for line in step.script.splitlines()]
    assert first.text.strip() in typed
    assert any(line.endswith(f"bash -euo pipefail -c {shlex.quote(second.text).splitlines()[0]}") for line in typed)


@pytest.mark.parametrize("english", TRANSLATED, ids=lambda d: str(d.relative_to(ROOT)))
@pytest.mark.quick
def test_both_languages_say_the_same(english: Path) -> None:
    documents = [english, TRANSLATED[english]]
    one, other = map(blocks_of, documents)
    assert [(b.language, b.text, b.statuses) for b in one] == [(b.language, b.text, b.statuses) for b in other]
    texts = [document.read_text(encoding="utf-8") for document in documents]
    for pattern in (r"^(#+) ", r"\]\(([^)#]+)\)", r"(--\w+)", r"^\| `(\w+)`"):
        found = [re.findall(pattern, text, re.MULTILINE) for text in texts]
        if pattern.startswith("^(#"):
            assert found[0] == found[1], "headings differ"
        else:
            ours, theirs = ({_untranslated(entry) for entry in entries} for entries in found)
            assert ours == theirs, pattern


def _untranslated(link: str) -> str:
    return re.sub(r"\.zh(-CN)?\.md$", ".md", link)


@pytest.mark.parametrize("page", [p for p in PAGES if p not in TRANSLATED.values()], ids=lambda p: p.name)
@pytest.mark.quick
def test_every_page_has_both_languages(page: Path) -> None:
    """A page of its own, or, where a generator writes it, every line of the page in both."""
    text = page.read_text(encoding="utf-8")
    if write := PAGES_OF_CODE.get(page.stem):
        titles = re.findall(r"^# (.+)$", write(), re.MULTILINE)
        assert len(titles) == 1
        assert len(CHINESE_LETTERS.findall(write())) > 500
        return
    assert page in TRANSLATED, f"{page.stem}.zh.md is missing"
    told = TRANSLATED[page].read_text(encoding="utf-8")
    words = re.sub(
        r"```.*?```|^(?::::|    options)[^\n]*|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL | re.MULTILINE
    )
    assert len(CHINESE_LETTERS.findall(told)) > len(words) / 8, "most of it is not in Chinese"


@pytest.mark.quick
def test_the_page_of_the_api_has_all_that_is_public_in_both_languages() -> None:
    import precision_debug
    from precision_debug import errors

    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("api.md", "api.zh.md")]
    listed, chinese = (re.findall(r"^::: (\S+)$", text, re.MULTILINE) for text in pages)
    assert listed == chinese
    public = {f"precision_debug.{name}" for name in precision_debug.__all__ if name not in errors.__all__}
    assert public <= set(listed)
    assert {"precision_debug.errors", "precision_debug.protocols"} <= set(listed)
    for name in listed:
        pkgutil.resolve_name(name)
    for status in {0, errors.UsageError.exit_status, errors.BackendCrash.exit_status}:
        assert f"| {status} | " in pages[0]


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    for needed in ("mkdocs", "material", "mkdocs_static_i18n", "mkdocstrings"):
        pytest.importorskip(needed, reason="needs '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    for page in ("api/index.html", "zh/api/index.html"):
        assert 'id="precision_debug.Report.exit_status"' in (tmp_path / page).read_text(encoding="utf-8")
    entries = {"settings": "--check_error_stat", "columns": COLUMNS[-1].title, "reasons": "turned"}
    for name, entry in entries.items():
        for page in (f"{name}/index.html", f"zh/{name}/index.html"):
            assert entry in (tmp_path / page).read_text(encoding="utf-8"), page


@pytest.mark.quick
@pytest.mark.parametrize("name", PAGES_OF_CODE)
def test_the_site_has_the_pages_that_the_code_writes(name: str) -> None:
    """What mkdocs does with them, without mkdocs; in the repository a pointer says how to get each."""
    hook = runpy.run_path(str(ROOT / "mkdocs_pages.py"))["on_page_markdown"]
    pointer = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    made = hook(pointer, page=SimpleNamespace(file=SimpleNamespace(src_uri=f"{name}.md")))
    assert made == PAGES_OF_CODE[name]()
    assert made.splitlines()[2] == pointer.splitlines()[0]
    assert pointer.count(f"`python -m precision_debug doctor --{name}_page {name}.md`") == 2
    other = hook("text", page=SimpleNamespace(file=SimpleNamespace(src_uri="tutorials/int8.md")))
    assert other == "text"
    assert re.search(r"^hooks: \[mkdocs_pages\.py\]", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.quick
def test_the_readmes_are_short() -> None:
    for document in (ENGLISH, CHINESE):
        assert document.read_text(encoding="utf-8").count("\n") <= 135, document


@pytest.mark.quick
def test_links_lead_somewhere() -> None:
    """Also those to the repository's own pages, which the READMEs write in full for package indexes."""
    for document in [*DOCUMENTS, ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
            if inside := SITE.match(target):
                assert (ROOT / target[inside.end() :]).exists(), f"{document}: {target}"
            elif not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document}: {target}"
            assert document not in (ENGLISH, CHINESE) or target.startswith("https://"), f"{document}: {target}"


@pytest.mark.quick
@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "precision_debug").rglob("README.md"))],
                         ids=lambda page: str(page.relative_to(ROOT)))  # fmt: skip
def test_a_guide_names_what_exists(page: Path) -> None:
    """Words in capitals and <…> stand for what a reader puts there."""
    folders = [ROOT / name for name in ("precision_debug", "backends", "tests", "docs", ".ci")]
    there = [*ROOT.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.*"))]
    files = [f"/{path.relative_to(ROOT)}" for path in there]
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for word in re.findall(r"`([\w./]+)`", prose):
        if re.fullmatch(r"[a-z_/.]+[.](?:py|h|cu|json|txt)", word) and word not in FORBIDDEN_FILES:
            assert any(file.endswith(f"/{word}") for file in files), word
        elif re.fullmatch(r"(?:\w+[.])+[A-Z]\w+", word):
            pkgutil.resolve_name(f"precision_debug.{word}")


@pytest.mark.quick
def test_the_site_builds_with_every_page_in_its_contents() -> None:
    """What `mkdocs build --strict` (in CI, with '.[docs]') stops at, as far as it can be seen without mkdocs."""
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r": (\S+\.md)$", contents, re.MULTILINE)
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page not in TRANSLATED.values()]
    assert sorted(listed) == sorted(pages)
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            outside = (page.parent / target).resolve()
            assert target.startswith("http") or outside.is_relative_to(ROOT / "docs"), f"{page}: {target}: give its URL"


@pytest.mark.parametrize("document", [ROOT / "docs" / "modes.md", ROOT / "docs" / "modes.zh.md"], ids=["en", "zh"])
@pytest.mark.quick
def test_run_modes_are_those_that_exist(document: Path) -> None:
    header = "| Mode |" if document.name == "modes.md" else "| 模式 |"
    told = [name for row in rows_of_table(document, header) for name in re.findall(r"`(\w+)`", row[0])]
    offered = [mode.name for name in registry.BUILT_IN for p in registry.plugins() if p.name == name
               and p.backend is not None for mode in p.backend.run_modes]  # fmt: skip
    assert sorted(told) == sorted(offered)


@pytest.mark.parametrize("document", [ENGLISH, CHINESE], ids=["en", "zh"])
@pytest.mark.quick
def test_run_modes_of_the_readme_exist(document: Path) -> None:
    header = "| Engine |" if document == ENGLISH else "| 引擎 |"
    rows = rows_of_table(document, header)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row[2])}
    offered = {mode.name for p in registry.plugins() if p.backend is not None for mode in p.backend.run_modes}
    assert len(rows) == len(registry.BUILT_IN)
    assert told
    assert told <= offered


@pytest.mark.quick
def test_the_page_of_all_columns_is_what_the_table_has(tmp_path: Path) -> None:
    written = tmp_path / "columns.md"
    written.write_text(PAGES_OF_CODE["columns"](), encoding="utf-8")
    titles = [row[0] for row in rows_of_table(written, "| Column |")]
    assert titles == [column.title for column in COLUMNS]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
@pytest.mark.quick
def test_options_exist(document: Path) -> None:
    known = set(re.findall(r"--\w+", build_parser().format_help())) | {
        "--from_inspector", "--names_only", "--settings_page", "--reasons_page", "--columns_page", "--open",
        "--extensions",  # of Model Explorer
        "--pin", "--page",  # of scripts under tests/
            "--dtype", "--exportOutput", "--dumpOutput",  # of other tools that write dumps
        "--show", "--diff", "--limit", "--on", "--held_out", "--runs", "--seconds", "--check",  # of search
        "--run_modes", "--models", "--batch_sizes", "--speed_seconds",  # of sweep
        "--roads",  # of roads
        "--precision_golden", "--precision_reports", "--precision_thresholds",  # of the pytest plugin
    }  # fmt: skip
    lines = document.read_text(encoding="utf-8").splitlines()
    others = re.compile(r"pip|build\.py|pytest|ruff|pre-commit|^paddle2onnx |^docker ")
    ours = "\n".join(line for line in lines if not others.search(line))
    ours = re.sub(r"`(?:polygraphy [^`]*|--\w+-[^`]*)`", "", ours)  # another program's
    named = set(re.findall(r"(?<![\w-])--[a-z]\w+", ours))
    if document.parent.name == "resnet":
        named -= {"--depth", "--batch", "--image", "--seed"}
    assert named <= known


@pytest.mark.quick
def test_the_changelog_is_in_keep_a_changelog_form() -> None:
    import precision_debug

    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.startswith("# Changelog\n")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    versions = [heading for heading in headings[1:] if re.fullmatch(r"\[[\d.]+\] - \d{4}-\d\d-\d\d", heading)]
    assert versions == headings[1:]
    sections = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert set(sections) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert versions[0].startswith(f"[{precision_debug.__version__}] - ")
    released = versions[0].rpartition(" ")[2]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {precision_debug.__version__}\ndate-released: {released}\n" in cited
