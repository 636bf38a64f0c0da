"""Sentences that people approved, in one place: ``tests/approved/<test module>.json`` has each under its test's name.

A rewording is one command and one review, and no search through tests.

``python -m pytest --approve tests/test_x.py`` replaces a sentence that the text no longer has by what comes closest
there, and drops what no test reads. What nothing comes close to stays red: then the meaning changed.
"""

from __future__ import annotations

import ast
import difflib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("approved")
READERS = frozenset({"begins_approved", "holds_approved", "is_approved", "raises_approved"})
ALIKE = 0.5
"""A text that has less in common with the sentence, by difflib's ratio, is another sentence."""
approving = False


def holds_approved(text: Iterable[str], number: int = 1) -> bool:
    """Check that a text, or one of several, holds the sentence that was approved for the calling test.

    number: which of the test's sentences. Raises AssertionError with the command that approves another one.
    """
    return _checked(text, *_reader(number), lambda sentence, one: sentence in one)


def begins_approved(text: Iterable[str], number: int = 1) -> bool:
    """Check that a text, or one of several, begins with the approved sentence: see holds_approved."""
    return _checked(text, *_reader(number), lambda sentence, one: one.startswith(sentence))


def is_approved(text: str, number: int = 1) -> bool:
    """Check that a text is the approved sentence, whole: see holds_approved."""
    return _checked(text, *_reader(number), lambda sentence, one: one == sentence, whole=True)


@contextmanager
def raises_approved(
    error: type[BaseException] | tuple[type[BaseException], ...], number: int = 1
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Check that the block raises such an error, whose text holds the approved sentence: see holds_approved."""
    path, key = _reader(number, depth=3)  # called by contextlib
    with pytest.raises(error) as raised:
        yield raised
    _checked(str(raised.value), path, key, lambda sentence, one: sentence in one)


def _checked(
    text: Iterable[str], path: Path, key: str, fits: Callable[[str, str], bool], *, whole: bool = False
) -> bool:
    texts = [str(text)] if isinstance(text, str) or not isinstance(text, Iterable) else [str(one) for one in text]
    sentence = _sentences(path).get(key)
    if sentence is not None and any(fits(sentence, one) for one in texts):
        return True
    if approving:
        best = closest(sentence, texts, whole=whole)
        if best is not None and any(fits(best, one) for one in texts):
            write(path, {**_sentences(path), key: best})
            return True
    raise AssertionError(
        f"{path.name}: {key}: the approved sentence is\n  {sentence!r}, the text\n  {texts!r}\n"
        f"If the text is right: python -m pytest --approve tests/{path.stem}.py -k {key.partition(' ')[0]}"
    )


def closest(sentence: str | None, texts: list[str], *, whole: bool) -> str | None:
    """The words of a text that are most like a sentence, or all of it; None where none is like it.

    A new test's sentence (None) is its text, where that is one line: cut it to what the test is about.
    """
    if sentence is None:
        return texts[0] if len(texts) == 1 and "\n" not in texts[0] else None
    lines = texts if whole else [line for one in texts for line in one.splitlines()]
    known = set(sentence.split())
    lines = sorted(lines, key=lambda line: -len(known & set(line.split())))[:8]
    pieces = lines if whole else [piece for line in lines for piece in _windows(line, len(sentence.split()))]
    rated = [(_ends_alike(sentence, piece), likeness, piece) for piece in pieces
             if (likeness := _likeness(sentence, piece)) >= ALIKE]  # fmt: skip
    return max(rated)[2] if rated else None


def _ends_alike(one: str, other: str) -> int:
    """How many of the first and the last word they share: between them stands what was put in."""
    first, second = one.split(), other.split()
    return sum(first[i] == second[i] for i in (0, -1) if first and second)


def _windows(line: str, words: int) -> Iterator[str]:
    """Runs of a line's words, about as many as are looked for, spaces between them as they are."""
    starts = [i for i, letter in enumerate(line) if letter != " " and (i == 0 or line[i - 1] == " ")]
    ends = [i for i in range(1, len(line) + 1) if line[i - 1] != " " and (i == len(line) or line[i] == " ")]
    for first, start in enumerate(starts):
        for count in range(max(1, words - 3), words + 4):
            if first + count <= len(ends):
                yield line[start : ends[first + count - 1]]


def _likeness(one: str, other: str) -> float:
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() >= ALIKE else 0.0


def _reader(number: int, depth: int = 2) -> tuple[Path, str]:
    """The file and the key of whoever called: the function that it stands in, by name."""
    frame = sys._getframe(depth)
    while frame.f_code.co_name.startswith("<") and frame.f_back is not None:
        frame = frame.f_back
    module = Path(frame.f_code.co_filename).stem
    return FOLDER / f"{module}.json", key_of(frame.f_code.co_name, number)


def key_of(function: str, number: int) -> str:
    """The key of a test's sentence: its name, and the number of all but the first."""
    return function if number == 1 else f"{function} {number}"


def _sentences(path: Path) -> dict[str, str]:
    return _read(path, path.stat().st_mtime_ns if path.is_file() else 0)


@functools.cache
def _read(path: Path, _: int) -> dict[str, str]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(path: Path, sentences: dict[str, str]) -> None:
    """Write a module's sentences; no file for none."""
    if not sentences:
        return path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(dict(sorted(sentences.items())), ensure_ascii=False, indent=1)
    written = path.with_suffix(".part")
    written.write_text(text + "\n", encoding="utf-8")
    os.replace(written, path)
    return None


def keys_in(source: str) -> set[str]:
    """The keys that a test module's text reads: its calls of READERS, and the functions that they stand in."""
    found: set[str] = set()

    def walk(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READERS:
            number = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else 1
            found.add(key_of(function, int(str(number))))
        for child in ast.iter_child_nodes(node):
            walk(child, function)

    walk(ast.parse(source), "")
    return found


def out_of_step(tests: Path, folder: Path) -> dict[str, tuple[set[str], set[str]]]:
    """Modules whose keys are not those of their file: what no test reads, and what has no sentence."""
    modules = {path.stem for path in folder.glob("*.json")}
    sources = {path.stem: path.read_text(encoding="utf-8") for path in tests.glob("test_*.py")}
    modules |= {name for name, text in sources.items() if "_approved(" in text}
    differing = {}
    for name in sorted(modules):
        read, kept = keys_in(sources.get(name, "")), set(_sentences(folder / f"{name}.json"))
        if read != kept:
            differing[name] = (kept - read, read - kept)
    return differing


def prune(tests: Path, folder: Path) -> None:
    """Drop the sentences that no test reads."""
    for name, (unused, _) in out_of_step(tests, folder).items():
        path = folder / f"{name}.json"
        write(path, {key: text for key, text in _sentences(path).items() if key not in unused})


def configure(config: pytest.Config) -> None:
    """Switch approving on where --approve was given, in one process."""
    global approving
    approving = bool(config.getoption("--approve"))
    if approving:
        if os.environ.get("PYTEST_XDIST_WORKER") or any(
            getattr(config.option, name, None) for name in ("numprocesses", "forks")
        ):
            raise pytest.UsageError("--approve writes files: run it without -n and --forks")
        prune(FOLDER.parent, FOLDER)
