"""What is wrong between a member and its hub, in words: told by `check`, and in Events. Pure."""

from __future__ import annotations

import aiohttp

from spes_operator.errors import ForbiddenError, SpesError, UnauthorizedError


def advice(name: str, error: SpesError) -> str:
    """Who can do what about an error of the hub's API server, as the member `name` met it."""
    if isinstance(error, UnauthorizedError):
        return (
            f"the hub does not know the token of member {name}; ask its admin for: "
            f"spes invite {name} --renew, and apply the file that it writes"
        )
    if isinstance(error, ForbiddenError):
        return (
            f"the hub knows the token, but not as member {name}'s ({error}); apply the file of "
            f"that member's own invitation, or ask the hub's admin for: spes invite {name} --renew"
        )
    if isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError):
        return (
            f"the hub's certificate is not signed by the CA that the invitation names ({error}); "
            "if a proxy opens TLS here, let it pass the hub's address; else ask the hub's admin "
            f"for: spes invite {name} --renew"
        )
    return (
        f"the hub does not answer ({error}); see that firewall, proxy and network policy (the "
        "chart's hub.cidrs) let pods of this namespace reach the address in the invitation"
    )
