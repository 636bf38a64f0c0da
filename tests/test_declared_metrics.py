"""A metric of errors is declared in one file, and then in C, numpy, CUDA's road and every report."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from precision_debug.numbers.metrics import DECLARED, FURTHER, HELD, evaluate_metric

LINES = r"""
    MEAN(mean_growth, (d > 0) * (fabs(t) / (m + 1.0) - m / (m + 1.0)), \
         "Mean Growth", "平均增长", "Mean of (|t| - |b|) / (|b| + 1).", "(|t| - |b|) / (|b| + 1) 的均值。") \
    SHARE(sign_flips, ((b > 0) & (t < 0)) | ((b < 0) & (t > 0)), \
          "Sign Flips", "符号翻转", "Share of elements whose sign changed.", "符号改变的元素比例。") \
"""
CODE = """
import json, sys
import numpy as np
import precision_debug
from precision_debug import numbers
from precision_debug.numbers import merged
from precision_debug.report.columns import COLUMNS
base, target = np.load("base.npy"), np.load("target.npy")
found = numbers.measure(base, target)
told = [numbers.describe_kernel(), dict(found.more), precision_debug.__file__]
told.append([column.title_zh for column in COLUMNS if column.key == "sign_flips"])
halves = [merged.Merged.of(numbers.measure(base[i], target[i]), i) for i in (0, 1)]
told.append(dict(merged.Merged.merge(*halves).comparison().more))
if sys.argv[1:] == ["torch"]:
    import torch
    from precision_debug.products.device.torch_tensors import compare_on_device
    told[1] = dict(compare_on_device(torch.from_numpy(base), torch.from_numpy(target)).more)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """The core with two more metrics: one file was touched, and the C kernel is compiled anew."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        pytest.skip("no C compiler")
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(root / "precision_debug", copy / "precision_debug", ignore=shutil.ignore_patterns("*.so", "__pyc*"))
    declared = copy / "precision_debug" / "numbers" / "metrics.h"
    text = declared.read_text(encoding="utf-8")
    first = text.index("    SHARE(share_rel_over_1pct")
    declared.write_text(text[:first] + LINES.lstrip("\n") + text[first:], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("hatch_build_copy", root / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = build  # its dataclasses ask for their module
    spec.loader.exec_module(build)
    assert build._compile(copy, build.LIBRARIES[0], ["cc"], build._module(copy)) == ""
    random = np.random.default_rng(0)
    base = random.standard_normal((2, 5000)).astype(np.float32)
    np.save(copy / "base.npy", base)
    np.save(copy / "target.npy", base + 0.3 * random.standard_normal(base.shape).astype(np.float32))
    return copy


WITHOUT_A_COMPILER = """
import json, sys
import numpy as np
sys.path.append(sys.argv[1])
from cuda_emulated import EmulatedDevice
from precision_debug import numbers
from precision_debug.products.device.kernels import start, start_describing
from precision_debug.records import Tolerance
base, target = np.load("base.npy").ravel(), np.load("target.npy").ravel()
gpu = EmulatedDevice()
found = start(gpu.array(base), gpu.array(target), Tolerance()).finish()
host = numbers.compare(base, target)
alone = start_describing(gpu.array(base))
shares = found.share_rel_over_1pct, host.share_rel_over_1pct
print(json.dumps([numbers.describe_kernel(), gpu.launched[:2], dict(found.more), dict(host.more), *shares, alone.keeps,
                  alone.finish().base.elements]))
"""


def test_one_line_is_enough_without_a_compiler(package: Path, root: Path, tmp_path: Path) -> None:
    """The kernels that lie here compute all the rest as before: no numpy in their place until something is rebuilt."""
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler for the emulated device")
    library = root / "precision_debug" / "numbers" / "_kernel.so"
    if not library.exists():
        pytest.skip("the C kernel is not compiled here")
    copy = tmp_path / "copy"
    shutil.copytree(package, copy)
    shutil.copy2(library, copy / "precision_debug" / "numbers" / library.name)  # built before the line was written
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_COMPILER, str(root / "tests")], cwd=copy, capture_output=True, text=True,
        env={"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    status, launched, on_device, on_host, share, host_share, keeps, elements = json.loads(done.stdout)
    assert status.startswith("C kernel")
    assert launched == ["scan_f32_f32_isclose", "settle"]
    base, target = (np.load(package / f"{name}.npy").astype(np.float64) for name in ("base", "target"))
    growth = float(np.mean((np.abs(target) - np.abs(base)) / (np.abs(base) + 1)))
    wanted = {"sign_flips": float(np.mean(base * target < 0)), "mean_growth": pytest.approx(growth, rel=1e-9)}
    assert on_device == wanted
    assert on_host == wanted
    assert share == host_share > 0
    assert (keeps, elements) == (False, base.size)  # one tensor by itself is read once


def test_what_a_kernel_holds_is_what_is_declared() -> None:
    assert [one.name for one in HELD] == ["share_rel_over_1pct"]
    assert all(one.is_declared for one in HELD)
    assert {one.name for one in HELD} | {one.name for one in FURTHER} == {one.name for one in DECLARED}


@pytest.mark.parametrize("kernel", ["C", "numpy", pytest.param("torch", marks=pytest.mark.slow)])
def test_one_line_is_enough(kernel: str, package: Path) -> None:
    if kernel == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    environment = {"PYTHONPATH": str(package), "PATH": "/usr/bin:/bin"}
    if kernel == "numpy":
        environment["PRECISION_DEBUG_KERNEL"] = "numpy"
    done = subprocess.run(
        [sys.executable, "-c", CODE, *(["torch"] if kernel == "torch" else [])], cwd=package, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    status, more, where, title, merged = json.loads(done.stdout)
    assert Path(where).is_relative_to(package)
    assert ("numpy" in status) == (kernel == "numpy")
    base, target = (np.load(package / f"{name}.npy").astype(np.float64) for name in ("base", "target"))
    flips = float(np.mean(base * target < 0))
    growth = float(np.mean((np.abs(target) - np.abs(base)) / (np.abs(base) + 1)))
    assert 0.05 < flips < 0.3
    for found in (more, merged):
        assert found == {"sign_flips": flips, "mean_growth": pytest.approx(growth, rel=1e-9)}
    assert title == ["符号翻转"]


def test_what_is_declared_is_0_of_equal_elements() -> None:
    """The kernels take equal blocks for pairs without errors."""
    values = np.array([-3.0, 0.0, 2.5, 1e30])
    for metric in DECLARED:
        assert not np.any(evaluate_metric(metric, np, values, values, np.zeros(4), np.abs(values))), metric.name
