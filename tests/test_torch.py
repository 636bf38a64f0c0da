"""The PyTorch backend beyond the contract: every ATen call once and in order, equal names, odd models, file kinds."""

# ruff: noqa: E402

from __future__ import annotations

import collections
import math
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved, raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_models
from precision_debug_torch import TorchBackend
from precision_debug_torch.backend import open_model
from precision_debug_torch.engine.compiled_session import was_touched
from precision_debug_torch.live import compare_module
from precision_debug_torch.make import make_twin
from precision_debug_torch.model import example_feeds, from_module
from torch.utils._python_dispatch import TorchDispatchMode
from warm import command, run_python

from precision_debug.errors import BackendError, InputError, ModelError, UsageError
from precision_debug.records import ModelFiles, SessionSpec, Status
from precision_debug.report.model import Report


class Plain(TorchDispatchMode):
    """What torch itself calls, without our backend."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(func._schema.name.replace("::", "."))
        return func(*args, **(kwargs or {}))


def call(module: Any, inputs: Any) -> Any:
    args = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
    return module(*args, **(inputs if isinstance(inputs, dict) else {}))


def session(module: Any, inputs: Any, mode: str = "torch_fp32", **options: Any) -> tuple[Any, Any]:
    model = from_module(module, inputs)
    feeds = example_feeds(model)
    return open_model(model, mode, {"device": "cpu", **options}, [feeds]), feeds


def shown(opened: Any, feeds: Any) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    opened.run(feeds, lambda kind, name, tensor: found.__setitem__(name, np.array(tensor)))
    return found


@pytest.mark.parametrize("factory", ["resnet", "repvgg", "encoder", "decoder", "odd", "copies"])
def test_every_aten_call_is_there_once_in_order_and_the_output_is_torchs_own(factory: str) -> None:
    module, inputs = getattr(torch_models, factory)()
    module.eval()
    torch.manual_seed(0)
    with torch.no_grad(), Plain() as plain:
        wanted = call(module, inputs)
    opened, feeds = session(*getattr(torch_models, factory)())
    outputs = opened.run(feeds, lambda kind, name, tensor: None)
    nodes = dict.fromkeys((m.node, m.op_type) for m in opened.tensors if m.op_type not in ("Input", "Output"))
    assert [kind for _, kind in nodes] == plain.calls
    first = wanted if isinstance(wanted, torch.Tensor) else wanted[0] if isinstance(wanted, tuple) else wanted["logits"]
    assert next(iter(outputs.values())).tobytes() == first.numpy().tobytes()


@pytest.mark.parametrize("factory", ["resnet", "encoder", "decoder", "odd"])
@pytest.mark.parametrize(
    "mode", ["torch_fp64", "torch_bf16", "torch_fp16", "torch_autocast_bf16", "torch_autocast_fp16"]
)
@pytest.mark.parametrize("level", ["op", "module"])
def test_names_are_equal_in_every_mode(factory: str, mode: str, level: str) -> None:
    base, feeds = session(*getattr(torch_models, factory)(), level=level)
    target, _ = session(*getattr(torch_models, factory)(), mode, level=level)
    ours, theirs = shown(base, feeds), shown(target, feeds)
    assert set(ours) <= set(theirs)
    assert all(":to[float]" in name for name in set(theirs) - set(ours)), "only casts are added"
    for name, array in ours.items():
        assert array.shape == theirs[name].shape, name
        if array.dtype.kind in "fV" and np.isfinite(array).all():
            wide, other = array.astype(np.float64), theirs[name].astype(np.float64)
            assert np.linalg.norm(wide - other) <= 0.1 * np.linalg.norm(wide) + 0.05, name


def test_float64_stays_float64_where_the_model_casts_down() -> None:
    class Norm(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = x.to(torch.float32)
            return torch.softmax(wide * torch.rsqrt(wide.square().mean(-1, keepdim=True)), -1, dtype=torch.float32)

    torch.manual_seed(0)
    x = torch.randn(3, 40)
    truth = Norm()(x.double().requires_grad_(False)).double()
    opened, feeds = session(Norm(), x, "torch_fp64")
    found = opened.run(feeds)["output"]
    wide = x.double()
    exact = torch.softmax(wide * torch.rsqrt(wide.square().mean(-1, keepdim=True)), -1)
    assert found.dtype == np.float64
    assert np.abs(found - exact.numpy()).max() < 1e-15 < np.abs(truth.numpy() - exact.numpy()).max()
    assert any("kept in float64" in note for note in opened.notes)


def test_random_operators_draw_the_same_numbers_in_every_mode_and_leave_the_process_alone() -> None:
    class Noise(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand_like(x) + torch.randn(x.shape[-1], dtype=x.dtype)

    before = torch.get_rng_state()
    x = torch.zeros(4, 8)
    results = {mode: session(Noise(), x, mode) for mode in ("torch_fp32", "torch_fp64", "torch_bf16")}
    drawn = {mode: shown(opened, feeds)["rand_like"] for mode, (opened, feeds) in results.items()}
    assert drawn["torch_fp64"].dtype == np.float64
    np.testing.assert_array_equal(drawn["torch_fp64"], drawn["torch_fp32"])
    np.testing.assert_allclose(drawn["torch_bf16"].astype(np.float32), drawn["torch_fp32"], atol=0.01)
    assert torch.equal(before, torch.get_rng_state())


def test_a_run_leaves_no_trace_in_the_module() -> None:
    module, inputs = torch_models.odd()
    opened, feeds = session(module, inputs)
    first = opened.run(feeds)
    second = opened.run(feeds, lambda kind, name, tensor: None)
    assert {name: array.tobytes() for name, array in first.items()} == {n: a.tobytes() for n, a in second.items()}
    assert module.seen == []
    assert int(module.steps) == 0
    assert "_call_impl" not in vars(module)


def test_shared_modules_reused_calls_and_inputs_are_told_apart() -> None:
    opened, feeds = session(*torch_models.odd())
    shown(opened, feeds)
    by_name = {meta.name: meta for meta in opened.tensors}
    assert by_name["shared@2/addmm"].inputs == ("shared/addmm", "shared@2/t")
    assert by_name["shared/addmm"].inputs == ("x", "shared/t")
    assert by_name["shared/addmm"].extra["Source"].startswith("torch_models.py:")
    assert "self.again(self.shared(x))" in by_name["shared/addmm"].extra["Source"]
    assert by_name["empty_like"].unseen == "holds uninitialised memory"


def test_torchs_own_fast_path_is_not_left() -> None:
    """nn.TransformerEncoderLayer computes something else as soon as it has a forward hook."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        wanted = layer(x)
    opened, feeds = session(layer, x)
    names = list(shown(opened, feeds))
    assert opened.run(feeds)["output"].tobytes() == wanted.numpy().tobytes()
    assert "_transformer_encoder_layer_fwd" in names


