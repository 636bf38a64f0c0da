"""Digest what decides a command's numbers: a result is gone on from only where all of it is the same."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import re
import secrets
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import registry
from ..codec import encode
from ..errors import ModelError, PrecisionDebugError, RecordingError
from ..numbers.arrays import as_array
from ..ownership import LIST, is_ours
from ..protocols import Feeds
from ..records import Doubt, FileState, ModelFiles, RunSpec, Side
from ..report.formats.json import compute_digest, from_dict, read_file_state, to_dict
from ..report.from_journal import report_of_events
from ..report.model import Report
from ..settings.options import iterate_differing, list_options
from .companion_files import iterate_named_files
from .journal import read_events
from .plan import Opening

__all__ = [
    "compare_with_stored",
    "digest_command",
    "digest_contents",
    "digest_feeds",
    "digest_model",
    "digest_named",
    "digest_value",
    "digest_weights",
    "iterate_external_files",
    "list_model_files",
    "list_unknown_reads",
    "report_of_journal",
    "with_changes",
]  # fmt: skip


# What a user's program can read, found without running it: results are gone on from only while all of it is the same.
#
# Files that scripts and commands name, modules that they import wherever they lie, and all that lies in their folders.
# What cannot be found in this way (a module whose name is computed, another program, the network) is listed as unknown,
# and a result that depends on it is never used again.

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


def stamp_file(path: Path) -> str:
    """Return the size and time of a file's last change."""
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
        words = list(_iterate_words(text))
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
            found.update(stamp_file(path).encode() if _is_large(path) else _digest_bytes(path))
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
        for word in _collect_literals(tree):
            self._add_named(word, path.parent, Path.cwd())
            with contextlib.suppress(OSError, ValueError):
                if Path(word).is_dir():
                    roots = [*roots, Path(os.path.realpath(word))]
        self.unknown += [f"{path.name} {what}" for what in _iterate_undecidable(tree)]
        for name, needed in _iterate_imports(tree, path):
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
    """Return whether a module is of Python's or a package's that is installed, whose version tells it from others."""
    known = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")}
    return {"site-packages", "dist-packages"} & set(path.parts) != set() or any(
        path.is_relative_to(one) for one in known
    )


def _iterate_imports(tree: ast.AST, path: Path) -> Iterator[tuple[str, bool]]:
    """Yield names of modules that are imported, and whether the script cannot do without."""
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
        elif isinstance(node, ast.Call) and _name_called(node) == "import_module":
            given = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
            yield from ((one.lstrip("."), needed) for one in given if isinstance(one, str))


def _iterate_undecidable(tree: ast.AST) -> Iterator[str]:
    """Yield what a script does whose answer no file decides that can be named here."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"imports {name}" for name in names if name.partition(".")[0] in _OUTSIDE)
        elif isinstance(node, ast.Call):
            name = _name_called(node)
            plain = isinstance(node.func, ast.Name)
            computed = name == "import_module" and not (node.args and isinstance(node.args[0], ast.Constant))
            if (plain and name in _COMPUTED) or computed or (not plain and name in _SYSTEM):
                yield f"calls {name}"
            elif not plain and name in ("time", "now", "today", "time_ns") and _name_owner(node) in _CLOCKS:
                yield f"asks what time it is ({name})"


def _name_called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _name_owner(node: ast.Call) -> str:
    value: Any = getattr(node.func, "value", None)
    return str(getattr(value, "id", getattr(value, "attr", "")))


def _collect_literals(tree: ast.AST) -> set[str]:
    return {
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 1000
        and "\n" not in node.value and "\0" not in node.value
    }  # fmt: skip


def _iterate_words(text: str) -> Iterator[str]:
    """Yield the words of a command, those that stand in quotes as one, and behind an "=", too."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    for word in words:
        yield word
        if word != text:
            parts = [*re.split(r"[=,:;]", word)] if re.search(r"[=,:;]", word) else []
            for part in (*parts, *([word] if " " in word else ())):
                yield from _iterate_words(part)


