"""How a trainer shows that its Session is live, and how whoever runs it sees that: a fresh file."""

from __future__ import annotations

from datetime import timedelta

# In the trainer's folder; touched with every heartbeat.
READY_FILE = "ready"
# Several heartbeats.
READY_MAX_AGE = timedelta(seconds=30)
