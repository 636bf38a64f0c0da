"""A training step of an nn.Layer: what a run with hooks computes is what a plain loop computes, and who is named.

On a CPU paddle's auto_cast has no effect (a test says so), so the faults are planted in float32: see paddle_steps.
"""

# ruff: noqa: E402

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import begins_approved, holds_approved

paddle: Any = pytest.importorskip("paddle", reason="paddle is not installed")

import paddle_steps
from precision_debug_paddle import PaddleBackend

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import PrecisionDebugError
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.report.lead import lead_sentences

if not hasattr(getattr(paddle.create_parameter([1], "float32") * 1.0, "grad_fn", None), "_register_post_hook"):
    pytest.skip("this Paddle shows nothing of a backward pass", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track:UserWarning")  # Paddle's batch norm

FILE = Path(__file__).with_name("paddle_steps.py")
SLOW = {"rounded_gradient", "saved_the_result", "root_of_zero", "doubled_by_hook", "scale_beyond_range"}
def opened(name: str, mode: str = "dygraph_fp32", *, file: Path = FILE, **options: Any) -> tuple[Any, Any]:
    options = {"seed": 0, "step": "optimiser", **options}
    spec = SessionSpec(model=ModelFiles(model_file=f"{file}:{name}"), mode=mode, options=options)
    feeds = PaddleBackend().examples(spec)
    return PaddleBackend().open(spec, [feeds]), feeds


def bits(outputs: Any) -> dict[str, bytes]:
    return {name: np.array(outputs[name]).tobytes() for name in outputs}


def compared(name: str, **settings: Any) -> Any:
    settings = {"run_mode": "dygraph_fp32", "baseline": "dygraph_fp64", **settings}
    return precision_debug.compare(f"{FILE}:{name}", **settings)


@pytest.mark.parametrize("scale", [1.0, 512.0])
@pytest.mark.parametrize("name", paddle_steps.HEALTHY)
def test_a_step_gives_the_same_bits_with_hooks_and_without(name: str, scale: float) -> None:
    session, feeds = opened(name, loss_scale=scale)
    seen: list[str] = []
    plain = bits(session.run(feeds))
    assert bits(session.run(feeds, lambda _op, name, _value: seen.append(name))) == plain
    assert bits(session.run_replacing(feeds, lambda _op, _name, value: np.array(value))) == plain
    assert bits(session.run(feeds)) == plain
    assert {meta.name for meta in session.tensors if not meta.unseen} == set(seen)
    assert len(seen) == len(set(seen))
    assert sum(one.startswith("gradient/") for one in plain) > 2
    assert sum(one.startswith("backward/") for one in seen) >= 8
    session.close()


@pytest.mark.parametrize("scale", [1.0, 512.0])
def test_a_step_is_what_a_plain_loop_does(scale: float) -> None:
    """512 is a power of two: nothing is rounded by it."""
    session, feeds = opened("healthy_mlp", loss_scale=scale)
    found = session.run(feeds)
    paddle.seed(0)
    layer, x, loss_of, optimiser_of = paddle_steps.healthy_mlp()
    optimiser = optimiser_of(layer.parameters())
    before = {name: one.detach().clone() for name, one in layer.named_parameters()}
    loss = loss_of(layer(x))
    loss.backward()
    optimiser.step()
    assert np.array(found["loss"]) == loss.numpy()
    for name, one in layer.named_parameters():
        np.testing.assert_array_equal(found[f"gradient/{name}"], one.grad.numpy())
        np.testing.assert_array_equal(found[f"update/{name}"], one.numpy() - before[name].numpy())
    session.close()


def test_names_say_whose_backward_and_whose_update_it_is() -> None:
    session, _ = opened("healthy_mlp")
    metas = {meta.name: meta for meta in session.tensors}
    assert {"up/linear", "act/Gelu", "backward/ones_like", "backward/up/linear/matmul_grad[1]"} <= metas.keys()
    assert "backward/act/Gelu/erf" in metas  # an operator that a PyLayer's backward calls
    result = metas["backward/act/Gelu/Gelu.backward"]
    assert (result.phase, result.op_type) == ("backward", "Gelu.backward")
    assert metas["backward/up/linear/add_grad"].inputs[0] == result.name
    assert metas["gradient/up.weight"].inputs == ("backward/up/linear/matmul_grad[1]",)
    assert metas["update/up.weight"].inputs[0].startswith("optimiser/up.weight/momentum")
    assert {meta.phase for meta in metas.values()} == {"forward", "backward", "optimiser"}
    assert not any(one.rpartition("/")[2].partition("#")[0] in ("assign", "full") for one in metas), "copies of our own"
    session.close()


def test_what_is_put_in_place_of_a_gradient_reaches_what_follows() -> None:
    session, feeds = opened("healthy_mlp")
    plain = session.run(feeds)
    for name in ("backward/ones_like", "backward/cross_entropy_with_softmax[0]/cross_entropy_with_softmax_grad"):
        found = session.run_replacing(feeds, lambda _op, _name, value: np.asarray(value) * 2, frozenset({name}))
        for one in plain:
            if one.startswith("gradient/"):
                np.testing.assert_allclose(found[one], np.asarray(plain[one]) * 2, rtol=1e-5, atol=1e-9)
    name = "backward/act/Gelu/Gelu.backward"
    found = session.run_replacing(feeds, lambda _op, _name, value: np.zeros_like(value), frozenset({name}))
    assert not np.any(found["gradient/up.weight"])
    np.testing.assert_array_equal(found["gradient/down.weight"], plain["gradient/down.weight"])
    session.close()


def test_what_an_optimiser_wrote_can_be_replaced() -> None:
    session, feeds = opened("healthy_mlp")
    plain = session.run(feeds)
    last = [meta.name for meta in session.tensors if meta.name.startswith("optimiser/up.weight/momentum")][-1]
    found = session.run_replacing(feeds, lambda _op, _name, value: np.asarray(value) + 1, frozenset({last}))
    np.testing.assert_allclose(found["update/up.weight"], np.asarray(plain["update/up.weight"]) + 1, rtol=1e-5)
    np.testing.assert_array_equal(found["update/up.bias"], plain["update/up.bias"])
    session.close()


def test_an_optimiser_of_the_factorys_own_is_as_before(tmp_path: Path) -> None:
    """One that has states, too, and whose layer is the session's."""
    (tmp_path / "own.py").write_text(
        "import paddle\n\ndef make():\n    net = paddle.nn.Linear(3, 2)\n"
        "    adam = paddle.optimizer.Adam(0.01, parameters=net.parameters())\n"
        "    (net(paddle.ones([2, 3])) ** 2).sum().backward()\n    adam.step()\n    adam.clear_grad()\n"
        "    return net, paddle.ones([4, 3]), lambda out: (out ** 2).mean(), adam\n"
    )
    session, feeds = opened("make", file=tmp_path / "own.py")
    first = session.run(feeds)
    again = session.run(feeds, lambda *_: None)
    assert bits(first) == bits(again)
    assert np.any(first["state/weight/moment1"])
    session.close()


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in paddle_steps.FAULTS],
)
def test_a_planted_fault_is_named_first(name: str) -> None:
    fault = paddle_steps.FAULTS[name]
    sides = {"baseline_model": f"{FILE}:{fault.baseline}", "baseline": "dygraph_fp32"} if fault.baseline else {}
    report = compared(name, step=fault.step, **sides, **fault.options)
    assert report.exit_status == 1
    assert report.explanation is not None
    first = next(iter(report.explanation.culprits), None)
    assert first is not None
    assert first.name.startswith(fault.who)
    assert not fault.causes or first.cause in fault.causes
    told = first.evidence
    said = told.get("where") or told.get("parameter") or told.get("owner") or first.name
    assert f"`{said}`" in lead_sentences(report)[0].en


