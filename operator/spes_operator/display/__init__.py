"""What a person sees while a job runs: a snapshot, a live screen, plain lines.

`spes run` fills a `RunView` a few times a second and hands it to a `Display`. Nothing in here knows
where the numbers come from or reads a clock.
"""

from spes_operator.display.progress import ProgressLine
from spes_operator.display.screen import Display, WhileWatched, open_display, silence
from spes_operator.display.view import EventLine, HeldOut, PeerView, RunView

__all__ = [
    "Display",
    "EventLine",
    "HeldOut",
    "PeerView",
    "ProgressLine",
    "RunView",
    "WhileWatched",
    "open_display",
    "silence",
]