def test_a_module_that_fails_says_after_which_tensor() -> None:
    class Broken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lin(x) @ x

    opened, feeds = session(Broken(), torch.randn(5, 4))
    with pytest.raises(BackendError, match="after lin/addmm"):
        opened.run(feeds, lambda kind, name, tensor: None)


def test_sparse_complex_quantised_and_float8_tensors_are_shown_as_numbers() -> None:
    class Kinds(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            spectrum = torch.fft.fft(x).conj()
            small = x.to(torch.float8_e4m3fn)
            return spectrum.real + small.to(torch.float32) + x.to_sparse().to_dense()

    torch.manual_seed(0)
    opened, feeds = session(Kinds(), torch.randn(4, 4))
    arrays = shown(opened, feeds)
    views = {meta.view for meta in opened.tensors}
    assert {"cast", "dense"} <= views
    assert any(array.dtype == np.complex64 for array in arrays.values())


@pytest.mark.parametrize("mode", ["torch_bf16", "torch_autocast_bf16", "torch_fp64"])
@pytest.mark.parametrize("factory", ["resnet", "decoder", "odd"])
def test_lockstep_of_a_live_module_has_a_row_for_everything(factory: str, mode: str) -> None:
    module, inputs = getattr(torch_models, factory)()
    rows: list[Any] = []
    report = compare_module(module, inputs, run_mode=mode, device="cpu", on_row=rows.append)
    opened, feeds = session(*getattr(torch_models, factory)())
    shown(opened, feeds)
    names = [row.name for row in report.rows if row.status is not Status.UNMATCHED]
    assert names == [meta.name for meta in opened.tensors]
    count = collections.Counter(row.status for row in report.rows)
    assert count[Status.PASS] + count[Status.FAIL] == sum(not meta.unseen for meta in opened.tensors)
    assert len(rows) == count[Status.PASS] + count[Status.FAIL] + count[Status.UNMATCHED]
    if mode == "torch_fp64":
        assert count[Status.FAIL] == 0
    known = {row.name for row in report.rows if row.relative_l2 is not None}
    assert all(row.error_growth is not None for row in report.rows if row.name in known and known >= set(row.inputs))


def test_two_runs_in_two_threads_keep_their_own_random_numbers() -> None:
    opened = [session(*torch_models.odd()) for _ in range(2)]
    barrier = threading.Barrier(2, timeout=200)
    found: list[dict[str, np.ndarray]] = [{}, {}]

    def work(side: int) -> None:
        def hook(kind: str, name: str, tensor: Any) -> None:
            barrier.wait()
            found[side][name] = np.array(tensor)

        opened[side][0].run(opened[side][1], hook)

    threads = [threading.Thread(target=work, args=(side,)) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = shown(*opened[0])
    assert set(found[0]) == set(alone)
    for name, array in alone.items():
        assert array.tobytes() == found[0][name].tobytes() == found[1][name].tobytes(), name


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("programs")
    module, x = torch_models.resnet()
    batch = torch.export.Dim("batch", min=1, max=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: batch},)), folder / "model.pt2")
        torch.jit.trace(module, (x,)).save(str(folder / "model.pt"))
        torch.save(module.state_dict(), folder / "weights.pt")
    return {name: str(folder / name) for name in ("model.pt2", "model.pt", "weights.pt")}


