"""Names that both sides write beside the messages: gRPC metadata keys and the protocol version.

A call that fails with a status carries REASON (a Reason's name) and, where the caller should come
back later, RETRY_AFTER (seconds) in its trailing metadata.
"""

from __future__ import annotations

PROTOCOL_VERSION = 1

SESSION = "spes-session"  # the session key, on every call after Join
REASON = "spes-reason"
RETRY_AFTER = "spes-retry-after"
