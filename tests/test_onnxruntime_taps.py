"""The taps by themselves: what they keep alive, and what happens when a run is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from attack.case import patience
from onnx import TensorProto, helper
from precision_debug_onnxruntime import OnnxRuntimeBackend
from precision_debug_onnxruntime.engine import taps

from precision_debug.errors import BackendError
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.testing.backend_contract import CopyingHook, have_same_bits


def opened(model: onnx.ModelProto, folder: Path, mode: str = "ort_fp32") -> Any:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return OnnxRuntimeBackend().open(
        SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, work_dir=str(folder)), []
    )


FEEDS = {"x": np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)}


def test_no_tensor_outlives_its_hook(tmp_path: Path) -> None:
    alive: list[weakref.ref[Any]] = []

    def hook(op_type: str, name: str, tensor: Any, /) -> None:
        assert [ref for ref in alive if ref() is not None] == [], "an earlier tensor is still held"
        alive.append(weakref.ref(tensor))

    opened(onnx_models.convnet(), tmp_path, "ort_opt").run(FEEDS, hook)
    assert len(alive) >= 10


def test_the_tensor_is_the_hooks_own(tmp_path: Path) -> None:
    """A hook that writes into its tensor changes nothing."""

    def hook(op_type: str, name: str, tensor: Any, /) -> None:
        tensor[...] = 0

    session = opened(onnx_models.convnet(), tmp_path)
    before = session.run(FEEDS)
    after = session.run(FEEDS, hook)
    assert all(have_same_bits(before[name], after[name]) for name in before)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(7), MemoryError("x"), RuntimeError("x")])
def test_every_kind_of_exception_leaves_a_hook_as_itself(tmp_path: Path, error: BaseException) -> None:
    def hook(op_type: str, name: str, tensor: Any, /) -> None:
        raise error

    session = opened(onnx_models.convnet(), tmp_path)
    with pytest.raises(type(error)) as caught:
        session.run(FEEDS, hook)
    assert caught.value is error
    recorder = CopyingHook()
    session.run(FEEDS, recorder)
    assert len(recorder.calls) == len(session.tensors)


def _slow_model(turns: int = 100) -> onnx.ModelProto:
    """Matrix products that take a few seconds, with a tap after each."""
    nodes = [helper.make_node("MatMul", ["x" if i == 0 else f"h{i - 1}", "x"], [f"h{i}"]) for i in range(turns)]
    return onnx_models.model(
        nodes, [onnx_models.value("x", [500, 500])], [onnx_models.value(f"h{turns - 1}", [500, 500])]
    )


CHILD = """
import sys, numpy as np
from precision_debug_onnxruntime import OnnxRuntimeBackend
from precision_debug_onnxruntime.engine import taps
from precision_debug.records import ModelFiles, SessionSpec
session = OnnxRuntimeBackend().open(SessionSpec(model=ModelFiles(model_file=sys.argv[1]), mode="ort_fp32"), [])
feeds = {"x": np.eye(500, dtype=np.float32)}
hook = (lambda op_type, name, tensor: None) if sys.argv[2] == "hook" else None
print("running", flush=True)
try:
    while True:
        session.run(feeds, hook)
except KeyboardInterrupt:
    print("interrupted", flush=True)