def test_an_exported_program_has_the_names_of_its_module(files: dict[str, str]) -> None:
    backend = TorchBackend()
    spec = SessionSpec(model=ModelFiles(model_file=files["model.pt2"]), mode="torch_fp32", options={"device": "cpu"})
    meta = backend.inputs(spec)[0]
    assert meta.name == "x"
    assert isinstance(meta.shape[0], str)
    feeds = backend.examples(spec)
    from_file = backend.open(spec, [feeds])
    eager, _ = session(*torch_models.resnet())
    ours, theirs = shown(eager, feeds), shown(from_file, feeds)
    assert set(ours) == set(theirs)
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def test_torchscript_shows_operators_and_refuses_modules(files: dict[str, str]) -> None:
    backend = TorchBackend()
    spec = SessionSpec(model=ModelFiles(model_file=files["model.pt"]), mode="torch_fp32", options={"device": "cpu"})
    feeds = {"x": torch_models.resnet()[1].numpy()}
    opened = backend.open(spec, [feeds])
    eager, _ = session(*torch_models.resnet())
    assert shown(opened, feeds)["output"].tobytes() == eager.run(feeds)["output"].tobytes()
    at_modules = SessionSpec(model=spec.model, mode="torch_fp32", options={"device": "cpu", "level": "module"})
    with pytest.raises(UsageError, match="--level op"):
        backend.open(at_modules, [feeds])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{folder}/m.py", "names no factory"),
        ("{folder}/m.py:nothing", "no function 'nothing'"),
        ("{folder}/m.py:fails", "ValueError: out of luck"),
        ("{folder}/m.py:number", "got int, not an nn.Module"),
        ("{folder}/m.py:misfit", "do not fit forward"),
        ("{folder}/syntax.py:f", "cannot be imported: SyntaxError"),
        ("{folder}/missing.py:f", "no such file"),
    ],
)
def test_a_factory_that_is_none_says_why(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\n"
        "def fails(): raise ValueError('out of luck')\n"
        "def number(): return 3\n"
        "def misfit(): return torch.nn.Linear(2, 2), {'y': torch.ones(2)}\n"
    )
    (tmp_path / "syntax.py").write_text("def f(:\n")
    spec = SessionSpec(model=ModelFiles(model_file=text.format(folder=tmp_path)), mode="torch_fp32")
    with pytest.raises(ModelError, match=message):
        TorchBackend().inputs(spec)


def test_a_checkpoint_is_not_a_model_and_says_what_to_do(files: dict[str, str]) -> None:
    spec = SessionSpec(model=ModelFiles(model_file=files["weights.pt"]), mode="torch_fp32")
    with raises_approved(ModelError) as raised:
        TorchBackend().inputs(spec)
    assert "factory" in str(raised.value)


def test_random_weights_of_a_factory_are_the_same_on_both_sides(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import torch\ndef build(): return torch.nn.Linear(3, 3), torch.ones(1, 3)\n")
    spec = SessionSpec(model=ModelFiles(model_file=f"{tmp_path}/m.py:build"), mode="torch_fp32")
    outputs = []
    for _ in range(2):
        backend = TorchBackend()
        feeds = backend.examples(spec)
        outputs.append(backend.open(spec, [feeds]).run(feeds)["output"].tobytes())
    assert outputs[0] == outputs[1]


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="--level"):
        session(*torch_models.resnet(), level="kernel")
    with pytest.raises(UsageError, match="--device"):
        session(*torch_models.resnet(), device="gpu9")
    opened, _ = session(torch.nn.Linear(2, 2), None)
    with pytest.raises(InputError, match="no value for 'input'"):
        opened.run({})


