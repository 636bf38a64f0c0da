"""A seventeenth batch of language models in folders, GGUF files and vLLM, of Paddle alone and beside ONNX, and of
training loops that are recorded; written and labelled before any of it was compared.

    python tests/planted/seventeenth_others.py [WORD …]

measures the labels without the tool, as the sixteenth's does; of vLLM, the two folders in torch's float64.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from planted import fifteenth_others, fourteenth_others, sixteenth_others
from planted.eleventh_torch import layer
from planted.fifteenth_others import TRUTHS, Weights, _change, _convs, _rows
from planted.fourteenth_others import Loop, _sgd
from planted.onnx_faults import Array, Graph
from planted.paddle_faults import IMAGE, TOKENS, _feeds, _written
from planted.twelfth.case import COARSE, DIFFER, Thread, labelled

# After the first run: vLLM's kernels want heads of 32 numbers and more, which the folders have now.
CASES: list[Thread] = []
LOOPS: list[Loop] = []
folder_of = functools.partial(fifteenth_others.folder_of, cases=CASES)
gguf = functools.partial(fifteenth_others.gguf, cases=CASES)
program = functools.partial(fifteenth_others.program, cases=CASES)
loop = functools.partial(fourteenth_others.loop, loops=LOOPS)
OTHER = f"{DIFFER} unfound"

# --- folders of transformers


_FUSED = layer("gpt_neox.layers.0.attention.query_key_value")


@folder_of("Megatron's fused projection", "language", _FUSED, "files_differ", model="gpt_neox",
           extra=_FUSED + " " + _FUSED.replace("layers.0", "layers.1"), facts=[r"query_key_value"])  # fmt: skip
def heads_side_by_side_taken_for_thirds(w: Weights) -> None:
    """The fused projection has all queries, then all keys, then all values, where this model wants them by head; in
    both layers, weight and bias."""
    for name in [one for one in w if "query_key_value" in one]:
        rest = w[name].shape[1:]
        w[name] = w[name].reshape(4, 3, 16, *rest).swapaxes(0, 1).reshape(192, *rest)


_BACK = layer("transformer.h.1.attn.c_proj")


@folder_of("Conv1D of GPT-2", "language", _BACK, "files_differ", model="gpt2", extra=_BACK,
           facts=[r"h\.1\.attn\.c_proj\.weight", r"transpos|turned"])  # fmt: skip
def square_projection_left_as_it_was(w: Weights) -> None:
    """GPT-2's weights are input by output; of the second layer the one square matrix was turned."""
    w["transformer.h.1.attn.c_proj.weight"] = w["transformer.h.1.attn.c_proj.weight"].T.copy()


_UNIT = " ".join(f"model.layers.0.self_attn.q_norm{part}" for part in ("", "/mul", "/mul#1", "/mul#2"))


@folder_of("QK norms that a converter did not know", "language", _UNIT, "files_differ", model="olmoe",
           extra=_UNIT + " " + _UNIT.replace("q_norm", "k_norm"), facts=[r"q_norm\.weight"])  # fmt: skip
def gains_of_the_queries_left_at_one(w: Weights) -> None:
    """The first layer's gains of queries and keys are all 1."""
    for part in "qk":
        name = f"model.layers.0.self_attn.{part}_norm.weight"
        w[name] = np.ones_like(w[name])


@folder_of("norms folded into what reads them", "healthy", model="cohere")
def gains_moved_into_the_next_matrices(w: Weights) -> None:
    """Each layer's gains are multiplied into queries, keys, values, gate and up, and are 1 themselves: every logit is
    the same up to rounding."""
    for n in range(2):
        gain = w[f"model.layers.{n}.input_layernorm.weight"].copy()
        for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            w[f"model.layers.{n}.{part}.weight"] *= gain
        w[f"model.layers.{n}.input_layernorm.weight"][:] = 1


def served(thread: str, kind: str, who: str = "", why: str = "", **more: Any) -> Any:
    """A folder in vLLM beside the trainer's in torch; the function edits the weights of the first."""

    def register(edit: Any) -> Any:
        def make(folder: Path) -> tuple[str, str, dict[str, Array]]:
            import shutil

            from safetensors.numpy import load_file, save_file

            from planted import configured

            base = configured.build(folder / "trainer", "llama", 32)
            target = Path(shutil.copytree(base, folder / "served"))
            _change(target, edit, load_file, save_file)
            return str(target), str(base), configured.IDS

        def truth() -> tuple[Array, Array]:
            import torch
            import transformers

            with tempfile.TemporaryDirectory() as name, torch.no_grad():
                ids = torch.tensor(make(Path(name))[2]["input_ids"])
                load = transformers.AutoModelForCausalLM.from_pretrained
                found = [load(Path(name) / one).double().eval()(ids).logits.numpy() for one in ("trainer", "served")]
            return found[0], found[1]

        CASES.append(labelled(edit, thread, kind, "vllm_fp32", who, why, make=make, baseline="torch_fp32", **more))
        TRUTHS[edit.__name__] = truth
        return edit

    return register