session.run(feeds, hook)
print("and well", flush=True)
"""


@pytest.mark.parametrize("hook", ["hook", "none"])
@pytest.mark.parametrize("delay", [0.05, 0.3])
def test_ctrl_c_during_a_run_is_a_keyboard_interrupt_and_no_abort(tmp_path: Path, hook: str, delay: float) -> None:
    path = tmp_path / "slow.onnx"
    onnx.save(_slow_model(), path)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), hook], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=patience(120))
    finally:
        child.kill()
    assert (child.returncode, out) == (0, "interrupted\nand well\n"), err


def test_a_signal_during_a_hook_is_handled_there(tmp_path: Path) -> None:
    calls: list[str] = []

    def hook(op_type: str, name: str, tensor: Any, /) -> None:
        calls.append(name)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
            calls.append("slept on")

    session = opened(onnx_models.convnet(), tmp_path)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        session.run(FEEDS, hook)
    assert len(calls) == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_a_session_that_runs_cannot_be_run_again_meanwhile(tmp_path: Path) -> None:
    session = opened(onnx_models.convnet(), tmp_path)

    def hook(op_type: str, name: str, tensor: Any, /) -> None:
        session.run(FEEDS)

    with pytest.raises(BackendError, match="running already"):
        session.run(FEEDS, hook)
    assert list(session.run(FEEDS)) == ["prob", "r3"]


def test_many_sessions_at_once_do_not_meet(tmp_path: Path) -> None:
    """Each thread's hook gets its own session's tensors, in order."""
    wrong: list[str] = []

    def work(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        nodes = [
            helper.make_node("Add", ["x" if i == 0 else f"s{number}_{i - 1}", "one"], [f"s{number}_{i}"])
            for i in range(30)
        ]
        model = onnx_models.model(
            nodes, [onnx_models.value("x", [4])], [onnx_models.value(f"s{number}_29", [4])],
            {"one": np.ones(4, np.float32)},
        )  # fmt: skip
        session = opened(model, folder)
        for turn in range(20):
            seen: list[float] = []

            def hook(op_type: str, name: str, tensor: Any, /, seen: list[float] = seen) -> None:
                if not (name == "x" or name.startswith(f"s{number}_")):
                    wrong.append(name)
                seen.append(float(tensor[0]))

            start = number * 1000.0 + turn
            session.run({"x": np.full(4, start, np.float32)}, hook)
            if seen != [start + i for i in range(31)]:
                wrong.append(f"{number}: {seen}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_closing_frees_the_session(tmp_path: Path) -> None:
    known = set(taps._receivers)
    session = opened(onnx_models.convnet(), tmp_path)
    session.run(FEEDS, CopyingHook())
    inner = weakref.ref(session._open.ort)
    assert set(taps._receivers) != known
    session.close()
    assert set(taps._receivers) == known
    assert inner() is None


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt"])
def test_a_model_over_two_gigabytes(tmp_path: Path, mode: str) -> None:
    """The weights are a file with holes, so it costs little disk until ONNX Runtime writes its optimised graph."""
    rows, columns, layers = 16384, 12288, 3
    size = rows * columns * 4
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(layers * size)
    weights = np.memmap(tmp_path / "weights.bin", np.float32, "r+")
    weights[:: columns + 1] = 0.5
    weights.flush()
    nodes, tensors = [], []
    for place in range(layers):
        tensor = TensorProto(name=f"w{place}", data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
        tensor.dims.extend([rows, columns] if place % 2 == 0 else [columns, rows])
        for key, entry in (("location", "weights.bin"), ("offset", str(place * size)), ("length", str(size))):
            tensor.external_data.add(key=key, value=entry)
        tensors.append(tensor)
        nodes.append(helper.make_node("MatMul", ["x" if place == 0 else f"h{place - 1}", f"w{place}"], [f"h{place}"]))
    graph = helper.make_graph(
        nodes, "big", [onnx_models.value("x", [1, rows])], [onnx_models.value("h2", [1, columns])], tensors
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "big.onnx").write_bytes(model.SerializeToString())
    spec = SessionSpec(model=ModelFiles(model_file=str(tmp_path / "big.onnx")), mode=mode, work_dir=str(tmp_path))
    session, hook = OnnxRuntimeBackend().open(spec, []), CopyingHook()
    x = np.random.default_rng(0).standard_normal((1, rows)).astype(np.float32)
    session.run({"x": x}, hook)
    session.close()
    assert hook.names == ["x", "h0", "h1", "h2"]
    first = weights[: rows * columns].reshape(rows, columns)
    np.testing.assert_allclose(hook.arrays["h0"], x @ first, rtol=1e-3, atol=1e-4)


class Borrower:
    """Says that it keeps nothing, and looks at what it was given."""

    borrows = True

    def __init__(self) -> None:
        self.copies: dict[str, np.ndarray[Any, Any]] = {}
        self.lent: list[bool] = []

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> None:
        self.lent.append(not tensor.flags.owndata and not tensor.flags.writeable)
        self.copies[name] = tensor.copy()


@pytest.mark.skipif(not taps.borrows_memory(), reason="tap.c is not compiled here")
def test_a_hook_that_keeps_nothing_is_lent_the_engines_memory(tmp_path: Path) -> None:
    session = opened(onnx_models.convnet(), tmp_path)
    borrower, owner = Borrower(), CopyingHook()
    session.run(FEEDS, borrower)
    session.run(FEEDS, owner)
    assert all(borrower.lent)
    assert len(borrower.lent) >= 10
    assert owner.names == list(borrower.copies)
    assert all(have_same_bits(tensor, borrower.copies[name]) for name, tensor in owner.arrays.items())


class Library:
    """Borrows what it is lent, and looks at it twice: when it comes and when it goes back."""

    borrows = True

    def __init__(self, error_at: str = "") -> None:
        self.error_at = error_at
        self.out: dict[str, Any] = {}
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.returned: list[str] = []
        self.most = 0

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> None:
        raise AssertionError("it was called, not lent to")

    def borrow(self, op_type: str, name: str, tensor: Any, /) -> Callable[[], None]:
        assert name not in self.arrays
        self.out[name], self.arrays[name] = tensor, tensor.copy()
        self.most = max(self.most, len(self.out))

        def give_back() -> None:
            if name == self.error_at:
                raise RuntimeError("torn page")
            assert have_same_bits(self.out.pop(name), self.arrays[name]), f"{name} has changed while it was lent"
            self.returned.append(name)

        return give_back


LENT = {
    "convnet": FEEDS,
    "attention": {"x": np.random.default_rng(0).standard_normal((2, 10, 32)).astype(np.float32)},
    "if_model": {"x": np.float32([1, -2]), "c": np.array(True)},
    "loop_model": {"x": np.float32([1, -2]), "k": np.array(3)},
    "nested_model": {"x": np.float32([1, -2]), "k": np.array(3)},
    "scan_model": {"x": np.arange(10, dtype=np.float32).reshape(5, 2)},
}


@pytest.mark.skipif(not taps.borrows_memory(), reason="tap.c is not compiled here")
@pytest.mark.parametrize("elements", [0, 1 << 22])
@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt", "ort_fp16_sim"])
@pytest.mark.parametrize("model", LENT)
def test_a_borrower_has_its_tensors_until_it_gives_them_back(
    model: str, mode: str, elements: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_debug_onnxruntime.engine import tapped_graph

    monkeypatch.setattr(tapped_graph, "_LENT", elements)
    session = opened(getattr(onnx_models, model)(), tmp_path, mode)
    library, owner = Library(), CopyingHook()
    lent = session.run(LENT[model], library)
    plain = session.run(LENT[model], owner)
    assert library.out == {}, "something was never given back"
    assert list(library.arrays) == owner.names
    assert all(have_same_bits(library.arrays[name], tensor) for name, tensor in owner.arrays.items())
    assert all(have_same_bits(lent[name], plain[name]) for name in plain)
    assert sorted(library.returned) == sorted(owner.names)
    if model == "convnet":
        inputs_and_two_nodes = 4
        assert library.most >= 2 if elements == 0 else library.most > inputs_and_two_nodes
        assert elements or library.most <= inputs_and_two_nodes
        assert library.returned == owner.names, "a chain's tensors come back in their order"


@pytest.mark.skipif(not taps.borrows_memory(), reason="tap.c is not compiled here")
def test_what_a_borrower_raises_when_it_gives_back_ends_the_run_as_itself(tmp_path: Path) -> None:
    session = opened(onnx_models.convnet(), tmp_path)
    every = CopyingHook()
    session.run(FEEDS, every)
    library = Library(error_at=every.names[2])
    with pytest.raises(RuntimeError, match="torn page"):
        session.run(FEEDS, library)
    assert library.returned == every.names[:2]
    again = Library()
    session.run(FEEDS, again)
    assert len(again.returned) == len(every.names)


@pytest.mark.skipif(not taps.borrows_memory(), reason="tap.c is not compiled here")
def test_only_what_is_asked_for_is_lent_also_of_a_loop(tmp_path: Path) -> None:
    session = opened(onnx_models.loop_model(), tmp_path)
    library = Library()
    session.run(LENT["loop_model"], library, ["scaled@1", "y"])
    assert library.returned == ["scaled@1", "y"]


def test_without_the_compiled_operator_the_extensions_tap(root: Path) -> None:
    """The values of every type, in a process of its own; without what no tap has a part in: other names and widths of
    the same model, how much memory is lent (this one lends none), what is refused or told before a session opens."""
    left_out = "True-20 or False-16 or False-20 or 4096 or 4194304 or make_no_sense or notes_say or cores or threads"
    pytest.importorskip("onnxruntime_extensions", reason="it has no wheel for this Python", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/test_onnxruntime_values.py",
         "-k", f"not ({left_out})"],
        cwd=root, env={**os.environ, taps.VARIABLE: "extensions"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    code = "from precision_debug_onnxruntime.engine.taps import borrows_memory, library, types\n"
    code += "print(borrows_memory(), len(types()), library())"
    paths = os.pathsep.join([str(root), str(root / "backends")])
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root,
        env={**os.environ, taps.VARIABLE: "extensions", "PYTHONPATH": paths},
    ).stdout  # fmt: skip
    assert told.startswith("False 11 ")
    assert "onnxruntime_extensions" in told


_BOTH_WAYS = """
import sys
import numpy as np
import precision_debug
folder = sys.argv[1]
for mode in ("ort_fp16_sim", "ort_int8"):
    report = precision_debug.compare(f"{folder}/m.onnx", run_mode=mode, inputs=f"{folder}/in.npz")
    found = report.explanation
    print(mode, found.state, found.method, [(one.name, one.cause, f"{one.share:.3g}") for one in found.culprits],
          report.to_keep.option if report.to_keep else "")
    print(len(report.target.notes) and any("C compiler" in note for note in report.target.notes), file=sys.stderr)
