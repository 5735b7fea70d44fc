"""What a ServiceAccount's token says of itself. Pure.

Nothing is verified: the signature is for the API server to judge.
"""

from __future__ import annotations

import base64
import json

from spes_operator.k8s.api import JsonObject


def claims_of(token: str) -> JsonObject:
    """The claims in a token.

    Raises:
        ValueError: It is no JWT. The message does not repeat it.
    """
    try:
        payload = token.strip().split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError):
        claims = None
    if isinstance(claims, dict):
        return claims
    raise ValueError("not a JWT (expected three parts, the second of them JSON)")
