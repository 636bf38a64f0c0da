"""Runs a transformers folder in vLLM, in whatever Python has it, and tells what every module makes of each token.

A program of its own, which needs vLLM and nothing of this project: ``python server.py SOCKET`` (an open descriptor).
Imports are most of what starting an engine costs: each is a fork of the process that has made them (``make_forks``). It
reads and writes messages: a line of JSON, which may say that so many bytes follow.

    asked   load (folder, dtype, rows, tokens, head_fp32), run (rows, tokens, shows, puts, names; ids follow), weight,
            travel (road, lengths: of the rows; their ids follow)
    told    loaded, tensor (name, op_type, dtype, shape, form, reads; values follow), done (logits follow), error

vLLM puts all rows' tokens into one row, stacks projections, and hands a layer's output on in two parts, which the next
norm adds. What is told are the model's own tensors: projections apart, the sum where the next norm makes it, and
``lm_head`` of every token. Where ``puts``, each tensor waits for what goes into its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any

for _name, _value in {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR",
}.items():  # fmt: skip
    os.environ.setdefault(_name, _value)

import numpy as np  # noqa: E402
import torch  # noqa: E402

INPUT, OUTPUT = "input_ids", "output.logits"

MESSAGE = 16
"""Bytes of each that goes through the socket."""


class Link:
    """Both directions to who asks."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = os.fdopen(read, "rb"), os.fdopen(write, "wb")

    def tell(self, message: dict[str, Any], values: Any = None) -> None:
        """values: a tensor on the CPU, or an array."""
        data = b"" if values is None else _bytes(values)
        self._write.write(json.dumps({**message, "bytes": len(data)}).encode() + b"\n" + data)
        self._write.flush()

    def hear(self) -> tuple[dict[str, Any], bytes]:
        line = self._read.readline()
        if not line:
            sys.exit(0)  # nobody is there any more
        message = json.loads(line)
        return message, self._read.read(message["bytes"])


def _bytes(values: Any) -> bytes:
    if isinstance(values, np.ndarray):
        return values.tobytes()
    plain = values.detach().cpu().contiguous()
    return bytes(plain.view(torch.uint8).numpy().tobytes()) if plain.numel() else b""


def _as_tensor(data: bytes, like: Any) -> Any:
    """Return what was sent in place of a tensor, in its type."""
    return torch.frombuffer(bytearray(data), dtype=like.dtype).reshape(like.shape).to(like.device)


def _place(value: Any) -> tuple[int, int]:
    """Where a tensor lies, and how large it is: the first part of a stacked one begins where the whole does."""
    return value.data_ptr(), value.numel()


