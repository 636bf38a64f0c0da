"""A fifteenth batch of language models in folders and GGUF files, of Paddle, and of training loops that are recorded;
written and labelled before any of it was compared.

    python tests/planted/fifteenth_others.py [WORD …]

measures the labels without the tool: folders of transformers in torch's float64, GGUF files by a Llama written out in
float64, Paddle's cases in numpy's, loops by what their own numbers were.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from planted import fourteenth_others
from planted.eleventh_torch import layer
from planted.fourteenth_others import Loop, _sgd, _trained, llama
from planted.paddle_faults import IMAGE, TOKENS, _feeds, _linears, _written
from planted.twelfth.case import COARSE, DIFFER, Thread, labelled

# After the first run: rows' names that a label cannot know; a second overflow behind stream_beyond_the_type's; and
# attention_written_out_in_bfloat16 is no healthy case: transformers' sdpa leaves a softcap out that eager reads (0.116
# in float64), and the measure of its label had loaded both alike. rows_of_padding_behind_the_words ends with 0: what is
# padding by a constant is left out of the output, and said.
CASES: list[Thread] = []
Array = np.ndarray[Any, Any]
Weights = dict[str, Array]
TRUTHS: dict[str, Callable[[], tuple[Array, Array]]] = {}
"""What the baseline and the target give, in float64."""

# --- folders of transformers


def _nothing(_: Weights) -> None:
    pass


def folder_of(
    thread: str, kind: str, who: str = "", why: str = "", *, model: str = "qwen2", mode: str = "torch_fp32",
    how: str = "", both: Callable[[Weights], None] = _nothing, alone: bool = False, config: Mapping[str, Any] | None =
    None, cases: list[Thread] = CASES, **more: Any,
) -> Any:  # fmt: skip
    """A folder of transformers beside a copy whose weights the function edits. both: edits those of either. alone: one
    folder, whose own float32 is the baseline. how: the target's attention; config: what its configuration is given."""

    def register(edit: Any) -> Any:
        def make(folder: Path) -> tuple[str, str | None, dict[str, Array]]:
            from safetensors.numpy import load_file, save_file

            from planted import configured
            from planted.language import CASES as _  # noqa: F401  its architectures

            base = configured.build(folder / "trainer", model)
            _change(base, both, load_file, save_file)
            target = Path(shutil.copytree(base, folder / "served"))
            _change(target, edit, load_file, save_file)
            if config:
                import json

                file = target / "config.json"
                file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
            for name, where, chosen in (("base", base, ""), ("model", target, how)):
                asked = f", attn_implementation={chosen!r}" if chosen else ""
                (folder / f"{name}.py").write_text(
                    "import torch, transformers\n\n\ndef build():\n    torch.manual_seed(0)\n"
                    "    return transformers.AutoModelForCausalLM."
                    f"from_pretrained({str(where)!r}, torch_dtype=torch.float32{asked}).eval()\n"
                )
            return f"{folder / 'model.py'}:build", None if alone else f"{folder / 'base.py'}:build", configured.IDS

        def truth() -> tuple[Array, Array]:
            import torch
            import transformers

            with tempfile.TemporaryDirectory() as name, torch.no_grad():
                ids = torch.tensor(make(Path(name))[2]["input_ids"])
                load = transformers.AutoModelForCausalLM.from_pretrained
                low = {"torch_fp16": torch.float16, "torch_bf16": torch.bfloat16}.get(mode, torch.float64)
                found = []
                for one, kind in (("trainer", torch.float64), ("served", low)):
                    torch.manual_seed(0)
                    found.append(load(Path(name) / one).to(kind).eval()(ids).logits.double().numpy())
            return found[0], found[1][..., : found[0].shape[-1]]

        known = "" if alone else "torch_fp32"
        cases.append(labelled(edit, thread, kind, mode, who, why, make=make, baseline=known, **more))
        TRUTHS[edit.__name__] = truth
        return edit

    return register


def _change(folder: Path, edit: Callable[[Weights], None], load: Any, save: Any) -> None:
    weights = {name: one.copy() for name, one in load(folder / "model.safetensors").items()}
    edit(weights)
    save({name: np.ascontiguousarray(one) for name, one in weights.items()}, folder / "model.safetensors",
         metadata={"format": "pt"})  # fmt: skip


