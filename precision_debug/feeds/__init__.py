"""What both runs are fed: seeded random values, or the user's own, checked against the model's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import make_lazy_exports

__all__ = [
    "CALIBRATE",
    "FeedSet",
    "SampleSets",
    "as_option",
    "check_feeds",
    "choose_default_feeds",
    "find_channel_transpose",
    "make_feeds",
    "match_inputs",
    "save_feeds",
]  # fmt: skip

if TYPE_CHECKING:
    from .defaults import as_option, choose_default_feeds
    from .feed_set import CALIBRATE, FeedSet, check_feeds, make_feeds
    from .names import find_channel_transpose, match_inputs
    from .npz import save_feeds
    from .sets import SampleSets

__getattr__ = make_lazy_exports(
    __name__,
    {
        "defaults": "as_option choose_default_feeds",
        "feed_set": "CALIBRATE FeedSet check_feeds make_feeds",
        "names": "match_inputs find_channel_transpose",
        "npz": "save_feeds",
        "sets": "SampleSets",
    },
)
