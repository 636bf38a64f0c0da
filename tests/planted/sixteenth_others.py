"""A sixteenth batch of language models in folders and GGUF files, of Paddle alone and beside ONNX, and of training
loops that are recorded; written and labelled before any of it was compared.

    python tests/planted/sixteenth_others.py [WORD …]

measures the labels without the tool, as the fifteenth's does; a file in ONNX by ONNX Runtime itself.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from planted import fifteenth_others, fourteenth_others
from planted.eleventh_torch import layer
from planted.fifteenth_others import TRUTHS, Weights, _convs, _rows
from planted.fourteenth_others import Loop, _sgd, _trained
from planted.onnx_faults import Array, Graph
from planted.paddle_faults import IMAGE, TOKENS, _feeds, _linears, _written
from planted.twelfth.case import DIFFER, Thread, labelled

# After the first run: the cache of keys is an output, too, and is an eighth in scale_moved_from_keys_to_queries, which
# was labelled healthy by its logits; a norm's gains go through bfloat16 as every weight does.
CASES: list[Thread] = []
LOOPS: list[Loop] = []
folder_of = functools.partial(fifteenth_others.folder_of, cases=CASES)
gguf = functools.partial(fifteenth_others.gguf, cases=CASES)
program = functools.partial(fifteenth_others.program, cases=CASES)
loop = functools.partial(fourteenth_others.loop, loops=LOOPS)
OTHER = f"{DIFFER} unfound"

# --- folders of transformers


def _with_biases(w: Weights) -> None:
    drawn = np.random.default_rng(61)
    for name in [one for one in w if one.endswith("_proj.bias")]:
        w[name] = drawn.normal(size=w[name].shape).astype(np.float32)


_QKV = _rows("0", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


@folder_of("Qwen2's biases", "language", _QKV, "files_differ", both=_with_biases,
           extra=f"{_QKV} {_QKV.replace('layers.0', 'layers.1')}", facts=[r"_proj\.bias"])  # fmt: skip
def biases_that_a_converter_dropped(w: Weights) -> None:
    """Queries, keys and values have biases in this architecture, as in few others: a converter left them at 0 in both
    layers."""
    for name in [one for one in w if one.endswith("_proj.bias")]:
        w[name] = np.zeros_like(w[name])


_ALL = " ".join(f"model.layers.{n}.{part}{end}" for n in (0, 1) for part in (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
    "mlp.down_proj") for end in ("", "/addmm", "/linear", "/mm", "/view", "/add"))  # fmt: skip


_ALL += " model.norm/mul#2" + "".join(f" model.layers.{n}.{one}_layernorm/mul#2" for n in (0, 1) for one in (
    "input", "post_attention"))  # fmt: skip
_ALL += " model.embed_tokens model.embed_tokens/embedding " + layer("lm_head")


@folder_of("convert to bf16 and back", "language", _ALL, "files_differ held_narrower", extra=_ALL, anyone=True,
           facts=[r"rounded to bfloat16"])  # fmt: skip
def weights_that_went_through_bfloat16(w: Weights) -> None:
    """Every weight was stored in bfloat16 and read into float32: each is off by up to 0.4 %, none more than another.
    Everything runs in float32."""
    import ml_dtypes

    for name in w:
        w[name] = w[name].astype(ml_dtypes.bfloat16).astype(np.float32)


_BOTH = _rows("0", "self_attn.k_proj", "self_attn.q_proj") + " " + _rows("1", "self_attn.k_proj", "self_attn.q_proj")


@folder_of("scale folded into q", "language", _BOTH, "files_differ", model="llama", extra=_BOTH, facts=[r"k_proj"])
def scale_moved_from_keys_to_queries(w: Weights) -> None:
    """Queries are eight times as large and keys an eighth, in both layers: the scores are the same to the bit, and so
    is every logit. The cached keys are an eighth."""
    for name in w:
        if "q_proj" in name or "k_proj" in name:
            w[name] *= np.float32(8.0 if "q_proj" in name else 0.125)


# --- GGUF files


@gguf("gains that a converter did not find", "language", "ffn_norm-1", "files_differ", extra="ffn_norm-1",
      facts=[r"blk\.1\.ffn_norm\.weight"])  # fmt: skip
def gains_of_one_norm_left_at_one(w: Weights) -> None:
    """The second layer's gains before the feed-forward part are all 1."""
    w["blk.1.ffn_norm.weight"] = np.ones_like(w["blk.1.ffn_norm.weight"])


