"""The engine is the user's: an extra keeps what was tried, and one brings none for owners of another wheel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from precision_debug import registry
from precision_debug.cli import main

pytestmark = pytest.mark.quick

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")

ENGINES = {
    "ai-edge-litert", "xllamacpp", "onnxruntime", "onnxruntime-gpu", "openvino", "paddlepaddle", "paddlepaddle-gpu",
    "torch", "tensorrt", "tensorrt-rtx-cu13-libs", "tensorrt-rtx-cu13-bindings",
}  # fmt: skip
NOT_TRIED = {"torch": "2.4"}
"""A bound below the oldest that was tried, and docs/own_engine.md says so: old wheels bring gigabytes of CUDA."""


@pytest.fixture(scope="module")
def extras(root: Path) -> dict[str, list[Requirement]]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {name: list(map(Requirement, lines)) for name, lines in project["optional-dependencies"].items()}


def tried() -> dict[str, tuple[str, str]]:
    """Of each engine, the oldest and the newest release that ran a mode."""
    found: dict[str, tuple[str, str]] = {}
    for backend in registry.backends():
        for mode in backend.run_modes:
            if told := re.fullmatch(r"(\S+) (\S+?)(?: to (\S+))?", mode.tried):
                name, oldest, newest = told.groups()
                found.setdefault(name, (oldest, newest or oldest))
    return found


@pytest.mark.parametrize(
    ("extra", "engine", "release"),
    [
        ("onnx", "onnxruntime", "1.16.3"), ("onnx", "onnxruntime", "1.18.1"), ("onnx", "onnx", "1.16.0"),
        ("tensorrt", "onnxruntime", "1.18.1"), ("gpu", "onnxruntime-gpu", "1.18.1"),
        ("paddle", "paddlepaddle", "2.6.2"), ("openvino", "openvino", "2025.3.0"), ("torch", "torch", "2.6.0"),
    ],
)  # fmt: skip
def test_an_engine_that_is_there_is_kept(
    extra: str, engine: str, release: str, extras: dict[str, list[Requirement]]
) -> None:
    [asked] = [one for one in extras[extra] if one.name == engine]
    assert asked.specifier.contains(release), f"pip would replace {engine} {release}: {asked}"


def test_bounds_are_what_was_tried(extras: dict[str, list[Requirement]]) -> None:
    asked = {one.name: one for extra in ("litert", "onnx", "openvino", "paddle", "torch") for one in extras[extra]}
    for name, (oldest, newest) in tried().items():
        if name in asked:
            bound = str(asked[name].specifier).removeprefix(">=")
            assert asked[name].specifier.contains(newest)
            assert NOT_TRIED.get(name) == bound or oldest.startswith(bound), f"{name}: {bound}, tried {oldest}"


def test_who_has_another_wheel_gets_no_second_one(extras: dict[str, list[Requirement]], root: Path) -> None:
    assert {one.name for one in extras["onnx-tools"]} & ENGINES == set()
    assert {one.name for one in extras["onnx"]} - ENGINES == {one.name for one in extras["onnx-tools"]}
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {Requirement(one).name for one in project["dependencies"]} & ENGINES == set()


def test_doctor_says_how_far_back_each_mode_was_tried(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    said = capsys.readouterr().out
    for backend in registry.backends():
        if type(backend).__module__.startswith("precision_debug_"):
            assert any(mode.tried for mode in backend.run_modes), backend.name
            for mode in backend.run_modes:
                lines = [line for line in said.splitlines() if line.startswith(f"tried with {mode.tried or '-'}: ")]
                never = [line for line in said.splitlines() if line.startswith("not tried yet: ")]
                names = " ".join(line.partition(": ")[2] for line in (lines if mode.tried else never)).split()
                assert mode.name in names or names == ["all", "of", "them"], mode.name


@pytest.mark.parametrize(
    "name", ["litert", "llamacpp", "onnxruntime", "openvino", "paddle", "tensorrt", "torch", "vllm"]
)
def test_what_was_tried_is_told_of_modes_that_there_are(name: str) -> None:
    table = __import__(f"precision_debug_{name}.tried", fromlist=["TRIED"]).TRIED
    [backend] = [one for one in registry.backends() if one.name == name]
    assert set(table) <= {mode.name for mode in backend.run_modes}
    assert all(re.fullmatch(r"[\w-]+ [\d.]+( to [\d.]+)?", text) for text in table.values())


@pytest.mark.parametrize(
    ("version", "old"), [("1.15.1", True), ("1.16.0", False), ("1.32.0+dev", False), ("2.0", False), ("main", False)]
)
def test_an_onnxruntime_that_is_too_old_is_said_to_be(version: str, old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from precision_debug_onnxruntime.modes import availability

    monkeypatch.setattr(onnxruntime, "__version__", version)
    found = availability("ort_opt")
    assert found.ok is not old
    assert ("1.16 or later" in str(found.needs)) is old