@pytest.mark.slow
@pytest.mark.parametrize(("factory", "level"), [("encoder", "op"), ("decoder", "module")])
def test_compile_has_the_same_names_and_nearly_the_same_values(factory: str, level: str) -> None:
    base, feeds = session(*getattr(torch_models, factory)(), level=level)
    target, _ = session(*getattr(torch_models, factory)(), "torch_compile", level=level)
    ours, theirs = shown(base, feeds), shown(target, feeds)
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(theirs[name], array, rtol=1e-4, atol=1e-4, err_msg=name)
    for name, array in target.run(feeds).items():
        assert array.tobytes() == theirs[name].tobytes(), name
    assert any("second compiled graph" in note for note in target.notes)


@pytest.mark.slow
def test_compile_of_a_model_that_branches_on_values_shows_the_branch_that_they_lead_to() -> None:
    base, feeds = session(*torch_models.odd())
    opened, _ = session(*torch_models.odd(), "torch_compile")
    ours, theirs = shown(base, feeds), shown(opened, feeds)
    assert len(theirs) > 0.7 * len(ours)
    for name, array in theirs.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, ours[name], rtol=1e-4, atol=1e-4, err_msg=name)
    assert holds_approved(list(opened.notes))


@pytest.mark.slow
def test_every_compiled_run_starts_from_the_models_own_state() -> None:
    """More runs than torch compiles one function for."""
    opened, feeds = session(*torch_models.odd(), "torch_compile")
    first = {name: array.copy() for name, array in opened.run(feeds).items()}
    assert first["output[1].steps"].item() == 2
    for _ in range(9):
        again = opened.run(feeds)
        assert all(array.tobytes() == again[name].tobytes() for name, array in first.items())


@pytest.mark.parametrize("change", ["buffer", "number", "list", "NaN", ""])
def test_a_run_that_leaves_state_behind_is_noticed(change: str) -> None:
    module = torch_models.odd()[0]
    module.register_buffer("nothing", torch.tensor([math.nan, 1.0]))
    module.kept = [1, {"a": torch.zeros(2)}]
    module.count = 0
    own = make_twin(module)
    if change == "buffer":
        own.steps += 1
    elif change == "number":
        own.count = 1
    elif change == "list":
        own.kept[1]["a"] += 1
    elif change == "NaN":
        own.nothing[1] = math.nan
    assert was_touched(own, module) is bool(change)


@pytest.mark.parametrize("level", ["op", "module"])
def test_int8_results_stand_under_their_usual_names(level: str) -> None:
    found = TorchBackend().availability("torch_int8")
    if not found.ok:
        pytest.skip(found.needs)
    base, feeds = session(*torch_models.encoder(), level=level)
    target, _ = session(*torch_models.encoder(), "torch_int8", level=level)
    ours, theirs = shown(base, feeds), shown(target, feeds)
    missing = set(ours) - set(theirs)
    assert all(name.rpartition("/")[2] in ("view", "t", "addmm") for name in missing), "only inside linear layers"
    assert {name for name in ours if name.endswith(("view#2", "gelu", "head", "layer_norm"))} <= set(theirs)
    error = {
        name: np.linalg.norm(ours[name] - theirs[name]) / np.linalg.norm(ours[name])
        for name in set(ours) & set(theirs)
        if ours[name].dtype == np.float32 and ours[name].shape == theirs[name].shape
    }
    assert max(error.values()) < 0.05
    assert max(error.values()) > 1e-3, "it was quantised"
    assert "9 of 9 linear layers" in " ".join(target.notes)


def llama(attention: str) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=101, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attn_implementation=attention,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of create_block_mask and what it imports
@pytest.mark.parametrize("attention", ["sdpa", "eager", "flex_attention"])
def test_transformers_models_from_a_local_config_work_with_their_cache(attention: str) -> None:
    module = llama(attention)
    ids = torch.randint(0, 101, (1, 7))
    report = compare_module(module, {"input_ids": ids, "use_cache": True}, run_mode="torch_bf16", device="cpu")
    names = [row.name for row in report.rows]
    assert "output.logits" in names
    assert any("past_key_values" in name for name in names)
    alone = [row for row in report.rows if row.comparison is None and "bookkeeping" not in row.reason]
    assert all(row.status is Status.UNMATCHED and ":to[float]" in row.name for row in alone)
    errors = [row.relative_l2 for row in report.rows if row.comparison is not None and row.relative_l2 is not None]
    assert max(e for e in errors if np.isfinite(e)) < 0.1
    flexible = [row for row in report.rows if row.op_type == "higher_order.flex_attention"]
    assert bool(flexible) == (attention == "flex_attention") == any("uncompiled" in n for n in report.target.notes)


