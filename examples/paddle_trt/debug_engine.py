"""Paddle-Inference-Demo's tensorrt_precision_debug, step by step: all tensors, a section, the fused layers."""

from __future__ import annotations

import sys

import precision_debug
from precision_debug import assign_mark_names, get_mark_names_from_serialized_json
from precision_debug.records import ModelFiles


def main(model: str, params: str, mode: str = "trt_fp16", inspector: str = "cache/engine_info_*.json") -> None:
    files = ModelFiles(model_file=model, params_file=params)

    def compare(name: str, **settings: object) -> precision_debug.Report:
        report = precision_debug.compare(
            files, run_mode=mode, atol=1e-2, rtol=1e-2, output=f"output/{name}.xlsx", **settings
        )
        first = report.first_mismatch
        print(f"{name:8s} {len(report.compared)} compared, first mismatch: {first.name if first else 'none'}")
        return report

    # 1. every tensor is marked: all are seen, but the engine is no longer the one that ships
    every = [row.name for row in compare("all").compared]
    # 2. a section between two names, in execution order
    compare("section", marks=assign_mark_names(every[len(every) // 3], every[-2], baseline=every))
    # 3. the engine that ships leaves its inspector file in cache/, and only what it still computes is marked
    if mode.startswith("trt"):
        compare("shipped", mark_all=False, cache_dir="cache")
    names = get_mark_names_from_serialized_json(inspector)
    compare("fused", marks=[name for name in names if name in every])


if __name__ == "__main__":
    main(*sys.argv[1:])
