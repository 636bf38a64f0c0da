"""A recording as the baseline: its model's operators, run here, say who introduced what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnx", reason="builds models")
from planted.onnx_faults import Graph, tokens

import precision_debug
from precision_debug import Report
from precision_debug.cli import main
from precision_debug.errors import BackendError
from precision_debug.observe.store import Store
from precision_debug.protocols import Replacer
from precision_debug.recording import open_recording
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.registry import backends
from precision_debug.run.explaining import StandIn


def net(g: Graph, *, large: float = 1.0, small: float = 1.0) -> str:
    """A product that is large in the middle, with a decision beside it."""
    x = tokens(g, 16, 8)
    middle = g.op("Mul", [g.dense(x, 16, 16, "a"), g.weight("large", np.float32(large))], "middle")
    back = g.op("Mul", [middle, g.weight("small", np.float32(small))], "back")
    chosen = g.op("ArgMax", [back], "chosen", axis=-1, keepdims=0)
    kept = g.op("Mul", [g.op("Relu", [back], "relu"), g.op("Unsqueeze", [
        g.op("Cast", [chosen], "number", to=1), g.weight("last", np.array([-1], np.int64))], "wide")], "kept")
    return g.dense(kept, 16, 4, "y")


def told(report: Report) -> list[tuple[str, str]]:
    assert report.explanation is not None
    return [(one.name, one.cause) for one in report.explanation.culprits]


def recorded(folder: Path, model: Path, feeds: dict[str, Any]) -> Path:
    np.savez(folder / "inputs.npz", **feeds)
    words = ["--model_file", model, "--run_mode", "ort_fp32", "--inputs", folder / "inputs.npz"]
    assert main([str(word) for word in (*words, "--record", folder / "record")]) == 0
    return folder / "record"


def test_who_is_named_and_what_is_kept_are_those_of_a_live_baseline(tmp_path: Path) -> None:
    g = Graph(seed=2)
    model = g.save(tmp_path / "m.onnx", [net(g, large=6e4, small=1e-4)])
    place = recorded(tmp_path, model, g.feeds)
    live = precision_debug.compare(model, run_mode="ort_fp16_sim", inputs=g.feeds)
    replayed = precision_debug.compare(model, run_mode="ort_fp16_sim", baseline=str(place))
    assert told(live)
    assert told(live)[0][1] == "overflow"
    assert told(replayed) == told(live)
    assert replayed.to_keep is not None
    assert live.to_keep is not None
    assert replayed.to_keep.option == live.to_keep.option
    assert live.to_keep.option


def test_of_another_machines_recording_the_operator_is_named_that_it_computed_otherwise(tmp_path: Path) -> None:
    """The recording is of a file whose weight is another one; both have the name of this one."""
    here, there = Graph(seed=2), Graph(seed=2)
    model = here.save(tmp_path / "m.onnx", [net(here)])
    other = there.save(tmp_path / "other.onnx", [net(there, large=1.5)])
    place = recorded(tmp_path, other, there.feeds)
    report = precision_debug.compare(model, run_mode="ort_fp32", baseline=str(place))
    assert [name for name, _ in told(report)] == ["middle"]


def test_nobody_is_named_where_the_recording_agrees(tmp_path: Path) -> None:
    g = Graph(seed=2)
    model = g.save(tmp_path / "m.onnx", [net(g)])
    report = precision_debug.compare(model, run_mode="ort_opt", baseline=str(recorded(tmp_path, model, g.feeds)))
    assert report.explanation is not None
    assert (report.explanation.state, told(report)) == ("healthy", [])


def test_an_undisturbed_run_shows_the_recording_and_an_error_goes_on(tmp_path: Path) -> None:
    here, there = Graph(seed=2), Graph(seed=2)
    model = here.save(tmp_path / "m.onnx", [net(here)])
    place = recorded(tmp_path, there.save(tmp_path / "other.onnx", [net(there, large=1.5)]), there.feeds)
    backend = next(one for one in backends() if one.name == "onnxruntime")
    session = backend.open(SessionSpec(model=ModelFiles(model_file=str(model)), mode="ort_fp32"), [here.feeds])
    operators: Replacer | None = session.replacer
    assert operators is not None
    led = StandIn(open_recording(place), operators, Store())
    before: dict[str, Any] = {}
    led.run(here.feeds, lambda _op, name, value: before.__setitem__(name, np.array(value)))
    plain: dict[str, Any] = {}
    outputs = led.run_replacing(here.feeds, lambda _op, name, value: plain.__setitem__(name, np.array(value)))
    for name, value in before.items():
        np.testing.assert_allclose(plain[name], value, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(outputs["y"], before["y"], rtol=1e-6, atol=1e-6)
    moved: dict[str, Any] = {}

    def twice(_op: str, name: str, value: Any) -> Any:
        moved[name] = np.array(value)
        return np.asarray(value) * 2 if name == "middle" else None

    led.run_replacing(here.feeds, twice)
    assert not np.allclose(moved["back"], before["back"]), "its reader gets twice of it"
    session.close()


def test_a_first_run_that_fails_is_made_again(tmp_path: Path) -> None:
    """Else what follows would show the model and not the recording."""
    here, there = Graph(seed=2), Graph(seed=2)
    model = here.save(tmp_path / "m.onnx", [net(here)])
    place = recorded(tmp_path, there.save(tmp_path / "other.onnx", [net(there, large=1.5)]), there.feeds)
    backend = next(one for one in backends() if one.name == "onnxruntime")
    session = backend.open(SessionSpec(model=ModelFiles(model_file=str(model)), mode="ort_fp32"), [here.feeds])

    class FailsOnce:
        failed = False

        def run_replacing(self, feeds: Any, replace: Any, names: Any = None) -> Any:
            if self.failed:
                return session.replacer.run_replacing(feeds, replace, names)
            self.failed = True

            def some(op: str, name: str, value: Any) -> Any:
                if name == "middle":
                    raise BackendError("no memory", where="here")
                return replace(op, name, value)

            return session.replacer.run_replacing(feeds, some, names)

    led = StandIn(open_recording(place), FailsOnce(), Store())
    with pytest.raises(BackendError):
        led.run_replacing(here.feeds, lambda *_: None)
    shown: dict[str, Any] = {}
    led.run_replacing(here.feeds, lambda _op, name, value: shown.__setitem__(name, np.array(value)))
    before: dict[str, Any] = {}
    led.run(here.feeds, lambda _op, name, value: before.__setitem__(name, np.array(value)))
    np.testing.assert_allclose(shown["middle"], before["middle"], rtol=1e-6)
    session.close()