def _is_large(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size > _LARGE
    return False


def _digest_bytes(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).digest()
    return b"unreadable"


def list_named_scripts(*things: Any) -> list[Path]:
    """Return the Python files among what strings name."""
    return [Path(path) for path in dict.fromkeys(iterate_named_files(*things)) if path.endswith(".py")]


# What decides the numbers of a command, as digests of what it holds now: a result is gone on from where all are equal.
#
# Files count by their bytes, not by names and times: a model that was replaced in place is another one.

_ENGINES = (
    "precision-debug", "precision_debug", "numpy", "ml-dtypes", "onnx", "onnxruntime", "onnxruntime-gpu", "tensorrt",
    "torch", "torchao", "transformers", "paddlepaddle", "paddlepaddle-gpu", "openvino", "nncf", "ai-edge-litert",
    "xllamacpp",
)  # fmt: skip

_PACKAGES = (
    "onnxruntime", "openvino", "tensorrt", "tensorrt_libs", "torch", "paddle", "ai_edge_litert", "precision_debug",
)  # fmt: skip
"""What the engines' libraries lie in."""

_NO_LIBRARIES = frozenset({"__pycache__", "include", "test", "tests", "testing", "_inductor", "share"})

_OF_ENGINES = re.compile(
    r"(ORT|ONNX|OMP|KMP|MKL|OPENBLAS|GOTO|BLIS|ATEN|TORCH|PYTORCH|CUDA|CUBLAS|CUDNN|NVIDIA|TF|XLA|FLAGS|PADDLE|DNNL"
    r"|ONEDNN|OV|OPENVINO|TRT|TENSORRT|XNNPACK|INDUCTOR|TRITON|HF|TRANSFORMERS|LD|GLIBC|PYTHON)_?[A-Z0-9_]*|FLAGS_\w+"
)
"""Variables of the environment that an engine, or what it is linked to, may read."""

_NO_ENGINES = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS", "PYTHONFAULTHANDLER"})

_WITHOUT_EFFECT = ("command", "demo_sheet", "explain", "options_from", "record", "save_tensors")
"""Fields of a command that decide nothing of a sample's rows."""

_WRITTEN = ("save_", "timing_cache")
"""How settings begin whose files a run writes itself."""

_WEIGHTS = frozenset({".data", ".bin", ".pdiparams", ".pdmodel", ".json", ".weights", ".pb", ".onnx_data"})
"""Endings of files that lie beside a model, begin with its name, and belong to it."""

_REPORTS = frozenset({".xlsx", ".html", ".md", ".csv", ".npz", ".log", ".txt"})
"""Endings that no model's folder keeps weights in, and that a run may write there."""

_BLOCK = 1 << 22
"""Bytes that are hashed at a time: a model's weights may be larger than memory."""


def digest_contents(spec: RunSpec, *, without: Sequence[Path] = (), once: str = "") -> dict[str, str]:
    """By what it is of (options, model, baseline, inputs, ...): a digest of what it holds.

    without: files that are not read, though they lie in a folder that is. once: what stands for what cannot be known;
    "": another text each time, so that nothing is gone on from. Raises ModelError where a file that is there
    cannot be read.
    """
    plain = encode(spec)
    written = (one.name for one in list_options(RunSpec) if one.file == "written")
    for name in (*_WITHOUT_EFFECT, *written):
        plain.pop(name, None)
    options = {key: one for key, one in spec.options.items() if not _plain_name(key).startswith(_WRITTEN)}
    plain["options"] = encode(options)
    files = _Files(without)
    found = {"options": digest_value(plain), "model": files.model(spec.model)}
    if spec.baseline_model is not None:
        found["baseline's model"] = files.model(spec.baseline_model)
    for one, named in iterate_differing(spec):
        if one.file == "read" and one.name not in _WITHOUT_EFFECT and not one.field.startswith("model."):
            found[one.name] = files.named(named)
    found["files of the options"] = files.named(options, _list_text_entries(options))
    found["versions"] = digest_value([_find_versions(), _stamp_engine_files()])
    reads = _reads(spec, without)
    found["what the scripts read"] = reads.digest()
    found["environment"] = digest_value(_read_environment(reads.words))
    if reads.unknown:
        found[_name_unknown(reads)] = once or secrets.token_hex(8)
    return found


def digest_command(command: str, *, without: Sequence[Path] = (), once: str = "") -> str:
    """Return a digest of all that a command of the user's can read: its program, the current folder, the files that it
    names.

    See ``digest_contents`` for ``without`` and ``once``.
    """
    if not command:
        return ""
    reads = ScriptReads(without=without)
    reads.add_command(command)
    unknown = (once or secrets.token_hex(8)) if reads.unknown else ""
    return digest_value([reads.digest(), _read_environment(reads.words), unknown])


def list_unknown_reads(spec: RunSpec, command: str) -> tuple[str, ...]:
    """Return why it cannot be known what a run's scripts, or a command, read; () where it can."""
    reads = _reads(spec, ())
    if command:
        reads.add_command(command)
    return tuple(dict.fromkeys(reads.unknown))


def _reads(spec: RunSpec, without: Sequence[Path]) -> ScriptReads:
    reads = ScriptReads(without=without)
    named_by = [
        named for one, named in iterate_differing(spec) if one.file == "read" and one.name not in _WITHOUT_EFFECT
    ]
    models = (spec.model.model_file, spec.baseline_model.model_file if spec.baseline_model else "")
    for script in list_named_scripts(*named_by, *models, spec.metric, spec.compare, spec.options):
        reads.add_script(script)
    return reads


def _name_unknown(reads: ScriptReads) -> str:
    """Under which name it is said that nothing can be gone on from."""
    more = len(reads.unknown) - 1
    return f"what cannot be known: {reads.unknown[0]}" + (f" and {more} more" if more else "")


def _list_text_entries(options: Mapping[str, Any]) -> list[str]:
    """Return every entry of a list that is one text."""
    texts = [one for one in options.values() if isinstance(one, str)]
    return [part for text in texts for part in re.split(r"[,;:\s]+", text) if part and part != text]


def _read_environment(words: Collection[str]) -> dict[str, str]:
    """Variables that engines read, or whose names stand in the user's scripts."""
    return {
        name: value for name, value in os.environ.items()
        if (_OF_ENGINES.match(name) or name in words) and name not in _NO_ENGINES
    }  # fmt: skip


def _stamp_engine_files() -> dict[str, str]:
    """Return the size and time of every library of the engines that are installed, and of this tool's own modules."""
    found = {}
    for name in _PACKAGES:
        spec = None
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            for place, folders, names in os.walk(folder):
                folders[:] = [one for one in folders if one not in _NO_LIBRARIES]
                for file in names:
                    if ".so" in file or file.endswith((".dll", ".pyd", ".dylib")) or name == "precision_debug":
                        found[f"{place}/{file}"] = stamp_file(Path(place, file))
    return found


def digest_named(*texts: str) -> str:
    """Return a digest of every file and folder that these name."""
    return _Files(()).named(*texts)


def digest_value(value: Any) -> str:
    """Of plain values."""
    return hashlib.sha256(json.dumps(encode(value), sort_keys=True).encode()).hexdigest()[:32]


def digest_feeds(sets: Iterable[Feeds]) -> str:
    """Of arrays by input name, one mapping after the other."""
    digest = hashlib.sha256()
    for feeds in sets:
        for name in sorted(feeds):
            _add_value(digest, name, feeds[name])
    return digest.hexdigest()[:32]


def digest_weights(openings: Iterable[Opening]) -> str:
    """Of models that are programs: their weights as they are loaded, and the user's modules that they come from.

    "" where none is one. Their files alone do not say what weights they load.
    """
    digest, some = hashlib.sha256(), False
    for opening in openings:
        keeper = opening.capabilities.weight_keeper
        if ".py" not in opening.spec.model.model_file or keeper is None:
            continue
        some = True
        try:
            weights = keeper.weights(opening.spec)
        except PrecisionDebugError:  # what is wrong with the model is said where it is opened
            continue
        for name in sorted(weights):
            _add_value(digest, name, weights[name])
        folder = Path(opening.spec.model.model_file.partition(".py")[0]).absolute().parent
        for path in sorted(_iterate_imported_from(folder)):
            digest.update(path.encode("utf-8", "surrogateescape"))
            _add_file(digest, Path(path))
    return digest.hexdigest()[:32] if some else ""


def _iterate_imported_from(folder: Path) -> Iterator[str]:
    """Files of modules that were imported from a folder, whichever way they are named there."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or not Path(file).absolute().is_relative_to(folder):
            continue
        if Path(file).is_file():  # torch.classes says that it is "_classes.py", wherever that would be
            yield file


class _Files:
    def __init__(self, without: Sequence[Path]) -> None:
        self._without = {_real_path(path) for path in without}

    def model(self, files: ModelFiles) -> str:
        """Of a model's files, its external weights and what lies beside it under its name."""
        digest = hashlib.sha256()
        for name in (files.model_file, files.params_file, files.model_dir):
            for path in dict.fromkeys(iterate_named_files(name)):
                if Path(path).is_dir():
                    self._folder(digest, Path(path), _REPORTS)
                else:
                    _add_file(digest, Path(path))
                    for beside in self._beside(Path(path)):
                        digest.update(beside.name.encode("utf-8", "surrogateescape"))
                        _add_file(digest, beside)
        return digest.hexdigest()[:32]

    def named(self, *things: Any) -> str:
        """Of every file and folder that strings name."""
        digest = hashlib.sha256()
        for path in dict.fromkeys(iterate_named_files(*things)):
            digest.update(path.encode("utf-8", "surrogateescape"))
            if Path(path).is_dir():
                self._folder(digest, Path(path))
            elif path.endswith(".py"):  # what a script imports from its own folder belongs to it
                for beside in sorted(Path(path).absolute().parent.glob("*.py")):
                    _add_file(digest, beside)
            else:
                _add_file(digest, Path(path))
        return digest.hexdigest()[:32]

    def _folder(self, digest: Any, folder: Path, left_out: frozenset[str] = frozenset()) -> None:
        for path in sorted(folder.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if path.is_file() and not hidden and path.suffix not in left_out and _real_path(path) not in self._without:
                digest.update(f"{path.relative_to(folder)}".encode("utf-8", "surrogateescape"))
                _add_file(digest, path)

    def _beside(self, model: Path) -> list[Path]:
        named = (path for path in model.absolute().parent.iterdir() if path.name.startswith(model.stem))
        found = {path for path in named if path.suffix in _WEIGHTS and path.name != model.name}
        if model.suffix == ".onnx":
            found |= set(iterate_external_files(model))
        return sorted(path for path in found if path.is_file() and _real_path(path) not in self._without)


def iterate_external_files(model: Path) -> Iterator[Path]:
    """Yield the files of an ONNX model's external weights: beside it, and beside what it is a link to."""
    from ..onnx.without_weights import list_external_locations

    try:
        names = list_external_locations(model)
    except PrecisionDebugError:  # what is wrong with it is said where it is opened
        return
    for name in names:
        if "\0" not in name:
            yield from (folder / name for folder in (model.absolute().parent, _real_path(model).parent))


def _add_file(digest: Any, path: Path) -> None:
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    digest.update(b"\0end\0")


def _add_value(digest: Any, name: str, value: Any) -> None:
    digest.update(f"{name}\0{type(value).__name__}\0".encode("utf-8", "surrogateescape"))
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            _add_value(digest, str(key), value[key])
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _add_value(digest, str(number), item)
    elif value is not None:
        array = as_array(value)
        digest.update(f"{array.dtype} {array.shape}\0".encode())
        if array.dtype.kind in "OUS":
            digest.update("\0".join(map(str, array.ravel().tolist())).encode("utf-8", "surrogateescape"))
        elif array.size:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _plain_name(key: str) -> str:
    return key.removeprefix("target.").removeprefix("baseline.")


def _find_versions() -> dict[str, str]:
    """Of every engine that is installed, and of the packages that bring backends of their own."""
    # whoever installs or removes a package changes the folder that its metadata lie in; reading them takes 0.2 s
    return dict(_find_versions_in(tuple((place, stamp_file(Path(place or "."))) for place in sys.path)))


@functools.lru_cache(maxsize=4)
def _find_versions_in(_: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    found = {}
    for name in _ENGINES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    for wheel, _entry in registry.iterate_declared():
        found[wheel.name] = wheel.version
    return found


def _real_path(path: Path) -> Path:
    """Where a path really lies. ``Path.resolve`` raises at links that go round in a circle, before Python 3.13."""
    return Path(os.path.realpath(path))


# Whether a model is still the one that something stored was made of.
#
# A recording, a report and saved outputs outlive the model's file, which may be exported again under the same name.
# What is there now is held against a digest that was kept; what cannot be known is not taken for the same.

_PARAMETERS = {".pdmodel": ".pdiparams", ".json": ".pdiparams", ".xml": ".bin"}
"""Of a format, how the file ends that lies beside the model under its name and holds its weights."""


def digest_model(model: ModelFiles) -> str:
    """SHA-256 over a model's files as they are now; "" of what is not a file. See ``list_model_files``."""
    return compute_digest(list_model_files(model))


def list_model_files(model: ModelFiles) -> tuple[FileState, ...]:
    """Return a model's files: its own, its parameters, an ONNX file's external weights.

    () of what is not a file: a folder may hold anything, and a program loads its weights from wherever it likes.
    """
    files = [Path(name) for name in (model.model_file, model.params_file) if name]
    if model.model_dir or not files or not all(file.is_file() for file in files) or files[0].suffix == ".py":
        return ()
    try:
        # a file may be reached by several links, and counts once
        beside = sorted(
            {file.resolve() for file in _iterate_files_beside(files[0])} - {file.resolve() for file in files}
        )
        return tuple(read_file_state(file.absolute()) for file in (*files, *beside))
    except (OSError, PrecisionDebugError):
        return ()


def _iterate_files_beside(model: Path) -> Iterator[Path]:
    parameters = model.with_suffix(_PARAMETERS.get(model.suffix.lower(), ".none"))
    if parameters.is_file():
        yield parameters
    if model.suffix.lower() == ".onnx":

        yield from (file for file in iterate_external_files(model) if file.is_file())


def compare_with_stored(
    what: str, path: str, when: str, digest: str, given: ModelFiles, *, named: bool
) -> tuple[str, tuple[Doubt, ...]]:
    """Hold what was stored against the models that it can be of: "same", "changed" or "unknown", and what to say.

    what: the folder or file that was stored. path, digest: of its model at that time, "" where they are not known.
    given: the model of the command. named: the user says that it is of that one.
    """
    own = ModelFiles(model_file=path)
    theirs = given.path and (named or not path or Path(given.path).name == Path(path).name)
    candidates = [given] if named else [*([given] if theirs else []), *([own] if path else [])]
    found = {one.path: now for one in candidates if (now := digest_model(one))}
    if not digest or not found:
        return "unknown", ()
    if digest in found.values():
        return "same", ()
    return "changed", (Doubt(code="model_changed", values={"what": what, "file": next(iter(found)), "when": when}),)


def with_changes(report: Report, what: str) -> Report:
    """Return a stored report, whose sides say where their model's file is another one by now."""
    spec = report.spec
    target = _check_side(report.target, spec.model, what, report.started)
    baseline = _check_side(report.baseline, spec.baseline_model or spec.model, what, report.started)
    return dataclasses.replace(report, target=target, baseline=baseline)


def _check_side(side: Side, model: ModelFiles, what: str, when: str) -> Side:
    if not side.digest or side.stored:
        return side
    _, doubts = compare_with_stored(what, "", when, side.digest, model, named=True)
    return dataclasses.replace(side, doubts=(*side.doubts, *doubts)) if doubts else side


# The report that a finished or interrupted run's journal holds, looked at as one that comes from elsewhere.

def report_of_journal(path: Path, *, hint: str = "") -> Report:
    """Raises RecordingError, with the hint, on whatever is not a journal of ours or is damaged."""
    try:
        return from_dict(to_dict(report_of_events(read_events(path))))  # which looks at every value's type
    except RecordingError as error:
        raise RecordingError(error.what, where=error.where, hint=error.hint or hint) from error
    except Exception as error:  # whatever odd values in it lead to
        raise RecordingError("this journal is damaged or of another version", where=str(path), hint=hint) from error
