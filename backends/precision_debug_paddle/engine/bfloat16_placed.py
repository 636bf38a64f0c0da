"""Which operators of a PIR program oneDNN's passes have put into bfloat16, read from what Paddle prints of its passes.

Its hook sees results alone: a product in bfloat16 that hands on float32 looks like one in float32.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from .. import naming
from .kept_in_pir import MARK

__all__ = ["built", "placed"]

_PASS = "IRPrinting on builtin.module"
_AFTER = f"{_PASS} after cpu_bfloat16_placement_pass"
_OPERATOR = re.compile(r'^\s*\([^)]*\) = "(?:pd_op|onednn_op)\.(\w+)" \(.*\) -> .*xf32>')
_LOW = re.compile(r'(?:mkldnn|onednn)_data_type:"bfloat16"')

Made = TypeVar("Made")


def placed(text: str) -> tuple[int, int] | None:
    """Operators in bfloat16, and all that give floats, of what Paddle printed; None where it printed no such pass."""
    _, found, rest = text.rpartition(_AFTER)
    if not found:
        return None
    low = every = 0
    for line in rest.partition(_PASS)[0].splitlines():
        match = _OPERATOR.match(line)
        if match is None or naming.carries(match[1]) or MARK in line:
            continue
        every += 1
        low += _LOW.search(line) is not None
    return low, every


def built(make: Callable[[], Made], folder: Path) -> tuple[Made, tuple[int, int] | None]:
    """What ``make`` gives, a predictor that prints its passes, and what was put where. folder: an existing one."""
    with tempfile.TemporaryFile(dir=folder) as said:
        with _written_to(said.fileno()):
            made = make()
        said.seek(0)
        return made, placed(said.read().decode("utf-8", "replace"))


@contextmanager
def _written_to(handle: int) -> Iterator[None]:
    """What libraries print on standard output goes to a descriptor."""
    try:
        before = os.dup(1)
    except OSError:  # there is none
        yield
        return
    try:
        os.dup2(handle, 1)
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)
