"""Whether two versions of this program make the same reports: some 40 small runs, written as JSON, field by field.

    python tests/same_reports.py models FOLDER            the models and inputs of all runs, made once
    python tests/same_reports.py write FOLDER OUT [NAME]  run what PYTHONPATH names on them (a NAME's part: those alone)
    python tests/same_reports.py compare OUT OTHER        every field that differs; status 1 where one does

Write once with each version (``git worktree add``, PYTHONPATH=TREE:TREE/backends), then compare. TensorRT is the
stand-in of its tests. What tells the time, the machine or the release is left out.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent), str(HERE.parent / "backends")]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One comparison. model: a file of the models' folder. inputs: an .npz beside it; "": the model's own."""

    name: str
    model: str
    mode: str
    inputs: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def _onnx_runs() -> Iterator[Run]:
    for mode in (
        "ort_opt", "ort_fp16", "ort_int8", "ort_int8_dynamic", "ort_fp16_sim", "ort_bf16_sim", "onnx_ref",
    ):  # fmt: skip
        yield Run(name=f"ort-convnet-{mode}", model="convnet.onnx", mode=mode, inputs="convnet.npz")
    for mode in ("ort_opt", "ort_fp16", "ort_int8"):
        yield Run(name=f"ort-attention-{mode}", model="attention.onnx", mode=mode)
    yield Run(name="ort-nested", model="nested_model.onnx", mode="ort_opt", inputs="nested_model.npz")
    yield Run(name="ort-scan", model="scan_model.onnx", mode="ort_opt", inputs="scan_model.npz")
    yield Run(name="ort-strings", model="strings_and_sequences.onnx", mode="ort_opt", inputs="strings.npz")
    yield Run(name="ort-odd", model="odd_outputs.onnx", mode="ort_opt")
    yield Run(
        name="ort-apart", model="convnet.onnx", mode="ort_fp16", inputs="convnet.npz",
        settings={"lockstep": False, "fused_only": True, "top1": True, "atol": 1e-3},
    )  # fmt: skip
    yield Run(
        name="ort-marks", model="convnet.onnx", mode="ort_fp16_sim", inputs="convnet.npz",
        settings={"marks": ("*r*", "re:.*[0-9]"), "explain": "off", "validate": True},
    )  # fmt: skip
    yield Run(name="ort-full", model="mobile.onnx", mode="ort_int8", settings={"explain": "full"})
    yield Run(
        name="ort-kept", model="convnet.onnx", mode="ort_fp16", inputs="convnet.npz",
        settings={"op_block_list": "Conv"},
    )  # fmt: skip


def _paddle_runs() -> Iterator[Run]:
    for kind, ending in (("legacy", "pdmodel"), ("pir", "json")):
        for mode in ("cpu_opt", "onednn_fp32", "onednn_bf16"):
            yield Run(name=f"paddle-{kind}-cnn-{mode}", model=f"{kind}/cnn.{ending}", mode=mode, inputs="cnn.npz")
    yield Run(name="paddle-legacy-encoder", model="legacy/encoder.pdmodel", mode="onednn_bf16", inputs="encoder.npz")
    yield Run(name="paddle-int8", model="legacy/conv_norm_int8.pdmodel", mode="onednn_int8", inputs="conv_norm.npz")
    yield Run(name="paddle-dygraph", model="paddle_layer.py:make", mode="dygraph_fp64")
    yield Run(
        name="paddle-onnx", model="exported/cnn.onnx", mode="ort_fp32", inputs="cnn.npz",
        settings={"baseline_model": "exported/cnn.json"},
    )  # fmt: skip


def _torch_runs() -> Iterator[Run]:
    for model, mode, level in (
        ("resnet", "torch_bf16", "op"), ("resnet", "torch_fp64", "op"), ("encoder", "torch_fp16", "op"),
        ("decoder", "torch_autocast_bf16", "op"), ("decoder", "torch_bf16", "module"), ("encoder", "torch_int8", "op"),
        ("encoder", "torch_compile", "op"), ("recurrent", "torch_bf16", "op"),
    ):  # fmt: skip
        yield Run(
            name=f"torch-{model}-{mode}-{level}", model=f"torch_models.py:{model}", mode=mode,
            settings={"level": level, "device": "cpu", "explain": "full"},  # "fast" stops by the clock
        )  # fmt: skip
    yield Run(name="torch-pt2", model="resnet.pt2", mode="torch_bf16", settings={"device": "cpu"})
    yield Run(
        name="torch-onnx", model="resnet.onnx", mode="ort_fp32",
        settings={"baseline_model": "torch_models.py:resnet", "baseline": "torch_fp32", "device": "cpu"},
    )  # fmt: skip

    for mode in ("torch_bf16", "torch_autocast_bf16"):
        yield Run(name=f"torch-live-{mode}", model="decoder", mode=mode)


