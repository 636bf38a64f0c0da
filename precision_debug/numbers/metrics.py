"""Reads the declared metrics out of metrics.h, and computes them of blocks of elements: numpy's, or torch's alike."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

__all__ = ["DECLARED", "FURTHER", "HELD", "Declared", "Held", "evaluate_metric"]

_ENTRY = re.compile(
    r"\b(SHARE|MEAN)\(\s*(\w+),\s*([^\"]+?),\s*" + r",\s*".join([r'"((?:[^"\\]|\\.)*)"'] * 4) + r"\s*\)", re.DOTALL
)

_SHORT = re.compile(r"\b(SHARE|MEAN)\(\s*(\w+),\s*(.+?)\)[ \\]*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """One line of metrics.h. share: pairs are counted, otherwise summed. title and said: English, Chinese."""

    name: str
    share: bool
    expression: str
    title: tuple[str, str]
    said: tuple[str, str]

    @functools.cached_property
    def code(self) -> CodeType:
        """The expression, compiled; raises ValueError where it is C alone."""
        try:
            return compile(self.expression, f"metrics.h: {self.name}", "eval")
        except SyntaxError as error:
            raise ValueError(f"{self.name}: {self.expression!r} is not an expression of both C and Python") from error


def _parse_declared() -> tuple[Declared, ...]:
    text = Path(__file__).with_name("metrics.h").read_text(encoding="utf-8")
    body = text.partition("#define METRICS")[2].replace("\\\n", "\n")
    return tuple(
        Declared(
            name=name, share=kind == "SHARE", expression=" ".join(expression.split()), title=(title, chinese),
            said=(said, said_in_chinese),
        )
        for kind, name, expression, title, chinese, said, said_in_chinese in _ENTRY.findall(body)
    )  # fmt: skip


DECLARED = _parse_declared()
"""In the order of the file."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """One line of held.h. is_declared: metrics.h has it too, to the letter; otherwise nobody asks for it."""

    name: str
    share: bool
    is_declared: bool


def _parse_held() -> tuple[Held, ...]:
    """Read held.h: the metrics that the compiled kernels compute, and whether metrics.h still declares each."""
    text = Path(__file__).with_name("held.h").read_text(encoding="utf-8")
    body = text.partition("#define METRICS")[2].replace("\\\n", "\n").partition("\n")[2]
    known = {(metric.name, metric.share, metric.expression) for metric in DECLARED}
    lines = ((name, kind == "SHARE", " ".join(expression.split())) for kind, name, expression in _SHORT.findall(body))
    return tuple(Held(name=line[0], share=line[1], is_declared=line in known) for line in lines)


HELD = _parse_held()
"""What the compiled kernels compute, in their order."""

FURTHER = tuple(metric for metric in DECLARED if metric.name not in {one.name for one in HELD if one.is_declared})
"""What takes one more reading."""


def evaluate_metric(metric: Declared, library: ModuleType, b: Any, t: Any, d: Any, m: Any) -> Any:
    """Return the metric of each pair, of float64 arrays (numpy) or tensors (torch) of one length; all pairs finite."""
    return eval(metric.code, {"__builtins__": {}, "fabs": library.abs}, {"b": b, "t": t, "d": d, "m": m})
