"""A Llama as a serving engine runs it, recorded by forward hooks: vLLM's module names, its stacked qkv_proj and
gate_up_proj, tokens in one row. It is not vLLM; the hooks are the same there (see README.md).

    python serving_engine.py FOLDER IDS.npy DUMP [--ranks N] [--stages N] [--anew] [--wrong LAYER]

FOLDER: a Llama as transformers saves it. --ranks: tensor-parallel ranks over gloo; --stages: pipeline stages; --anew:
each stage numbers its layers from 0. --wrong: the gate of this layer is multiplied by 1.3, on the last rank.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from precision_debug.recording.recorder import Recorder  # or: from recorder import Recorder, beside your program


class QKVParallelLinear(nn.Linear):
    """The rows of q, of k and of v, each rank's heads."""


class MergedColumnParallelLinear(nn.Linear):
    """The rows of gate, then those of up."""


class RowParallelLinear(nn.Linear):
    """A summand on each rank."""

    group: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if self.group is not None:
            dist.all_reduce(y, group=self.group)
        return y


class RMSNorm(nn.Module):
    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        """As vLLM's: adds the residual first, and gives it too."""
        x = x if residual is None else x + residual
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
        return normed if residual is None else (normed, x)


class SiluAndMul(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        return nn.functional.silu(gate) * up


class LlamaAttention(nn.Module):
    def __init__(self, config: Any, heads: int, kv: int) -> None:
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, config.head_dim
        theta = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
        self.rate = theta ** (-torch.arange(0, self.size, 2) / self.size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, wide = x.shape[0], self.size
        q, k, v = self.qkv_proj(x).split([self.heads * wide, self.kv * wide, self.kv * wide], -1)
        angle = torch.arange(count)[:, None] * self.rate
        cos, sin = (torch.cat([one, one], -1)[:, None] for one in (angle.cos(), angle.sin()))

        def turned(one: torch.Tensor) -> torch.Tensor:
            left, right = one.chunk(2, -1)
            return one * cos + torch.cat([-right, left], -1) * sin

        q, k = turned(q.view(count, -1, wide)), turned(k.view(count, -1, wide))
        k, v = (one.repeat_interleave(self.heads // self.kv, 1) for one in (k, v.view(count, -1, wide)))
        score = torch.einsum("qhd,khd->hqk", q, k) / wide**0.5
        score = score.masked_fill(torch.ones(count, count).triu(1).bool(), -torch.inf).softmax(-1)
        return self.o_proj(torch.einsum("hqk,khd->qhd", score, v).reshape(count, -1))


class LlamaMLP(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_up_proj(x)))


class LlamaDecoderLayer(nn.Module):
    def forward(self, x: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Its output in two parts: the next norm adds them."""
        x, residual = (self.input_layernorm(x), x) if residual is None else self.input_layernorm(x, residual)
        x, residual = self.post_attention_layernorm(self.self_attn(x), residual)
        return self.mlp(x), residual


def linear(kind: type[nn.Linear], weight: torch.Tensor) -> nn.Linear:
    made = kind(weight.shape[1], weight.shape[0], bias=False)
    made.weight.data = weight.contiguous()
    return made


def layer(config: Any, weights: dict[str, torch.Tensor], rank: int, ranks: int, group: Any) -> LlamaDecoderLayer:
    """What a rank holds of a layer: its heads, its part of the MLP."""

    def rows(name: str, parts: int = ranks, place: int = rank) -> torch.Tensor:
        return weights[f"{name}.weight"].chunk(parts)[place]

    kv = min(ranks, config.num_key_value_heads)  # more ranks than these heads: some hold the same
    one = LlamaDecoderLayer()
    one.input_layernorm = RMSNorm(weights["input_layernorm.weight"], config.rms_norm_eps)
    one.self_attn = LlamaAttention(config, config.num_attention_heads // ranks, config.num_key_value_heads // kv)
    shares = [rows("self_attn.q_proj"), *(rows(f"self_attn.{x}_proj", kv, rank * kv // ranks) for x in "kv")]
    one.self_attn.qkv_proj = linear(QKVParallelLinear, torch.cat(shares))
    one.self_attn.o_proj = linear(RowParallelLinear, weights["self_attn.o_proj.weight"].chunk(ranks, 1)[rank])
    one.post_attention_layernorm = RMSNorm(weights["post_attention_layernorm.weight"], config.rms_norm_eps)
    one.mlp = LlamaMLP()
    one.mlp.gate_up_proj = linear(MergedColumnParallelLinear, torch.cat([rows("mlp.gate_proj"), rows("mlp.up_proj")]))
    one.mlp.act_fn = SiluAndMul()
    one.mlp.down_proj = linear(RowParallelLinear, weights["mlp.down_proj.weight"].chunk(ranks, 1)[rank])
    one.self_attn.o_proj.group = one.mlp.down_proj.group = group
    return one


def run(args: argparse.Namespace, number: int) -> None:
    folder = pathlib.Path(args.folder)
    config = argparse.Namespace(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    weights = {name: one.float() for name, one in load_file(folder / "model.safetensors").items()}
    stage, rank = divmod(number, args.ranks)
    group = None
    if args.ranks * args.stages > 1:
        meet = f"file://{pathlib.Path(args.dump).resolve()}.meet"
        dist.init_process_group("gloo", init_method=meet, rank=number, world_size=args.ranks * args.stages)
        groups = [dist.new_group(list(range(s * args.ranks, (s + 1) * args.ranks))) for s in range(args.stages)]
        group = groups[stage] if args.ranks > 1 else None
    record = Recorder(args.dump, rank=number)

    def watched(name: str, module: nn.Module) -> nn.Module:
        record.watch(module, name)
        return module

    with torch.no_grad():
        each = config.num_hidden_layers // args.stages
        if stage:
            x = torch.empty(np.load(args.ids).size, config.hidden_size)
            dist.recv(x, number - args.ranks)
        else:
            embed = nn.Embedding.from_pretrained(weights["model.embed_tokens.weight"])
            x = watched("model.embed_tokens", embed)(torch.from_numpy(np.load(args.ids).reshape(-1)))
        residual = None
        for place in range(stage * each, (stage + 1) * each):
            front = f"model.layers.{place}."
            own = {key.removeprefix(front): value.clone() for key, value in weights.items() if key.startswith(front)}
            if place == args.wrong:
                rows = own["mlp.gate_proj.weight"].chunk(args.ranks)[-1]
                rows *= 1.3
            one = layer(config, own, rank, args.ranks, group)
            x, residual = watched(f"model.layers.{place - stage * each if args.anew else place}", one)(x, residual)
        if stage < args.stages - 1:
            dist.send(x + residual, number + args.ranks)
        else:
            x, _ = watched("model.norm", RMSNorm(weights["model.norm.weight"], config.rms_norm_eps))(x, residual)
            watched("lm_head", linear(nn.Linear, weights["lm_head.weight"]))(x)
    if dist.is_initialized():
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("folder", "ids", "dump"):
        parser.add_argument(name)
    for name, value in (("ranks", 1), ("stages", 1), ("wrong", -1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--anew", action="store_true")
    args = parser.parse_args()
    if "RANK" in os.environ or args.ranks * args.stages == 1:
        return run(args, int(os.environ.get("RANK", "0")))
    numbers = range(args.ranks * args.stages)
    started = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(one)}) for one in numbers]
    sys.exit(max(one.wait() for one in started))


if __name__ == "__main__":
    main()
