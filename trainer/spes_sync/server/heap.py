"""The C heap of the server's process: how it treats the buffers of chunks, and giving them back.

Every chunk passes through a few fresh buffers of 1 MiB. By default glibc maps and unmaps such a
buffer each time, or cuts the heap's end off and grows it again: the kernel then zeroes 256 pages
anew for each, which costs more than all that is done with the bytes. And it keeps an arena for each
thread: the server would seem to grow until every thread has served the largest transfer. Other C
libraries are left as they are.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# Larger than any buffer of a transfer, and than most of them together.
_LARGEST_BUFFER, _KEPT_BYTES = 32 << 20, 64 << 20


def keep_freed() -> None:
    """Use freed buffers again instead of giving each back; `give_back` bounds what gathers."""
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(_M_MMAP_THRESHOLD, _LARGEST_BUFFER)
        option(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        option(_M_ARENA_MAX, 1)  # else what one thread has freed is of no use to another


def give_back() -> None:
    """Give the pages of freed buffers back."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
