"""Tiny models of many kinds, as people write them: what decomposes, branches, scatters, loops and casts.

Each factory returns (module, inputs). Weights are random and the same in every call. Names that end in ``_hf`` need
transformers.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["FACTORIES"]

FACTORIES = {}


def architecture(build):
    def seeded():
        torch.manual_seed(0)
        module, inputs = build()
        for child in module.modules():
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                child.running_mean.normal_(0, 0.1)
                child.running_var.uniform_(0.5, 1.5)
        return module.eval(), inputs

    FACTORIES[build.__name__] = seeded
    return seeded


def conv(cin, cout, k=3, **more):
    return nn.Sequential(nn.Conv2d(cin, cout, k, padding=k // 2, bias=False, **more), nn.BatchNorm2d(cout), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = conv(c, c), nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c))

    def forward(self, x):
        return F.relu_(x + self.b(self.a(x)))


@architecture
def resnet():
    body = nn.Sequential(conv(3, 8), nn.MaxPool2d(2), Residual(8), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(body, nn.Linear(8, 5)), torch.randn(2, 3, 16, 16)


@architecture
def mobilenet():
    class Inverted(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(c, 4 * c, 1), nn.BatchNorm2d(4 * c), nn.ReLU6(inplace=True),
                nn.Conv2d(4 * c, 4 * c, 3, padding=1, groups=4 * c), nn.BatchNorm2d(4 * c), nn.Hardswish(inplace=True),
                nn.Conv2d(4 * c, c, 1), nn.BatchNorm2d(c),
            )  # fmt: skip

        def forward(self, x):
            return x + self.body(x)

    net = nn.Sequential(conv(3, 8), Inverted(8), Inverted(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return net, torch.randn(2, 3, 16, 16)


@architecture
def efficientnet():
    class Squeeze(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.down, self.up, self.mix = nn.Conv2d(c, 2, 1), nn.Conv2d(2, c, 1), nn.Conv2d(c, c, 1)

        def forward(self, x):
            gate = self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))).sigmoid()
            return self.mix(F.silu(x * gate)) + x

    return nn.Sequential(conv(3, 8), Squeeze(8), Squeeze(8)), torch.randn(2, 3, 12, 12)


@architecture
def convnext():
    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.dw, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c)
            self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
            self.gamma = nn.Parameter(torch.full((c,), 0.5))

        def forward(self, x):
            y = self.dw(x).permute(0, 2, 3, 1)
            return x + (self.gamma * self.down(F.gelu(self.up(self.norm(y))))).permute(0, 3, 1, 2)

    return nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), Block(8), Block(8)), torch.randn(2, 3, 32, 32)


@architecture
def densenet():
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(nn.BatchNorm2d(4 + 4 * i), nn.ReLU(), nn.Conv2d(4 + 4 * i, 4, 3, padding=1))
                for i in range(4)
            )

        def forward(self, x):
            found = [x]
            for layer in self.layers:
                found.append(layer(torch.cat(found, 1)))
            return torch.cat(found, 1).mean((-1, -2))

    return nn.Sequential(conv(3, 4), Dense()), torch.randn(2, 3, 12, 12)


@architecture
def unet():
    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.up = conv(3, 8), conv(8, 16), nn.ConvTranspose2d(16, 8, 2, stride=2)
            self.three, self.four = conv(16, 8), nn.Conv2d(8, 2, 1)

        def forward(self, x):
            a = self.one(x)
            b = self.two(F.avg_pool2d(a, 2))
            c = self.three(torch.cat([a, self.up(b)], 1))
            return self.four(F.interpolate(c, scale_factor=0.5, mode="bilinear", align_corners=False))

    return UNet(), torch.randn(2, 3, 16, 16)


@architecture
def pixel_shuffle():
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.PReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.GELU(), nn.PixelShuffle(2),
        nn.Conv2d(4, 1, 3, padding=1), nn.Tanh(),
    )  # fmt: skip
    return net, torch.rand(2, 1, 10, 10)


@architecture
def vae():
    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.mu, self.logvar = nn.Linear(20, 16), nn.Linear(16, 4), nn.Linear(16, 4)
            self.decoder = nn.Sequential(nn.Linear(4, 16), nn.SELU(), nn.Linear(16, 20))

        def forward(self, x):
            h = F.elu(self.encoder(x))
            mu, logvar = self.mu(h), self.logvar(h)
            z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
            kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1)
            return self.decoder(z).sigmoid(), kl

    return Vae(), torch.rand(5, 20)


@architecture
def speech():
    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.norm = nn.Conv1d(4, 16, 5, stride=2, padding=2), nn.GroupNorm(4, 16)
            self.gate, self.out = nn.Conv1d(16, 32, 3, padding=2, dilation=2), nn.Linear(16, 7)
            self.weighted = nn.utils.parametrizations.weight_norm(nn.Conv1d(16, 16, 3, padding=1))

        def forward(self, x):
            x = F.glu(self.gate(self.norm(self.stem(x))), 1)
            x = self.weighted(x) + x
            return F.log_softmax(self.out(x.transpose(1, 2)), -1)

    return Speech(), torch.randn(2, 4, 40)


@architecture
def lstm():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(30, 12)
            self.rnn = nn.LSTM(12, 8, 2, batch_first=True, bidirectional=True)
            self.out = nn.Linear(16, 4)

        def forward(self, ids):
            y, (h, _) = self.rnn(self.embed(ids))
            return self.out(y), h[-1]

    return Tagger(), torch.randint(0, 30, (2, 7))


@architecture
def gru():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.GRU(6, 10, batch_first=True), nn.Linear(20, 3)

        def forward(self, x):
            y, _ = self.rnn(x)
            return self.out(torch.cat([y.max(1).values, y.mean(1)], -1))

    return Pooled(), torch.randn(3, 9, 6)


@architecture
def loop_rnn():
    class Loop(nn.Module):
        """A cell in Python: one line, many calls, and a linear of a non-contiguous input each time."""

        def __init__(self):
            super().__init__()
            self.w, self.u, self.b = (nn.Parameter(torch.randn(*s) * 0.3) for s in ((8, 6), (8, 8), (8,)))
            self.out = nn.Linear(8, 3)

        def forward(self, x):
            h = x.new_zeros(x.shape[0], 8)
            steps = []
            for x_t in x.unbind(1):
                h = torch.tanh(F.linear(x_t, self.w) + F.linear(h, self.u, self.b))
                steps.append(h)
            return self.out(torch.stack(steps).transpose(0, 1))

    return Loop(), torch.randn(2, 6, 6)


@architecture
def bidirectional_loop():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.there, self.back = nn.LSTMCell(5, 6), nn.GRUCell(5, 6)
            self.out = nn.Linear(12, 2)

        def forward(self, x):
            h, c = x.new_zeros(x.shape[1], 6), x.new_zeros(x.shape[1], 6)
            g = torch.zeros_like(h)
            for t in range(x.shape[0]):
                h, c = self.there(x[t], (h, c))
                g = self.back(x[-1 - t], g)
            return self.out(torch.cat((h, g), 1))

    return Both(), torch.randn(4, 3, 5)


@architecture
def einsum_attention():
    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x, mask):
            b, n, _ = x.shape
            q, k, v = (t.reshape(b, n, 4, 4) for t in self.qkv(x).chunk(3, -1))
            scores = torch.einsum("bnhd,bmhd->bhnm", q, k) / math.sqrt(4)
            scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
            y = torch.einsum("bhnm,bmhd->bnhd", scores.softmax(-1), v)
            return x + self.out(y.flatten(2))

    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    return Attend(), {"x": torch.randn(2, 6, 16), "mask": mask}


@architecture
def detr():
    class Detr(nn.Module):
        """Post-norm attention over a feature map that is flattened by a permutation, with positions added anew."""

        def __init__(self):
            super().__init__()
            self.backbone, self.project = nn.Sequential(conv(3, 8), conv(8, 16, stride=2)), nn.Conv2d(16, 16, 1)
            self.row, self.column = nn.Parameter(torch.rand(20, 8)), nn.Parameter(torch.rand(20, 8))
            self.query = nn.Embedding(5, 16)
            self.encode = nn.ModuleList(Layer() for _ in range(2))
            self.decode = nn.ModuleList(Layer(cross=True) for _ in range(2))
            self.classes, self.boxes = nn.Linear(16, 4), nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

        def forward(self, image):
            f = self.project(self.backbone(image))
            h, w = f.shape[-2:]
            both = self.column[:w].unsqueeze(0).repeat(h, 1, 1), self.row[:h].unsqueeze(1).repeat(1, w, 1)
            position = torch.cat(both, -1).flatten(0, 1).unsqueeze(1)
            memory = f.flatten(2).permute(2, 0, 1)
            for layer in self.encode:
                memory = layer(memory, position)
            query = self.query.weight.unsqueeze(1).repeat(1, image.shape[0], 1)
            y = torch.zeros_like(query)
            for layer in self.decode:
                y = layer(y, query, memory, position)
            y = y.transpose(0, 1)
            return {"pred_logits": self.classes(y), "pred_boxes": self.boxes(y).sigmoid()}

    class Layer(nn.Module):
        def __init__(self, cross=False):
            super().__init__()
            self.attend = nn.MultiheadAttention(16, 4)
            self.cross = nn.MultiheadAttention(16, 4) if cross else None
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
            self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))

        def forward(self, x, position, memory=None, memory_position=None):
            q = k = x + position
            x = self.norms[0](x + self.attend(q, k, value=x)[0])
            if self.cross is not None:
                x = self.norms[1](x + self.cross(x + position, memory + memory_position, value=memory)[0])
            return self.norms[2](x + self.down(F.relu(self.up(x))))

    return Detr(), torch.randn(2, 3, 16, 12)


@architecture
def torch_transformer():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)
            self.out = nn.Linear(16, 3)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=target.dtype)
            return self.out(self.net(source, target, tgt_mask=mask))

    return Both(), (torch.randn(2, 6, 16), torch.randn(2, 4, 16))


@architecture
def mixture_of_experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4)
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 12), nn.SiLU(), nn.Linear(12, 8)) for _ in range(4))

        def forward(self, x):
            flat = x.reshape(-1, 8)
            weight, chosen = self.gate(flat).float().softmax(-1).topk(2, -1)
            weight = (weight / weight.sum(-1, keepdim=True)).to(flat.dtype)
            y = torch.zeros_like(flat)
            for number, expert in enumerate(self.experts):
                where = (chosen == number).to(weight.dtype)
                y = y + expert(flat) * (weight * where).sum(-1, keepdim=True)
            return y.view_as(x)

    return Experts(), torch.randn(2, 5, 8)


@architecture
def graph_network():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.update = nn.Linear(12, 8), nn.Linear(14, 6)

        def forward(self, nodes, edges):
            source, sink = edges
            for _ in range(3):
                m = F.leaky_relu(self.message(torch.cat([nodes[source], nodes[sink]], -1)))
                total = nodes.new_zeros(nodes.shape[0], 8).index_add_(0, sink, m.to(nodes.dtype))
                degree = torch.bincount(sink, minlength=nodes.shape[0]).clamp(min=1).unsqueeze(-1)
                nodes = torch.tanh(self.update(torch.cat([nodes, total / degree], -1)))
            return nodes.new_zeros(8, 6).scatter_add(0, sink[:, None].expand(-1, 6)[:8], nodes)

    return Graph(), {"nodes": torch.randn(8, 6), "edges": torch.randint(0, 8, (2, 14))}


@architecture
def deformable():
    class Deform(nn.Module):
        def __init__(self):
            super().__init__()
            self.offset, self.value = nn.Conv2d(4, 2, 3, padding=1), nn.Conv2d(4, 4, 1)

        def forward(self, x):
            b, _, h, w = x.shape
            ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
            grid = torch.stack([xs, ys], -1).to(x).expand(b, h, w, 2) + self.offset(x).permute(0, 2, 3, 1) * 0.1
            return F.grid_sample(self.value(x), grid, align_corners=False, padding_mode="border")

    return Deform(), torch.randn(2, 4, 8, 9)


@architecture
def recommendation():
    class Recommend(nn.Module):
        def __init__(self):
            super().__init__()
            self.bags = nn.ModuleList(nn.EmbeddingBag(20, 8, mode="sum") for _ in range(3))
            self.bottom, self.top = nn.Linear(5, 8), nn.Linear(14, 1)

        def forward(self, dense, ids, offsets):
            parts = [self.bottom(dense).relu(), *(bag(i, offsets) for bag, i in zip(self.bags, ids, strict=True))]
            stacked = torch.stack(parts, 1)
            products = torch.bmm(stacked, stacked.mT)
            rows, columns = torch.tril_indices(4, 4, offset=-1)
            return self.top(torch.cat([parts[0], products[:, rows, columns]], 1)).sigmoid().squeeze(-1)

    ids, offsets = torch.randint(0, 20, (3, 9)), torch.tensor([0, 2, 5])
    return Recommend(), {"dense": torch.randn(3, 5), "ids": ids, "offsets": offsets}


@architecture
def state_space():
    class Mamba(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave, self.dt = nn.Linear(8, 32), nn.Linear(16, 8), nn.Linear(16, 16)
            self.conv = nn.Conv1d(16, 16, 4, groups=16, padding=3)
            self.bc = nn.Linear(16, 8)
            self.log_a = nn.Parameter(torch.log(torch.arange(1.0, 5).repeat(16, 1)))
            self.d = nn.Parameter(torch.ones(16))

        def forward(self, x):
            u, gate = self.enter(x).chunk(2, -1)
            u = F.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
            dt = F.softplus(self.dt(u))
            b, c = self.bc(u).split(4, -1)
            a = -torch.exp(self.log_a.float())
            h = torch.zeros(x.shape[0], 16, 4, dtype=a.dtype)
            found = []
            for t in range(x.shape[1]):
                h = torch.exp(dt[:, t, :, None] * a) * h + dt[:, t, :, None] * b[:, t, None] * u[:, t, :, None]
                found.append((h * c[:, t, None]).sum(-1))
            y = torch.stack(found, 1) + u * self.d
            return self.leave((y * F.silu(gate)).to(x.dtype))

    return Mamba(), torch.randn(2, 5, 8)


@architecture
def cached_decoder():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv, self.out = nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(16, 16)
            self.register_buffer("cache", torch.zeros(1, 8, 32))

        def forward(self, x):
            steps = []
            for t in range(x.shape[1]):
                self.cache[:, t] = self.kv(x[:, t])
                k, v = (p.reshape(1, -1, 4, 4).transpose(1, 2) for p in self.cache[:, : t + 1].chunk(2, -1))
                q = self.q(x[:, t : t + 1]).reshape(1, 1, 4, 4).transpose(1, 2)
                steps.append(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 1, 16))
            return self.out(torch.cat(steps, 1))

    return Cached(), torch.randn(1, 5, 16)


@architecture
def dtype_branches():
    class Careful(nn.Module):
        """What models do in half precision only: clamp, upcast, take another road."""

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x)
                if x.dtype == torch.float16:
                    bound = torch.where(torch.isinf(x).any(), torch.finfo(x.dtype).max - 1000, torch.finfo(x.dtype).max)
                    x = torch.clamp(x, min=-bound, max=bound)
                x = F.layer_norm(x.float(), (8,)).to(x.dtype)
                if x.dtype == torch.bfloat16:
                    x = (x.float() * 1.0).to(x.dtype)
            return x, x.view(-1, 4).view(-1, 8).sum(-1)

    return Careful(), torch.randn(3, 4, 8)


def _of(name, config, inputs, **more):
    import transformers

    config = getattr(transformers, config)(**more)
    return getattr(transformers, name)(config), inputs


_SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


def ids(*shape):
    return torch.randint(3, 90, shape)


@architecture
def bert_hf():
    inputs = {"input_ids": ids(2, 6), "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2])}
    return _of("BertForSequenceClassification", "BertConfig", inputs, vocab_size=99, **_SMALL)


@architecture
def gpt2_hf():
    return _of("GPT2LMHeadModel", "GPT2Config", {"input_ids": ids(1, 6)}, vocab_size=99, n_embd=16, n_layer=2, n_head=4)


@architecture
def gpt2_eager_hf():
    more = {"vocab_size": 99, "n_embd": 16, "n_layer": 2, "n_head": 4, "attn_implementation": "eager"}
    return _of("GPT2LMHeadModel", "GPT2Config", {"input_ids": ids(1, 6)}, **more)


@architecture
def llama_hf():
    return _of(
        "LlamaForCausalLM", "LlamaConfig", {"input_ids": ids(1, 6)}, vocab_size=99, num_key_value_heads=2, **_SMALL
    )


@architecture
def t5_hf():
    inputs = {"input_ids": ids(1, 6), "decoder_input_ids": ids(1, 3)}
    more = {"vocab_size": 99, "d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    return _of("T5ForConditionalGeneration", "T5Config", inputs, **more)


@architecture
def vit_hf():
    inputs = {"pixel_values": torch.randn(1, 3, 16, 16)}
    return _of("ViTForImageClassification", "ViTConfig", inputs, image_size=16, patch_size=4, **_SMALL)


@architecture
def swin_hf():
    more = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 2}
    return _of("SwinForImageClassification", "SwinConfig", {"pixel_values": torch.randn(1, 3, 16, 16)}, **more)


@architecture
def whisper_hf():
    inputs = {"input_features": torch.randn(1, 8, 16), "decoder_input_ids": ids(1, 3)}
    more = {
        "vocab_size": 99, "num_mel_bins": 8, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
        "max_source_positions": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    }  # fmt: skip
    return _of("WhisperForConditionalGeneration", "WhisperConfig", inputs, **more)
