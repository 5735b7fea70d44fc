"""Tokens as an API server issues them, signed by nobody."""

import base64
import json


def jwt(**claims: object) -> str:
    """A token with these claims."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"head.{body}.signature"