def _tensorrt_runs() -> Iterator[Run]:
    for mode in ("trt_fp16", "trt_int8"):
        yield Run(name=f"tensorrt-residual-{mode}", model="residual.onnx", mode=mode, inputs="residual.npz")
    yield Run(
        name="tensorrt-fused-only", model="residual.onnx", mode="trt_fp16", inputs="residual.npz",
        settings={"fused_only": True},
    )  # fmt: skip


def runs() -> list[Run]:
    return [*_onnx_runs(), *_paddle_runs(), *_torch_runs(), *_tensorrt_runs()]


def make_models(folder: Path) -> None:
    """All models and inputs, from the builders that the tests use."""
    import onnx
    import onnx_models
    import paddle_models
    import tensorrt_models
    import torch
    import torch_models

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("convnet", "mlp", "attention", "mobile", "nested_model", "scan_model", "odd_outputs",
                 "strings_and_sequences"):  # fmt: skip
        onnx.save(getattr(onnx_models, name)(), folder / f"{name}.onnx")
    onnx.save(tensorrt_models.residual(), folder / "residual.onnx")
    random = np.random.default_rng(1)
    np.savez(folder / "convnet.npz", x=random.standard_normal((2, 3, 16, 16)).astype(np.float32))
    np.savez(folder / "nested_model.npz", x=np.float32([1, -2]), k=np.array(3))
    np.savez(folder / "scan_model.npz", x=np.arange(10, dtype=np.float32).reshape(5, 2))
    np.savez(folder / "strings.npz", x=np.float32([1, 2, 3]))
    np.savez(folder / "residual.npz", image=random.uniform(-1, 1, (2, 3, 32, 32)).astype(np.float32))
    for name in ("cnn", "encoder", "conv_norm"):
        np.savez(folder / f"{name}.npz", **paddle_models.feeds(name))
    (folder / "legacy").mkdir(exist_ok=True)
    paddle_models.legacy("cnn", folder / "legacy")
    paddle_models.legacy("encoder", folder / "legacy")
    paddle_models.quantised("conv_norm", folder / "legacy")
    shutil.copytree(paddle_models.pir("cnn").parent, folder / "pir", dirs_exist_ok=True)
    shutil.copytree(HERE / "data" / "paddle_onnx", folder / "exported", dirs_exist_ok=True)
    shutil.copy(HERE / "torch_models.py", folder)
    (folder / "paddle_layer.py").write_text(PADDLE_LAYER)
    module, x = torch_models.resnet()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(module, (x,)), folder / "resnet.pt2")
        torch.onnx.export(module, (x,), dynamo=True, verbose=False).save(str(folder / "resnet.onnx"))


PADDLE_LAYER = '''"""A small dynamic-graph model."""

import numpy as np
import paddle


def make():
    paddle.seed(0)
    layers = paddle.nn.Linear(16, 32), paddle.nn.GELU(), paddle.nn.LayerNorm(32), paddle.nn.Linear(32, 4)
    model = paddle.nn.Sequential(*layers, paddle.nn.Softmax())
    model.eval()
    return model, paddle.to_tensor(np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32))
'''


@contextlib.contextmanager
def _tensorrt_stand_in() -> Iterator[None]:
    """As test_tensorrt_session puts it in, whatever the plugin's modules are called."""
    from tensorrt_fake import HostGpu, fake_tensorrt

    package = "precision_debug_tensorrt"
    modules = [_module(f"{package}.engine.{new}", f"{package}.{old}") for new, old in (
        ("versions", "versions"), ("device_memory", "device"), ("timing_cache", "timing"))]  # fmt: skip
    places = [importlib.import_module(f"{package}.opening"), _module(f"{package}.on_device", f"{package}.opening")]
    versions, device, timing = modules
    api = versions.Api(fake_tensorrt())
    memory = device.Device(HostGpu(limit=10**9, free=10**9))
    put: list[tuple[Any, str, Any]] = []

    def put_in(module: Any, name: str, value: Any) -> None:
        if hasattr(module, name):
            put.append((module, name, getattr(module, name)))
            setattr(module, name, value)

    modes = importlib.import_module(f"{package}.modes")
    for module in (*modules, *places, modes):
        put_in(module, "load_api", lambda *_: api)
        put_in(module, "find_device", lambda: memory)
    put_in(timing, "_of_this_process", [])
    try:
        yield
    finally:
        for module, name, value in reversed(put):
            setattr(module, name, value)


