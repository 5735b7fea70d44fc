"""How the processes of SPES end, for whoever started them."""

from __future__ import annotations

DONE = 0
FAILED = 1
# A person can fix it; starting again without that helps nothing.
UNUSABLE = 2
# Of a trainer that was told to stop and has saved (EX_TEMPFAIL of sysexits.h): start it again.
TO_BE_CONTINUED = 75
# Ctrl-C at a terminal: 128 and the number of SIGINT, as shells say it.
INTERRUPTED = 130