class Watch:
    """Shows the tensors of a run as the model's modules make them.

    rows, tokens: of the run. ``looks``: what each tensor is made of is found out, by where tensors lie in memory; all
    are kept until the run ends, so that no place is used again.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.active = self.puts = self.shows = self.looks = False
        self.names: set[str] | None = None
        self.rows = self.tokens = 0
        self.fed: list[int] = []
        self.logits: Any = None
        self.outputs: dict[str, Any] = {}
        self.held: dict[str, tuple[str, Any]] | None = None
        self.at: tuple[Any, Any] = (None, None)
        self.size, self.steps = (0, 0), 0
        self._made: dict[tuple[int, int], list[str]] = {}
        self._kept: list[Any] = []
        self._pending: dict[int, tuple[str, Any]] = {}
        self._shown: set[str] = set()

    def begin(self, message: dict[str, Any]) -> None:
        self.active, self.shows, self.puts = True, message["shows"], message["puts"]
        self.looks = message.get("looks", False)
        self.names = None if message["names"] is None else set(message["names"])
        self.rows, self.tokens, self.logits = message["rows"], message["tokens"], None
        self.outputs, self._made, self._kept, self._pending = {}, {}, [], {}

    def gather(self, rows: int, tokens: int) -> None:
        """From here on, over several calls of the model, put what modules make where its tokens stand (``at``: a row
        and a place each), and tell nothing."""
        self.active, self.shows, self.puts, self.looks, self.names = True, True, False, False, None
        self.size, self.held, self.outputs, self._pending, self.steps = (rows, tokens), {}, {}, {}, 0

    def stand_at(self, rows: Any, places: Any) -> None:
        """Take note of a call of the model over these tokens."""
        self.steps += 1
        self.at, self.rows, self.tokens = (rows, places), 1, len(places)

    def reads(self, *values: Any) -> list[str]:
        """Return the shown tensors that are among these."""
        found = [self._made.get(_place(one), []) for one in values if isinstance(one, torch.Tensor)]
        return list(dict.fromkeys(name for names in found for name in names))

    def is_shown(self, name: str, value: Any) -> bool:
        """Return whether what a module of modules gives is what one of them gave; that is found out once."""
        if self.looks and _place(value) in self._made:
            self._shown.add(name)
        return name in self._shown

    def known_as(self, value: Any, *names: str) -> None:
        if self.looks and isinstance(value, torch.Tensor):
            self._made[_place(value)] = [*names]
            self._kept.append(value)

    def waits_as(self, value: Any, name: str) -> None:
        """The first part of an output in two parts, which the next norm adds."""
        self._pending[value.data_ptr()] = (name, value)

    def waiting(self, value: Any) -> str:
        return self._pending.pop(value.data_ptr(), ("", None))[0]

    def show(self, name: str, op_type: str, value: Any, reads: list[str], form: str = "tokens") -> Any:
        """Tell a tensor of so many rows of tokens, one below the other; what goes into its place, or None.

        form: "tokens": [rows, tokens, ...]. "heads": [rows, heads, tokens, ...] of [rows x tokens, heads, ...].
        "flat": as it is.
        """
        self.known_as(value, name)
        if not self.shows or (self.names is not None and name not in self.names):
            return None
        if self.held is not None:
            if value.shape[0] == self.tokens and value.is_floating_point():
                empty = (op_type, torch.full((*self.size, *value.shape[1:]), torch.nan))
                self.held.setdefault(name, empty)[1][self.at] = value.detach().float()
            return None
        told = self._arranged(value, form)
        about = {"is": "tensor", "name": name, "op_type": op_type, "form": form, "reads": reads}
        self._link.tell({**about, "dtype": str(told.dtype).removeprefix("torch."), "shape": list(told.shape)}, told)
        if not self.puts:
            return None
        answer, data = self._link.hear()
        if not answer["put"]:
            return None
        new = _as_tensor(data, told)
        back = new.transpose(1, 2) if form == "heads" else new
        return back.reshape(value.shape).contiguous()

    def _arranged(self, value: Any, form: str) -> Any:
        if form == "flat":
            return value
        apart = value.reshape(self.rows, -1, *value.shape[1:])
        return apart.transpose(1, 2) if form == "heads" else apart

    def kept(self, value: Any, window: int | None) -> Any:
        """Return what a cache keeps of tokens' keys or values: behind a sliding window nobody asks for them any more,
        and transformers, beside which they are compared, keeps one fewer than it lets a token see."""
        if not window or window > self.tokens or window < 2:
            return value
        return value.reshape(self.rows, self.tokens, *value.shape[1:])[:, 1 - window :].flatten(0, 1)


def watch_modules(watch: Watch, model: Any) -> None:
    """Put hooks on every module. Rotations are one object for all layers, and are seen where attention reads them."""
    packed: dict[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    for name, module in model.named_modules():
        kind, parent = type(module).__name__, name.rpartition(".")[0]
        if not name or "rotary" in name.rpartition(".")[2] or kind == "LogitsProcessor":
            continue
        if _is_attention(module):
            _watch_attention(watch, model, name, parent, module)
        elif kind.endswith("Norm") and not _has_children(module):
            _watch_norm(watch, name, module)
        elif name.rpartition(".")[2] in packed and len(packed[name.rpartition(".")[2]]) > 1:
            parts = [f"{parent}.{part}" for part in packed[name.rpartition(".")[2]]]
            _watch_packed(watch, parts, module)
        else:
            called = _input_of(model, parent, ("down_proj", "fc2")) if kind.endswith("AndMul") else name
            _watch_plain(watch, called or name, module)
    _watch_model(watch, model)


def _is_attention(module: Any) -> bool:
    return hasattr(module, "head_size") and hasattr(module, "num_kv_heads") and hasattr(module, "impl")


def _has_children(module: Any) -> bool:
    return any(True for _ in module.children())


def _has_residual(module: Any) -> bool:
    return "residual" in getattr(type(module).forward, "__code__", _has_residual.__code__).co_varnames


def _input_of(model: Any, parent: str, names: tuple[str, ...]) -> str:
    """Return what a module of one of these names is given, as a name; "" where there is none."""
    there = dict(model.get_submodule(parent).named_children())
    return next((f"{parent}.{name}.input" for name in names if name in there), "")


def _first(given: Any) -> Any:
    return next((one for one in (given if isinstance(given, tuple) else (given,)) if one is not None), None)


def _watch_attention(watch: Watch, model: Any, name: str, parent: str, module: Any) -> None:
    own = _input_of(model, parent, ("o_proj", "out_proj", "dense")) or name
    heads = {"q": module.num_heads, "k": module.num_kv_heads, "v": module.num_kv_heads}
    number = next((part for part in name.split(".") if part.isdigit()), "")

    def before(_module: Any, given: Any) -> Any:
        if not watch.active:
            return None
        new = list(given)
        for place, letter in enumerate("qk"):
            one = given[place]
            apart = one.reshape(one.shape[0], heads[letter], -1)
            put = watch.show(f"{parent}.rotated_{letter}", "RotaryEmbedding", apart, watch.reads(one), "heads")
            if put is not None:
                new[place] = put.reshape(one.shape)
            watch.known_as(new[place], f"{parent}.rotated_{letter}")
        if number and watch.held is None:
            for letter, what, place in (("k", "keys", 1), ("v", "values", 2)):
                one = new[place]
                apart = one.reshape(one.shape[0], heads[letter], -1)
                of_layer = f"output.past_key_values.layers[{number}].{what}"
                watch.outputs[of_layer] = (watch.kept(apart, module.sliding_window).clone(), watch.reads(one))
        return tuple(new)

    def after(_module: Any, given: Any, gave: Any) -> Any:
        if not watch.active:
            return None
        return watch.show(own, "Attention", gave, watch.reads(*given[:3]))

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)


def _watch_norm(watch: Watch, name: str, module: Any) -> None:
    def before(_module: Any, given: Any) -> Any:
        if not watch.active or len(given) < 2 or given[1] is None:
            return None
        total = given[0] + given[1]
        called = watch.waiting(given[0]) or f"{name}.input"
        put = watch.show(called, "Add", total, watch.reads(*given[:2]))
        watch.known_as(given[1], called)  # which the norm hands on in its place
        if put is None:
            return None
        new = (put, torch.zeros_like(put), *given[2:])
        watch.known_as(new[0], called)
        return new

    def after(_module: Any, given: Any, gave: Any) -> Any:
        if not watch.active:
            return None
        apart = isinstance(gave, tuple)
        total = watch.reads(given[1]) if apart else watch.reads(given[0])
        if apart and total:
            watch.known_as(gave[1], total[0])
        put = watch.show(name, type(module).__name__, gave[0] if apart else gave, total)
        if put is None:
            return None
        return (put, *gave[1:]) if apart else put

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)


def _watch_packed(watch: Watch, names: list[str], module: Any) -> None:
    def after(_module: Any, given: Any, gave: Any) -> Any:
        if not watch.active:
            return None
        whole = _first(gave)
        sizes = list(module.output_partition_sizes)
        new, start = whole, 0
        for name, size in zip(names, sizes, strict=True):
            part = new[..., start : start + size]
            put = watch.show(name, "Linear", part, watch.reads(*given))
            if put is not None:
                part.copy_(put)
            watch.known_as(part, name)
            start += size
        watch.known_as(whole, *names)
        return None

    module.register_forward_hook(after)


def _watch_plain(watch: Watch, name: str, module: Any) -> None:
    kind = type(module).__name__
    routes = name.endswith(".gate") and kind.endswith("Linear")

    def after(_module: Any, given: Any, named: Any, gave: Any) -> Any:
        if not watch.active:
            return None
        one = _first(gave)
        if not isinstance(one, torch.Tensor) or not one.ndim or one.shape[0] != watch.rows * watch.tokens:
            return None
        if _has_children(module) and isinstance(gave, tuple) and len(gave) == 2 and _has_residual(module):
            watch.waits_as(one, name)
            return None
        if _has_children(module) and watch.is_shown(name, one):
            return None
        what = "Linear" if kind.endswith("Linear") else "Embedding" if "Embedding" in kind else kind
        put = watch.show(name, what, one, watch.reads(*given, *named.values()), "flat" if routes else "tokens")
        if put is None:
            return None
        return (put, *gave[1:]) if isinstance(gave, tuple) else put

    module.register_forward_hook(after, with_kwargs=True)


def _watch_model(watch: Watch, model: Any) -> None:
    """All tokens' logits, by the engine's own head: the engine itself asks for those of the last token alone."""

    def before(_module: Any, _given: Any, named: Any) -> Any:
        ids = named.get("input_ids")
        if not watch.active or watch.held is not None:
            return None
        if ids is None or ids.reshape(-1).tolist() != watch.fed:
            raise RuntimeError(f"it runs {0 if ids is None else ids.numel()} tokens at once, not {len(watch.fed)}")
        watch.known_as(ids, INPUT)
        return None

    def after(_module: Any, _given: Any, gave: Any) -> Any:
        if not watch.active:
            return None
        hidden = _first(gave)
        reads = watch.reads(hidden)
        logits = model.compute_logits(hidden)
        how = getattr(model, "logits_processor", None)
        if getattr(how, "soft_cap", None) is None and getattr(how, "scale", 1.0) == 1.0:
            put = watch.show("lm_head", "Linear", logits, reads)
            logits, reads = (logits if put is None else put), ["lm_head"]
        for name, (value, made) in watch.outputs.items():
            watch.show(name, "Output", value, made, "heads")
        watch.show(OUTPUT, "Output", logits, reads)
        if watch.held is None:
            watch.logits, watch.active = logits, False  # what is sampled after it is no run of ours
        return None

    model.register_forward_pre_hook(before, with_kwargs=True)
    model.register_forward_hook(after)


class Engine:
    """A loaded model. Raises what vLLM raises."""

    def __init__(self, link: Link, asked: dict[str, Any]) -> None:
        from vllm import LLM

        self._link, self._folder, self.watch = link, asked["folder"], Watch(link)
        self._dtype = getattr(torch, asked["dtype"])
        every = asked["rows"] * asked["tokens"]
        more = {"hf_overrides": {"head_dtype": "float32"}} if asked["head_fp32"] else {}
        self._llm = LLM(
            model=self._folder, skip_tokenizer_init=True, enforce_eager=True, dtype=asked["dtype"],
            max_model_len=asked["tokens"] + 1, max_num_seqs=asked["rows"],
            max_num_batched_tokens=asked.get("budget") or max(every, 64) + 64,
            enable_prefix_caching=False, seed=0, async_scheduling=False, **more,
        )  # fmt: skip
        self._runner: Any = None
        self._rows: list[Any] = []
        self._first = 0
        self._llm.collective_rpc(self._take_runner)
        self._llm.apply_model(self._watch)

    def _take_runner(self, worker: Any) -> None:
        self._runner = worker.model_runner
        sample = self._runner.sampler.forward

        def forced(*given: Any, **named: Any) -> Any:
            """What the row goes on with, in the place of what the model would have chosen."""
            found = sample(*given, **named)
            for line, (row, place) in enumerate(self._ends() if self.watch.held is not None else ()):
                if place + 1 < len(self._rows[row]):
                    found.sampled_token_ids[line, 0] = int(self._rows[row][place + 1])
            return found

        self._runner.sampler.forward = forced

    def _watch(self, model: Any) -> None:
        def before(_module: Any, _given: Any, named: Any) -> None:
            if not self.watch.active or self.watch.held is None:
                return
            ids, positions = named["input_ids"].reshape(-1), named["positions"].reshape(-1).long()
            counts = self._counts()
            if sum(counts) != len(ids):
                raise RuntimeError(f"it runs {len(ids)} tokens, of which {sum(counts)} are asked for")
            rows = torch.tensor(self._lines()).repeat_interleave(torch.tensor(counts))
            self.watch.stand_at(rows, positions.clone())
            fed = [int(self._rows[row][place]) for row, place in zip(rows.tolist(), positions.tolist(), strict=True)]
            if fed != ids.tolist():
                raise RuntimeError("it was given other tokens than those of the rows")

        model.register_forward_pre_hook(before, with_kwargs=True)
        watch_modules(self.watch, model)

    def _lines(self) -> list[int]:
        """Return which row each line of the engine's batch is: requests are numbered as they are made."""
        batch = self._runner.input_batch
        return [int(name.partition("-")[0]) - self._first for name in batch.req_ids[: batch.num_reqs]]

    def _counts(self) -> list[int]:
        """Return how many tokens each line of the batch has in this step."""
        count = self._runner.input_batch.num_reqs
        return [int(one) for one in np.diff(self._runner.query_start_loc.np[: count + 1])]

    def _ends(self) -> list[tuple[int, int]]:
        """Return each line's row, and the place of its last token in this step."""
        rows, places = self.watch.at
        lasts = np.cumsum(self._counts()) - 1
        return [(int(rows[last]), int(places[last])) for last in lasts]

    def travel(self, asked: dict[str, Any], data: bytes) -> None:
        """Run rows of any lengths by a road, and tell what each module made of each token: [rows, tokens, ...]."""
        from vllm import SamplingParams

        ends = np.cumsum(asked["lengths"])
        self._rows = np.split(np.frombuffer(data, np.int64), ends[:-1])
        self.watch.gather(len(self._rows), max(asked["lengths"]))
        decodes = asked["road"] == "decode"
        starts = [row[: max(1, len(row) // 2)] if decodes else row for row in self._rows]
        hows = [
            SamplingParams(max_tokens=len(row) - len(start) + 1, temperature=0, detokenize=False, ignore_eos=True)
            for row, start in zip(self._rows, starts, strict=True)
        ]
        prompts = [{"prompt_token_ids": start.tolist()} for start in starts]
        self._first = int(self._llm.request_counter.counter)
        try:
            if asked["road"] == "alone":
                for prompt, how in zip(prompts, hows, strict=True):
                    self._llm.generate([prompt], [how], use_tqdm=False)
            else:
                self._llm.generate(prompts, hows, use_tqdm=False)
            held = self.watch.held or {}
        finally:
            self.watch.active, self.watch.held = False, None
        for name, (op_type, value) in held.items():
            told = {"is": "tensor", "name": name, "op_type": op_type, "shape": list(value.shape)}
            self._link.tell(told, value)
        self._link.tell({"is": "done", "steps": self.watch.steps})

    def run(self, asked: dict[str, Any], data: bytes) -> None:
        from vllm import SamplingParams

        ids = np.frombuffer(data, np.int64).reshape(asked["rows"], asked["tokens"])
        self.watch.begin(asked)
        self.watch.fed = ids.reshape(-1).tolist()
        told = torch.from_numpy(ids.copy()).reshape(-1)
        put = self.watch.show(INPUT, "Input", told, [])
        if put is not None:
            self.watch.fed = put.tolist()
            ids = put.numpy().reshape(ids.shape)
        how = SamplingParams(max_tokens=1, temperature=0, detokenize=False, ignore_eos=True)
        try:
            self._llm.generate([{"prompt_token_ids": row.tolist()} for row in ids], how, use_tqdm=False)
        finally:
            self.watch.active = False
        if self.watch.logits is None:
            raise RuntimeError("it never ran these tokens in one step")
        outputs = [OUTPUT, *self.watch.outputs]
        self._link.tell({"is": "done", "outputs": outputs})
        for name in outputs:
            value = self.watch.logits if name == OUTPUT else self.watch.outputs[name][0]
            apart = value.reshape(asked["rows"], -1, *value.shape[1:])
            apart = apart if name == OUTPUT else apart.transpose(1, 2)
            kind = str(apart.dtype).removeprefix("torch.")
            self._link.tell({"is": "output", "name": name, "dtype": kind, "shape": list(apart.shape)}, apart)

    def weight(self, name: str) -> None:
        """A parameter as the file has it, in the type in which the engine holds it; of a tied head the embedding's.

        Products' weights are laid out anew when a model is loaded, so that the engine cannot be asked."""
        import pathlib

        from safetensors import safe_open

        for wanted in (name, "model.embed_tokens.weight") if name == "lm_head.weight" else (name,):
            for file in sorted(pathlib.Path(self._folder).glob("*.safetensors")):
                with safe_open(file, "pt") as opened:
                    if wanted in opened.keys():  # noqa: SIM118
                        one = opened.get_tensor(wanted).to(self._dtype).float()
                        self._link.tell({"is": "weight", "shape": list(one.shape)}, one)
                        return
        self._link.tell({"is": "weight", "shape": None})


def _versions() -> dict[str, str]:
    import transformers
    import vllm

    return {"vllm": vllm.__version__, "torch": torch.__version__, "transformers": transformers.__version__}


def serve(link: Link) -> None:
    """Answer until nobody asks any more."""
    engine: Engine | None = None
    while True:
        asked, data = link.hear()
        try:
            if asked["do"] == "load":
                engine = Engine(link, asked)
                link.tell({"is": "loaded", "versions": _versions()})
            elif engine is not None and asked["do"] == "run":
                engine.run(asked, data)
            elif engine is not None and asked["do"] == "travel":
                engine.travel(asked, data)
            elif engine is not None:
                engine.weight(asked["name"])
        except Exception as error:
            link.tell({"is": "error", "what": " ".join(f"{type(error).__name__}: {error}".split())[:2000]})


def make_forks(asked: socket.socket) -> None:
    """Serve in a fork of this process whoever sends where to read, to write and to print; answer with its number. A
    number that is sent is that of a fork to end; all end when nobody is there any more."""
    with contextlib.suppress(Exception):  # a fork says so when it is asked to load a model
        import vllm.entrypoints.llm
        import vllm.v1.engine.core  # noqa: F401
    children: set[int] = set()
    while True:
        message, ends, _, _ = socket.recv_fds(asked, MESSAGE, 3)
        if ends:
            child = os.fork()
            if not child:
                asked.close()
                for stream in (1, 2):
                    os.dup2(ends[2], stream)
                serve(Link(ends[0], ends[1]))
            children.add(child)
            asked.sendall(str(child).encode().ljust(MESSAGE))
            for end in ends:
                os.close(end)
            continue
        for child in children & {int(message)} if message else {*children}:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            children.remove(child)
        if not message:
            return


if __name__ == "__main__":
    make_forks(socket.socket(fileno=int(sys.argv[1])))
