"""Feeds from a Python script: "SCRIPT.py" or "SCRIPT.py:function"."""

from __future__ import annotations

import sys
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..safety.import_path import Neighbours

__all__ = ["load_function", "load_script", "split_script"]

DEFAULT_FUNCTION = "load_data"
_MOST = 4096


def split_script(source: str) -> tuple[Path, str] | None:
    """The file and the function that a source names, or None where it is no Python script."""
    path, colon, function = source.rpartition(":")
    if colon and path.endswith(".py") and function.isidentifier():
        return Path(path), function
    return (Path(source), DEFAULT_FUNCTION) if source.endswith(".py") else None


def load_script(path: Path, function: str = DEFAULT_FUNCTION) -> list[Mapping[str, Any]]:
    """Run the script and call its function, which takes no arguments.

    It returns one feed dict, or a list or generator of them (each a sample set); Polygraphy's data loader scripts
    work as they are. The script's folder is importable while it runs. Raises InputError with the script's own line.
    """
    where = f"{path}:{function}"
    folder = str(path.resolve().parent)
    try:
        with Neighbours(folder):
            module = _module(path)
            if not callable(getattr(module, function, None)):
                known = [name for name, value in vars(module).items() if isinstance(value, types.FunctionType)]
                hint = f"it defines {', '.join(known)}" if known else f"define {function}() returning a dict of arrays"
                raise InputError(f"the script has no function '{function}'", where=str(path), hint=hint)
            return _sets(getattr(module, function)(), where)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{type(error).__name__}: {error}", where=_line(path, error), hint="mend the script and run it again"
        ) from error


def load_function(source: str) -> Callable[..., Any]:
    """The function of "SCRIPT.py:function", the script having run. Raises InputError."""
    path, _, name = source.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise InputError(f"'{source}' names no function of a script", hint="write FILE.py:function")
    try:
        with Neighbours(str(Path(path).resolve().parent)):
            found: Callable[..., Any] | None = vars(_module(Path(path))).get(name)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{type(error).__name__}: {error}", where=_line(Path(path), error)) from error
    if not callable(found):
        raise InputError(f"the script has no function '{name}'", where=path)
    return found


def _module(path: Path) -> types.ModuleType:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"the script cannot be read: {error.strerror or error}", where=str(path)) from error
    module = types.ModuleType(f"_feeds_script_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    finally:
        sys.modules.pop(module.__name__, None)
    return module


def _sets(result: Any, where: str) -> list[Mapping[str, Any]]:
    if isinstance(result, Mapping):
        return [result]
    if not isinstance(result, Iterable) or isinstance(result, (str, bytes)) or hasattr(result, "__array__"):
        hint = "return a dict of arrays, or a list of such dicts"
        raise InputError(f"it returned {type(result).__name__}", where=where, hint=hint)
    sets: list[Mapping[str, Any]] = []
    for one in result:
        if not isinstance(one, Mapping):
            what = f"sample set {len(sets) + 1} is {type(one).__name__}"
            raise InputError(what, where=where, hint="each is a dict of arrays")
        if len(sets) == _MOST:
            raise InputError(f"it yields more than {_MOST} sample sets", where=where, hint="end the generator sooner")
        sets.append(one)
    return sets


def _line(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