@gguf("special tokens", "language", "result_output", "files_differ", extra="result_output",
      facts=[r"output\.weight"])  # fmt: skip
def rows_of_two_words_exchanged(w: Weights) -> None:
    """Two rows of the output matrix are exchanged (two special tokens): two logits of each place are each other's, all
    others are right."""
    w["output.weight"][[5, 9]] = w["output.weight"][[9, 5]]


@gguf("AWQ's scales", "healthy")
def scales_moved_from_down_to_up(w: Weights) -> None:
    """Rows of up are multiplied and columns of down divided by powers of two, in both layers: the logits are the
    same."""
    for n in range(2):
        size = 2.0 ** np.random.default_rng(n).integers(-3, 4, len(w[f"blk.{n}.ffn_up.weight"]))
        w[f"blk.{n}.ffn_up.weight"] *= size[:, None].astype(np.float32)
        w[f"blk.{n}.ffn_down.weight"] /= size.astype(np.float32)


# --- Paddle


def picture_pooled(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.nn.functional.avg_pool2d(net.a(x), 3, 2, padding=1, exclusive=True)
    return net.c(paddle.nn.functional.relu(net.b(y)))


_POOL = "pool2d_0 pool2d pool2d_0@AvgPool2D avg_pool2d_0"


@program("exclusive", "port", "cpu_fp32", _POOL, DIFFER, parts=_convs, base=picture_pooled, shape=IMAGE, extra=_POOL,
         facts=[r"exclusive"])  # fmt: skip
def picture_pooled_with_its_border(net: Any, x: Any) -> Any:
    """A mean over windows of which those at the border count the padding (exclusive is false), in one file alone."""
    import paddle

    y = paddle.nn.functional.avg_pool2d(net.a(x), 3, 2, padding=1, exclusive=False)
    return net.c(paddle.nn.functional.relu(net.b(y)))


def _norms_with(epsilon: float) -> Any:
    return lambda nn: {"a": nn.Linear(32, 32), "n": nn.LayerNorm(32, epsilon=epsilon), "b": nn.Linear(32, 8)}


def faint_numbers_that_are_normed(net: Any, x: Any) -> Any:
    return net.b(net.n(net.a(x) * 0.01))


_LN = "layer_norm_0 layer_norm_0@LayerNorm layer_norm"


@program("a norm's epsilon from another framework", "port", "cpu_fp32", _LN, DIFFER, parts=_norms_with(1e-12),
         base_parts=_norms_with(1e-5), base=faint_numbers_that_are_normed, extra=_LN, facts=[r"epsilon"])  # fmt: skip
def faint_numbers_with_another_epsilon(net: Any, x: Any) -> Any:
    """A layer norm of numbers of 0.01 has an epsilon of 1e-12 in place of 1e-5, which is a tenth of their variance."""
    return faint_numbers_that_are_normed(net, x)


@program("Paddle's bfloat16", "cancellation", "onednn_bf16", "subtract_0 subtract matmul_0@Linear add_0@Linear "
         "matmul_0 add_0 matmul_1@Linear_1 add_1@Linear_1", "coarse cancellation cancels amplified amplifies drift",
         parts=_linears("a", "b"), extra="subtract_0 subtract matmul_0@Linear add_0@Linear matmul_1@Linear_1 "
         "add_1@Linear_1 multiply_0 scale_0 scale_1 matmul_0@Linear_0 add_0@Linear_0")  # fmt: skip
def difference_of_two_near_frames(net: Any, x: Any) -> Any:
    """One layer reads two frames that differ by a hundredth, and what differs is enlarged: bfloat16 leaves little of
    it."""
    import paddle

    far = paddle.subtract(net.a(paddle.scale(x, 1.01)), net.a(x))
    return net.b(paddle.tanh(paddle.scale(far, 100.0)))


def _frames() -> tuple[Array, Array]:
    """In float64, and rounded to bfloat16 behind each operator."""
    import ml_dtypes

    w: dict[str, Array] = {}
    with tempfile.TemporaryDirectory() as folder:
        _written(Path(folder), "of", _linears("a", "b"), difference_of_two_near_frames, TOKENS, w.update)
    x = _feeds(TOKENS)["x"].astype(np.float64)

    def made(low: Any) -> Array:
        def dense(name: str, y: Array) -> Array:
            return low(low(y) @ low(w[f"{name}.weight"].astype(np.float64)) + w[f"{name}.bias"])  # type: ignore[no-any-return]

        return dense("b", low(np.tanh(low(100 * low(dense("a", low(1.01 * x)) - dense("a", x))))))

    return made(lambda y: y), made(lambda y: np.asarray(y).astype(ml_dtypes.bfloat16).astype(np.float64))


TRUTHS["difference_of_two_near_frames"] = _frames

# --- Paddle beside a file in ONNX


def beside_onnx(kind: str, who: str = "", why: str = "", *, parts: Any, forward: Any, **more: Any) -> Any:
    """The function writes the file of the weights; the program is the baseline."""

    def register(write: Callable[[Graph, str, Mapping[str, Array]], str]) -> Any:
        def make(folder: Path) -> tuple[Path, Path, Any]:
            known: dict[str, Array] = {}
            first = _written(folder, "base", parts, forward, TOKENS, known.update)
            g = Graph(opset=18)
            y = write(g, g.input("x", _feeds(TOKENS)["x"]), known)
            return g.save(folder / f"{write.__name__}.onnx", [y]), first, g.feeds

        CASES.append(labelled(write, "paddle2onnx", kind, "ort_fp32", who, why, make=make, baseline="cpu_fp32", **more))
        TRUTHS[write.__name__] = lambda: _both(make)
        return write

    return register


def _both(make: Any) -> tuple[Array, Array]:
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        path, first, feeds = make(Path(folder))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import paddle
        config = paddle.inference.Config(str(first), str(first).removesuffix("json") + "pdiparams")
        config.switch_ir_optim(False)
        config.disable_mkldnn()
        want = np.asarray(paddle.inference.create_predictor(config).run([paddle.to_tensor(feeds["x"])])[0].numpy())
        got = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, dict(feeds))[0]
    return want.astype(np.float64), np.asarray(got, np.float64)