def _rows(at: str, *parts: str) -> str:
    return layer(*(f"model.layers.{at}.{part}" for part in parts))


_QK = _rows("0", "self_attn.q_proj", "self_attn.k_proj")


@folder_of("meta-pytorch/gpt-fast#190", "language", _QK, "files_differ", model="llama",
           extra=_QK + " " + _rows("1", "self_attn.q_proj", "self_attn.k_proj"), facts=[r"order|permut|exchang|axis 0"])
def rotary_pairs_that_were_not_permuted(w: Weights) -> None:
    """Queries' and keys' rows are in the order of the original checkpoint, pairs side by side, in both layers; this
    model turns halves. The rotation itself is right."""
    for name in [one for one in w if one.endswith(("q_proj.weight", "k_proj.weight"))]:
        rows, columns = w[name].shape
        w[name] = w[name].reshape(rows // 16, 2, 8, columns).transpose(0, 2, 1, 3).reshape(rows, columns)



def _as_table(w: Weights) -> None:
    w["lm_head.weight"] = w["model.embed_tokens.weight"].copy()


@folder_of("newly initialized: lm_head.weight", "language", layer("lm_head"), "files_differ", both=_as_table,
           facts=[r"lm_head\.weight"])  # fmt: skip
def head_that_was_left_to_chance(w: Weights) -> None:
    """The head was tied and is not in the file; the served configuration does not tie it: it is drawn anew."""
    del w["lm_head.weight"]


_GAINS = " ".join(f"model.layers.0.input_layernorm{part}" for part in (
    "", "/mul", "/mul#1", "/mul#2", "/add", "/add#1", "/add#2", "/type_as"))  # fmt: skip


def _norms(*layers: str) -> str:
    return " ".join(f"model.layers.{at}.{one}_layernorm{part}" for at in layers for one in (
        "input", "post_attention", "pre_feedforward", "post_feedforward") for part in (
            "", "/mul", "/mul#1", "/mul#2", "/add", "/add#1", "/add#2", "/type_as"))  # fmt: skip


@folder_of("Gemma's norms are counted from 0", "language", _GAINS, "files_differ", model="gemma2",
           extra=_norms("0", "1") + " model.norm model.norm/mul#1 model.norm/add#1 model.norm/add#2",
           facts=[r"input_layernorm\.weight"])  # fmt: skip
def gains_that_are_counted_from_one(w: Weights) -> None:
    """This architecture adds 1 to its norms' gains; the file has them with the 1, in all nine norms."""
    for name in [one for one in w if "norm" in one]:
        w[name] = w[name] + 1


def _experts(w: Weights, router: bool) -> None:
    for number in range(2):
        front = f"model.layers.{number}.block_sparse_moe."
        for part in ("w1", "w2", "w3"):
            one, other = (f"{front}experts.{at}.{part}.weight" for at in (0, 2))
            w[one], w[other] = w[other], w[one]
        if router:
            w[f"{front}gate.weight"] = w[f"{front}gate.weight"][[2, 1, 0, 3]]


@folder_of("experts sorted by another key", "healthy", model="mixtral")
def experts_in_another_order(w: Weights) -> None:
    """The first and third experts are exchanged in both layers, and so are the router's rows: nothing is wrong, and
    every weight of the experts differs."""
    _experts(w, True)


_MOE = " ".join(f"model.layers.0.block_sparse_moe.experts.{at}.{part}{end}" for at in (0, 2) for part in (
    "w1", "w2", "w3") for end in ("", "/linear", "/addmm", "/mm"))  # fmt: skip


@folder_of("experts sorted by another key", "language", _MOE, "files_differ", model="mixtral",
           extra=f"{_MOE} {_MOE.replace('layers.0', 'layers.1')}", facts=[r"experts\.[02].*experts\.[02]"])  # fmt: skip
def experts_without_their_router(w: Weights) -> None:
    """The first and third experts are exchanged in both layers, the router's rows are not."""
    _experts(w, False)


_MLP = _rows("1", "self_attn.v_proj")


@folder_of("structured pruning", "language", _MLP, "files_differ", extra=_MLP, facts=[r"layers\.1\.self_attn\.v_proj"])
def inner_units_in_another_order_beside_stale_values(w: Weights) -> None:
    """The inner units of both layers are in another order, consistently; the second layer's values are 5 % off."""
    drawn = np.random.default_rng(6)
    for number in range(2):
        front, order = f"model.layers.{number}.mlp.", drawn.permutation(96)
        for part in ("gate", "up"):
            w[f"{front}{part}_proj.weight"] = w[f"{front}{part}_proj.weight"][order]
        w[f"{front}down_proj.weight"] = w[f"{front}down_proj.weight"][:, order]
    one = w["model.layers.1.self_attn.v_proj.weight"]
    one *= (1 + 0.05 * drawn.normal(size=one.shape)).astype(np.float32)


@folder_of("resize_token_embeddings(pad_to_multiple_of)", "healthy", config={"vocab_size": 104})
def rows_of_padding_behind_the_words(w: Weights) -> None:
    """Eight rows of 0 were added to the vocabulary for the kernels' sake: logits of another width, the first 96 equal.
    That any operator computes something else is false."""
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        w[name] = np.concatenate([w[name], np.zeros((8, 64), np.float32)])


def _massive(w: Weights) -> None:
    """One channel of the residual stream of 2e5, as models trained in bfloat16 have it."""
    w["model.layers.0.mlp.down_proj.weight"][7] *= 3e4
    for name in ("model.layers.1.input_layernorm.weight", "model.layers.1.post_attention_layernorm.weight",
                 "model.norm.weight"):  # fmt: skip
        w[name][[n for n in range(64) if n != 7]] *= 1e4
        w[name][7] *= 0.1


_DOWN = _rows("0", "mlp.down_proj") + " model.layers.0/add#1 model.layers.0/add"


@folder_of("bfloat16 in half", "overflow", _DOWN, "overflow weight_overflow", mode="torch_fp16", both=_massive,
           alone=True, fix=False, extra=_DOWN + " " + _DOWN.replace("layers.0", "layers.1") + " model.layers.1.mlp/mul"
           " model.layers.1/add#2 model.layers.1/add")  # fmt: skip
def stream_beyond_the_type(w: Weights) -> None:
    """The same folder in float16: one channel of the first layer's down projection is beyond 65504."""


_SOFT = " ".join(f"model.layers.0.self_attn/{one}" for one in ("view#4", "mul#2", "div", "tanh", "matmul", "softmax"))


@folder_of("eager and sdpa", "language", _SOFT, f"{DIFFER} unfound", model="gemma2", how="eager", mode="torch_bf16",
           extra=f"{_SOFT} {_SOFT.replace('layers.0', 'layers.1')}", fix=False)  # fmt: skip
def attention_written_out_in_bfloat16(w: Weights) -> None:
    """Attention written out, which reads the configuration's softcap, in bfloat16 beside the trainer's kernel, which
    leaves it out, in float32. That the type is too coarse is false."""


# --- GGUF files


def gguf(
    thread: str, kind: str, who: str = "", why: str = "", *, both: Callable[[Weights], None] = _nothing,
    cases: list[Thread] = CASES, **more: Any,
) -> Any:  # fmt: skip
    """A Llama of examples/gguf in F32 beside the file that the function's keywords (a type) or edits make of it."""
    how = {key: more.pop(key) for key in ("eps", "theta", "scale") if key in more}
    type_of = more.pop("type_of", "F32")

    def register(edit: Any) -> Any:
        def values(changed: bool) -> Weights:
            import gguf_files

            found = {name: one.copy() for name, one in gguf_files.weights().items()}
            both(found)
            if changed:
                edit(found)
            return found

        def make(folder: Path) -> tuple[Path, Path, Weights]:
            import gguf_files

            base = gguf_files.write(folder / "F32.gguf", values=values(False))
            made = gguf_files.write(folder / f"{edit.__name__}.gguf", type_of, values=values(True), **how)
            return made, base, {"input_ids": gguf_files.ids()}

        def truth() -> tuple[Array, Array]:
            import gguf_files

            first, last = values(False), values(True)
            if type_of == "F16":
                last = {name: one.astype(np.float16).astype(np.float32) for name, one in last.items()}
            if type_of == "Q4_0":
                last = {name: _four_bits(one) if one.ndim > 1 else one for name, one in last.items()}
            return llama(first, gguf_files.ids()[0], 1e-5), llama(last, gguf_files.ids()[0], how.get("eps", 1e-5))

        cases.append(labelled(edit, thread, kind, "gguf_cpu", who, why, make=make, baseline="gguf_fp32", **more))
        TRUTHS[edit.__name__] = truth
        return edit

    return register


def _four_bits(one: Array) -> Array:
    """Q4_0: blocks of 32, the largest is -8."""
    blocks = one.reshape(-1, 32)
    top = blocks[np.arange(len(blocks)), np.abs(blocks).argmax(1)][:, None]
    size = (top / -8).astype(np.float16).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.where(size == 0, 0, np.floor(np.clip(blocks / size + 8.5, 0, 15)))
    return ((whole - 8) * size).reshape(one.shape)


@gguf("gate and up", "language", "ffn_gate-0 ffn_up-0", "files_differ", extra="ffn_gate-0 ffn_up-0",
      facts=[r"ffn_(gate|up).*ffn_(gate|up)"])  # fmt: skip
def gate_and_up_exchanged(w: Weights) -> None:
    """The first layer's gate and up matrices are exchanged."""
    w["blk.0.ffn_gate.weight"], w["blk.0.ffn_up.weight"] = w["blk.0.ffn_up.weight"], w["blk.0.ffn_gate.weight"]


@gguf("llama.cpp#17980", "language", "Kcur-0 Kcur-1", "files_differ", extra="Kcur-0 Kcur-1", facts=[r"attn_k\.weight"])
def keys_of_both_layers_exchanged(w: Weights) -> None:
    """The keys' matrices of the two layers are exchanged, all else is as it was."""
    w["blk.0.attn_k.weight"], w["blk.1.attn_k.weight"] = w["blk.1.attn_k.weight"], w["blk.0.attn_k.weight"]


@gguf("F16 files", "healthy", type_of="F16")
def file_in_half(w: Weights) -> None:
    """The same weights in F16: as far off as these are."""


def _loud(w: Weights) -> None:
    """In each block of 32 of a matrix one weight that is 40 times the others, of inner units that are all but 0."""
    w["blk.1.ffn_down.weight"][:, ::32] *= 40
    w["blk.1.ffn_up.weight"][::32] *= 1e-3


_BLOCK = "ffn_out-1 ffn_down-1 l_out-1"


@gguf("Q4_0 and outliers", "gguf", _BLOCK, f"{COARSE} few_bits held_narrower files_differ packed", both=_loud,
      type_of="Q4_0", extra=_BLOCK + " ffn_up-1 ffn_gate-1", facts=[r"blk\.1\.ffn_down|ffn_(out|down)-1"])  # fmt: skip
def weight_that_takes_its_block(w: Weights) -> None:
    """In Q4_0 one weight of each block takes its range, and the other 31 of the second layer's down projection are 0.
    Of the file's other matrices none has an outlier."""


# --- Paddle


def program(
    thread: str, kind: str, mode: str, who: str = "", why: str = "", *, parts: Any, base: Any = None,
    base_parts: Any = None, change: Any = None, shape: Any = TOKENS, training: bool = False,
    cases: list[Thread] = CASES, **more: Any,
) -> Callable[[Any], Any]:  # fmt: skip
    """A forward of (net, x); base: the baseline's, where there are two files. training: the target was saved before
    eval()."""

    def register(forward: Any) -> Any:
        def make(folder: Path) -> tuple[Path, Path | None, Any]:
            first = _written(folder, "base", base_parts or parts, base, shape, None) if base else None
            with _left_in_training(training):
                made = _written(folder, forward.__name__, parts, forward, shape, change)
            return made, first, _feeds(shape)

        known = "cpu_fp32" if base else ""
        cases.append(labelled(forward, thread, kind, mode, who, why, make=make, baseline=known, **more))
        return forward

    return register


class _left_in_training:
    """eval() does nothing in here, where it is asked for."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def __enter__(self) -> None:
        if self.on:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from paddle import nn

            self.known, nn.Layer.eval = nn.Layer.eval, lambda layer: layer.train()

    def __exit__(self, *_: Any) -> None:
        if self.on:
            from paddle import nn

            nn.Layer.eval = self.known


def three_layers_and_gelu(net: Any, x: Any) -> Any:
    import paddle

    gelu = paddle.nn.functional.gelu
    return net.c(gelu(net.b(gelu(net.a(x)))))


def _exchanged(weights: Weights) -> None:
    for part in ("weight", "bias"):
        weights[f"a.{part}"], weights[f"b.{part}"] = weights[f"b.{part}"], weights[f"a.{part}"]


_FIRST = "matmul_0@Linear add_0@Linear matmul_0@Linear_0 add_0@Linear_0 matmul_1@Linear_1 matmul_1@Linear " \
    "add_1@Linear_1 add_1@Linear"  # fmt: skip


@program("names of state", "port", "cpu_fp32", _FIRST, "files_differ", parts=_linears("a", "b", "c"),
         base=three_layers_and_gelu, change=_exchanged, extra=_FIRST, facts=[r"linear_0.*linear_1"])  # fmt: skip
def two_layers_exchanged(net: Any, x: Any) -> Any:
    """The first two layers of three are exchanged, weights and biases."""
    return three_layers_and_gelu(net, x)


@program("gelu(approximate)", "port", "cpu_fp32", "gelu_0 gelu_0@GELU gelu", DIFFER, parts=_linears("a", "b", "c"),
         base=three_layers_and_gelu, extra="gelu_0 gelu_1", facts=[r"approximate"])  # fmt: skip
def gelu_of_the_other_kind(net: Any, x: Any) -> Any:
    """Both GELUs are by tanh in one file and by erf in the other: off by 3e-4."""
    import paddle

    def gelu(y: Any) -> Any:
        return paddle.nn.functional.gelu(y, approximate=True)

    return net.c(gelu(net.b(gelu(net.a(x)))))


def _convs(nn: Any) -> dict[str, Any]:
    return {"a": nn.Conv2D(3, 8, 3, padding=1), "n": nn.BatchNorm2D(8), "b": nn.Conv2D(8, 8, 3, padding=1),
            "c": nn.Conv2D(8, 4, 1)}  # fmt: skip


def picture_with_a_norm(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.relu(net.n(net.a(x))))


@program("PaddlePaddle/Paddle#42917", "healthy", "cpu_fp32", parts=_convs, base=picture_with_a_norm, shape=IMAGE,
         training=True)  # fmt: skip
def saved_before_eval(net: Any, x: Any) -> Any:
    """The program was saved before eval(), which Paddle's export makes up for: its norm is by the running statistics.
    That it is by the batch's own would be false."""
    return picture_with_a_norm(net, x)


def _by_the_batch(nn: Any) -> dict[str, Any]:
    return {**_convs(nn), "n": nn.BatchNorm2D(8, use_global_stats=False)}


@program("use_global_stats", "port", "cpu_fp32", "batch_norm_0 batch_norm_0@BatchNorm2D batch_norm__0 "
         "batch_norm__0@BatchNorm2D", f"{DIFFER} unfound", parts=_by_the_batch, base_parts=_convs,
         base=picture_with_a_norm, shape=IMAGE, extra="batch_norm_0@BatchNorm2D batch_norm__0")  # fmt: skip
def norm_of_the_batch_at_hand(net: Any, x: Any) -> Any:
    """use_global_stats is false in one file alone: its norm is by the batch's own statistics."""
    return picture_with_a_norm(net, x)


def picture_enlarged(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.nn.functional.interpolate(net.a(x), scale_factor=2, mode="bilinear", align_corners=False)
    return net.c(y)


@program("align_corners", "port", "cpu_fp32", "bilinear_interp_0 bilinear_interp_v2_0 bilinear_interp", DIFFER,
         parts=_convs, base=picture_enlarged, shape=IMAGE, facts=[r"align_corners"])  # fmt: skip
def picture_enlarged_by_its_corners(net: Any, x: Any) -> Any:
    """align_corners is true in one file alone."""
    import paddle

    y = paddle.nn.functional.interpolate(net.a(x), scale_factor=2, mode="bilinear", align_corners=True)
    return net.c(y)


@program("every pass", "healthy", "cpu_opt", parts=_convs, shape=IMAGE)
def residual_of_two_convolutions(net: Any, x: Any) -> Any:
    """A convolution, a norm and a skip, which the passes fuse."""
    import paddle

    y = paddle.nn.functional.relu(net.n(net.a(x)))
    return net.c(paddle.nn.functional.relu(net.b(y) + y))


_DYNAMIC = """
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(32, 64), nn.LayerNorm(64), nn.Dropout(0.4), nn.Linear(64, 4)

    def forward(self, x):
        return self.b(self.drop(nn.functional.silu(self.norm(self.a(x)))))


def net():
    paddle.seed(5)
    made = Net()
    made.eval()
    return made, paddle.randn([2, 8, 32])
"""


def dynamic(thread: str, kind: str, who: str = "", why: str = "", **more: Any) -> Any:
    """A layer as it is beside the program that was saved of it; the function is given the layer before."""

    def register(edit: Any) -> Any:
        def make(folder: Path) -> tuple[str, str, Weights]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import paddle
            file = folder / "dynamic.py"
            file.write_text(_DYNAMIC)
            found: dict[str, Any] = {}
            exec(compile(_DYNAMIC, str(file), "exec"), found)
            with paddle.utils.unique_name.guard(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                net = found["net"]()[0]
                edit(net)
                spec = paddle.static.InputSpec([None, 8, 32], "float32", name="x")
                paddle.jit.save(paddle.jit.to_static(net, input_spec=[spec], full_graph=True), str(folder / "saved"))
            return str(folder / "saved.json"), f"{file}:net", _feeds(TOKENS)

        CASES.append(labelled(edit, thread, kind, "cpu_fp32", who, why, make=make, baseline="dygraph_fp32", **more))
        return edit

    return register


@dynamic("PaddlePaddle/Paddle#48755", "healthy")
def layer_beside_its_program(net: Any) -> None:
    """A layer in Paddle's dynamic graph and the program saved of it."""


@dynamic("PaddlePaddle/Paddle-Lite#10149", "port", "b/linear b b/add b/matmul matmul_1@Linear_1 add_1@Linear_1 "
         "matmul_1@Linear add_1@Linear output", "files_differ", extra="b/linear matmul_1@Linear add_1@Linear output",
         facts=[r"bias|b\.weight|linear_1"])  # fmt: skip
def program_of_an_earlier_head(net: Any) -> None:
    """The program was saved before the head's bias had been trained."""
    import paddle

    with paddle.no_grad():
        net.b.bias.set_value(net.b.bias + 0.3)


# --- loops that are recorded

LOOPS: list[Loop] = []


loop = functools.partial(fourteenth_others.loop, loops=LOOPS)


def _adam(rate: float = 3e-3) -> Any:
    import torch

    return lambda net: torch.optim.Adam(net.parameters(), lr=rate)


@loop(r"[Ss]tep (2[0-2])", status=1)
def average_that_is_not_taken_back(folder: Path) -> Any:
    """At step 20 the weights' average is copied in for an evaluation and not taken out again: the parameters are others
    than the last step left."""
    import torch

    average: dict[str, Any] = {}

    def each(step: int, net: Any, optimiser: Any) -> None:
        with torch.no_grad():
            for name, one in net.named_parameters():
                average[name] = one.clone() if step == 0 else 0.95 * average[name] + 0.05 * one
                if step == 20:
                    one.copy_(average[name])

    return _trained(folder, _sgd(), each)


@loop()
def average_that_is_taken_back(folder: Path) -> Any:
    """Every ten steps the weights' average is copied in, evaluated, and the weights are put back."""
    import torch

    average: dict[str, Any] = {}

    def each(step: int, net: Any, optimiser: Any) -> None:
        with torch.no_grad():
            known = {name: one.clone() for name, one in net.named_parameters()}
            for name, one in net.named_parameters():
                average[name] = one.clone() if step == 0 else 0.95 * average[name] + 0.05 * one
                if step % 10 == 9:
                    one.copy_(average[name])
            for name, one in net.named_parameters():
                one.copy_(known[name])

    return _trained(folder, _sgd(), each)


@loop()
def rate_of_a_warm_restart(folder: Path) -> Any:
    """The rate falls by a cosine from 0.1 to 0.001 and starts again at step 20, as planned."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 0.001 + 0.0495 * (1 + np.cos(np.pi * (step % 20) / 20))

    return _trained(folder, _sgd(), each)


@loop(r"[Ss]tep (2[0-2])", status=1)
def moments_that_a_resume_lost(folder: Path) -> Any:
    """At step 20 Adam's state is new, as of a resume that restored the weights alone: its moments begin from 0."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step == 20:
            optimiser.state.clear()

    return _trained(folder, _adam(), each)


@loop()
def gradients_emptied_before_the_pass(folder: Path) -> Any:
    """zero_grad stands in front of the pass and not behind the step."""

    def each(step: int, net: Any, optimiser: Any) -> bool:
        optimiser.zero_grad()
        return True

    return _trained(folder, _sgd(), each)


@loop(r"[Ss]tep 18", r"NaN|finite", status=1)
def root_of_a_loss_of_nought(folder: Path) -> Any:
    """At step 18 the inputs are 0: the root's slope there is infinite, its gradient NaN, and the loss finite."""
    import torch
    from torch import nn

    class Rooted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 16, bias=False), nn.Linear(1, 4)

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x).square().sum(-1, keepdim=True).sqrt())

    torch.manual_seed(3)
    return _trained(folder, _sgd(0.05), times=lambda step: 0.0 if step == 18 else 1.0, of=Rooted())