_VALUE = _rows("1", "self_attn.v_proj") + " model.layers.1.self_attn.qkv_proj"


@served("weights that a loader stacks", "language", _VALUE, "files_differ", extra=_VALUE, facts=[r"1.*v_proj"])
def values_of_two_groups_exchanged(w: Weights) -> None:
    """In the second layer the values of the two groups of heads are exchanged."""
    one = w["model.layers.1.self_attn.v_proj.weight"]
    half = len(one) // 2
    one[:] = np.concatenate([one[half:], one[:half]])


@served("AWQ's scales before an engine", "healthy")
def scales_moved_from_up_to_down(w: Weights) -> None:
    """Rows of up are multiplied and columns of down divided by powers of two: the logits are the same."""
    for n in range(2):
        size = (2.0 ** np.random.default_rng(n).integers(-2, 3, 96)).astype(np.float32)
        w[f"model.layers.{n}.mlp.up_proj.weight"] *= size[:, None]
        w[f"model.layers.{n}.mlp.down_proj.weight"] /= size


# --- GGUF files


@gguf("a square matrix", "language", "attn_out-1 kqv_out-1", "files_differ", extra="attn_out-1 kqv_out-1",
      facts=[r"blk\.1\.attn_output\.weight"])  # fmt: skip
def projection_of_the_second_layer_turned(w: Weights) -> None:
    """The second layer's square projection behind attention is transposed."""
    w["blk.1.attn_output.weight"] = w["blk.1.attn_output.weight"].T.copy()


def _faint(w: Weights) -> None:
    w["blk.0.ffn_up.weight"] *= 2e-7
    w["blk.0.ffn_down.weight"] *= 2e5
    w["blk.0.ffn_norm.weight"] *= 6


@gguf("F16 and small weights", "gguf", "ffn_up-0", f"underflow {COARSE} files_differ held_narrower constant_rounded",
      both=_faint, type_of="F16", extra="ffn_up-0 ffn_out-0 ffn_down-0", facts=[r"ffn_up"])  # fmt: skip
def up_projection_below_the_type(w: Weights) -> None:
    """The first layer's up projection is 3e-8, of which F16 knows multiples of 6e-8, and its down projection makes up
    for it: most of what up has is 0 in this file."""


@gguf("heads sorted by another key", "healthy")
def heads_of_both_groups_exchanged(w: Weights) -> None:
    """The two groups of heads are exchanged in queries, keys, values and in what reads them: the logits are the
    same up to the order of sums."""
    for n in range(2):
        for part in "qkv":
            one = w[f"blk.{n}.attn_{part}.weight"]
            half = len(one) // 2
            w[f"blk.{n}.attn_{part}.weight"] = np.concatenate([one[half:], one[:half]])
        one = w[f"blk.{n}.attn_output.weight"]
        w[f"blk.{n}.attn_output.weight"] = np.concatenate([one[:, 32:], one[:, :32]], 1)


# --- Paddle


def _groups(count: int) -> Any:
    return lambda nn: {"a": nn.Conv2D(3, 16, 3, padding=1), "n": nn.GroupNorm(count, 16), "c": nn.Conv2D(16, 4, 1)}


def picture_of_two_groups(net: Any, x: Any) -> Any:
    import paddle

    return net.c(paddle.nn.functional.silu(net.n(net.a(x))))


_GROUP = "group_norm_0 group_norm_0@GroupNorm group_norm"


@program("GroupNorm(groups)", "port", "cpu_fp32", _GROUP, DIFFER, parts=_groups(8), base_parts=_groups(2),
         base=picture_of_two_groups, shape=IMAGE, extra=_GROUP, facts=[r"groups"])  # fmt: skip
def picture_of_eight_groups(net: Any, x: Any) -> Any:
    """A group norm of eight groups in place of two."""
    return picture_of_two_groups(net, x)


def picture_with_its_mirror(net: Any, x: Any) -> Any:
    import paddle

    y = paddle.nn.functional.pad(paddle.nn.functional.relu(net.a(x)), [2, 2, 2, 2], mode="reflect")
    return net.c(paddle.nn.functional.relu(net.b(y)))


_PAD = "pad3d_0 pad3d pad_0 pad"


@program("padding_mode", "port", "cpu_fp32", _PAD, DIFFER, parts=_convs, base=picture_with_its_mirror, shape=IMAGE,
         extra=_PAD, facts=[r"mode|replicate|reflect"])  # fmt: skip
