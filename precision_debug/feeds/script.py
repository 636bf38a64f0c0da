"""Feeds from a Python script: "SCRIPT.py" or "SCRIPT.py:function"."""

from __future__ import annotations

import os
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..reasons import say
from ..safety.import_path import Neighbours
from ..safety.untrusted import refuse_special
from .sets import SampleSets

__all__ = ["find_script_line", "load_function", "load_script", "split_script"]

DEFAULT_FUNCTION = "load_data"
_MOST = 1 << 20
"""Sample sets of a generator: one that never ends would run until somebody stopped it."""


def split_script(source: str) -> tuple[Path, str] | None:
    """Return the file and the function that a source names, or None where it is not a Python script."""
    path, colon, function = source.rpartition(":")
    if colon and path.endswith(".py") and function.isidentifier():
        return Path(path), function
    return (Path(source), DEFAULT_FUNCTION) if source.endswith(".py") else None


def load_script(path: Path, function: str = DEFAULT_FUNCTION) -> SampleSets:
    """Run the script and call its function, which takes no arguments.

    It returns one feed dict, or a list or generator of them (each a sample set); Polygraphy's data loader scripts
    work as they are. A generator is gone through once to count its sets, and again when they are asked for: nothing is
    kept. The script's folder is importable while it runs. Raises InputError with the script's own line.
    """
    where = f"{path}:{function}"
    folder = os.path.dirname(os.path.realpath(path))
    try:
        with Neighbours(folder):
            module = _load_module(path)
            if not callable(getattr(module, function, None)):
                known = [name for name, value in vars(module).items() if isinstance(value, types.FunctionType)]
                hint = say("it_defines", names=known) if known else say("define_it", name=function)
                raise InputError(say("no_function", name=function), where=str(path), hint=hint)
            return _call_for_sets(getattr(module, function), where, folder)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{type(error).__name__}: {error}", where=find_script_line(path, error), hint=say("fix_script")
        ) from error


def load_function(source: str) -> Callable[..., Any]:
    """Return the function of "SCRIPT.py:function", the script having run. Raises InputError."""
    path, _, name = source.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise InputError(say("script_function_form", value=source))
    try:
        with Neighbours(os.path.dirname(os.path.realpath(path))):
            found: Callable[..., Any] | None = vars(_load_module(Path(path))).get(name)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{type(error).__name__}: {error}", where=find_script_line(Path(path), error)) from error
    if not callable(found):
        raise InputError(say("no_function", name=name), where=path)
    return found


def _load_module(path: Path) -> types.ModuleType:
    refuse_special(path, InputError)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(say("no_script", error=str(error.strerror or error)), where=str(path)) from error
    module = types.ModuleType(f"_feeds_script_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    finally:
        sys.modules.pop(module.__name__, None)
    return module


def _call_for_sets(call: Callable[[], Any], where: str, folder: str) -> SampleSets:
    result = call()
    if isinstance(result, Mapping):
        return _list_sets([result])
    if not isinstance(result, Iterable) or isinstance(result, (str, bytes)) or hasattr(result, "__array__"):
        hint = "return a dict of arrays, or a list of such dicts"
        raise InputError(f"returned {type(result).__name__}", where=where, hint=hint)
    if not isinstance(result, Iterator):
        return _list_sets([_check_sample(one, number, where) for number, one in enumerate(result, 1)])
    count = 0
    for count, one in enumerate(result, 1):
        _check_sample(one, count, where)
        if count > _MOST:
            raise InputError(f"yields more than {_MOST} sample sets", where=where, hint="end the generator earlier")
    return SampleSets(count, _Again(call, where, folder).sample)


def _list_sets(sets: Sequence[Mapping[str, Any]]) -> SampleSets:
    return SampleSets(len(sets), lambda number: dict(sets[number]), cheap=True)


def _check_sample(one: Any, number: int, where: str) -> Mapping[str, Any]:
    if not isinstance(one, Mapping):
        raise InputError(f"sample set {number} is {type(one).__name__}", where=where, hint="each is a dict of arrays")
    return one


class _Again:
    """A generator's sets by their number: started anew where one is asked for that it has passed."""

    def __init__(self, call: Callable[[], Any], where: str, folder: str) -> None:
        self._call, self._where, self._folder = call, where, folder
        self._next = 0
        self._left: Iterator[Any] = iter(())

    def sample(self, number: int) -> dict[str, Any]:
        with Neighbours(self._folder):
            if number < self._next or self._next == 0:
                self._next, self._left = 0, iter(self._call())
            for one in self._left:
                self._next += 1
                if self._next > number:
                    return dict(_check_sample(one, number + 1, self._where))
        raise InputError("yielded fewer sample sets than before", where=self._where)


def find_script_line(path: Path, error: BaseException) -> str:
    """Return the FILE:LINE in the user's code that an exception came from.

    It is the deepest one in the script's folder, and the script alone where there is none."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    folder = Path(os.path.realpath(path)).parent
    lines = [
        (frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path) or (folder in Path(os.path.realpath(frame.filename)).parents
        and "site-packages" not in frame.filename)
    ]  # fmt: skip
    if not lines:
        return str(path)
    name, number = lines[-1]
    own = os.path.realpath(name) == os.path.realpath(path)
    return f"{path if own else path.parent / os.path.relpath(os.path.realpath(name), folder)}:{number}"