@pytest.mark.parametrize("name", paddle_steps.HEALTHY)
def test_nobody_is_blamed_in_a_healthy_step(name: str) -> None:
    report = compared(name, step="optimiser", loss_scale=1024)
    assert report.explanation is not None
    assert [one.name for one in report.explanation.culprits] == []
    assert report.exit_status == 0
    assert [row.name for row in report.rows if row.comparison is None] == []


def test_a_tensor_in_the_place_of_one_that_is_gone_has_no_reader_yet() -> None:
    """As seen on a busy machine: a row "backward/8/linear" that the other run did not have, as of two readers."""
    from precision_debug_paddle.engine.training.backward import Backward

    leaf = paddle.ones([2])
    leaf.stop_gradient = False
    backward = Backward(None, ())  # type: ignore[arg-type]

    def read() -> int:
        gone = leaf * 2
        backward.called([("row", leaf * 3)], ((gone,), {}))
        return id(gone)

    place = read()
    fresh = [leaf * 4 for _ in range(100)]
    assert backward._reads[place] == 1
    assert place not in {id(one) for one in fresh}


def test_the_example_is_named_with_the_scale_that_mends_it(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command and the sentences of docs/tutorials/training_nan.md."""
    file = f"{root}/examples/training/paddle_steps.py"
    sides = ["--model_file", f"{file}:wrong", "--baseline_model", f"{file}:right"]
    modes = ["--run_mode", "dygraph_fp32", "--baseline", "dygraph_fp32", "--step", "backward", "--lang", "en"]
    assert main([*sides, *modes, "--output", str(tmp_path / "out.json")]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert begins_approved(said)
    assert holds_approved(said, 2)
    assert holds_approved(said, 3)


def test_what_was_not_looked_at_is_said() -> None:
    def notes(**settings: Any) -> str:
        return "; ".join(map(str, compared("healthy_mlp", explain="off", **settings).target.notes))

    assert holds_approved(notes())
    backward = notes(step="backward", loss_scale=512)
    assert "only the forward pass" not in backward
    assert holds_approved(backward, 2)
    assert holds_approved(backward, 3)
    assert holds_approved(backward, 4)


@pytest.mark.skipif(paddle.is_compiled_with_cuda(), reason="this Paddle has kernels for a GPU")
def test_auto_cast_has_no_effect_on_a_cpu_and_its_modes_refuse() -> None:
    """Equal numbers would be no pass: nothing would have been cast."""
    x = paddle.randn([2, 2])
    for level in ("O1", "O2"):
        for dtype in ("bfloat16", "float16"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with paddle.amp.auto_cast(True, level=level, dtype=dtype):
                    assert paddle.matmul(x, x).dtype == paddle.float32
                assert not paddle.amp.GradScaler(init_loss_scaling=1024.0).is_enable()
            short = {"bfloat16": "bf16", "float16": "fp16"}[dtype]
            with pytest.raises(PrecisionDebugError, match="paddlepaddle-gpu"):
                opened("healthy_mlp", f"dygraph_amp_{level.lower()}_{short}")


def test_a_step_that_grad_scaler_leaves_out_is_said() -> None:
    report = compared("scale_beyond_range", step="optimiser", loss_scale=2.0**126, explain="off")
    notes = ["; ".join(map(str, side.notes)) for side in (report.baseline, report.target)]
    assert ["skipped the optimiser's step" in one for one in notes] == [False, True]
    assert report.exit_status == 1
    session, feeds = opened("scale_beyond_range", loss_scale=2.0**126)
    assert not np.any(session.run(feeds)["update/weight"])
    session.close()


BAD = {
    "no_loss": "return Linear(3, 2), ones([2, 3])",
    "no_number": "return Linear(3, 2), ones([2, 3]), lambda out: out",
    "no_function": "return Linear(3, 2), ones([2, 3]), 3",
    "no_part": "return Linear(3, 2), ones([2, 3]), lambda _: ones([])",
    "no_optimiser": "return Linear(3, 2), ones([2, 3]), lambda out: out.mean()",
    "no_learning": "net = Linear(3, 2); net.eval(); [setattr(p, 'stop_gradient', True) for p in net.parameters()]; "
                   "return net, ones([2, 3]), lambda out: out.mean()",
}  # fmt: skip
SAID = {
    "no_loss": "the loss is one number", "no_number": "the loss is one number", "no_function": "loss cannot be called",
    "no_part": "depends on no parameter", "no_optimiser": "no optimiser was given",
    "no_learning": "no parameter requires a gradient",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_step_is_said_in_a_line(tmp_path: Path, name: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(f"from paddle import ones\nfrom paddle.nn import Linear\n\ndef make():\n    {BAD[name]}\n")

    def run() -> None:
        session, feeds = opened("make", file=file)
        session.run(feeds)

    with pytest.raises(PrecisionDebugError, match=SAID[name]):
        run()


def test_a_setting_of_steps_is_refused_where_nothing_reads_it(tmp_path: Path) -> None:
    with pytest.raises(PrecisionDebugError, match="step"):
        precision_debug.compare(str(tmp_path / "m.pdmodel"), run_mode="cpu_opt", step="backward")
