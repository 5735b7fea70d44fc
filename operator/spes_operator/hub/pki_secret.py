"""The hub's authorities in a Secret of its own namespace: a restarted hub is the same to everybody.

Made once; whoever comes second takes what is there.
"""

from __future__ import annotations

import base64
import binascii
import logging

from spes_operator.errors import AlreadyExistsError, ConfigError, NotFoundError
from spes_operator.hub.pki import Pki
from spes_operator.k8s.api import KubeApi
from spes_operator.names import HUB_CA_SECRET, HUB_OWNER

logger = logging.getLogger(__name__)


async def open_pki(api: KubeApi, namespace: str) -> Pki:
    """The authorities in the namespace's Secret, made there if there is none.

    Raises:
        ConfigError: The Secret holds something else.
        SpesError: As of `KubeApi`.
    """
    try:
        found = await api.get("Secret", namespace, HUB_CA_SECRET)
    except NotFoundError:
        try:
            pki = Pki.new()
            files = {name: base64.b64encode(data).decode() for name, data in pki.files().items()}
            metadata = {"namespace": namespace, "name": HUB_CA_SECRET}
            await api.create(
                HUB_OWNER,
                {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": files},
            )
        except AlreadyExistsError:
            return await open_pki(api, namespace)
        logger.info("certificate authorities made secret=%s/%s", namespace, HUB_CA_SECRET)
        return pki
    try:
        data = found.get("data") or {}
        return Pki.from_files(
            {name: base64.b64decode(text, validate=True) for name, text in data.items()}
        )
    except (ConfigError, binascii.Error) as error:
        raise ConfigError(
            f"Secret {namespace}/{HUB_CA_SECRET} is damaged ({error}); restore it, or delete it "
            "and the trainers of every job must be started anew"
        ) from error
