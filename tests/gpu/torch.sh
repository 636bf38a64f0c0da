#!/usr/bin/env bash
# Every GPU check of the PyTorch backend, one after the other, each allowed to fail; about 4 minutes on an H200.
# Start from the repository's root: OUT=some/folder PYTHON=python3.12 bash tests/gpu/torch.sh
# The recordings of the last step are the baselines of `torch_record.py compare` where TensorRT is.
set -u
export OUT="${OUT:-output}" PYTHONPATH=".:backends:tests${PYTHONPATH:+:$PYTHONPATH}"
PYTHON="${PYTHON:-python}"
mkdir -p "$OUT"
step() { echo "== $*"; timeout 240 "$@" >>"$OUT/torch.log" 2>&1; echo "   exit status $?"; }
step "$PYTHON" tests/gpu/torch_llama.py --layers 2 --tokens 256
cp -f "$OUT/llama.json" "$OUT/llama_small.json" 2>/dev/null
step "$PYTHON" tests/gpu/torch_llama.py
step "$PYTHON" tests/gpu/torch_cuda.py
OUT="${RECORD:-$OUT/record}" step "$PYTHON" tests/gpu/torch_record.py record
tail -n 60 "$OUT/torch.log"
