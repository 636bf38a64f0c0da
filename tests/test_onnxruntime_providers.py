"""A provider that does not run the model is refused, and the report says how many nodes each one took."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_models
import onnxruntime
import pytest
from approval import begins_approved, holds_approved
from precision_debug_onnxruntime import modes
from precision_debug_onnxruntime.engine import light_imports, providers, runtime, taps
from precision_debug_onnxruntime.engine.providers import CPU, Shares, missing, saved_shares, shares_of
from precision_debug_onnxruntime.model import read_source

from precision_debug import compare
from precision_debug.errors import BackendUnavailable
from precision_debug.report.model import Verdict

LISTED = "AzureExecutionProvider"
"""In every wheel's list; it starts, and takes no node of an ordinary model."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(onnx_models.convnet(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def feeds() -> dict[str, Any]:
    return {"x": np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)}


def asks_for(monkeypatch: pytest.MonkeyPatch, mode: str, *names: str) -> None:
    recipe = dataclasses.replace(modes.recipe(mode), providers=names)
    monkeypatch.setitem(modes._RECIPES, mode, recipe)


needs_azure = pytest.mark.skipif(
    LISTED not in onnxruntime.get_available_providers(), reason="this onnxruntime lists no provider but the CPU's"
)


@needs_azure
@pytest.mark.parametrize("mode", ["ort_cuda_fp32", "ort_cuda_fp16", "ort_tensorrt_fp16"])
def test_a_provider_that_takes_no_node_is_refused(
    mode: str, model: Path, feeds: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asks_for(monkeypatch, mode, LISTED, CPU)
    with pytest.raises(BackendUnavailable, match=f"{LISTED} took none .*{CPU} would") as caught:
        compare(model, run_mode=mode, inputs=feeds)
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)


@needs_azure
def test_a_provider_that_is_listed_and_starts_is_available() -> None:
    assert missing(LISTED) == ""
    assert missing(CPU) == ""


def test_a_provider_that_is_listed_but_does_not_start_is_not_available(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As onnxruntime-gpu's list has TensorRT where its libraries are missing; this wheel knows none of the name."""
    listed = [*onnxruntime.get_available_providers(), "TensorrtExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    assert "TensorrtExecutionProvider does not start" in missing("TensorrtExecutionProvider")
    found = modes.availability("ort_tensorrt_fp16")
    assert (found.ok, found.needs) == (False, missing("TensorrtExecutionProvider"))
    with pytest.raises(BackendUnavailable, match="TensorrtExecutionProvider does not start"):
        compare(model, run_mode="ort_tensorrt_fp16", inputs={"x": np.zeros((2, 3, 16, 16), np.float32)})


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_session_that_goes_on_without_its_provider_is_refused(model: Path) -> None:
    wanted = runtime.Runtime(providers=("CUDAExecutionProvider", CPU))
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(BackendUnavailable, match="CUDAExecutionProvider does not start"):
        wanted.open(read_source(str(model)))


def test_a_library_that_another_one_misses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: str) -> None:
        raise OSError("libnvinfer.so.10: cannot open shared object file: No such file or directory")

    (tmp_path / "libonnxruntime_providers_tensorrt.so").touch()
    monkeypatch.setattr(providers.ctypes, "CDLL", load)
    text = providers._cannot_load("TensorrtExecutionProvider", tmp_path)
    assert begins_approved(text)
    assert holds_approved(text, 2)


def test_the_shares_of_a_real_session(model: Path, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(providers.RECORD, "1")
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(tmp_path / "saved.ort")
    session = onnxruntime.InferenceSession(str(model), options, providers=[CPU])
    saved = saved_shares((tmp_path / "saved.ort").read_bytes())
    assert saved.of(CPU) == len(onnx.load(model).graph.node)
    assert saved.nodes[CPU]["Conv"] == 4
    told = shares_of(session)
    if told is not None:
        assert told.nodes == saved.nodes


class OfSomebodyElse:
    """A session of a machine with a GPU, as far as its providers go."""

    def __init__(self, session: Any, taken: Sequence[str]) -> None:
        self._session, self._taken = session, taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", CPU]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        parts = []
        for part in self._session.get_provider_graph_assignment_info():
            nodes = part.get_nodes()
            cuda = nodes[0].op_type in self._taken
            name = "CUDAExecutionProvider" if cuda else part.ep_name
            parts.append(SimpleNamespace(ep_name=name, get_nodes=lambda nodes=nodes: nodes))
        return parts


needs_assignment = pytest.mark.skipif(
    not hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info"), reason="onnxruntime is below 1.24"
)


@needs_assignment
def test_the_report_says_how_many_nodes_each_took(
    model: Path, feeds: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = onnxruntime.InferenceSession

    def session(source: Any, options: Any, providers: Any, **more: Any) -> Any:
        made = plain(source, options, providers=[CPU], **more)
        return OfSomebodyElse(made, ("Conv", "Gemm")) if len(providers) > 1 else made

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    listed = [*onnxruntime.get_available_providers(), "CUDAExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    monkeypatch.setattr(providers, "missing", lambda _: "")
    report = compare(model, run_mode="ort_cuda_fp32", inputs=feeds, atol=1e-3)
    note = next(note for note in report.target.notes if "took" in note)
    assert note.startswith("CUDAExecutionProvider took 5 of ")
    assert "Tap" not in note
    assert report.verdict is Verdict.PASS


def test_where_nobody_tells_the_verdict_is_inconclusive(
    model: Path, feeds: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.Runtime, "asked", "TensorrtExecutionProvider")
    monkeypatch.setattr(runtime.Runtime, "_demand", lambda *_, **__: None)
    monkeypatch.setattr(runtime, "shares_of", lambda _: None)
    report = compare(model, run_mode="ort_opt", inputs=feeds)
    assert [doubt.code for doubt in report.doubts] == ["providers_unknown"]
    assert report.verdict is Verdict.INCONCLUSIVE


def test_shares_in_words() -> None:
    shares = Shares({"A": {"Conv": 3}, CPU: {"Shape": 2, "Gather": 1}})
    assert shares.note("A") == f"A took 3 of 6 nodes (50.00 %); {CPU} 3 (Shape 2, Gather 1)"
    assert Shares({}).note("A") == "A took 0 of 0 nodes (0.00 %)"
    with pytest.raises(BackendUnavailable, match="nobody would"):
        Shares({}).demand("A", "m.onnx")


@pytest.mark.parametrize(("version", "said"), [((3, 13), r"pip install 'precision_debug\[onnx\]'"), ((3, 14), "wheel")])
def test_without_a_tap_of_either_kind_it_says_what_can_be_installed(
    version: tuple[int, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime-extensions has no wheel for Python 3.14, where only the compiled tap can serve."""

    def absent() -> None:
        raise ModuleNotFoundError("No module named 'onnxruntime_extensions'", name="onnxruntime_extensions")

    monkeypatch.setattr(taps, "borrows_memory", lambda: False)
    monkeypatch.setattr(light_imports, "import_extensions", absent)
    monkeypatch.setattr(sys, "version_info", version)
    found = modes.availability("ort_fp32")
    assert not found.ok
    assert re.search(said, found.needs)
    assert ("C compiler" in found.needs) == (version == (3, 14))
