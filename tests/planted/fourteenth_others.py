"""A fourteenth batch of Paddle, GGUF files and transformers, and six training loops that are recorded; written and
labelled before any of it was compared.

    python tests/planted/fourteenth_others.py

measures the labels without the tool: Paddle's cases in numpy's float64 (bfloat16 by rounding there), folders of
transformers in torch's float64, GGUF files by a Llama written out in float64, loops by what their own numbers were.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from planted.eleventh_torch import layer
from planted.paddle_faults import TOKENS, _feeds, _linears, _written
from planted.twelfth.case import DIFFER, Thread, labelled

CASES: list[Thread] = []
Array = np.ndarray[Any, Any]
TRUTHS: dict[str, Callable[[], tuple[Array, Array]]] = {}
"""What the baseline and the target give, in float64."""
# After the first run: a case of onednn_int8 was the batch's own fault (Paddle wants a program with scales) and is gone.
LOST = "coarse cancellation cancels amplified drift long_reduction"

# --- Paddle


def program(
    kind: str, mode: str, who: str = "", why: str = "", *, parts: Any, base: Any = None, base_parts: Any = None,
    change: Any = None, scale: float = 1.0, **more: Any,
) -> Callable[[Any], Any]:  # fmt: skip
    """A forward of (net, x); base: the baseline's, where there are two files, with its own parts or the same."""

    def register(forward: Any) -> Any:
        def make(folder: Path) -> tuple[Path, Path | None, Any]:
            first = _written(folder, "base", base_parts or parts, base, TOKENS, None) if base else None
            return _written(folder, forward.__name__, parts, forward, TOKENS, change), first, _feeds(TOKENS, scale)

        known = "cpu_fp32" if base else ""
        CASES.append(labelled(forward, "", kind, mode, who, why, make=make, baseline=known, **more))
        return forward

    return register


def _dropped(nn: Any, **more: Any) -> dict[str, Any]:
    return {"a": nn.Linear(32, 32), "drop": nn.Dropout(0.3, **more), "b": nn.Linear(32, 8)}


def kept_as_it_is(net: Any, x: Any) -> Any:
    return net.b(net.drop(net.a(x)))


@program("port", "cpu_fp32", "dropout_0@Dropout scale_0@Dropout scale_0 multiply_0@Dropout multiply_0 add_0@Linear",
         f"{DIFFER} unfound", parts=lambda nn: _dropped(nn, mode="downscale_in_infer"), base_parts=_dropped,
         base=kept_as_it_is, extra="matmul_1@Linear_1 matmul_1@Linear dropout_0@Dropout")  # fmt: skip
def dropout_that_scales_when_it_is_off(net: Any, x: Any) -> Any:
    """Paddle's older dropout (downscale_in_infer) multiplies by 0.7 in inference, the other file's by 1."""
    return net.b(net.drop(net.a(x)))


def gates_of_a_sixth(net: Any, x: Any) -> Any:
    import paddle

    return net.b(paddle.nn.functional.hardsigmoid(net.a(x) * 3.0))


@program("port", "cpu_fp32", "hardsigmoid_0 hardsigmoid_0@Hardsigmoid hardsigmoid hard_sigmoid_0", DIFFER,
         parts=_linears("a", "b"), base=gates_of_a_sixth)  # fmt: skip
def gates_of_a_fifth(net: Any, x: Any) -> Any:
    """A hard sigmoid whose slope is a fifth, an older default, and not a sixth."""
    import paddle

    return net.b(paddle.nn.functional.hardsigmoid(net.a(x) * 3.0, slope=0.2))


def _turned(weights: Any) -> None:
    weights["b.weight"] = np.ascontiguousarray(weights["b.weight"].T)


def three_square_layers(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.tanh(net.b(paddle.tanh(net.a(x)))))


@program("port", "cpu_fp32", "matmul_1@Linear_1 matmul_1@Linear add_1@Linear_1 add_1@Linear", "files_differ",
         parts=_linears("a", "b", "c"), base=three_square_layers, change=_turned)  # fmt: skip
def square_layer_that_was_not_turned(net: Any, x: Any) -> Any:
    """torch's weights are Paddle's transposed, which a square one of three layers was not."""
    import paddle

    return net.c(paddle.tanh(net.b(paddle.tanh(net.a(x)))))


_APART = "matmul_1 multiply_0 add_1 subtract_0 subtract add_2 add_3 matmul_1@Linear sum_0 add_0@Linear scale_0 scale_1"