def _gated(nn: Any) -> dict[str, Any]:
    return {"a": nn.Linear(32, 32), "n": nn.LayerNorm(32), "b": nn.Linear(32, 32), "c": nn.Linear(32, 8)}


def gate_of_a_norm(net: Any, x: Any) -> Any:
    import paddle

    y = net.n(net.a(x))
    return net.c(y * paddle.nn.functional.hardswish(net.b(y) * 3.0))


def _dense(g: Graph, x: str, w: Mapping[str, Array], name: str) -> str:
    y = g.op("MatMul", [x, g.weight(f"{name}.w", w[f"{name}.weight"])], f"{name}_mm")
    return g.op("Add", [y, g.weight(f"{name}.b", w[f"{name}.bias"])], f"{name}_out")


def _as_onnx(g: Graph, x: str, w: Mapping[str, Array], swish: Any) -> str:
    y = _dense(g, x, w, "a")
    y = g.op("LayerNormalization", [y, g.weight("gain", w["n.weight"]), g.weight("shift", w["n.bias"])], "normed",
             axis=-1, epsilon=1e-5)  # fmt: skip
    z = g.op("Mul", [_dense(g, y, w, "b"), g.weight("three", np.float32(3))], "times")
    return _dense(g, g.op("Mul", [y, swish(z)], "gated"), w, "c")


@beside_onnx("healthy", parts=_gated, forward=gate_of_a_norm)
def gate_in_the_file(g: Graph, x: str, w: Mapping[str, Array]) -> str:
    """A norm, a gate by hardswish, three layers: the file is right."""
    return _as_onnx(g, x, w, lambda z: g.op("HardSwish", [z], "swish"))


_SWISH = "hardswish_0 hardswish hardswish_0@Hardswish multiply_0 multiply_1 multiply"


@beside_onnx("convert", _SWISH, OTHER, parts=_gated, forward=gate_of_a_norm, extra=_SWISH)
def smooth_gate_in_the_file(g: Graph, x: str, w: Mapping[str, Array]) -> str:
    """A converter that knew no hardswish wrote x Sigmoid(x) in its place."""
    return _as_onnx(g, x, w, lambda z: g.op("Mul", [z, g.op("Sigmoid", [z], "gate")], "swish"))


