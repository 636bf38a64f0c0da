"""Packages that are taken away from a Python for one test, as if they had never been installed."""

from __future__ import annotations

from pathlib import Path

__all__ = ["without"]

_SITE = """
import importlib.machinery as machinery
import importlib.metadata as metadata

ABSENT = {names!r}
find_spec, version = machinery.PathFinder.find_spec, metadata.version


def found(name, path=None, target=None):
    return None if name.partition(".")[0] in ABSENT else find_spec(name, path, target)


def installed(name):
    if name.replace("-", "_").partition("_")[0] in ABSENT:
        raise metadata.PackageNotFoundError(name)
    return version(name)


machinery.PathFinder.find_spec, metadata.version = found, installed
"""


def without(*names: str, folder: Path) -> Path:
    """A folder for PYTHONPATH: a Python that begins with it, and its children, cannot import these top-level names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITE.format(names=frozenset(names)), encoding="utf-8")
    return folder
