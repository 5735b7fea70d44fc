"""One API server, reached as one user: requests and watches over HTTP, and nothing about kinds.

Wraps the asyncio client of the `kubernetes` package, which reads kubeconfigs, runs credential
plugins and speaks TLS. Called by `cluster`. Never repeats a request that failed, except once with
fresh credentials.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlencode

import aiohttp
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from spes_operator.errors import ConfigError, UnavailableError
from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.refusals import refusal

logger = logging.getLogger(__name__)

# From a request's first byte to its answer's last one.
DEADLINE = timedelta(seconds=20)
_CONNECT_SECONDS = 10.0
_TOKEN = "BearerToken"  # noqa: S105 - the client's name for the credential, not one


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request to the API server."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    query: Mapping[str, str]
    body: JsonObject | list[JsonObject] | None = None
    content_type: str = "application/json"

    def __str__(self) -> str:
        """What was asked, for messages: no body, it may hold secrets."""
        return f"{self.method} {self.path}"


class Source(NamedTuple):
    """Where it is written how an API server is reached."""

    kubeconfig: Path | None
    context: str

    def __str__(self) -> str:
        """For messages."""
        if self.kubeconfig is None:
            return "this pod's ServiceAccount"
        return (
            f"{self.kubeconfig}, context {self.context}" if self.context else f"{self.kubeconfig}"
        )


class Connection:
    """Requests to one API server."""

    def __init__(self, source: Source, configuration: Configuration) -> None:
        """Use `open`."""
        self._source = source
        self._configuration = configuration
        self._client = ApiClient(configuration)
        self.answers: Counter[str] = Counter()
        """HTTP status, or "none" where no answer came -> how often."""

    @classmethod
    async def open(cls, kubeconfig: Path | None, context: str = "") -> Self:
        """The API server that `kubeconfig` names; None: the one this pod runs in.

        Args:
            kubeconfig: The file.
            context: Of the file's contexts; empty: its current one.

        Raises:
            ConfigError: The file is absent or is no kubeconfig.
        """
        source = Source(kubeconfig, context)
        return cls(source, await _load(source))

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()  # type: ignore[no-untyped-call]  # the client's own gap

    async def send(self, request: Request) -> JsonObject:
        """The answer to a request.

        Raises:
            SpesError: The server refuses (see `refusals`) or does not answer in time.
        """
        timeout = aiohttp.ClientTimeout(
            total=DEADLINE.total_seconds(), sock_connect=_CONNECT_SECONDS
        )
        try:
            async with await self._answer(request, timeout) as response:
                answer = json.loads(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self.answers["none"] += 1
            raise _unavailable(request, error) from error
        if not isinstance(answer, dict):
            raise UnavailableError(f"{request}: the answer is no object; is this an API server?")
        return answer

    async def stream(
        self, request: Request, *, silence: timedelta
    ) -> AsyncGenerator[JsonObject, None]:
        """The JSON lines of an answer, until it ends, breaks off or is silent for too long.

        Raises:
            SpesError: The server refuses or does not begin to answer in time.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence.total_seconds()
        )
        try:
            response = await self._answer(request, timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.answers["none"] += 1
            raise _unavailable(request, error) from error
        async with response:
            while line := await _next_line(response, request):
                yield json.loads(line)

    async def _answer(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """The answer to a request that the server accepts."""
        response = await self._call(request, timeout)
        if response.status == HTTPStatus.UNAUTHORIZED and await self.renew_credentials():
            response.release()
            response = await self._call(request, timeout)
        if response.status >= HTTPStatus.BAD_REQUEST:
            async with response:
                raise refusal(response.status, await response.read(), str(request))
        return response

    async def _call(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": request.content_type}
        if token := self._configuration.api_key.get(_TOKEN):
            headers["Authorization"] = token
        url = f"{self._configuration.host}{request.path}?{urlencode(request.query)}"
        answer: Any = await self._client.rest_client.request(  # type: ignore[no-untyped-call]  # the client's own gap
            request.method, url, headers=headers, body=request.body, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = answer.response
        self.answers[str(response.status)] += 1
        return response

    async def renew_credentials(self) -> bool:
        """Read the token again, which others renew in its file; whether it is another one."""
        fresh = (await _load(self._source)).api_key.get(_TOKEN)
        if fresh is None or fresh == self._configuration.api_key.get(_TOKEN):
            return False
        logger.info("credentials renewed server=%s", self._configuration.host)
        self._configuration.api_key[_TOKEN] = fresh
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How an API server is reached, for another client."""

    server: str
    ca_file: str | None
    insecure: bool
    certificate_file: str | None
    key_file: str | None
    authorization: str | None = field(repr=False)
    """The whole header, for example "Bearer ..."."""


async def read_access(kubeconfig: Path | None, context: str = "") -> Access:
    """What `kubeconfig` says now, its token read again.

    Raises:
        ConfigError: The file is absent or is no kubeconfig.
    """
    loaded = await _load(Source(kubeconfig, context))
    return Access(
        server=loaded.host,
        ca_file=loaded.ssl_ca_cert,
        insecure=not loaded.verify_ssl,
        certificate_file=loaded.cert_file,
        key_file=loaded.key_file,
        authorization=loaded.api_key.get(_TOKEN),
    )


async def _load(source: Source) -> Configuration:
    configuration = Configuration()
    try:
        if source.kubeconfig is None:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the client's own gap
        else:
            await load_kube_config(  # type: ignore[no-untyped-call]  # the client's own gap
                config_file=str(source.kubeconfig),
                context=source.context or None,
                client_configuration=configuration,
            )
    except (ConfigException, OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{source} gives no access to an API server ({error!s:.200})") from error
    if token := configuration.api_key.get(_TOKEN):
        configuration.api_key[_TOKEN] = token.strip()  # files often end with a newline
    return configuration


async def _next_line(response: aiohttp.ClientResponse, request: Request) -> bytes:
    """The next whole line; empty when there is none, whatever the cause: the caller asks again."""
    try:
        line = await response.content.readline()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        logger.info("stream broke off request=%s error=%r", request, error)
        return b""
    return line if line.endswith(b"\n") else b""  # what broke off within a line is no JSON


def _unavailable(request: Request, error: Exception) -> UnavailableError:
    why = str(error) or type(error).__name__  # a timeout has no words
    return UnavailableError(f"{request}: no answer from the API server ({why:.200})")
