"""The command of a comparison as the search that follows it."""

from __future__ import annotations

import re
import shlex

__all__ = ["search_command"]

_VERB = "precision_debug"

_LEFT_OUT = (
    "--output", "--record", "--lang", "--gen_script", "--plots", "--checkpoint", "--demo_sheet", "--quiet", "--verbose",
)  # fmt: skip
"""Of a comparison's options, those that say where it goes, in which language and how loud: a search has a report of its
own."""

_SHORT = re.compile("-[oqv]")
"""The same by their letters: -o r.html, -or.html, -qo r.html."""

_DROP = "1%"
"""How much worse a metric may get in the search for what to keep, where nobody said it of the comparison."""


def search_command(command: str) -> str:
    """In backquotes; "" where the command is none that was typed, or is not of a comparison.

    "python -m precision_debug --model_file m.onnx --run_mode ov_int8 --output a.xlsx" becomes
    "`python -m precision_debug search --model_file m.onnx --run_mode ov_int8`".
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    place = words.index(_VERB) + 1 if _VERB in words else 0
    if not place or place >= len(words) or not words[place].startswith("--"):
        return ""
    kept: list[str] = []
    skipping = False
    for word in words[place:]:
        if re.match(r"--?[A-Za-z]", word):
            name = word.partition("=")[0].replace("-", "_").replace("__", "--", 1)
            skipping = name in _LEFT_OUT or _SHORT.match(word) is not None
        if not skipping:
            kept.append(word)
    named = {word.partition("=")[0] for word in kept}
    if "--metric" in named and not named & {"--metric_drop", "--limit"}:
        kept += ["--metric_drop", _DROP]
    return f"`{shlex.join([*words[:place], 'search', *kept])}`"
