"""What the builder says of the Myelin regions that it times, at its most verbose level (TensorRT 8.6).

It times a region once for each combination of types at its edges, and takes the fastest.
"""

from __future__ import annotations

import re

__all__ = ["RegionTimes"]

_COMBINATION = re.compile(r"Autotuning format combination: (.+?) -> (.+?) \*{3}")
_RUNNER = re.compile(r"Timing Runner: (?P<layer>.+) \((?P<kind>\w+)\[0x[0-9a-f]+\]\)")
_TIME = re.compile(r"\bTime: ([0-9.e+-]+)$")
_TYPE = re.compile(r"\b(Float|Half|BFloat16|Int8|FP8|Int32|Int64|Bool)\(")
_NAMES = {"Float": "FP32", "Half": "FP16", "BFloat16": "BF16", "Int8": "INT8", "FP8": "FP8"}


class RegionTimes:
    """Reads the builder's messages in their order. ``found``: region to types at its edges to the best time in ms."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}
        self._types = ""
        self._region = ""

    def take(self, text: str) -> None:
        """One message of any severity."""
        if "Time: " in text:
            time = _TIME.search(text.rstrip())
            if time and self._region and self._types:
                times = self.found.setdefault(self._region, {})
                times[self._types] = min(float(time[1]), times.get(self._types, float("inf")))
        elif "Timing Runner: " in text:
            runner = _RUNNER.search(text)
            self._region = runner["layer"] if runner and runner["kind"] == "Myelin" else ""
        elif "Autotuning format combination" in text:
            combination = _COMBINATION.search(text)
            self._region = ""
            self._types = _edges(combination[1], combination[2]) if combination else ""


def _edges(reads: str, writes: str) -> str:
    """In the words of ``inspector.edge_types``."""
    sides = (("reads", reads), ("writes", writes))
    parts = [(verb, sorted({_NAMES.get(name, name.upper()) for name in _TYPE.findall(text)})) for verb, text in sides]
    return ", ".join(f"{verb} {' and '.join(types)}" for verb, types in parts if types)
