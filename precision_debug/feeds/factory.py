"""A model that a Python file of the user's builds: FILE.py:FUNCTION."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ModelError, PrecisionDebugError
from ..reasons import Reason, say
from ..safety.import_path import Neighbours
from .script import line_of

__all__ = ["made_by"]


def made_by(text: str, seeded: Callable[[], AbstractContextManager[Any]], *, returns: Reason) -> Any:
    """Call a factory function of a Python file, and return what it returns.

    seeded: sets the framework's random state, before the file is imported (what it draws then is part of the model too)
    and again before the function is called. returns: what a factory should return.

    Raises ModelError.
    """
    file, _, name = text.partition(".py:")
    path = Path(file if file.endswith(".py") else file + ".py")
    if not name:
        raise ModelError(say("no_factory"), where=text, hint=say("write_factory", source=text, returns=returns))
    with seeded():
        module = _module(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        hint = say("it_defines", names=known[:8]) if known else returns
        raise ModelError(say("no_function", name=name), where=str(path), hint=hint)
    try:
        with seeded():
            return factory()
    except PrecisionDebugError:
        raise
    except Exception as error:
        raise ModelError(say("factory_failed", error=_named(error)), where=line_of(path, error)) from error


def _module(path: Path) -> ModuleType:
    """Return the module, its folder's other modules importable while it runs.

    It is registered in ``sys.modules``, since pickled classes and dataclasses look themselves up there, under a name
    of its real path: two models.py of two folders are two modules.
    """
    hint = say("check_option", option="--model_file FILE.py:FUNCTION")
    if not path.is_file():
        raise ModelError(say("no_such_file"), where=str(path), hint=hint)
    name = f"_precision_debug_model_{abs(hash(os.path.realpath(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(say("not_importable", error=path.suffix), where=str(path), hint=hint)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with Neighbours(os.path.dirname(os.path.realpath(path))):
            spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise ModelError(say("not_importable", error=_named(error)), where=line_of(path, error)) from error
    return module


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
