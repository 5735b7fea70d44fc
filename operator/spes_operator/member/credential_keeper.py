"""Keeps an agent able to reach its hub: renews its token, and keeps it where a restart finds it.

The invitation's token is used once, to ask for one of the agent's own. A token that the hub does
not know any more is replaced by another one that is at hand, or else a person is told what to do.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from spes_api.kinds import CredentialReport

from spes_operator.clock import Clock, to_text
from spes_operator.errors import (
    ConfigError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SpesError,
    UnauthorizedError,
    UnavailableError,
)
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.events import Event, post
from spes_operator.member.advice import advice
from spes_operator.member.credential import (
    RENEWALS,
    WANTED_LIFE,
    Credential,
    in_order_of_issue,
    read_token,
    renew_in,
)
from spes_operator.member.hub_access import HubFiles
from spes_operator.names import (
    AGENT_ACCOUNT,
    HUB_CREDENTIAL_SECRET,
    MEMBER_OWNER,
    TOKEN_FILE,
    member_namespace,
)
from spes_operator.reasons import (
    CREDENTIAL_RENEWAL_REFUSED,
    HUB_CREDENTIAL_REFUSED,
    HUB_UNREACHABLE,
)

logger = logging.getLogger(__name__)

# Renewals in a row that failed, after which a person is told.
_FAILURES = 3
# How soon another invitation is noticed: whoever applies one waits for it.
_LOOK_EVERY = timedelta(minutes=1)


class TokenSource(Protocol):
    """The hub, as far as tokens go."""

    async def request_token(self, namespace: str, account: str, spec: JsonObject) -> JsonObject:
        """A new token of the account: {token, expirationTimestamp}."""

    async def renew_credentials(self) -> None:
        """Use the token that now is in the agent's file."""


