"""Runs a Python file of the user's that holds a model: a factory, or a script that builds a network."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from .import_path import Neighbours

__all__ = ["user_module"]


def user_module(path: Path, error: Callable[..., Exception]) -> ModuleType:
    """The module, its folder's other modules importable while it runs. error: what is raised where it fails.

    It is registered in ``sys.modules``, since pickled classes and dataclasses look themselves up there, under a name
    of its real path: two models.py of two folders are two modules.
    """
    if not path.is_file():
        raise error("no such file", where=str(path), hint="check --model_file FILE.py:FUNCTION")
    name = f"_precision_debug_model_{abs(hash(os.path.realpath(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise error("cannot be imported", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with Neighbours(os.path.dirname(os.path.realpath(path))):
            spec.loader.exec_module(module)
    except Exception as failed:
        sys.modules.pop(name, None)
        raise error(f"cannot be imported: {type(failed).__name__}: {failed}", where=str(path)) from failed
    return module