def _module(*names: str) -> Any:
    for name in names[:-1]:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    return importlib.import_module(names[-1])


def _live(run: Run) -> Any:
    """A module that is in memory already."""
    import torch_models

    lockstep: Any = _module("precision_debug_torch.live", "precision_debug_torch.lockstep")
    return lockstep.compare_module(*getattr(torch_models, run.model)(), run_mode=run.mode, device="cpu")


def write(models: Path, out: Path, part: str = "") -> int:
    """The report of every run as JSON; what fails is written as its error. Returns how many failed."""
    import precision_debug

    print(f"{Path(precision_debug.__file__).parent}", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    os.chdir(models)
    for run in runs():
        if part and part not in run.name:
            continue
        target = out.resolve() / f"{run.name}.json"
        beside = _tensorrt_stand_in() if run.name.startswith("tensorrt") else contextlib.nullcontext()
        with beside, tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch, "report.json")
            try:
                settings = dict(run.settings)
                if run.name.startswith("tensorrt"):
                    settings["baseline"] = "ort_fp32"
                if run.name.startswith("torch-live"):
                    _live(run).to_json(report)
                else:
                    precision_debug.compare(run.model, run_mode=run.mode, inputs=run.inputs, output=report, **settings)
                shutil.copy(report, target)
            except Exception as error:
                failed += 1
                target.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
                if not isinstance(error, precision_debug.PrecisionDebugError):
                    traceback.print_exc()
        print(f"{run.name}", flush=True)
    return failed


LEFT_OUT = {"machine", "started", "seconds", "versions", "command", "inputs_file"}
UNSTABLE = [
    (re.compile(r"/tmp/[\w./-]+"), "TMP"),
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"_token_\d+"), ""),
    (re.compile(r"\d+(\.\d+)? s\b"), "N s"),
]


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path; rows are named, so that one that is missing does not move the others."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in LEFT_OUT:
                yield from fields(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        names = [item.get("name") or item.get("target_name") if isinstance(item, dict) else None for item in value]
        unique = all(names) and len(set(names)) == len(names)
        for place, item in enumerate(value):
            yield from fields(item, f"{path}[{names[place] if unique else place}]")
        yield f"{path}[]", len(value)
    else:
        for pattern, word in UNSTABLE if isinstance(value, str) else ():
            value = pattern.sub(word, value)
        yield path, value


def compare(first: Path, second: Path) -> int:
    """Print what differs; returns how many reports do."""
    different, total, leaves = 0, 0, 0
    kinds: Counter[str] = Counter()
    for path in sorted(first.glob("*.json")):
        other = second / path.name
        total += 1
        if not other.exists():
            print(f"{path.stem}: missing in {second}")
            different += 1
            continue
        one, two = (dict(fields(json.loads(file.read_text(encoding="utf-8")))) for file in (path, other))
        leaves += len(one)
        wrong = sorted(key for key in one.keys() | two.keys() if one.get(key, "-") != two.get(key, "-"))
        kinds.update(re.sub(r"\[[^\]]*\]", "[]", key) for key in wrong)
        if wrong:
            different += 1
            print(f"{path.stem}: {len(wrong)} of {len(one)} fields differ")
            for key in wrong[:4]:
                print(f"    {key}: {str(one.get(key, '-'))[:150]!r} -> {str(two.get(key, '-'))[:150]!r}")
    print(f"{total - different} of {total} reports are equal in every field ({leaves} fields)")
    for kind, count in kinds.most_common(20):
        print(f"    {count:6} {kind}")
    return different


def main(words: list[str]) -> int:
    if words[:1] == ["models"]:
        make_models(Path(words[1]).resolve())
        return 0
    if words[:1] == ["write"]:
        return int(write(Path(words[1]).resolve(), Path(words[2]).resolve(), *words[3:]) > 0)
    if words[:1] == ["compare"]:
        return int(compare(Path(words[1]), Path(words[2])) > 0)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
