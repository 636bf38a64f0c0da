"""From a model file and a run mode to the backend: what is offered, and what is said where none is."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from approval import holds_approved

from precision_debug import registry
from precision_debug.errors import BackendUnavailable, UsageError
from precision_debug.records import ModelFiles


def test_a_model_file_and_a_mode_find_their_backend(fake: str) -> None:
    backend, mode = registry.find(ModelFiles(model_file=fake), "fake_fused")
    assert (backend.name, mode.name, mode.baseline) == ("fake", "fake_fused", "fake_fp32")


def test_modes_are_those_that_read_the_ending() -> None:
    offered = {mode.name for _, mode in registry.modes_for(ModelFiles(model_file="m.ONNX"))}
    assert {"ort_fp32", "trt_fp16", "onnx_ref"} <= offered
    assert not any(name.startswith(("cpu_", "onednn_", "torch_")) for name in offered)


@pytest.mark.parametrize(
    ("model", "suffix"),
    [
        (ModelFiles(model_file="a.b/M.ONNX"), ".onnx"),
        (ModelFiles(model_dir="folder"), ""),
        (ModelFiles(model_file="net.py:make"), ".py"),
        (ModelFiles(model_file="net.py"), ".py"),
    ],
)
def test_what_a_model_is_chosen_by(model: ModelFiles, suffix: str) -> None:
    assert registry.suffix(model) == suffix


@pytest.mark.parametrize(
    ("file", "mode", "said"),
    [
        ("m.onnx", "ort_fp61", "unknown run mode 'ort_fp61'.*did you mean ort_fp16"),
        ("m.onnx", "onednn_bf16", r"run mode onednn_bf16 does not read \.onnx \(it reads .*\.pdmodel"),
        ("m.docx", "ort_fp16", r"no backend reads \.docx.*known endings: .*\.onnx"),
        ("", "ort_fp16", "run mode ort_fp16 does not read a model folder"),
    ],
)
def test_what_is_said_where_none_fits(file: str, mode: str, said: str) -> None:
    files = ModelFiles(model_file=file) if file else ModelFiles(model_dir="folder")
    with pytest.raises(UsageError, match=said):
        registry.find(files, mode)


def test_a_plugin_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "precision_debug_broken.py").write_text("raise ValueError('half installed')\n")
    info = tmp_path / "precision_debug_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: precision-debug-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nbroken = precision_debug_broken:Broken\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.plugins.cache_clear()
    try:
        plugin = next(plugin for plugin in registry.plugins() if plugin.name == "broken")
        assert plugin.backend is None
        assert plugin.problem == "ValueError: half installed"
        with pytest.raises(BackendUnavailable, match=r"reads \.broken.*ValueError: half installed"):
            registry.find(ModelFiles(model_file="m.broken"), "broken_fp32")
        assert registry.find(ModelFiles(model_file="m.onnx"), "ort_fp16")[0].name == "onnxruntime"
    finally:
        registry.plugins.cache_clear()


def test_plugins_are_built_in_ones_first_and_each_once(fake: str) -> None:
    names = [plugin.name for plugin in registry.plugins()]
    assert names[: len(registry.BUILT_IN)] == list(registry.BUILT_IN)
    assert "fake" in names
    assert len(set(names)) == len(names)


def test_what_wheels_declare_is_what_metadata_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two of one name the first on the path; what declares nothing, or for others, is no backend."""
    declared = f"[{registry.GROUP}]\nplanted = planted:Backend\n"
    for folder, name, version, text in (
        ("a", "planted", "2.0", declared), ("b", "Planted", "1.0", declared.replace("planted =", "older =")),
        ("a", "other", "1.0", "[console_scripts]\nother = other:main\n"), ("b", "bare", "1.0", None),
    ):  # fmt: skip
        info = tmp_path / folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if text is not None:
            (info / "entry_points.txt").write_text(text)
    for folder in ("b", "a"):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    wanted = {(entry.name, entry.value) for entry in metadata.entry_points(group=registry.GROUP)}
    found = [(wheel.name, wheel.version, entry.name, entry.value) for wheel, entry in registry.iterate_declared()]
    assert {(name, value) for *_, name, value in found} == wanted
    assert ("planted", "2.0", "planted", "planted:Backend") in found
    assert "older" not in {name for _, _, name, _ in found}


@pytest.mark.parametrize(
    ("name", "hint"),
    [("m.pth", "write a factory"), ("m.safetensors", "write a factory"), ("m.h5", "export it to .onnx"),
     ("m.xyz", "known endings")],
)  # fmt: skip
def test_other_peoples_files_are_told_what_to_do(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.find(ModelFiles(model_file=name), "ort_fp16")
    assert hint in str(caught.value)


def test_code_in_a_mode_for_exported_files() -> None:
    with pytest.raises(UsageError) as caught:
        registry.find(ModelFiles(model_file="m.py:make"), "ort_fp16")
    assert holds_approved(str(caught.value))
