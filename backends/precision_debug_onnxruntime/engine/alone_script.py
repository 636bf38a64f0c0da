"""A short script that shows a fault with ONNX Runtime alone."""

from __future__ import annotations

from precision_debug.protocols import AloneFiles

from .. import modes

__all__ = ["script"]

_TEXT = '''\
"""{model}, {output}: expected and got with ONNX Runtime alone; by precision_debug reduce.

Seen with onnxruntime {version}, {mode}."""
from pathlib import Path

import numpy as np
import onnxruntime as ort

here = Path(__file__).parent
feeds = {{name: value for name, value in np.load(here / {feeds!r}).items() if name != "__feeds__"}}
expected = np.load(here / {expected!r})[{output!r}]
plain = ort.SessionOptions()
plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
runs = {{"no optimiser": (plain, None), "every optimiser": (None, None)}}
{without}print("onnxruntime", ort.__version__, "expected", expected.ravel()[:6])
for name, (options, off) in runs.items():
    session = ort.InferenceSession(
        here / {model!r}, options, providers=["CPUExecutionProvider"], disabled_optimizers=off)
    got = session.run([{output!r}], feeds)[0]
    error = np.linalg.norm(got.astype(float) - expected) / np.linalg.norm(expected)
    print(f"{{name}}: relative L2 error {{error:.3g}}, got", got.ravel()[:6])
'''


def script(mode: str, files: AloneFiles) -> str:
    """See ``protocols.AloneScripter``: of modes that give the model to ONNX Runtime as it is."""
    import onnxruntime as ort

    recipe = modes.recipe(mode)
    if recipe.change or not recipe.optimise or recipe.engine != "cpu":
        return ""
    without = f'runs["without {" ".join(files.passes)}"] = None, {list(files.passes)}\n' if files.passes else ""
    return _TEXT.format(
        model=files.model, feeds=files.feeds, expected=files.expected, output=files.output, without=without,
        version=ort.__version__, mode=mode,
    )  # fmt: skip
