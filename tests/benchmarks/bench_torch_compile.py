"""What torch_compile costs: processor time of our whole command against torch.compile and one run, caches empty.

`python tests/benchmarks/bench_torch_compile.py bert vit …`, without names all of them, each as soon as it is measured;
models of one layer, since the compilers take as long for every further one. A command that fails ends it. Wall time
says nothing on shared cores, so the user's and the system's time of every process are added up, compilers included.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile

MODELS = """
import torch, transformers

def made(kind, config, **inputs):
    torch.manual_seed(0)
    return kind(config).eval(), inputs

def ids(count=32):
    return torch.randint(0, 1000, (1, count), generator=torch.Generator().manual_seed(1))

def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))

SIZES = dict(hidden_size=128, num_hidden_layers=1, num_attention_heads=2, intermediate_size=512)

def bert():
    return made(transformers.BertModel, transformers.BertConfig(vocab_size=1000, **SIZES), input_ids=ids())

def vit():
    config = transformers.ViTConfig(image_size=64, patch_size=16, **SIZES)
    return made(transformers.ViTForImageClassification, config, pixel_values=noise(1, 3, 64, 64))

def t5():
    config = transformers.T5Config(d_model=128, d_kv=32, d_ff=256, num_layers=1, num_heads=4, vocab_size=1000,
                                   decoder_start_token_id=0)
    return made(transformers.T5ForConditionalGeneration, config, input_ids=ids(), decoder_input_ids=ids(8))

def whisper():
    config = transformers.WhisperConfig(
        d_model=128, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=1000, max_source_positions=50, max_target_positions=32,
        num_mel_bins=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return made(transformers.WhisperForConditionalGeneration, config, input_features=noise(1, 16, 100),
                decoder_input_ids=ids(8))

def llama():
    config = transformers.LlamaConfig(hidden_size=128, num_hidden_layers=1, num_attention_heads=4,
                                      num_key_value_heads=2, intermediate_size=256, vocab_size=1000)
    return made(transformers.LlamaForCausalLM, config, input_ids=ids())

def gpt2():
    config = transformers.GPT2Config(n_layer=1, n_head=4, n_embd=128, vocab_size=1000, n_positions=64)
    return made(transformers.GPT2LMHeadModel, config, input_ids=ids())

def resnet():
    config = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], layer_type="basic")
    return made(transformers.ResNetForImageClassification, config, pixel_values=noise(1, 3, 64, 64))
"""
NAMES = ("resnet", "gpt2", "bert", "vit", "llama", "t5", "whisper")
BARE = """
import torch, models
model, inputs = models.{}()
with torch.no_grad():
    torch.compile(model, dynamic=False, options=dict(fallback_random=True))(**inputs)
"""


def seconds(command: list[str], folder: str, *, ends: tuple[int, ...] = (0,)) -> float:
    """Processor time of a command and its children, with no kernel compiled before. ends: exit statuses of a command
    that did its work; any other raises, since what failed early would seem quick."""
    with tempfile.TemporaryDirectory() as cache:
        own = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run(command, cwd=folder, env=own, check=False, capture_output=True, text=True)
        if ran.returncode not in ends:
            raise SystemExit(f"{command}: status {ran.returncode}\n{ran.stderr[-2000:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/models.py", "w") as file:
            file.write(MODELS)
        for name in sys.argv[1:] or NAMES:
            bare = seconds([sys.executable, "-c", BARE.format(name)], folder)
            ours = seconds(
                [sys.executable, "-m", "precision_debug", "--model_file", f"models.py:{name}", "--run_mode",
                 "torch_compile", "--device", "cpu", "--output", "r.xlsx", "--output", "r.json"], folder, ends=(0, 1),
            )  # fmt: skip
            print(f"| {name} | {bare:.0f} | {ours:.0f} | {ours / bare:.2f} |", flush=True)


if __name__ == "__main__":
    main()
