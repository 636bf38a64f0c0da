"""The flags that backends' settings have, as their tables declare them; they travel as ``RunSpec.options``."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from .. import registry
from ..records import RunSpec
from ..settings import Setting
from ..settings.options import TERMINAL, list_options
from .parser import Help

__all__ = ["add_engine_options", "engine_options", "settings_help"]

_TITLES = {
    "litert": "LiteRT", "llamacpp": "llama.cpp", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO",
    "paddle": "Paddle", "tensorrt": "TensorRT", "torch": "PyTorch", "vllm": "vLLM",
}  # fmt: skip


def add_engine_options(parser: argparse.ArgumentParser, reserved: Collection[str]) -> None:
    """Add a group of command-line flags for each backend.

    A flag that several have is in the first group that has it. reserved: names of options of ours: a backend that
    declares one is told it, and a plugin cannot take it away.
    """
    tables = {backend.name: _flags_of(tuple(backend.settings)) for backend in registry.backends()}
    added = set(reserved)
    for name in sorted(tables, key=lambda name: -len(tables[name])):
        own = [one for one in tables[name] if one.name not in added]
        if not own:
            continue
        added |= {one.name for one in own}
        title = _TITLES.get(name, name)
        group = parser.add_argument_group(Help(f"which settings? ({title})", f"哪些设置？（{title}）"))
        for one in own:
            others = [other for other in tables if other != name and any(s.name == one.name for s in tables[other])]
            titles = [_TITLES.get(other, other) for other in others]
            also = f" (also of {', '.join(titles)})" if others else ""
            ye = f"（{'、'.join(titles)} 亦有）" if others else ""
            help_text = Help(*(text.replace("%", "%%") for text in (f"{one.help}{also}", f"{one.zh}{ye}")))
            group.add_argument(f"--{one.name}", default=None, help=help_text, **_argparse_form(one))
            if one.by_side:
                help_text = Help(
                    f"the same for the baseline alone (default: as --{one.name})",
                    f"只用于基线的同一设置（默认同 --{one.name}）",
                )
                group.add_argument(f"--baseline_{one.name}", default=None, help=help_text, **_argparse_form(one))


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the engine options that were given, by name, as they were written."""
    ours = {one.name for one in (*list_options(RunSpec), *TERMINAL)}
    flags = [one for backend in registry.backends() for one in _flags_of(backend.settings) if one.name not in ours]
    names = {one.name: one.name for one in flags}
    names |= {f"baseline_{one.name}": f"baseline.{one.name}" for one in flags if one.by_side}
    return {key: value for name, key in sorted(names.items()) if (value := getattr(args, name, None)) is not None}


def settings_help() -> tuple[str, str]:
    """Return all settings by backend, for the end of --help, in English and Chinese."""
    lines = []
    for backend in registry.backends():
        names = " ".join(one.name for one in backend.settings)
        if names:
            title = f"  {_TITLES.get(backend.name, backend.name):13s} "
            lines += textwrap.wrap(names, 110, initial_indent=title, subsequent_indent=" " * len(title))
    listed = "\n".join(lines) + "\n"
    return (
        "settings, each with --option KEY=VALUE (baseline.KEY or target.KEY: of one side only);\n"
        f"`precision_debug doctor --settings` explains them:\n{listed}",
        "设置，用 --option KEY=VALUE 给出（baseline.KEY 或 target.KEY 只用于一侧）；\n"
        f"`precision_debug doctor --settings` 逐一说明：\n{listed}",
    )


def _flags_of(table: Sequence[Setting]) -> list[Setting]:
    return [one for one in table if one.flag]


def _argparse_form(one: Setting) -> dict[str, Any]:
    form: dict[str, Any] = {"nargs": one.nargs} if one.nargs else {}
    metavar = one.metavar or ("{" + ",".join(one.choices) + "}" if one.choices else one.kind.upper())
    return form | {"metavar": metavar}
