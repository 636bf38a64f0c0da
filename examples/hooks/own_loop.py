"""Hooks in an inference loop of your own, without the command line: a small MLP in numpy, float32 against float16.

Any loop that can call ``hook(op_type, tensor_name, tensor)`` will do; Paddle's ``register_output_hook`` calls it so.
"""

from __future__ import annotations

import numpy as np

from precision_debug import AssertClose, SaveBaseline


def forward(x: np.ndarray, weights: list[np.ndarray], dtype: type[np.floating], hook) -> np.ndarray:
    """Matmul and ReLU for each weight; then the sum of squares of every row. Every result goes to the hook."""
    x = x.astype(dtype)
    for number, weight in enumerate(weights):
        x = x @ weight.astype(dtype)
        hook("matmul", f"matmul_{number}", x)
        x = np.maximum(x, 0)
        hook("relu", f"relu_{number}", x)
    with np.errstate(over="ignore"):  # float16 ends at 65504
        norm = (x * x).sum(axis=1, dtype=dtype)
    hook("norm", "norm", norm)
    return norm


rng = np.random.default_rng(0)
weights = [rng.normal(size=(64, 64)).astype(np.float32) / 4 for _ in range(4)]
inputs = 8 * rng.normal(size=(8, 64)).astype(np.float32)

base = SaveBaseline()
forward(inputs, weights, np.float32, base)
check = AssertClose(base, atol=1e-1, rtol=1e-2)
forward(inputs, weights, np.float16, check)
report = check.report()
report.to_excel("output/hooks.xlsx")
print(report.verdict, "| first mismatch:", report.first_mismatch.name if report.first_mismatch else "none")