def picture_with_its_edge_repeated(net: Any, x: Any) -> Any:
    """The border repeats the edge (replicate) where the other file mirrors it (reflect)."""
    import paddle

    y = paddle.nn.functional.pad(paddle.nn.functional.relu(net.a(x)), [2, 2, 2, 2], mode="replicate")
    return net.c(paddle.nn.functional.relu(net.b(y)))


def _heads(nn: Any) -> dict[str, Any]:
    return {"q": nn.Linear(32, 32), "k": nn.Linear(32, 32), "v": nn.Linear(32, 32), "n": nn.LayerNorm(32),
            "o": nn.Linear(32, 8)}  # fmt: skip


@program("fused attention", "healthy", "cpu_opt", parts=_heads)
def attention_that_the_passes_fuse(net: Any, x: Any) -> Any:
    """Four heads of attention, a skip and a norm, by every pass."""
    import paddle

    q, k, v = (paddle.transpose(paddle.reshape(one(x), [2, 8, 4, 8]), [0, 2, 1, 3]) for one in (net.q, net.k, net.v))
    score = paddle.nn.functional.softmax(paddle.matmul(q * 8**-0.5, k, transpose_y=True))
    y = paddle.reshape(paddle.transpose(paddle.matmul(score, v), [0, 2, 1, 3]), [2, 8, 32])
    return net.o(net.n(y + x))


def _gates(nn: Any) -> dict[str, Any]:
    return {"a": nn.Linear(32, 32), "b": nn.Linear(32, 32), "c": nn.Linear(32, 8)}


def gate_of_a_sixth_in_the_program(net: Any, x: Any) -> Any:
    import paddle

    y = net.a(x)
    return net.c(y * paddle.nn.functional.hardsigmoid(net.b(y) * 3.0))


_SIGMOID = "hardsigmoid_0 hardsigmoid hardsigmoid_0@Hardsigmoid hard_sigmoid_0 multiply_0 multiply"


def _gated(folder: Path) -> tuple[Path, Path, Any]:
    known: dict[str, Array] = {}
    first = _written(folder, "base", _gates, gate_of_a_sixth_in_the_program, TOKENS, known.update)
    g = Graph(opset=18)
    dense = sixteenth_others._dense
    y = dense(g, g.input("x", _feeds(TOKENS)["x"]), known, "a")
    z = g.op("Mul", [dense(g, y, known, "b"), g.weight("three", np.float32(3))], "times")
    y = g.op("Mul", [y, g.op("HardSigmoid", [z], "gate")], "gated")
    return g.save(folder / "gated.onnx", [dense(g, y, known, "c")]), first, g.feeds


def gate_of_onnx_s_own_slope() -> None:
    """A hard sigmoid of the file has no alpha, which is a fifth then and not a sixth as in Paddle."""


CASES.append(labelled(gate_of_onnx_s_own_slope, "alpha of HardSigmoid", "convert", "ort_fp32", _SIGMOID, OTHER,
                      make=_gated, baseline="cpu_fp32", extra=_SIGMOID, facts=[r"alpha|slope"]))  # fmt: skip
TRUTHS["gate_of_onnx_s_own_slope"] = lambda: sixteenth_others._both(_gated)


# --- loops that are recorded


def _loop(folder: Path, make: Any, net: Any, batch: Any, each: Any = None, scaler: Any = None, every: int = 1) -> Any:
    """40 steps; batch(step, drawn): x and the targets. every: passes of which gradients are added for a step."""
    import torch

    import precision_debug

    optimiser = make(net)
    scaler = torch.amp.GradScaler("cpu", enabled=False) if scaler is None else scaler
    told, drawn = [], torch.Generator().manual_seed(17)
    with precision_debug.training(
        net, optimiser, record=folder, every=1, scaler=scaler if scaler.is_enabled() else None
    ):
        for step in range(40):
            for _ in range(every):
                x, y = batch(step, drawn)
                with torch.autocast("cpu", torch.float16, enabled=scaler.is_enabled()):
                    out = net(x)
                loss = torch.nn.functional.cross_entropy(out.float(), y) / every
                scaler.scale(loss).backward()
            if each is not None:
                each(step, net, optimiser)
            scaler.step(optimiser)
            scaler.update()
            optimiser.zero_grad()
            told.append(loss.item())
    return told


def _drawn(rows: int = 32) -> Any:
    def batch(step: int, drawn: Any) -> Any:
        import torch

        x = torch.randn(rows, 8, generator=drawn)
        return x, (x[:, :4] + 0.3 * x[:, 4:]).argmax(1)

    return batch


def _net() -> Any:
    import torch
    from torch import nn

    torch.manual_seed(17)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 4))


