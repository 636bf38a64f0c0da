"""A sample of the onnx package's own tests. The whole: tests/benchmarks/sweep_onnx_node_tests.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "benchmarks" / "sweep_onnx_node_tests.py"


@pytest.mark.slow
def test_a_sample_of_the_onnx_packages_tests(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--every", "23", "--json", str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(file.read_text())
    assert len(results) >= 60
    compared = [result for result in results if result["outcome"]["ort_fp32"] == "compared"]
    assert len(compared) >= 40
    assert sum(result["seen"] for result in compared) >= 200
    for result in results:
        for mode, outcome in result["outcome"].items():
            assert outcome == "compared" or result["reason"][mode], result
    assert "lines on standard error: 0" in done.stdout