"""


def test_without_a_c_compiler_the_same_culprits_causes_and_fixes_are_found(tmp_path: Path, root: Path) -> None:
    """Tensors are exchanged in Python there: of floats, of float16 by way of float32, of integers, of inputs."""
    pytest.importorskip("onnxruntime_extensions", reason="it has no wheel for this Python", exc_type=ImportError)
    r = np.random.default_rng(3)
    weights = {"w": r.standard_normal((16, 16)).astype(np.float32), "big": np.float32(300), "down": np.float32(1e-4),
               "v": r.standard_normal((16, 4)).astype(np.float32)}  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="h"), helper.make_node("Mul", ["h", "big"], ["b"], name="b"),
        helper.make_node("Mul", ["b", "b"], ["square"], name="square"),
        helper.make_node("Mul", ["square", "down"], ["d"], name="d"),
        helper.make_node("MatMul", ["d", "v"], ["y"], name="y"),
    ]  # fmt: skip
    model = onnx_models.model(nodes, [onnx_models.value("x", [8, 16])], [onnx_models.value("y")], weights)
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=r.standard_normal((8, 16)).astype(np.float32))
    paths = os.pathsep.join([str(root), str(root / "backends")])
    told = [
        subprocess.run(
            [sys.executable, "-c", _BOTH_WAYS, str(tmp_path)], capture_output=True, text=True, check=True, cwd=root,
            env={**os.environ, taps.VARIABLE: way, "PYTHONPATH": paths},
        ) for way in ("", "extensions")
    ]  # fmt: skip
    assert told[0].stdout == told[1].stdout
    assert "('square', 'overflow'" in told[0].stdout
    assert "square" in told[0].stdout.partition("--option")[2]
    assert "True" in told[1].stderr


@pytest.mark.parametrize("view", ["Unsqueeze", "Reshape", "Identity"])
def test_what_is_put_in_place_of_a_view_stands_in_no_other_form_of_the_tensor(view: str, tmp_path: Path) -> None:
    """A reshaped tensor has the memory of what it is made of: an error that was put into one form of it was in all of
    them, so that an operator was blamed for an output that it does not reach."""
    more = {"Unsqueeze": ["axes"], "Reshape": ["shape"], "Identity": []}[view]
    nodes = [
        helper.make_node("Tanh", ["x"], ["r"], name="r"),
        helper.make_node(view, ["r", *more], ["one"], name="one"),
        helper.make_node(view, ["r", *more], ["two"], name="two"),
        helper.make_node("Neg", ["one"], ["y"], name="y"),
        helper.make_node("Neg", ["two"], ["z"], name="z"),
    ]
    weights = {"axes": np.array([0]), "shape": np.array([2, 2])}
    outputs = [onnx_models.value("y"), onnx_models.value("z")]
    model = onnx_models.model(nodes, [onnx_models.value("x", [4])], outputs, weights)
    onnx.save(model, tmp_path / "views.onnx")
    feeds = {"x": np.float32([1, 2, 3, 4]) / 4}
    files = ModelFiles(model_file=str(tmp_path / "views.onnx"))
    spec = SessionSpec(model=files, mode="ort_fp32", work_dir=str(tmp_path))
    session = OnnxRuntimeBackend().open(spec, [feeds])
    plain = session.run(feeds)

    def put(_op: str, name: str, tensor: Any) -> Any:
        return np.array(tensor) + 1 if name == "one" else None

    for names in (None, {"one"}):
        found = session.run_replacing(feeds, put, names)
        np.testing.assert_array_equal(found["z"], plain["z"])
        np.testing.assert_allclose(found["y"], plain["y"] - 1, rtol=1e-6)
    session.close()
