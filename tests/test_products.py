"""Products: the core imports none of them, and works where their folders are not there."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import house_numbers
import onnx
import onnx_models
import pytest
from precision_debug_onnxruntime import OnnxRuntimeBackend
from warm import run_python

from precision_debug import cli, registry
from precision_debug.errors import UsageError
from precision_debug.protocols import CudaComparison, TorchComparison
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.run.judging import StepFixes
from precision_debug.run.plan import Side

PRODUCTS = "precision_debug.products"
NAMES = ("device", "dumps", "search", "tools", "training")

CONTRACT = '''
from pathlib import Path

import numpy as np
import pytest
from precision_debug.records import ModelFiles
from precision_debug.testing.backend_contract import *
from precision_debug.testing.backend_contract import Subject
from precision_debug_onnxruntime import OnnxRuntimeBackend


@pytest.fixture(params=["ort_opt", "ort_fp16"])
def subject(request, tmp_path):
    with np.load({images!r}) as images:
        feeds = dict(images)
    return Subject(
        backend=OnnxRuntimeBackend(), mode=request.param, model=ModelFiles(model_file={model!r}), feeds=[feeds],
        work_dir=str(tmp_path), import_name="precision_debug_onnxruntime",
    )
'''


@pytest.mark.quick
@pytest.mark.parametrize(
    ("door", "wanted", "protocol"),
    [("sides", "", Side), ("fixes", "", StepFixes), ("comparers", "cuda", CudaComparison),
     ("comparers", "torch", TorchComparison)],
    ids=["sides", "fixes", "cuda", "torch"],
)  # fmt: skip
def test_a_module_behind_a_door_has_what_its_protocol_asks_for(door: str, wanted: str, protocol: type) -> None:
    """No type checker sees it: the core, or a backend, reads the module by its name."""
    asked = [name for name in vars(protocol) if not name.startswith("_")]
    assert asked
    for name in [wanted] if wanted else registry.list_behind_door(door):
        if name == "torch":
            pytest.importorskip("torch", reason="torch is not installed")
        found = registry.import_from_door(door, name)
        assert not [member for member in asked if not hasattr(found, member)], name


@pytest.mark.quick
def test_the_core_and_the_backends_import_no_product_and_no_product_another(root: Path) -> None:
    """Neither by an import nor by a name in a string, the registry's own way to them apart."""
    for module, others in house_numbers.graph(root).items():
        own = ".".join(module.split(".")[:3])
        theirs = [other for other in others if other.startswith(f"{PRODUCTS}.")]
        assert not [other for other in theirs if not f"{other}.".startswith(f"{own}.")], module
    for module, path in house_numbers.sources(root).items():
        if not f"{module}.".startswith(f"{PRODUCTS}."):
            words = [
                node.value for node in house_numbers.nodes(path)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]  # fmt: skip
            assert not [word for word in words if f"{PRODUCTS}." in word], module


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_a_product_says_what_it_is_its_verbs_and_its_tests(root: Path, name: str) -> None:
    text = (root / PRODUCTS.replace(".", "/") / name / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 12
    for verb in registry.products()[name].get("verbs", ()):
        assert f"`{verb}`" in text
    tests = re.findall(r"tests/\w+\.py", text)
    assert tests
    for test in tests:
        assert (root / test).is_file(), test


@pytest.mark.quick
def test_all_that_is_declared_behind_a_door_is_there() -> None:
    assert tuple(registry.products()) == NAMES
    for doors in registry.products().values():
        for door, names in doors.items():
            for name in names:
                if name != "torch" or importlib.util.find_spec("torch") is not None:
                    assert registry.import_from_door(door, name) is not None
    assert {"diff", "ladder", "reduce"} <= set(cli.verbs())


@pytest.mark.quick
def test_what_no_product_has_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "products", dict)
    assert registry.list_behind_door("verbs") == {}
    with pytest.raises(UsageError, match="gen_script"):
        registry.import_from_door("options", "gen_script")


