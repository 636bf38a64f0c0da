"""What ggml's types are in the words that numpy and this project have."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["find_arithmetic", "name_node"]

_WORDS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "Q8_0": "int8", "Q8_1": "int8", "Q8_K": "int8"}
"""Of a product's weights: what llama.cpp rounds its other operand to as well, where that is not float32."""


def find_arithmetic(types: Iterable[tuple[str, int]], cache: str, *, fused: bool) -> str:
    """Return the type that most of the products' weights are held in, as what it rounds like: "int4" of all blocks of
    fewer than 8 bits a number. types: ggml's name and how many numbers, of each product's weight. Where all are F32
    what keys and values are kept in decides."""
    count: dict[str, int] = {}
    for name, elements in types:
        word = _WORDS.get(name, "int4")
        count[word] = count.get(word, 0) + elements
    most = max(count, key=lambda word: count[word]) if count else "float32"
    if most == "float32" and (fused or cache != "F32"):
        return "float16" if cache in {"F32", "F16"} else _WORDS.get(cache, "int4")
    return "" if most == "float32" else most


def name_node(weights: Iterable[str]) -> str:
    """Return what a node is called after the first of its weights: "blk.0.attn_q.weight" to "blk.0.attn_q"."""
    first = next(iter(weights), "")
    return first.removesuffix(".weight").removesuffix(".bias")