@program("cancellation", "onednn_bf16", _APART, LOST, parts=_linears("a", "b"), extra=_APART + " multiply_1 add_0",
         offered=None)  # fmt: skip
def distances_of_points_far_from_nought(net: Any, x: Any) -> Any:
    """|a|^2 + |b|^2 - 2ab of points moved by 20 in each of 32 dimensions: 12800 less 12800, of which 60 is left."""
    import paddle

    y = paddle.add(net.a(x), paddle.full([32], 20.0, "float32"))
    square = paddle.sum(paddle.multiply(y, y), axis=-1, keepdim=True)
    product = paddle.matmul(y, y, transpose_y=True)
    far = paddle.add(paddle.add(square, paddle.transpose(square, [0, 2, 1])), paddle.multiply(
        product, paddle.full([1], -2.0, "float32")))  # fmt: skip
    return paddle.exp(paddle.multiply(far, paddle.full([1], -0.05, "float32")))


@program("healthy", "onednn_bf16", parts=lambda nn: {"a": nn.Linear(32, 64), "n": nn.LayerNorm(64),
                                                     "b": nn.Linear(64, 64), "c": nn.Linear(64, 8)})  # fmt: skip
def classes_of_a_gated_layer(net: Any, x: Any) -> Any:
    """A norm, a gate and a softmax over eight classes."""
    import paddle

    y = net.n(net.a(x))
    return paddle.nn.functional.softmax(net.c(paddle.multiply(y, paddle.nn.functional.silu(net.b(y)))), axis=-1)


def norm_behind_a_layer(net: Any, x: Any) -> Any:
    return net.b(net.n(net.a(x)))


def _with_norm(nn: Any) -> dict[str, Any]:
    return {"a": nn.Linear(32, 16), "n": nn.LayerNorm(16, epsilon=1e-5), "b": nn.Linear(16, 4)}


@program("healthy", "cpu_fp32", parts=_with_norm, base=norm_behind_a_layer)
def norm_taken_apart(net: Any, x: Any) -> Any:
    """The layer norm is written out: mean, variance, root."""
    import paddle

    y = net.a(x)
    y = y - paddle.mean(y, axis=-1, keepdim=True)
    y = y / paddle.sqrt(paddle.mean(y * y, axis=-1, keepdim=True) + 1e-5)
    return net.b(y * net.n.weight + net.n.bias)


# --- GGUF files and folders of transformers


def written(group: str, who: str = "", why: str = "", mode: str = "gguf_cpu", key: str = "", **how: Any) -> Any:
    """A Llama of examples/gguf beside the same, with weights edited by the function."""

    def register(edit: Any) -> Any:
        def make(folder: Path) -> tuple[Path, Path, dict[str, Array]]:
            import gguf_files

            values = {name: one.copy() for name, one in gguf_files.weights().items()}
            edit(values)
            base = gguf_files.write(folder / "F32.gguf")
            return gguf_files.write(folder / f"{edit.__name__}.gguf", values=values, **how), base, {
                "input_ids": gguf_files.ids()}  # fmt: skip

        CASES.append(labelled(edit, "", group, mode, who, why, make=make, baseline="gguf_fp32",
                              facts=[key] if key else []))  # fmt: skip

        def truth() -> tuple[Array, Array]:
            import gguf_files

            values = {name: one.copy() for name, one in gguf_files.weights().items()}
            first = llama(values, gguf_files.ids()[0], 1e-5)
            edit(values)
            return first, llama(values, gguf_files.ids()[0], how.get("eps", 1e-5))

        TRUTHS[edit.__name__] = truth
        return edit

    return register


