"""Options that only some backends know; they travel as ``RunSpec.options``."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_engine_options", "engine_options"]

_Flag = tuple[str, dict[str, Any]]

_TENSORRT: tuple[_Flag, ...] = (
    ("layer_precisions", {"metavar": "LAYER:TYPE", "nargs": "+", "help": "e.g. Add:float16 Sub:float32"}),
    ("layer_output_types", {"metavar": "LAYER:TYPE", "nargs": "+", "help": "types of layers' outputs, likewise"}),
    ("precision_constraints", {"choices": ("none", "prefer", "obey"), "help": "how binding layer precisions are"}),
    ("typing", {"choices": ("weak", "strong"), "help": "precision by builder flags, or written into the graph"}),
    ("network_script", {"metavar": "FILE.py", "help": "a function that changes the network before it is built"}),
    ("workspace", {"metavar": "SIZE", "help": "memory that the builder may use, e.g. 4G"}),
    ("optimization_level", {"metavar": "0..5", "type": int, "help": "the builder's effort"}),
    ("tactic_sources", {"metavar": "NAME", "nargs": "+", "help": "e.g. EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS"}),
    ("timing_cache", {"metavar": "FILE", "help": "read and written: makes builds repeatable"}),
    ("save_tactics", {"metavar": "FILE", "help": "keep the chosen tactics (TensorRT 8.6 to 10)"}),
    ("load_tactics", {"metavar": "FILE", "help": "build with these tactics"}),
    ("plugins", {"metavar": "LIB.so", "nargs": "+", "help": "plugin libraries to load first"}),
    ("save_engine", {"metavar": "FILE", "help": "keep the engine that was compared"}),
    ("save_inspector", {"metavar": "FILE", "help": "keep the engine inspector's JSON"}),
)
_TORCH: tuple[_Flag, ...] = (
    ("level", {"choices": ("op", "module"), "help": "every ATen operator, or the modules' outputs (default op)"}),
    ("device", {"metavar": "DEVICE", "help": "cpu, cuda, cuda:1 (default: cuda where there is one)"}),
)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add a group of options a backend."""
    for title, flags in (("which engine? (TensorRT)", _TENSORRT), ("which level? (PyTorch)", _TORCH)):
        group = parser.add_argument_group(title)
        for name, settings in flags:
            group.add_argument(f"--{name}", default=None, **settings)


def engine_options(given: argparse.Namespace) -> dict[str, Any]:
    """Those that were given, by name."""
    values = {name: getattr(given, name) for name, _ in (*_TENSORRT, *_TORCH)}
    return {name: value for name, value in values.items() if value is not None}