class CredentialKeeper:
    """The token of one agent."""

    def __init__(
        self, member: str, files: HubFiles, local: KubeApi, *, namespace: str, clock: Clock
    ) -> None:
        """Nothing is read before `prepare`.

        Args:
            member: Its name at the hub.
            files: The invitation, and the agent's own files.
            local: The API of the member's own cluster.
            namespace: Of the agent there.
            clock: For Events.
        """
        self._member = member
        self._hub_namespace = member_namespace(member)
        self._files = files
        self._local = local
        self._namespace = namespace
        self._clock = clock
        self._current: Credential | None = None
        self._invitation = b""
        self._persisted = False
        self._refused: set[str] = set()
        self._told: set[str] = set()
        self.due_in = timedelta()
        """Until the next renewal, as of the last one."""
        self.failures = 0
        """Renewals in a row that failed."""

    async def prepare(self) -> None:
        """Write the agent's kubeconfig, with the newest token there is.

        Raises:
            ConfigError: There is no invitation, and no usable token.
            SpesError: The member's own cluster does not answer.
        """
        self._invitation = self._files.digest()
        self._files.write_kubeconfig()
        found = await self._at_hand()
        if not found:
            raise ConfigError(
                f"{self._files.invitation} holds no ServiceAccount token that ends; ask the hub's "
                f"admin for: spes invite {self._member} --renew"
            )
        self._use(found[0])

    def report(self) -> CredentialReport | None:
        """What the hub is told; None while the invitation's token is in use."""
        if self._current is None or not self._persisted:
            return None
        return CredentialReport(expires_at=to_text(self._current.expires_at), persisted=True)

    @property
    def expires_in(self) -> timedelta:
        """Until the token in use ends, for people: the hub's clock may differ from this one."""
        assert self._current is not None  # `prepare` has run
        return self._current.expires_at - self._clock.now()

    async def run(self, hub: TokenSource, renewed: Callable[[], None]) -> None:
        """Renew whenever it is due, until the hub is to be reached in another way.

        Another invitation makes it due: the token in use may be void. `renewed` is called after
        each time. Whoever gets the answer begins again with `prepare`.
        """
        while await self._is_due():
            await self.renew(hub)
            if not self.failures:
                renewed()
        logger.warning(
            "the invitation has another address or CA of the hub member=%s", self._member
        )

    async def _is_due(self) -> bool:
        """Wait for the next renewal, or for another invitation; False: that leads elsewhere."""
        left = self.due_in
        while not self._files.lead_elsewhere():
            lies_there = self._files.digest()
            if left <= timedelta() or lies_there != self._invitation:
                self._invitation = lies_there
                return True
            nap = min(left, _LOOK_EVERY)
            await asyncio.sleep(nap.total_seconds())
            left -= nap
        return False

    async def renew(self, hub: TokenSource) -> None:
        """Ask for a new token, use it and keep it; a failure is logged, and tried again later."""
        try:
            credential = await self._issued(hub)
            self._use(credential)
            await hub.renew_credentials()
            await self._persist(credential)
        except SpesError as error:
            self.due_in = await self._failed(hub, error)
            return
        self.failures = 0
        self._told.clear()
        self.due_in = renew_in(credential.life, age=timedelta())
        life_s = credential.life.total_seconds()
        logger.info("credential renewed member=%s life_s=%d", self._member, life_s)

    async def _issued(self, hub: TokenSource) -> Credential:
        spec = {"expirationSeconds": int(WANTED_LIFE.total_seconds())}
        answer = await hub.request_token(self._hub_namespace, AGENT_ACCOUNT, spec)
        try:
            return read_token(str(answer["token"]))
        except ValueError as error:
            raise InvalidError(f"the hub gave a token that cannot be used: {error}") from error

    async def _failed(self, hub: TokenSource, error: SpesError) -> timedelta:
        """Try another token if this one is dead; tell a person when there is none."""
        logger.warning("credential not renewed member=%s error=%s", self._member, error)
        self.failures += 1
        try:
            if isinstance(error, UnauthorizedError):
                if await self._use_another(hub):
                    return timedelta()
                await self._tell(HUB_CREDENTIAL_REFUSED, advice(self._member, error))
            elif self.failures >= _FAILURES:
                await self._tell_what_lasts(error)
        except SpesError as second:
            logger.warning("own cluster fails member=%s error=%s", self._member, second)
        return RENEWALS.drawn(self.failures)

    async def _tell_what_lasts(self, error: SpesError) -> None:
        if isinstance(error, ForbiddenError):
            await self._tell(CREDENTIAL_RENEWAL_REFUSED, self._acceptance_needed(error))
        elif isinstance(error, UnavailableError):
            await self._tell(HUB_UNREACHABLE, advice(self._member, error))

    def _acceptance_needed(self, error: SpesError) -> str:
        return (
            f"the hub does not let member {self._member} renew its token; if it is not accepted "
            f"yet, ask the hub's admin for: spes accept {self._member} ({error})"
        )

    async def _use_another(self, hub: TokenSource) -> bool:
        """Switch to a token that was not refused yet; once all were, each may be tried again."""
        assert self._current is not None  # `prepare` has run
        self._refused.add(self._current.token)
        for credential in await self._at_hand():
            if credential.token not in self._refused:
                self._use(credential)
                await hub.renew_credentials()
                return True
        self._refused.clear()  # a hub that starts may refuse good ones for a moment
        return False

    async def _at_hand(self) -> list[Credential]:
        """Those of the invitation and of the Secret, the newest first."""
        tokens = [await self._stored_token()]
        try:
            tokens.append(self._files.invited_token())
        except ConfigError as error:
            logger.warning("invitation cannot be used member=%s error=%s", self._member, error)
        return in_order_of_issue(tokens)

    def _use(self, credential: Credential) -> None:
        self._files.write_token(credential.token)
        self._persisted = False
        self._current = credential

    async def _stored_token(self) -> str:
        try:
            secret = await self._local.get("Secret", self._namespace, HUB_CREDENTIAL_SECRET)
            return base64.b64decode(secret["data"][TOKEN_FILE], validate=True).decode()
        except (NotFoundError, KeyError, binascii.Error, UnicodeDecodeError):
            return ""

    async def _persist(self, credential: Credential) -> None:
        await self._local.apply(
            MEMBER_OWNER,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"namespace": self._namespace, "name": HUB_CREDENTIAL_SECRET},
                "data": {TOKEN_FILE: base64.b64encode(credential.token.encode()).decode()},
            },
        )
        self._persisted = True

    async def _tell(self, reason: str, message: str) -> None:
        """An Event, once until a renewal succeeds."""
        if reason in self._told:
            return
        event = Event(
            reason=reason,
            message=message,
            kind="Secret",
            api_version="v1",
            namespace=self._namespace,
            name=HUB_CREDENTIAL_SECRET,
            time=self._clock.now(),
            type="Warning",
        )
        await post(self._local, MEMBER_OWNER, event)
        self._told.add(reason)