@pytest.mark.parametrize(
    ("torchao", "needs"),
    [
        ("raise ModuleNotFoundError(\"No module named 'torchao'\", name='torchao')", "pip install torchao"),
        ("raise RuntimeError('built for torch 2.1')", "torchao does not fit this torch (RuntimeError: built for"),
        ("import no_such_thing", "no module no_such_thing"),
        ("import warnings, logging, sys; warnings.warn('a'); logging.warning('b'); print('c', file=sys.stderr)",
         "a newer torchao, with quantize_, Int8"),
    ],
)  # fmt: skip
def test_what_int8_needs_is_said_and_torchao_is_not_heard(torchao: str, needs: str, tmp_path: Path) -> None:
    (tmp_path / "torchao").mkdir()
    (tmp_path / "torchao" / "__init__.py").write_text(torchao)
    (tmp_path / "torchao" / "quantization.py").write_text("")
    (tmp_path / "ask.py").write_text(
        "from precision_debug_torch import TorchBackend\nprint(TorchBackend().availability('torch_int8').needs)\n"
    )
    done = run_python(str(tmp_path / "ask.py"), engine="torch")
    assert needs in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_the_operators_inside_torchs_own_control_flow_are_seen(tmp_path: Path) -> None:
    from torch._higher_order_ops import while_loop

    class Flow(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.cond(x.sum() > -1e9, lambda a: torch.relu(a) * 2, lambda a: a - 1, (x,))
            start = torch.zeros((), dtype=torch.int64)
            return while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, torch.tanh(v)), (start, y))[1] + 1

    torch.manual_seed(0)
    x = torch.randn(2, 4)
    with torch.no_grad():
        wanted = Flow()(x)
        torch.export.save(torch.export.export(Flow(), (x,), strict=True), tmp_path / "flow.pt2")
    opened, feeds = session(Flow(), x)
    assert opened.run(feeds, lambda kind, name, tensor: None)["output"].tobytes() == wanted.numpy().tobytes()
    kinds = ["sum", "gt", "relu", "mul", "zeros", "lt", "add", "tanh", "lt", "add", "tanh", "lt", "add"]
    assert [meta.op_type.removeprefix("aten.") for meta in opened.tensors[1:-1]] == kinds
    spec = SessionSpec(model=ModelFiles(model_file=str(tmp_path / "flow.pt2")), mode="torch_fp32",
                       options={"device": "cpu"})  # fmt: skip
    backend = TorchBackend()
    exported = backend.open(spec, [backend.examples(spec)])
    assert [meta.op_type.removeprefix("aten.") for meta in exported.tensors[1:-1]] == kinds
    exported.close()


def test_an_exported_program_whose_layer_is_called_twice(tmp_path: Path) -> None:
    """Albert shares one layer's weights: torch 2.13 cannot copy what its own ``unflatten`` makes of that. The program
    returns a class of the transformers library, which reading the file alone does not make known."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.AlbertConfig(
        vocab_size=64, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )  # fmt: skip
    words = torch.randint(0, 64, (1, 8))
    program = torch.export.export(transformers.AlbertModel(config).eval(), (words,))
    torch.export.save(program, tmp_path / "albert.pt2")
    np.savez(tmp_path / "in.npz", input_ids=words.numpy())
    done = command(
        "--model_file", "albert.pt2", "--run_mode", "torch_bf16", "--inputs", "in.npz", "--output", "r.json",
        "--explain", "off", "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Report.load(tmp_path / "r.json").counts[Status.PASS] > 50


def test_operators_are_not_taken_apart_at_the_end_of_a_child(tmp_path: Path) -> None:
    """What others have left to be done at the exit is."""
    (tmp_path / "m.py").write_text(
        "import weakref, torch\n"
        "class Kept: pass\n"
        "def tell(): open('told', 'w').write(str(any('mine::' in name for name in torch.library._defs)))\n"
        "kept = Kept()\n"
        "weakref.finalize(kept, tell)  # the last to be called, since it is the first\n"
        "library = torch.library.Library('mine', 'DEF')\n"
        "library.define('op(Tensor x) -> Tensor')\n"
        "def build(): return torch.nn.Linear(2, 2)\n"
    )
    words = ["--run_mode", "torch_bf16", "--input_shapes", "input:[1,2]", "--output", "r.json", "--quiet"]
    assert command("--model_file", "m.py:build", *words).returncode == 0
    assert (tmp_path / "told").read_text() == "True"