@loop(r"[Ss]tep (2[0-2])", status=1)
def clipped_before_the_scale_is_taken_off(folder: Path) -> Any:
    """Mixed precision with a scale of 4096: from step 20 on gradients are clipped to a norm of 1 without unscale_, so
    that updates are a four-thousandth."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        if step >= 20:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)

    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    return _loop(folder, _sgd(0.2), _net(), _drawn(), each, scaler)


@loop(r"[Ss]tep (1[8-9]|20)", status=1)
def decay_of_a_half_in_each_step(folder: Path) -> Any:
    """From step 18 on AdamW's decay is 50 in place of 0.01: with a rate of 0.01 every weight is halved in each step."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["weight_decay"] = 50.0 if step >= 18 else 0.01

    return _loop(folder, lambda net: torch.optim.AdamW(net.parameters(), lr=0.01), _net(), _drawn(), each)


@loop(r"[Ss]tep (2[2-4])", status=1)
def labels_of_the_next_batch(folder: Path) -> Any:
    """From step 22 on the labels are another batch's: the loss jumps from about 0.4 to more than 2."""

    def batch(step: int, drawn: Any) -> Any:
        x, y = _drawn()(step, drawn)
        return x, y.roll(1) if step >= 22 else y

    return _loop(folder, _sgd(1.0), _net(), batch)


@loop(r"[Ss]tep (2[5-7])", status=1)
def rate_that_ends_too_early(folder: Path) -> Any:
    """A schedule of 25 steps in a run of 40: the rate is exactly 0 from step 25 on, and no parameter moves."""

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 0.3 * (1 + float(np.cos(np.pi * step / 25))) / 2 if step < 25 else 0.0

    return _loop(folder, _sgd(0.3), _net(), _drawn(), each)


@loop(r"[Ss]tep (1[6-8])", status=1)
def updates_below_bfloat16_s_rounding(folder: Path) -> Any:
    """Parameters in bfloat16; from step 16 on the rate is 1e-6, and every update is lost by rounding."""
    import torch

    def each(step: int, net: Any, optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = 1e-6 if step >= 16 else 0.3

    def batch(step: int, drawn: Any) -> Any:
        x, y = _drawn()(step, drawn)
        return x.to(torch.bfloat16), y

    return _loop(folder, _sgd(0.3), _net().to(torch.bfloat16), batch, each)


@loop()
def gradients_of_four_passes(folder: Path) -> Any:
    """Gradients of four passes are added for each step, each loss divided by four."""
    return _loop(folder, _sgd(0.3), _net(), _drawn(8), every=4)


@loop()
def adapter_that_begins_at_nought(folder: Path) -> Any:
    """A frozen layer with a low-rank adapter whose second matrix begins at 0, so that the first one's gradient is
    exactly 0 in the first step."""
    import torch
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _net().requires_grad_(False)
            self.down, self.up = nn.Linear(8, 4, bias=False), nn.Linear(4, 4, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x: Any) -> Any:
            return self.net(x) + self.up(self.down(x))

    def make(net: Any) -> Any:
        return torch.optim.AdamW([one for one in net.parameters() if one.requires_grad], lr=0.02)

    return _loop(folder, make, Adapted(), _drawn())


@loop()
def batches_that_become_larger(folder: Path) -> Any:
    """From step 20 on a batch has 256 rows in place of 32, as planned: gradients are smaller by their noise."""
    return _loop(folder, _sgd(0.1), _net(), lambda step, drawn: _drawn(256 if step >= 20 else 32)(step, drawn))


@loop()
def scale_that_grows_and_backs_off(folder: Path) -> Any:
    """A scale that doubles every four steps from 2^15: now and then a step is skipped, as it is meant to."""
    import torch

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15, growth_interval=4)
    return _loop(folder, _sgd(0.2), _net(), _drawn(), scaler=scaler)


@loop(r"[Ss]tep (2[0-2])", status=1)
def head_that_is_loaded_again_in_paddle(folder: Path) -> Any:
    """Before step 20 the second layer is what it was in the beginning, as of a checkpoint that was read again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paddle

    import precision_debug

    paddle.seed(17)
    net = paddle.nn.Sequential(paddle.nn.Linear(8, 16), paddle.nn.Tanh(), paddle.nn.Linear(16, 4))
    optimiser: Any = paddle.optimizer.Momentum(0.1, parameters=net.parameters())
    known, drawn, told = net[2].weight.numpy().copy(), np.random.default_rng(17), []
    with precision_debug.training(net, optimiser, record=folder, every=1):
        for step in range(40):
            if step == 20:
                net[2].weight.set_value(paddle.to_tensor(known))
            x = drawn.normal(size=(32, 8)).astype(np.float32)
            y = paddle.to_tensor((x[:, :4] + 0.3 * x[:, 4:]).argmax(1))
            loss = paddle.nn.functional.cross_entropy(net(paddle.to_tensor(x)), y)
            loss.backward()
            optimiser.step()
            optimiser.clear_grad()
            told.append(float(loss))
    return told


if __name__ == "__main__":
    fifteenth_others.main(CASES, LOOPS)
