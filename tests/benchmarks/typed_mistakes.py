"""77 mistakes of somebody's first hour, typed, and how they are answered.

    PYTHONPATH=.:backends python tests/benchmarks/typed_mistakes.py [--only WORD]

Answered well: status 2, no traceback, at most three lines, and the words that lead on: the right option, file, mode or
command; for `help`, `version` and nothing at all the help or the version itself. The words were written down before the
tool was asked. Prints a table; ends with 1 where fewer than 60 are.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
M, F = "--model_file digits.onnx", "--run_mode ort_fp16"
MISTAKES = [
    (words.strip().replace("$M", M).replace("$F", F), leads_on.strip())
    for words, leads_on in (
        line.split(" => ")
        for line in r"""
                                                               => --model_file|--help
digits.onnx                                                    => --model_file digits\.onnx
$M                                                             => --run_mode
--run_mode ort_fp16                                            => --model_file
compare digits.onnx                                            => --model_file
help                                                           => --help
run digits.onnx --trt --onnxrt                                 => --run_mode
version                                                        => \d\.\d
$M --runmode ort_fp16                                          => --run_mode
$M --mode ort_fp16                                             => --run_mode
$M --run_mod ort_fp16 --inputz x                               => --inputs
$M $F --input images.npz                                       => --inputs
$M $F --tolerance 1e-3                                         => --atol|--rtol
$M $F --tol 1e-3                                               => --atol
$M $F --out r.html                                             => --output
$M $F --precision fp16                                         => --run_mode|constraints
$M $F --shape 1,1,8,8                                          => --input_shapes
--onnx digits.onnx --fp16                                      => --model_file|--run_mode
$M $F --batch 8                                                => --input_shapes
$M $F --gpu                                                    => cuda|trt|--run_mode|--device
$M $F --html                                                   => --output
$M $F --lang cn                                                => zh
-m digits.onnx --run_mode ort_fp16                             => --model_file
$M -–run_mode ort_fp16                                         => --run_mode|dash|hyphen
$M --run_mode fp16                                             => ort_fp16
$M --run_mode int8                                             => ort_int8
$M --run_mode onnxruntime_fp16                                 => ort_fp16
$M --run_mode ort_f16                                          => ort_fp16
$M --run_mode trt                                              => trt_fp16|trt_fp32
$M --run_mode trt_fp16                                         => pip install|tensorrt
$M --run_mode ov_fp32                                          => pip install
$M --run_mode torch_fp16                                       => ort_|onnx|\.onnx
$M --run_mode ort                                              => ort_fp16|ort_opt
$M --run_mode ort_fp16,ort_int8                                => sweep|one
$M --run_mode ort_fp8                                          => doctor|ort_
$M --run_mode ORT_FP16                                         => ort_fp16
$M $F --baseline fp32                                          => ort_fp32
$M $F --baseline other.onnx                                    => --baseline_model|no such
$M --run_mode ort_cuda_fp16                                    => onnxruntime-gpu
$M --run_mode ort_fp32 --baseline ort_fp32                     => same|itself
--model_file digit.onnx --run_mode ort_fp16                    => digits\.onnx|no such file
--model_file . --run_mode ort_fp16                             => --model_dir|folder|file
--model_file notes.txt --run_mode ort_fp16                     => \.onnx|format|reads
--model_file empty.onnx --run_mode ort_fp16                    => empty|not an ONNX|cut
--model_file cut.onnx --run_mode ort_fp16                      => cut|damaged|complete|not
--model_file page.onnx --run_mode ort_fp16                     => HTML|page|download|not
--model_file lfs.onnx --run_mode ort_fp16                      => git lfs|LFS
--model_file weights.pth --run_mode torch_fp16                 => factory|module|\.py|pip install
--model_file model.pb --run_mode ort_fp16                      => onnx|format|reads
--model_file images.npz --run_mode ort_fp16                    => --inputs|model
--model_file https://example.com/m.onnx --run_mode ort_fp16    => download|local|file
--model_file sealed.onnx --run_mode ort_fp16                   => weights\.bin|external
--model_file net.py --run_mode torch_fp16                      => net\.py:|pip install
--model_dir digits.onnx --run_mode ort_fp16                    => --model_file
$M $F --inputs image.npz                                       => images\.npz|no such
$M $F --inputs wrong_name.npz                                  => 'image'
$M $F --inputs wrong_shape.npz                                 => shape|\[.*8
$M $F --inputs text.npy                                        => text|float|dtype|type
$M $F --inputs cat.jpg                                         => \.npy|\.npz|script|preprocess
$M $F --inputs nan.npz                                         => NaN
$M $F --inputs nothing                                         => no such|empty|contains no
$M $F --input_shapes 1,1,8,8                                   => image:\[|NAME
$M $F --input_shapes img:[1,1,8,8]                           => image
$M $F --input_shapes image:1x1x8x8                             => \[1
$M $F --input_shapes image:[1,3,8,8]                          => 1|shape
$M $F --val_range 0                                            => 0,1|two|LOW
$M $F --inputs load.py                                         => load\.py:
$M $F --atol abc                                               => number
$M $F --atol -1                                                => 0|negative|at least
$M $F --check_error_stat avg                                   => mean
$M $F --output r.pdf                                           => \.html|\.xlsx
$M $F --output r                                               => \.html|\.xlsx
$M $F --output /proc/r.html                                    => writ|folder|another
$M $F --mark nosuch                                            => match|no tensor|names
$M $F --option foo=1                                           => foo|doctor --settings
serch $M --run_mode ort_fp16                                   => search
diff r1.json                                                   => two|second|usage|B
""".strip("\n").splitlines()
    )
]
"""What is typed, and the words that lead on, as a pattern."""


_NO_MISTAKES = ("", "help", "version")


def lay_out(folder: Path) -> None:
    """The files that the commands name."""
    from shutil import copy2

    copy2(ROOT / "examples/digits/digits.onnx", folder)
    copy2(ROOT / "examples/digits/test_images.npz", folder / "images.npz")
    whole = (folder / "digits.onnx").read_bytes()
    for name, content in {
        "notes.txt": b"remember the milk\n", "empty.onnx": b"", "cut.onnx": whole[: len(whole) // 2],
        "page.onnx": b"<!doctype html><html><body>404</body></html>", "model.pb": b"\x0a\x02pb",
        "lfs.onnx": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n",
        "weights.pth": b"PK\x03\x04junk", "cat.jpg": b"\xff\xd8\xff\xe0junk",
        "net.py": b"def net():\n    return None\n", "load.py": b"x = 1\n",
    }.items():  # fmt: skip
        (folder / name).write_bytes(content)
    (folder / "nothing").mkdir()
    images = np.load(folder / "images.npz")
    [name] = images.files
    few = images[name][:2]
    np.savez(folder / "wrong_name.npz", picture=few)
    np.savez(folder / "wrong_shape.npz", **{name: few[..., :5]})
    np.savez(folder / "nan.npz", **{name: few * np.float32("nan")})
    np.save(folder / "text.npy", np.array(["a", "b"]))
    import onnx

    model = onnx.load(folder / "digits.onnx")
    onnx.save_model(model, folder / "sealed.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    (folder / "weights.bin").unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    well = asked = 0
    environment = {**os.environ, "COLUMNS": "200", "LC_ALL": "C.UTF-8", "OMP_WAIT_POLICY": "passive"}
    with tempfile.TemporaryDirectory() as made:
        lay_out(Path(made))
        for words, leads_on in MISTAKES:
            if options.only not in words:
                continue
            asked += 1
            done = subprocess.run(
                [sys.executable, "-m", "precision_debug", *shlex.split(words)], cwd=made, env=environment,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            said = (done.stderr + done.stdout).strip()
            lines = [line for line in said.splitlines() if line.strip() and not line.startswith("  ")]
            wrong = [
                what for what, bad in {
                    f"status {done.returncode}": done.returncode != 2 and words not in _NO_MISTAKES,
                    "traceback": "Traceback" in said,
                    f"{len(lines)} lines": len(lines) > 3 and words not in _NO_MISTAKES,
                    f"no {leads_on}": not re.search(leads_on, said),
                }.items() if bad
            ]  # fmt: skip
            well += not wrong
            verdict = ", ".join(wrong) or "well"
            print(f"| {verdict} | `{words}` | {' / '.join(lines)[:300]} |", flush=True)
    print(f"{well} of {asked} answered well")
    return int(well < asked * 60 / 77)


if __name__ == "__main__":
    sys.exit(main())
