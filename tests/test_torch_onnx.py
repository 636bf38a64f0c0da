"""A torch module against its own ONNX export in ONNX Runtime: what is paired, and that none is paired wrongly."""

# ruff: noqa: E402

from __future__ import annotations

import functools
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="torch's ONNX exporter needs onnxscript")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import torch_models
from precision_debug_onnxruntime import OnnxRuntimeBackend
from precision_debug_torch import TorchBackend
from warm import run_python

from precision_debug.numbers.arrays import as_array
from precision_debug.products.dumps.pairing.fingerprint import Pairing, pair_by_value, take
from precision_debug.records import ModelFiles, SessionSpec

pytestmark = pytest.mark.engine("torch")

MODELS = Path(torch_models.__file__)


def export(factory: str, path: Path) -> Path:
    path.write_bytes(_exported(factory))
    return path


@functools.cache
def _exported(factory: str) -> bytes:
    """The same each time; made once."""
    module, inputs = getattr(torch_models, factory)()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        args, kwargs = ((), inputs) if isinstance(inputs, dict) else ((inputs,), None)
        path = Path(folder, "model.onnx")
        torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, verbose=False).save(str(path))
        return path.read_bytes()


def seen(backend: Any, mode: str, file: str, feeds: Any, work: Path, **options: Any) -> Any:
    spec = SessionSpec(model=ModelFiles(model_file=file), mode=mode, options=options, work_dir=str(work))
    feeds = feeds or backend.examples(spec)
    session = backend.open(spec, [feeds])
    arrays: dict[str, Any] = {}
    session.run(feeds, lambda kind, name, tensor: arrays.__setitem__(name, np.array(as_array(tensor))))
    metas = [meta for meta in session.tensors if meta.name in arrays]
    session.close()
    return [(meta, take(arrays[meta.name])) for meta in metas], arrays


def paired(base: str, exported: str, work: Path, level: str = "op") -> tuple[Pairing, list[Any], Any, Any]:
    backend = TorchBackend()
    file = f"{MODELS}:{base}"
    spec = SessionSpec(model=ModelFiles(model_file=file), mode="torch_fp32")
    feeds = dict(backend.examples(spec))
    ours, base_arrays = seen(backend, "torch_fp32", file, feeds, work, level=level, device="cpu")
    path = export(exported, work / "model.onnx")
    theirs, target_arrays = seen(OnnxRuntimeBackend(), "ort_fp32", str(path), feeds, work)
    return pair_by_value(ours, theirs, modules=backend.modules_in(str(path))), theirs, base_arrays, target_arrays


@pytest.mark.parametrize(
    ("base", "exported", "least"),
    [
        ("resnet", "resnet", 1.0),
        ("repvgg", "repvgg", 1.0),
        ("repvgg", "repvgg_folded", 1.0),
        ("encoder", "encoder", 0.55),
    ],
)
def test_share_of_tensors_paired_and_all_have_the_same_values(
    base: str, exported: str, least: float, tmp_path: Path
) -> None:
    pairing, theirs, base_arrays, target_arrays = paired(base, exported, tmp_path)
    assert len(pairing.matches) >= least * len(theirs)
    for name, match in pairing.matches.items():
        np.testing.assert_allclose(target_arrays[name], base_arrays[match.baseline], rtol=1e-3, atol=1e-4)
    assert len({match.baseline for match in pairing.matches.values()}) == len(pairing.matches)


def test_what_the_exporter_made_up_is_not_paired(tmp_path: Path) -> None:
    """Only helper tensors ("val_7") of operators that it took apart stay alone."""
    pairing, theirs, _, _ = paired("encoder", "encoder", tmp_path)
    alone = [meta.name for meta, _ in theirs if meta.name not in pairing.matches]
    assert alone
    assert all(name.startswith("val_") for name in alone)


def test_a_folded_convolution_is_paired_with_what_it_now_computes(tmp_path: Path) -> None:
    pairing, _, _, _ = paired("repvgg", "repvgg_folded", tmp_path)
    assert pairing.matches["conv2d"].baseline == "stage0/add"
    assert pairing.matches["conv2d_1"].baseline == "stage1/add#2"
    assert pairing.matches["relu_1"].baseline == "stage1.relu/relu"


