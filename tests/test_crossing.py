"""A PyTorch module beside the file that was exported from it, on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from approval import holds_approved, is_approved
from warm import command

from precision_debug import Report, Status

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("onnxscript", reason="torch's exporter needs onnxscript")

pytestmark = pytest.mark.engine("torch")


@pytest.fixture(scope="module")
def deployed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("exported") / "deployed.onnx"
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        patched.syspath_prepend(str(root / "examples" / "torch_onnx"))
        import model

        module, image = model.build_deployed()
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (image,), dynamo=True, verbose=False).save(str(path))
    return path.read_bytes()


@pytest.fixture
def exported(deployed: bytes, tmp_path: Path) -> Path:
    """A copy of its own for each test, in the current folder."""
    (tmp_path / "deployed.onnx").write_bytes(deployed)
    return Path("deployed.onnx")


def compare(root: Path, exported: Path, *more: str) -> subprocess.CompletedProcess[str]:
    model = root / "examples" / "torch_onnx" / "model.py"
    return command(
        "--baseline", "torch_fp32", "--baseline_model", f"{model}:build", "--model_file", str(exported),
        "--atol", "1e-2", "--rtol", "1e-2", "--output", "o.json", *more,
    )  # fmt: skip


def assert_within_tolerance(done: subprocess.CompletedProcess[str]) -> None:
    """Nothing is out of it; a processor without float16 kernels computed in float32, which proves nothing."""
    assert done.returncode in (0, 1), done.stderr
    assert (done.returncode == 1) is ("Nothing ran in FP16" in done.stdout), done.stdout


def test_values_pair_the_tensors_and_the_report_says_how_sure_it_is(root: Path, exported: Path) -> None:
    done = compare(root, exported, "--run_mode", "ort_fp16")
    assert_within_tolerance(done)
    report = Report.load("o.json")
    assert is_approved(report.inputs_source)
    pairs = {row.name: row for row in report.compared}
    assert {"blocks.0/relu", "blocks.1/relu", "blocks.2/relu"} <= set(pairs)
    assert all(row.paired_by.startswith("fingerprint") and "confidence" in row.paired_by for row in report.compared)
    branches = [row for row in report.rows if row.name.startswith("blocks.1.") and "convolution" in row.name]
    assert branches
    assert all(row.status is Status.FUSED_AWAY for row in branches)
    assert report.outputs
    assert all(row.status is Status.PASS for row in report.outputs)
    assert any("weights of the module" in note for note in report.notes)


def test_the_same_name_in_another_framework_means_nothing(root: Path, exported: Path) -> None:
    """A tensor of the file is renamed to a module's tensor that it does not hold."""
    import onnx

    model = onnx.load(exported)
    first = model.graph.node[0].output[0]
    for node in model.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == first:
                    names[place] = "blocks.1/add"
    onnx.save(model, exported)
    done = compare(root, exported, "--run_mode", "ort_fp32")
    assert done.returncode == 0, done.stderr
    rows = {row.name: row for row in Report.load("o.json").rows}
    assert rows["blocks.1/add"].status is Status.FUSED_AWAY


def test_a_recorded_module_is_paired_by_its_recorded_values(root: Path, exported: Path) -> None:
    """As where the module's framework and the target's cannot be had in one environment."""
    model = root / "examples" / "torch_onnx" / "model.py"
    recorded = command("--model_file", f"{model}:build", "--run_mode", "torch_fp32", "--record", "rec")
    assert recorded.returncode == 0, recorded.stderr
    Path("hidden").mkdir()
    Path("hidden/torch.py").write_text("raise ImportError('there is no torch here')")
    done = subprocess.run(
        [sys.executable, "-m", "precision_debug", "--baseline", "rec", "--model_file", str(exported), "--run_mode",
         "ort_fp16", "--atol", "1e-2", "--rtol", "1e-2", "--output", "o.json"],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["hidden", os.environ["PYTHONPATH"]])},
    )  # fmt: skip
    assert_within_tolerance(done)
    report = Report.load("o.json")
    assert {"blocks.0/relu", "blocks.1/relu", "blocks.2/relu"} <= {row.name for row in report.compared}
    assert all(row.paired_by.startswith("fingerprint") for row in report.compared)
    assert report.outputs
    assert all(row.status is Status.PASS for row in report.outputs)
    assert holds_approved(report.notes)
