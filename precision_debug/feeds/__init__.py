"""What both runs are fed: seeded random values, or the user's own, checked against the model's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import lazy_exports

__all__ = [
    "CALIBRATE", "FeedSet", "SampleSets", "as_option", "check_feeds", "default_feeds", "make_feeds", "match_inputs",
    "save_feeds", "turned_axes",
]  # fmt: skip

if TYPE_CHECKING:
    from .defaults import as_option, default_feeds
    from .feed_set import CALIBRATE, FeedSet, check_feeds, make_feeds
    from .names import match_inputs, turned_axes
    from .npz import save_feeds
    from .sets import SampleSets

__getattr__ = lazy_exports(
    __name__,
    {
        "defaults": "as_option default_feeds",
        "feed_set": "CALIBRATE FeedSet check_feeds make_feeds",
        "names": "match_inputs turned_axes",
        "npz": "save_feeds",
        "sets": "SampleSets",
    },
)
