"""Put the network in PyTorch beside each port in Paddle, in FP64: what rounding did is gone, and the port is left."""

from __future__ import annotations

from pathlib import Path

import precision_debug

HERE = Path(__file__).parent

for port in ("right", "epsilon", "gelu", "transposed", "padding"):
    report = precision_debug.compare(
        f"{HERE / 'network_paddle.py'}:{port}", run_mode="dygraph_fp64",
        baseline_model=f"{HERE / 'network_torch.py'}:build", baseline="torch_fp64",
        atol=1e-8, rtol=1e-8, output=f"output/port_{port}.html",
    )  # fmt: skip
    first = report.first_mismatch
    print(f"{port}: {report.verdict}" + (f"; first mismatch: {first.name}" if first else ""))
