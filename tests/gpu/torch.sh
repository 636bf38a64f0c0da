#!/usr/bin/env bash
# Every GPU check of the PyTorch backend, one after the other, each allowed to fail; about 5 minutes on an H200.
# Start from the repository's root: OUT=some/folder bash tests/gpu/torch.sh
set -u
export OUT="${OUT:-output}" PYTHONPATH=".:backends:tests${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$OUT"
step() { echo "== $*"; timeout 240 "$@" >>"$OUT/torch.log" 2>&1; echo "   exit status $?"; }
step python tests/gpu/torch_cuda.py
step python tests/gpu/bench_device_compare.py
step python tests/gpu/torch_llama.py --layers 2 --tokens 256
cp -f "$OUT/llama.json" "$OUT/llama_small.json" 2>/dev/null
step python tests/gpu/torch_llama.py
tail -n 60 "$OUT/torch.log"