def test_copies_of_a_layer_are_never_paired_wrongly(tmp_path: Path) -> None:
    pairing, _, _, _ = paired("copies", "copies", tmp_path)
    found = {name: match.baseline for name, match in pairing.matches.items()}
    truth = {
        "x": {"x"}, "linear": {"left/addmm"}, "linear_2": {"chain.0/addmm"}, "tanh": {"tanh"},
        "linear_3": {"chain.1/addmm"}, "tanh_1": {"tanh#2"}, "linear_4": {"chain.2/addmm"}, "tanh_2": {"tanh#3"},
        "cat": {"cat"}, "linear_5": {"output"},
    }  # fmt: skip
    assert {name: base for name, base in found.items() if base not in truth.get(name, set())} == {}
    assert "relu" not in found, "two equal tensors, and the exporter does not say which"
    assert "relu#2" in pairing.refused["relu"]


def test_the_older_exporter_says_the_module_too(tmp_path: Path) -> None:
    module, x = torch_models.resnet()
    path = str(tmp_path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), path, dynamo=False, opset_version=17, input_names=["x"])
    found = TorchBackend().modules_in(path)
    assert found["/layers/layers.0/conv1/Conv_output_0"] == "layers.0.conv1"
    assert found["/layers/layers.2/downsample/downsample.0/Conv_output_0"] == "layers.2.downsample.0"
    assert found["/layers/layers.0/Add_output_0"] == "layers.0"
    assert "/layers/layers.0/relu_1/Relu_output_0" not in found, "relu's second call, or a module of that name"
    assert set(found.values()) <= {name for name, _ in module.named_modules()}


def test_module_level_is_paired_too(tmp_path: Path) -> None:
    pairing, _, _, _ = paired("repvgg", "repvgg_folded", tmp_path, level="module")
    assert {"stage0.relu", "stage1.relu", "stage2.relu", "stage3.relu", "output"} <= {
        match.baseline for match in pairing.matches.values()
    }


def weights(factory: str, exported: str, work: Path, change: Any = None) -> tuple[dict[str, str], tuple[str, ...]]:
    from precision_debug_torch.engine.exported_weights import check_weights, summarise_weights
    from precision_debug_torch.model import from_module

    path = export(exported, work / "model.onnx")
    module, inputs = getattr(torch_models, factory)()
    if change is not None:
        change(module)
    found = check_weights(from_module(module, inputs), path)
    return {weight.name: weight.state for weight in found}, summarise_weights(found, path)


def test_weights_of_an_export_agree_and_folded_ones_are_recognised(tmp_path: Path) -> None:
    states, lines = weights("resnet", "resnet", tmp_path)
    assert states["fc.weight"] == "equal"
    assert states["conv1.weight"] == "folded"
    assert "differs" not in states.values()
    assert len(lines) == 1
    assert "folded batch norm" in lines[0]


def test_transposed_weights_are_found_by_value(tmp_path: Path) -> None:
    states, _ = weights("encoder", "encoder", tmp_path)
    assert set(states.values()) <= {"equal", "transposed"}
    assert "transposed" in states.values()


def test_an_old_export_is_said_before_any_operator_is_blamed(tmp_path: Path) -> None:
    def trained(module: Any) -> None:
        with torch.no_grad():
            module.fc.weight[3, 5] += 0.1

    states, lines = weights("resnet", "resnet", tmp_path, trained)
    assert states["fc.weight"] == "differs"
    assert "fc.weight" in lines[1]
    assert "old export" in lines[1]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("torch_onnx/compare_export.py", ["Paired by value", "fused away   aten.convolution", "confidence 1.0000"]),
        ("superpoint_like/cut_and_compare.py", ["has 1 NonZero", "NonZero: False"]),
    ],
)
def test_the_examples_run(script: str, said: list[str], root: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "backends")])}
    done = run_python(str(root / "examples" / script), cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    for text in said:
        assert text in done.stdout
    assert list((tmp_path / "output").glob("*.xlsx"))