def _trained_in_paddle(folder: Path, kept: int = 40, given: int = 4, scale: bool = False) -> Any:
    """40 steps of a small net in Paddle; kept: from this step on gradients are not cleared; given: how many of the four
    parameters the optimiser has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paddle

    import precision_debug

    paddle.seed(3)
    net = paddle.nn.Sequential(paddle.nn.Linear(8, 32), paddle.nn.Tanh(), paddle.nn.Linear(32, 4))
    optimiser: Any = paddle.optimizer.SGD(0.05, parameters=net.parameters()[:given])
    drawn, told = np.random.default_rng(8), []
    scaler = paddle.amp.GradScaler(enable=scale)
    with precision_debug.training(net, optimiser, record=folder, every=1, scaler=scaler):
        for step in range(40):
            x = drawn.normal(size=(32, 8)).astype(np.float32)
            y = paddle.to_tensor((x[:, :4] + 0.3 * x[:, 4:]).argmax(1))
            loss = paddle.nn.functional.cross_entropy(net(paddle.to_tensor(x)), y)
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            if step < kept:
                optimiser.clear_grad()
            told.append(float(loss))
    return told


@loop(r"[Ss]tep (1[5-9]|2[0-2])", status=1)
def gradients_that_paddle_no_longer_clears(folder: Path) -> Any:
    """From step 15 on clear_grad is left out in Paddle: gradients add up."""
    return _trained_in_paddle(folder, kept=15)


@loop(r"`?2\.(weight|bias)")
def layer_that_paddle_s_optimiser_was_not_given(folder: Path) -> Any:
    """The last layer's two parameters have gradients and are not the optimiser's: told, and no fault."""
    return _trained_in_paddle(folder, given=2)


@loop()
def loop_of_paddle(folder: Path) -> Any:
    """A healthy loop in Paddle."""
    return _trained_in_paddle(folder)


# --- what is so, without the tool


def _paddle(case: Thread, folder: Path) -> tuple[Array, Array]:
    """Both files' outputs by Paddle Inference itself: their own arithmetic is not in question."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paddle

    target, base, feeds = case.make(folder)
    x = paddle.to_tensor((feeds or {})["x"])

    def ran(path: Any) -> Array:
        if str(path).endswith(":net"):
            found: dict[str, Any] = {}
            exec(compile(_DYNAMIC, "dynamic", "exec"), found)
            return np.asarray(found["net"]()[0](x).numpy(), np.float64)
        config = paddle.inference.Config(str(path), str(path).removesuffix("json") + "pdiparams")
        config.switch_ir_optim(False)
        config.disable_mkldnn()
        predictor = paddle.inference.create_predictor(config)
        found_ = predictor.run([x])
        return np.asarray(found_[0].numpy(), np.float64)

    return ran(base or target), ran(target)


def main(cases: list[Thread] = CASES, loops: list[Loop] = LOOPS) -> None:
    words = sys.argv[1:]
    for case in cases:
        if words and not any(word in case.name for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            base, target = TRUTHS[case.name]() if case.name in TRUTHS else _paddle(case, Path(folder))
        print(f"{case.name} ({case.mode}): {np.linalg.norm(target - base) / np.linalg.norm(base):.3g}", flush=True)
    for one in loops:
        if words and not any(word in one.name for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            losses: Any = one.run(Path(folder))
        print(one.name, *(f"{loss:.3g}" for loss in losses[::3]), f"at 17 to 22: {losses[17:23]}", flush=True)


if __name__ == "__main__":
    main()
