"""What a user's program can read, found without running it: results are gone on from only while all of it is the same.

Files that scripts and commands name, modules that they import wherever they lie, and all that lies in their folders.
What cannot be found in this way (a module whose name is computed, another program, the network) is listed as unknown,
and a result that depends on it is never used again.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..ownership import LIST, is_ours
from .overwriting import files_named

__all__ = ["ScriptReads", "file_stamp", "scripts_named"]

_MOST_FILES = 20_000
"""Files of a folder beyond which nobody would wait for their digests."""

_LARGE = 1 << 26
"""Bytes of a file from which on its size and time stand for what is in it, unless it is a model of the command's."""

_TEXTS = frozenset({".py", ".sh", ".bash", ".mk", ".toml", ".cfg", ".ini", ".yaml", ".yml", ""})
_WORD = re.compile(r"[\w./~+-]{2,}")
_OUTSIDE = frozenset({"subprocess", "requests", "urllib", "httpx", "socket", "sqlite3"})
_SYSTEM = frozenset({"system", "popen", "execv", "spawnv"})
_COMPUTED = frozenset({"exec", "eval", "__import__"})
_CLOCKS = frozenset({"time", "datetime"})


def file_stamp(path: Path) -> str:
    """Size and time of a file's last change."""
    with contextlib.suppress(OSError):
        state = os.stat(path)
        return f"{state.st_size} {state.st_mtime_ns}"
    return "gone"


class ScriptReads:
    """The files that scripts read.

    files: all that were found. words: of the scripts, among which are the environment's names that they read. unknown:
    why they may read something else, too."""

    def __init__(self, *, without: Iterable[Path] = ()) -> None:
        self.files: set[Path] = set()
        self.words: set[str] = set()
        self.unknown: list[str] = []
        self.missing: set[str] = set()
        self._without = {Path(os.path.realpath(path)) for path in without}
        self._folders: set[Path] = set()
        self._parsed: set[Path] = set()

    def add_script(self, path: Path) -> None:
        """A Python file that is run: it, its folder, what it imports and names."""
        place = Path(os.path.realpath(path))
        self._add_folder(place.parent)
        self._parse(place, [place.parent, *self._roots()])

    def add_command(self, text: str) -> None:
        """A command line: its program, the current folder, every file that one of its words names, however nested."""
        words = list(_words(text))
        self.words.update(words)
        program = shutil.which(words[0]) if words else None
        if program:
            self._add_file(Path(os.path.realpath(program)))
        self._add_folder(Path.cwd().resolve())
        for word in words:
            self._add_named(word, Path.cwd())
        if not self._parsed:  # as make and its kind, which find what to run by themselves
            for path in sorted(Path.cwd().resolve().iterdir()):
                if path.is_file() and path.suffix in _TEXTS:
                    self._parse(path, [path.parent, *self._roots()])

    def digest(self) -> str:
        """Of all that was found, by its bytes; another one for ever where something is unknown."""
        found = hashlib.sha256()
        for path in sorted(self.files):
            found.update(os.fsencode(path) + b"\0")
            found.update(file_stamp(path).encode() if _is_large(path) else _bytes_digest(path))
        for name in sorted(self.missing):
            found.update(f"{name}?\0".encode("utf-8", "surrogateescape"))
        return found.hexdigest()[:32]

    def _roots(self) -> list[Path]:
        return [Path(os.path.realpath(one or ".")) for one in sys.path if os.path.isdir(one or ".")]

    def _add_file(self, path: Path) -> None:
        if path.name != LIST and path not in self._without and not any(one in self._without for one in path.parents):
            self.files.add(path)

    def _add_folder(self, folder: Path) -> None:
        """All of a folder that is not hidden, and not what this tool wrote there."""
        if folder in self._folders or folder in (Path("/"), Path(tempfile.gettempdir()).resolve(), Path.home()):
            return
        self._folders.add(folder)
        count = 0
        for place, folders, names in os.walk(folder):
            folders[:] = sorted(one for one in folders if not one.startswith(".") and one != "__pycache__")
            for name in names:
                path = Path(place, name)
                if name.startswith(".") or not path.is_file() or (is_ours(path) and path.stat().st_size):
                    continue
                count += 1
                self._add_file(path)
            if count > _MOST_FILES:
                self.unknown.append(f"{folder} holds more than {_MOST_FILES} files")
                return

    def _add_named(self, word: str, *folders: Path) -> None:
        for folder in folders:
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                path = Path(os.path.realpath(folder / Path(word).expanduser()))
                if path.is_dir() and path not in (*Path.cwd().parents, Path.cwd()) and len(path.parts) > 2:
                    self._add_folder(path)
                elif path.is_file() and path not in self.files | self._parsed:
                    self._add_file(path)
                    self._parse(path, [path.parent, *self._roots()])
                elif path.is_file():
                    self._parse(path, [path.parent, *self._roots()])

    def _parse(self, path: Path, roots: Sequence[Path]) -> None:
        """A text that may name other files; of Python also what it imports."""
        if path in self._parsed or _is_large(path) or path.suffix not in _TEXTS or path in self._without:
            return
        self._parsed.add(path)
        self._add_file(path)
        text = path.read_bytes()
        if b"\0" in text[:1024]:
            return
        said = text.decode("utf-8", "replace")
        self.words.update(_WORD.findall(said))
        tree = None
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            tree = ast.parse(said) if path.suffix == ".py" else None
        if tree is None:
            for word in set(_WORD.findall(said)):
                self._add_named(word, path.parent, Path.cwd())
            return
        for word in _literals(tree):
            self._add_named(word, path.parent, Path.cwd())
            with contextlib.suppress(OSError, ValueError):
                if Path(word).is_dir():
                    roots = [*roots, Path(os.path.realpath(word))]
        self.unknown += [f"{path.name} {what}" for what in _beyond(tree)]
        for name, needed in _imports(tree, path):
            self._import(name, needed, [*roots, path.parent.parent], path)

    def _import(self, name: str, needed: bool, roots: Sequence[Path], importer: Path) -> None:
        top = name.partition(".")[0]
        if top in sys.builtin_module_names or top in sys.stdlib_module_names or top == "precision_debug":
            return
        spec = importlib.machinery.PathFinder.find_spec(top, [str(one) for one in roots])
        if spec is None:
            with contextlib.suppress(ImportError, ValueError, AttributeError):
                spec = importlib.util.find_spec(top)
        if spec is None:
            self.missing.add(top)
            if needed:
                self.unknown.append(f"{importer.name} imports {top}, which is not where one looks for it")
            return
        places = [Path(one) for one in spec.submodule_search_locations or ()]
        origin = Path(spec.origin) if spec.origin and os.path.isfile(spec.origin) else None
        if _is_installed(origin or (places[0] if places else Path())):
            if origin is not None:
                self._add_file(origin)
            return
        for place in places:
            self._add_folder(Path(os.path.realpath(place)))
            for path in sorted(Path(os.path.realpath(place)).rglob("*.py")):
                self._parse(path, roots)
        if origin is not None and not places:
            self._add_file(Path(os.path.realpath(origin)))
            self._parse(Path(os.path.realpath(origin)), roots)


