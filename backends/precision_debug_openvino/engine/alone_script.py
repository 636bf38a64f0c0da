"""A short script that shows a fault with OpenVINO alone."""

from __future__ import annotations

from precision_debug.protocols import AloneFiles

from .. import modes

__all__ = ["script"]

_TEXT = '''\
"""{model}, {output}: expected and got with OpenVINO alone; by precision_debug reduce.

Seen with openvino {version}, {mode}."""
from pathlib import Path

import numpy as np
import openvino as ov

here = Path(__file__).parent
feeds = {{name: value for name, value in np.load(here / {feeds!r}).items() if name != "__feeds__"}}
expected = np.load(here / {expected!r})[{output!r}]
compiled = ov.Core().compile_model(str(here / {model!r}), "CPU", {config})
got = compiled(feeds)[{output!r}]
error = np.linalg.norm(got.astype(float) - expected) / np.linalg.norm(expected)
print("openvino", ov.__version__, "expected", expected.ravel()[:6])
print(f"relative L2 error {{error:.3g}}, got", got.ravel()[:6])
'''


def script(mode: str, files: AloneFiles) -> str:
    """See ``protocols.AloneScripter``."""
    import openvino as ov

    recipe = modes.recipe(mode)
    if recipe.quantise or not recipe.fused:
        return ""
    config = {"INFERENCE_PRECISION_HINT": recipe.precision} if recipe.precision else {}
    return _TEXT.format(
        model=files.model, feeds=files.feeds, expected=files.expected, output=files.output, config=config,
        version=ov.__version__, mode=mode,
    )  # fmt: skip
