"""What ``forward`` takes, where no example inputs came with a module: what its signature, its tables and the
configuration of a transformers model tell."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from precision_debug.feeds.factory import list_inputs
from precision_debug.records import InputMeta

__all__ = ["forward_inputs"]

Shape = tuple[int | str, ...]


def forward_inputs(module: Any) -> tuple[InputMeta, ...]:
    """Return the inputs of a module's ``forward``, types and shapes guessed."""
    signature = inspect.signature(module.forward)
    shapes = _published(module, list(signature.parameters))
    return list_inputs(signature, table=_table(module), needed=shapes, shapes={k: v for k, v in shapes.items() if v})


def _table(module: Any) -> int | None:
    """Return rows of the table of tokens: the one that the module calls its input embeddings, else its first one."""
    tables = [part for part in module.modules() if isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag))]
    try:
        own = module.get_input_embeddings()
    except Exception:  # no such method, or a model without one
        own = None
    first = own if own in tables else next(iter(tables), None)
    return None if first is None else int(first.num_embeddings)


def _published(module: Any, parameters: Sequence[str]) -> dict[str, Shape | None]:
    """Return inputs that a model of the transformers library cannot do without, all of which have a default in its
    forward.

    It names the main one; shapes by the names that its configurations use. A model of timm tells the size of its
    picture. {} for any other module.
    """
    main, config = getattr(module, "main_input_name", None), getattr(module, "config", None)
    picture = _timm(module)
    if picture and parameters:
        return {parameters[0]: picture}
    if not isinstance(main, str) or config is None:
        return {}
    needed = [main]
    if getattr(config, "is_encoder_decoder", False) is True:
        needed.append("decoder_input_ids")
    if hasattr(config, "vision_config"):
        needed.append("pixel_values")
    return {name: _shape(name, config) for name in dict.fromkeys(needed) if name in parameters}


def _timm(module: Any) -> Shape:
    """Return the picture that a model of timm takes: as it was built, else as it was trained on. () for any other
    module."""
    trained = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None)
    size = trained.get("input_size") if isinstance(trained, dict) else getattr(trained, "input_size", None)
    if not (isinstance(size, (tuple, list)) and len(size) == 3 and all(isinstance(one, int) for one in size)):
        return ()
    built = getattr(getattr(module, "patch_embed", None), "img_size", None)
    sides = built if isinstance(built, (tuple, list)) and len(built) == 2 else size[1:]
    channels = getattr(module, "in_chans", None)
    return "batch", channels if isinstance(channels, int) else size[0], int(sides[0]), int(sides[1])


def _shape(name: str, config: Any) -> Shape | None:
    if name.endswith("input_ids"):
        return "batch", "sequence"
    if name == "pixel_values":
        return _image(getattr(config, "vision_config", config))
    mels = getattr(config, "num_mel_bins", None)
    if name == "input_features" and mels and hasattr(config, "max_source_positions"):
        return "batch", int(mels), 2 * int(config.max_source_positions)  # the encoder halves the frames
    if name == "input_values":
        return ("batch", int(config.max_length), int(mels)) if mels and hasattr(config, "max_length") else (
            "batch", "samples",
        )  # fmt: skip
    return None


def _image(config: Any) -> Shape:
    size = getattr(config, "image_size", None)
    sides = [size, size] if isinstance(size, int) else list(size) if isinstance(size, (list, tuple)) else []
    middle: Shape = (int(sides[0]), int(sides[1])) if len(sides) == 2 else ("height", "width")
    channels = getattr(config, "num_channels", 3)
    frames = getattr(config, "num_frames", None)
    film = (int(frames),) if isinstance(frames, int) else ()
    return "batch", *film, channels if isinstance(channels, int) else 3, *middle