def _is_installed(path: Path) -> bool:
    """Whether a module is of Python's or a package's that is installed, whose version tells it from others."""
    known = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")}
    return {"site-packages", "dist-packages"} & set(path.parts) != set() or any(
        path.is_relative_to(one) for one in known
    )


def _imports(tree: ast.AST, path: Path) -> Iterator[tuple[str, bool]]:
    """Names of modules that are imported, and whether the script cannot do without."""
    optional = {
        id(node) for one in ast.walk(tree) if isinstance(one, ast.Try) and one.handlers for node in ast.walk(one)
    }  # fmt: skip
    for node in ast.walk(tree):
        needed = id(node) not in optional
        if isinstance(node, ast.Import):
            yield from ((alias.name, needed) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module and not node.level:
                yield node.module, needed
            elif node.level:  # of its own package, all of which is read
                yield path.parents[node.level - 1].name, False
        elif isinstance(node, ast.Call) and _called(node) == "import_module":
            given = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
            yield from ((one.lstrip("."), needed) for one in given if isinstance(one, str))


def _beyond(tree: ast.AST) -> Iterator[str]:
    """What a script does whose answer no file decides that can be named here."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"imports {name}" for name in names if name.partition(".")[0] in _OUTSIDE)
        elif isinstance(node, ast.Call):
            name = _called(node)
            plain = isinstance(node.func, ast.Name)
            computed = name == "import_module" and not (node.args and isinstance(node.args[0], ast.Constant))
            if (plain and name in _COMPUTED) or computed or (not plain and name in _SYSTEM):
                yield f"calls {name}"
            elif not plain and name in ("time", "now", "today", "time_ns") and _owner(node) in _CLOCKS:
                yield f"asks what time it is ({name})"


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _owner(node: ast.Call) -> str:
    value: Any = getattr(node.func, "value", None)
    return str(getattr(value, "id", getattr(value, "attr", "")))


def _literals(tree: ast.AST) -> set[str]:
    return {
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 1000
        and "\n" not in node.value and "\0" not in node.value
    }  # fmt: skip


def _words(text: str) -> Iterator[str]:
    """The words of a command, those that stand in quotes as one, and behind an "=", too."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    for word in words:
        yield word
        if word != text:
            parts = [*re.split(r"[=,:;]", word)] if re.search(r"[=,:;]", word) else []
            for part in (*parts, *([word] if " " in word else ())):
                yield from _words(part)


def _is_large(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size > _LARGE
    return False


def _bytes_digest(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).digest()
    return b"unreadable"


def scripts_named(*things: Any) -> list[Path]:
    """The Python files among what strings name."""
    return [Path(path) for path in dict.fromkeys(files_named(*things)) if path.endswith(".py")]