@pytest.fixture(scope="module")
def copied(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is installed: one for all tests, since what is imported there is compiled for its path."""
    folder = tmp_path_factory.mktemp("tree")
    for part in ("precision_debug", "backends"):
        shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def tree_without(copied: Path, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """The copy, without some products' folders until the test ends."""
    away: list[tuple[Path, Path]] = []

    def take_out(*names: str) -> Path:
        for name in names:
            away.append((copied / PRODUCTS.replace(".", "/") / name, tmp_path / f"away_{name}"))
            away[-1][0].rename(away[-1][1])
        return copied

    yield take_out
    for own, aside in away:
        aside.rename(own)


def _run(tree: Path, *words: str, more: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """more: folders that are looked into first."""
    paths = os.pathsep.join(map(str, (*more, tree, tree / "backends")))
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
    )


def _main_job(root: Path, tree: Path, folder: Path) -> dict[str, Any]:
    """What the report says of the digits in FP16; the workbook is written beside it."""
    digits = root / "examples" / "digits"
    done = _run(
        tree, "-m", "precision_debug", "--model_file", str(digits / "digits.onnx"), "--run_mode", "ort_fp16",
        "--inputs", str(digits / "test_images.npz"), "--output", str(folder / "o.xlsx"),
        "--output", str(folder / "o.json"),
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert (folder / "o.xlsx").stat().st_size > 5000
    plain = json.loads((folder / "o.json").read_text(encoding="utf-8"))
    return {"rows": plain["rows"], "verdict": plain["summary"]["verdict"], "status": done.returncode}


@pytest.fixture(scope="module")
def whole(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The main job's answer with every product there."""
    return _main_job(root, root, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("names", [*((name,) for name in NAMES), NAMES], ids="-".join)
def test_without_a_product_the_main_job_gives_the_same_answer(
    root: Path, tmp_path: Path, names: tuple[str, ...], whole: dict[str, Any], tree_without: Callable[..., Path]
) -> None:
    tree = tree_without(*names)
    assert _main_job(root, tree, tmp_path) == whole
    said = _run(tree, "-m", "precision_debug", "--help").stdout
    for name in names:
        for verb in registry.products()[name].get("verbs", ()):
            assert f"\n  {verb} " not in said


def test_without_any_product_a_backend_passes_the_contract(
    root: Path, tmp_path: Path, tree_without: Callable[..., Path]
) -> None:
    tree = tree_without(*NAMES)
    digits = root / "examples" / "digits"
    suite = tmp_path / "test_contract.py"
    suite.write_text(CONTRACT.format(model=str(digits / "digits.onnx"), images=str(digits / "test_images.npz")))
    done = _run(tree, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), str(suite))
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 20


TORCH_CONTRACT = '''
import pytest
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.testing.backend_contract import *
from precision_debug.testing.backend_contract import Subject
from precision_debug_torch import TorchBackend


@pytest.fixture(params=["torch_fp32", "torch_bf16"])
def subject(request, tmp_path):
    backend, model = TorchBackend(), ModelFiles(model_file={model!r})
    feeds = backend.examples(SessionSpec(model=model, mode=request.param))
    return Subject(
        backend=backend, mode=request.param, model=model, feeds=[feeds], work_dir=str(tmp_path),
        import_name="precision_debug_torch",
    )
'''
ON_DEVICE = """
import json, sys
import precision_debug
asked = dict(run_mode="torch_bf16", device="cpu", compare_on="device", seed=1)
told = []
for lockstep in (True, False):
    report = precision_debug.compare(sys.argv[1], lockstep=lockstep, **asked)
    rows = [[row.name, row.status, str(row.reason), row.comparison and row.comparison.max_abs] for row in report.rows]
    told.append({"rows": rows, "verdict": report.verdict, "notes": [getattr(n, "code", "") for n in report.notes]})
print(json.dumps(told), flush=True)
if sys.argv[2:]:
    import pytest
    sys.exit(pytest.main(sys.argv[2:]))
"""


def test_without_the_device_product_torchs_tensors_are_compared_in_the_host(
    root: Path, tmp_path: Path, tree_without: Callable[..., Path]
) -> None:
    """The same rows, and the report tells it, where the tensors would have been compared on their device."""
    pytest.importorskip("torch", reason="torch is not installed")
    tree = tree_without("device")
    model = f"{root / 'tests' / 'torch_models.py'}:resnet"
    suite, script = tmp_path / "test_contract.py", tmp_path / "compares.py"
    suite.write_text(TORCH_CONTRACT.format(model=model))
    script.write_text(ON_DEVICE)
    done = _run(tree, str(script), model, "-q", "-c", os.devnull, "--rootdir", str(tmp_path), str(suite))
    told = (run_python(str(script), model, engine="torch"), done)  # the contract's run needs PyTorch, too
    here, there = (json.loads(one.stdout.splitlines()[0]) for one in told)
    for one, other in zip(here, there, strict=True):
        assert len(one["rows"]) > 20
        assert (other["rows"], other["verdict"]) == (one["rows"], one["verdict"])
        assert "no_device_product" in other["notes"]
        assert "no_device_product" not in one["notes"]
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 20


TENSORRT = (
    "from tensorrt_fake import HostGpu, fake_tensorrt\nglobals().update(vars(fake_tensorrt(rounds=True)))\n"
    "from precision_debug.numbers import cuda\ncuda._devices[0] = HostGpu(limit=10**9, free=10**9)\n"
)


def test_without_the_device_product_an_engine_runs_and_both_doctor_and_report_tell_it(
    root: Path, tmp_path: Path, tree_without: Callable[..., Path]
) -> None:
    """TensorRT runs on the driver's memory, which the core has; a stand-in for its library and for the card."""
    pytest.importorskip("onnxruntime", reason="the stand-in computes with it")
    tree = tree_without("device")
    stand_in = tmp_path / "stand_in"
    stand_in.mkdir()
    (stand_in / "tensorrt.py").write_text(TENSORRT)
    (stand_in / "torch.py").write_text("raise ImportError")
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    said = str(registry.explain_host_only("none that is here"))
    told = {}
    for at in (root, tree):
        doctor = _run(at, "-m", "precision_debug", "doctor", more=(stand_in, root / "tests"))
        assert "trt_fp16" in doctor.stdout
        assert (said in doctor.stdout) == (at is tree), doctor.stdout
        done = _run(
            at, "-m", "precision_debug", "--model_file", str(tmp_path / "m.onnx"), "--run_mode", "trt_fp16",
            "--output", str(tmp_path / "o.json"), more=(stand_in, root / "tests"),
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        plain = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
        told[at] = plain["rows"], plain["summary"]["verdict"], done.returncode
        assert (said in json.dumps(plain, ensure_ascii=False)) == (at is tree)
    assert told[root] == told[tree]


@pytest.mark.quick
def test_onnx_runtimes_modes_of_a_card_tell_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    taps = pytest.importorskip("precision_debug_onnxruntime.engine.taps")
    monkeypatch.setattr(taps, "borrows_memory", lambda: True)
    monkeypatch.setattr(registry, "products", dict)
    backend = OnnxRuntimeBackend()
    for mode, code in (("ort_cuda_fp16", "no_device_product"), ("ort_fp16", "")):
        spec = SessionSpec(model=ModelFiles(model_file="m.onnx"), mode=mode)
        for found in (backend.on_device(spec, spec), backend.on_device_alone(spec, spec)):
            assert getattr(found, "code", "") == code
