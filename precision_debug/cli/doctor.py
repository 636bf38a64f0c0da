"""precision_debug doctor: which run modes run here, and what the others need."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from importlib import metadata

from .. import registry
from ..machine import machine
from ..visible import visible
from .parser import Parser, formatter, parse, program

__all__ = ["run"]

_PACKAGES = (
    "numpy", "ml_dtypes", "xlsxwriter", "pandas", "onnx", "onnxruntime", "onnxruntime-gpu", "onnxruntime-extensions",
    "paddlepaddle", "paddlepaddle-gpu", "tensorrt", "torch",
)  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    """Print the machine, the packages and every run mode; 0 if at least one mode can run here, else 1."""
    parser: argparse.ArgumentParser = Parser(prog=program("doctor"), formatter_class=formatter, description=__doc__)
    parser.add_argument("--verbose", action="store_true", help="tracebacks")
    parse(parser, arguments)
    from rich.console import Console
    from rich.table import Table

    from .. import metrics

    console = Console(highlight=False, soft_wrap=True, markup=False)
    if not console.is_terminal:
        console.width = 160
    for key, value in machine().items():
        console.print(f"{key:16s} {value}")
    console.print(
        f"{'packages':16s} " + ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name)))
    )
    console.print(f"{'comparison':16s} {metrics.kernel_status()}")
    runnable = 0
    for plugin in registry.plugins():
        console.print()
        if plugin.backend is None:
            console.print(visible(f"backend {plugin.name}: could not be loaded: {plugin.problem}"))
            continue
        table = Table(title=f"backend {plugin.name}", title_justify="left", box=None, pad_edge=False)
        for column in ("run mode", "reads", "here", "what it is, or what it needs"):
            table.add_column(column, overflow="fold")
        for mode in plugin.backend.run_modes:
            available = plugin.backend.availability(mode.name)
            runnable += available.ok
            reads = " ".join(suffix or "folder" for suffix in mode.suffixes)
            table.add_row(
                mode.name,
                reads,
                "yes" if available.ok else "no",
                mode.summary if available.ok else available.needs,
            )
        console.print(table)
    return 0 if runnable else 1


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        try:
            return "(not a wheel)" if importlib.util.find_spec(name.replace("-", "_")) else ""
        except (ImportError, ValueError):
            return ""
