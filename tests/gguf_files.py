"""The models of examples/gguf/make.py, for tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

MAKE = Path(__file__).parents[1] / "examples" / "gguf" / "make.py"

_spec = importlib.util.spec_from_file_location("examples_gguf_make", MAKE)
assert _spec is not None
assert _spec.loader is not None
_made = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_made)

HIDDEN, HEADS, KEYS, TOKENS = _made.HIDDEN, _made.HEADS, _made.KEYS, _made.TOKENS
ids, permuted, weights, write = _made.ids, _made.permuted, _made.weights, _made.write