def llama(w: Mapping[str, Array], ids: Array, eps: float) -> Array:
    """Llama in float64, of llama.cpp's weights."""
    w = {name: one.astype(np.float64) for name, one in w.items()}
    x, count = w["token_embd.weight"][ids], len(ids)

    def norm(x: Array, gain: Array) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain

    angle = np.arange(count)[:, None] * 10000.0 ** (-np.arange(0, 16, 2) / 16)

    def turned(x: Array) -> Array:
        a, b, c, s = x[..., ::2], x[..., 1::2], np.cos(angle)[:, None], np.sin(angle)[:, None]
        return np.stack([a * c - b * s, b * c + a * s], -1).reshape(x.shape)

    for n in range(2):
        f = f"blk.{n}."
        h = norm(x, w[f + "attn_norm.weight"])
        q, k, v = ((h @ w[f"{f}attn_{one}.weight"].T).reshape(count, -1, 16) for one in "qkv")
        q, k = turned(q), turned(k)
        score = np.einsum("qhd,khd->hqk", q, np.repeat(k, 2, 1)) / 4 + np.triu(np.full((count, count), -np.inf), 1)
        share = np.exp(score - score.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", share, np.repeat(v, 2, 1)).reshape(count, -1) @ w[f + "attn_output.weight"].T
        h = norm(x, w[f + "ffn_norm.weight"])
        gate = h @ w[f + "ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f + "ffn_up.weight"].T)) @ w[f + "ffn_down.weight"].T
    return norm(x, w["output_norm.weight"]) @ w["output.weight"].T


@written("language", "Kcur-0", "files_differ", key=r"blk\.0\.attn_k\.weight")
def heads_of_the_keys_exchanged(w: dict[str, Array]) -> None:
    """Of the first layer the two heads of the keys are exchanged, those of the values are not."""
    one = w["blk.0.attn_k.weight"]
    w["blk.0.attn_k.weight"] = np.concatenate([one[16:], one[:16]])


@written("language", "attn_out-1 kqv_out-1 attn_output-1 l_out-1 node_0 ffn_inp-1", "files_differ",
         key=r"blk\.1\.attn_output\.weight")  # fmt: skip
def projection_behind_attention_turned(w: dict[str, Array]) -> None:
    """The square matrix behind the second layer's attention is transposed."""
    w["blk.1.attn_output.weight"] = np.ascontiguousarray(w["blk.1.attn_output.weight"].T)


@written("healthy", eps=1e-6)
def epsilon_of_a_millionth(w: dict[str, Array]) -> None:
    """The file has an epsilon of 1e-6 in place of 1e-5: beside numbers of 1 it moves the logits by 5e-6."""


@written("healthy", kind="Q8_0")
def file_in_eight_bits(w: dict[str, Array]) -> None:
    """The same weights in blocks of eight bits: as far off as these are."""


def folder_of(
    kind: str, who: str = "", why: str = "", *, model: str = "qwen2", mode: str = "torch_fp32", how: str = "",
    **more: Any,
) -> Any:
    """A folder of transformers beside a copy whose weights the function edits; how: the target's attention."""

    def register(edit: Any) -> Any:
        def make(folder: Path) -> tuple[str, str, dict[str, Array]]:
            import shutil

            from safetensors.numpy import load_file, save_file

            from planted import configured
            from planted.language import CASES as _  # noqa: F401  its architectures

            base = configured.build(folder / "trainer", model)
            target = Path(shutil.copytree(base, folder / "served"))
            weights = {name: one.copy() for name, one in load_file(target / "model.safetensors").items()}
            edit(weights)
            save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
            for name, where, chosen in (("base", base, ""), ("model", target, how)):
                asked = f", attn_implementation={chosen!r}" if chosen else ""
                (folder / f"{name}.py").write_text(
                    "import torch, transformers\n\n\ndef build():\n    return transformers.AutoModelForCausalLM."
                    f"from_pretrained({str(where)!r}, torch_dtype=torch.float32{asked}).eval()\n"
                )
            return f"{folder / 'model.py'}:build", f"{folder / 'base.py'}:build", configured.IDS

        def truth() -> tuple[Array, Array]:
            import torch
            import transformers

            with tempfile.TemporaryDirectory() as name, torch.no_grad():
                ids = torch.tensor(make(Path(name))[2]["input_ids"])
                load = transformers.AutoModelForCausalLM.from_pretrained
                return tuple(load(Path(name) / one).double().eval()(ids).logits.numpy()
                             for one in ("trainer", "served"))  # type: ignore[return-value]  # fmt: skip

        CASES.append(labelled(edit, "", kind, mode, who, why, make=make, baseline="torch_fp32", **more))
        TRUTHS[edit.__name__] = truth
        return edit

    return register


def _moved(at: str) -> str:
    """Rows of a layer's first operators."""
    return layer(*(f"model.layers.{at}{part}" for part in (
        ".input_layernorm", ".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj", ".mlp.gate_proj",
        ".self_attn.o_proj", ".mlp.up_proj", ".mlp.down_proj"))) + "".join(
        f" model.layers.{at}.{norm}_layernorm/mul#2" for norm in ("input", "post_attention"))  # fmt: skip


@folder_of("language", _moved("0"), "files_differ", extra=_moved("0") + " " + _moved("1"))
def layers_in_the_other_order(w: dict[str, Array]) -> None:
    """A converter sorted the layers' names as text: here the first and the second are exchanged."""
    for name in [one for one in w if ".layers.0." in one]:
        other = name.replace(".layers.0.", ".layers.1.")
        w[name], w[other] = w[other], w[name]


@folder_of("language", layer("model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"), "files_differ",
           extra=layer("model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"))  # fmt: skip
def adapter_merged_twice(w: dict[str, Array]) -> None:
    """A low-rank adapter of the second layer's queries and values is added once in the trainer, and twice here."""
    made = np.random.default_rng(5)
    for one in ("q", "v"):
        weight = w[f"model.layers.1.self_attn.{one}_proj.weight"]
        weight += (0.5 * made.normal(size=(len(weight), 4)) @ made.normal(size=(4, 64)) / 8).astype(np.float32)


@folder_of("language", "model.embed_tokens/embedding model.embed_tokens", "files_differ")
def words_shifted_by_one(w: dict[str, Array]) -> None:
    """A word was put in front of the vocabulary: each row of the table is the one of the word before."""
    w["model.embed_tokens.weight"] = np.roll(w["model.embed_tokens.weight"], 1, 0)


@folder_of("healthy", model="mistral", how="eager")
def attention_that_is_written_out(w: dict[str, Array]) -> None:
    """The same folder with attention written out and not fused: another order of sums."""


@folder_of("healthy", model="llama", mode="torch_bf16")
def folder_in_bfloat16(w: dict[str, Array]) -> None:
    """The trainer in float32, the same weights in bfloat16."""


# --- loops that are recorded


@dataclass(frozen=True, kw_only=True)
class Loop:
    """run(folder): a loop under ``precision_debug.training``. words: patterns that the verb's text must match; () where
    nothing may be found. status: what it ends with."""

    name: str
    run: Callable[[Path], Any]
    words: tuple[str, ...] = ()
    status: int = 0
    truth: str = ""


LOOPS: list[Loop] = []


def loop(*words: str, status: int = 0, loops: list[Loop] = LOOPS) -> Callable[[Any], Any]:
    """words: what the verb's text must match; none: it may find nothing. loops: of which batch."""

    def register(run: Any) -> Any:
        truth = " ".join(run.__doc__.split())
        loops.append(Loop(name=run.__name__, run=run, words=words, status=status, truth=truth))
        return run

    return register


def _trained(folder: Path, make: Any, each: Any = None, times: Any = None, scale: float = 0.0, of: Any = None) -> Any:
    """40 steps of a small net on batches of 32. each(step, net, optimiser) is called before a step, and says whether
    gradients are set back; times(step) multiplies the batch. Returns the loss of each step."""
    import torch
    from torch import nn

    import precision_debug

    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 4)) if of is None else of
    optimiser = make(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=bool(scale))
    told, drawn = [], torch.Generator().manual_seed(8)
    with precision_debug.training(net, optimiser, record=folder, every=1, scaler=scaler if scale else None):
        for step in range(40):
            kept = each is not None and each(step, net, optimiser)
            x = torch.randn(32, 8, generator=drawn)
            y = (x[:, :4] + 0.3 * x[:, 4:]).argmax(1)
            with torch.autocast("cpu", torch.float16, enabled=bool(scale)):
                out = net(x * (times(step) if times else 1.0))
            loss = nn.functional.cross_entropy(out.float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            if not kept:
                optimiser.zero_grad()
            told.append(loss.item())
    return told


def _sgd(rate: float = 0.1, momentum: float = 0.0) -> Any:
    import torch

    return lambda net: torch.optim.SGD(net.parameters(), lr=rate, momentum=momentum)


@loop(r"[Ss]tep (23|24)", status=1)
def batch_in_other_units(folder: Path) -> Any:
    """The batch of step 23 is a thousand times as large: its gradients, and the loss of it, leave their band."""
    from torch import nn

    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    return _trained(folder, _sgd(0.05), times=lambda step: 1000.0 if step == 23 else 1.0, of=net)


# Labelled status 1 at first; a head alone may be meant to be trained, or all but it, so that this is told and no fault.
@loop(r"`?3\.(weight|bias)")
def layer_that_the_optimiser_was_not_given(folder: Path) -> Any:
    """The last layer's parameters have gradients and never move: the optimiser was made of the first three."""
    import torch

    return _trained(folder, lambda net: torch.optim.SGD(net[:3].parameters(), lr=0.1))


@loop(r"[Ss]tep (1[5-9]|2[0-2])", status=1)
def gradients_that_are_no_longer_set_back(folder: Path) -> Any:
    """From step 15 on zero_grad is left out: gradients add up, and their size grows with each step."""
    return _trained(folder, _sgd(0.05), lambda step, net, optimiser: step >= 15)


@loop()
def rate_that_falls_at_milestones(folder: Path) -> Any:
    """The rate is a tenth from step 20 and a hundredth from step 30 on, as planned by MultiStepLR."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 0.1 * 0.1 ** ((step >= 20) + (step >= 30))

    return _trained(folder, _sgd(), each)


@loop()
def layer_that_is_frozen_at_first(folder: Path) -> Any:
    """The first layer is frozen for 15 steps and trained afterwards: gradual unfreezing."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        net[0].requires_grad_(step >= 15)

    return _trained(folder, _sgd(), each)


@loop()
def scale_that_finds_its_size(folder: Path) -> Any:
    """Under autocast in float16 the first scale of 2^24 is too large: the scaler leaves out steps and halves it."""
    return _trained(folder, _sgd(), scale=2.0**24)


# --- what is so, without the tool


def _bfloat16(x: Array) -> Array:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def _paddle_weights(case: Thread, folder: Path) -> tuple[Any, Any]:
    """Both files' weights, by the layers' names, and the input: what ``_written`` makes of the seed."""
    found: list[dict[str, Array]] = []
    import planted.paddle_faults as made

    plain = made._written

    def kept(folder: Path, name: str, parts: Any, forward: Any, shape: Any, change: Any) -> Path:
        def changed(weights: dict[str, Array]) -> None:
            if change is not None:
                change(weights)
            found.append({key: one.astype(np.float64) for key, one in weights.items()})

        return plain(folder, name, parts, forward, shape, changed)

    globals()["_written"] = kept
    try:
        x = case.make(folder)[2]["x"].astype(np.float64)  # type: ignore[index]
    finally:
        globals()["_written"] = plain
    return found, x


def _paddle(case: Thread, folder: Path) -> tuple[Array, Array]:
    found, x = _paddle_weights(case, folder)
    low = _bfloat16 if case.mode == "onednn_bf16" else (lambda y: y)

    def dense(w: Any, name: str, y: Array, cut: Any = lambda y: y) -> Array:
        return cut(cut(cut(y) @ cut(w[f"{name}.weight"])) + w[f"{name}.bias"])

    def norm(w: Any, y: Array) -> Array:
        y = y - y.mean(-1, keepdims=True)
        return y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * w["n.weight"] + w["n.bias"]

    first, last = found[0], found[-1]
    if case.name == "dropout_that_scales_when_it_is_off":
        return dense(first, "b", dense(first, "a", x)), dense(last, "b", 0.7 * dense(last, "a", x))
    if case.name == "gates_of_a_fifth":
        y = 3 * dense(first, "a", x)
        return tuple(dense(first, "b", np.clip(y * s + 0.5, 0, 1)) for s in (1 / 6, 0.2))  # type: ignore[return-value]
    if case.name == "square_layer_that_was_not_turned":
        return tuple(dense(w, "c", np.tanh(dense(w, "b", np.tanh(dense(w, "a", x))))) for w in (first, last))  # type: ignore[return-value]
    if case.name == "distances_of_points_far_from_nought":

        def near(cut: Any) -> Array:
            y = cut(dense(first, "a", x, cut) + 20)
            square = (cut(y * y)).sum(-1, keepdims=True)
            product = cut(y @ y.swapaxes(1, 2))
            return np.exp(-0.05 * cut(cut(square + square.swapaxes(1, 2)) - 2 * product))

        return near(lambda y: y), near(low)
    if case.name == "classes_of_a_gated_layer":

        def shares(cut: Any) -> Array:
            y = cut(norm(first, dense(first, "a", x, cut)))
            gate = dense(first, "b", y, cut)
            y = dense(first, "c", cut(y * cut(gate / (1 + np.exp(-gate)))), cut)
            y = np.exp(y - y.max(-1, keepdims=True))
            return y / y.sum(-1, keepdims=True)

        return shares(lambda y: y), shares(low)
    y = norm(first, dense(first, "a", x))
    return dense(first, "b", y), dense(last, "b", norm(last, dense(last, "a", x)))


def main() -> None:
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            base, target = TRUTHS[case.name]() if case.name in TRUTHS else _paddle(case, Path(folder))
        print(f"{case.name} ({case.mode}): {np.linalg.norm(target - base) / np.linalg.norm(base):.3g}", flush=True)
    for one in LOOPS:
        with tempfile.TemporaryDirectory() as folder:
            losses: Any = one.run(Path(folder))
        print(one.name, *(f"{loss:.3g}" for loss in losses[::3]), f"at 22 to 25: {losses[22:26]}", flush=True)


if __name__ == "__main__":
    main()