# --- loops that are recorded


@loop(r"[Ss]tep 2[2-4]", status=1)
def rate_of_thirty_times_at_a_restart(folder: Path) -> Any:
    """A scheduler that is made anew at step 22 begins at a rate of 6 in place of 0.2: updates of thirty times."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 6.0 if step == 22 else 0.2

    return _trained(folder, _sgd(0.2), each)


@loop(r"[Ss]tep (1[5-7])", status=1)
def units_that_die_at_once(folder: Path) -> Any:
    """At step 15 a bias of -100 is loaded into the first layer: all its units are off, and its gradients exactly 0 from
    there on."""
    import torch
    from torch import nn

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step == 15:
            with torch.no_grad():
                net[0].bias.fill_(-100.0)

    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    return _trained(folder, _sgd(0.05), each, of=net)


@loop(r"[Ss]tep (1[89]|20)", status=1)
def gradients_clipped_to_a_millionth(folder: Path) -> Any:
    """From step 18 on gradients are clipped to a norm of 1e-6, where they have 0.3: nothing is learnt from there on."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step == 18:
            for one in net.parameters():
                one.register_hook(lambda g: g * (1e-6 / g.norm().clamp(min=1e-12)))

    return _trained(folder, _sgd(), each)


@loop(r"[Ss]tep (2[0-2])", status=1)
def loss_that_is_summed_from_a_step_on(folder: Path) -> Any:
    """From step 20 on the loss is the batch's sum and not its mean: gradients of 32 times."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step == 20:
            for one in net.parameters():
                one.register_hook(lambda g: 32.0 * g)

    return _trained(folder, _sgd(0.003), each)


@loop()
def batches_with_heavy_tails(folder: Path) -> Any:
    """Every batch is as large as a draw with tails: between a half and three times the usual one. Nothing is wrong."""
    drawn = np.random.default_rng(12).lognormal(0.0, 0.5, 40).clip(0.4, 3.0)
    return _trained(folder, _sgd(0.05), times=lambda step: float(drawn[step]))


@loop()
def rate_that_goes_up_and_down(folder: Path) -> Any:
    """One cycle: the rate rises from 0.01 to 0.25 by step 12 and falls to 0.0001, as planned."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        up = 0.01 + 0.24 * min(step / 12, 1.0)
        for group in optimiser.param_groups:
            group["lr"] = up if step <= 12 else 0.25 + (1e-4 - 0.25) * (step - 12) / 27

    return _trained(folder, _sgd(0.01), each)


def _paddle_loop(folder: Path, bad: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paddle

    import precision_debug

    paddle.seed(4)
    net = paddle.nn.Sequential(paddle.nn.Linear(8, 16), paddle.nn.Tanh(), paddle.nn.Linear(16, 1))
    optimiser: Any = paddle.optimizer.Adam(0.01, parameters=net.parameters())
    drawn, told = np.random.default_rng(9), []
    with precision_debug.training(net, optimiser, record=folder, every=1):
        for step in range(40):
            x = drawn.normal(size=(32, 8)).astype(np.float32)
            wanted = np.abs(x[:, :1]) if step != bad else np.float32(-1e4) + 0 * x[:, :1]
            found = paddle.nn.functional.softplus(net(paddle.to_tensor(x)))
            loss = ((found + 1e-3).log() - paddle.to_tensor(wanted + 1e-3).log()).square().mean()
            loss.backward()
            optimiser.step()
            optimiser.clear_grad()
            told.append(float(loss))
    return told


@loop(r"[Ss]tep 17", r"NaN|finite", status=1)
def target_below_nought_under_a_logarithm_in_paddle(folder: Path) -> Any:
    """The targets of step 17 are below 0, and their logarithm NaN: so are the loss, every gradient, and from there on
    every parameter."""
    return _paddle_loop(folder, 17)


@loop()
def logarithms_in_paddle(folder: Path) -> Any:
    """The same loop without that batch."""
    return _paddle_loop(folder, -1)


if __name__ == "__main__":
    fifteenth_others.main(CASES, LOOPS)
