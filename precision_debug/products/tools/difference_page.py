"""The difference between two reports as one self-contained page."""

from __future__ import annotations

from ...reasons import Text
from ...report.difference import Difference, Tensor
from ...report.formats.html.small_page import small_page
from ...report.formats.html.text import both, escaped
from .difference_sentences import CHANGES, TONE_OF, errors, ordered, ratio, sentences

__all__ = ["difference_page"]

_STYLE = """
#changes td:nth-child(2) { overflow-wrap: anywhere; min-width: 110px; } #changes td:first-child { min-width: 0; }
@media print { #changes { font-size: 9px; } }
"""

def difference_page(found: Difference, language: str = "") -> str:
    """The page. language: "en" or "zh", which it opens in; "": what the reader's browser prefers."""
    before, after = found.before, found.after
    model = after.spec.model.path or after.target.model
    about = f"{model} {before.target.mode} → {after.target.mode}"
    changed = ordered(found)
    lines = "".join(map(_line, changed))
    head = (Text("Change", "变化"), Text("Tensor", "张量"), Text("Rel L2", "相对 L2"), Text("Ratio", "比值"))
    top = "".join(f'<th{" class=right" * (place > 1)}>{both(title)}</th>' for place, title in enumerate(head))
    title = both(Text("What changed, worst first", "变化的张量（变差的在前）"))
    table = (
        f'<section class="card"><h2>{title}</h2><div class="wide"><table class="list" id="changes"><thead><tr>{top}'
        f"</tr></thead><tbody>{lines}</tbody></table></div></section>"
    )
    chip, tone = Text("Before and after", "前后对比"), "bad" if found.regressed else "good"
    return small_page(
        chip, about, sentences(found), tone, table if changed else "", style=_STYLE, language=language
    )


def _line(tensor: Tensor) -> str:
    chip = f'<span class="chip {TONE_OF[tensor.change]}">{both(CHANGES[tensor.change])}</span>'
    numbers = "".join(f'<td class="right">{escaped(text)}</td>' for text in (errors(tensor), ratio(tensor)))
    return f"<tr><td>{chip}</td><td>{escaped(f'{tensor.op_type} {tensor.name}')}</td>{numbers}</tr>"
