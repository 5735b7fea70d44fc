"""Server credentials that follow their files: a renewed certificate needs no restart."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import grpc

from spes_sync.errors import CertificateError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the server's certificate and key are, and the CA of those who may use Control."""

    certificate: Path
    key: Path
    client_ca: Path

    @classmethod
    def inside(cls, directory: Path) -> TlsFiles:
        """The three files of a directory.

        Raises:
            CertificateError: one is missing.
        """
        files = cls(
            certificate=directory / "tls.crt",
            key=directory / "tls.key",
            client_ca=directory / "client-ca.crt",
        )
        for path in (files.certificate, files.key, files.client_ca):
            if not path.is_file():
                raise CertificateError(
                    f"{path} is missing; --tls needs tls.crt, tls.key and client-ca.crt"
                )
        return files


def credentials(files: TlsFiles, *, for_hub: bool) -> grpc.ServerCredentials:
    """Credentials of a port; with `for_hub` callers must show a certificate of the client CA.

    Raises:
        CertificateError: the files cannot be read.
    """
    try:
        loader = _Loader(files, with_client_ca=for_hub)
    except OSError as error:
        raise CertificateError(f"cannot read {error.filename}: {error.strerror}") from error
    return grpc.dynamic_ssl_server_credentials(
        loader.current(), loader.current, require_client_authentication=for_hub
    )


class _Loader:
    """Reads the files again when they have changed; called by gRPC at each handshake."""

    def __init__(self, files: TlsFiles, *, with_client_ca: bool) -> None:
        self._files = files
        self._with_client_ca = with_client_ca
        self._loaded = self._times()
        self._current = self._load()

    def current(self) -> grpc.ServerCertificateConfiguration:
        try:
            times = self._times()
            if times != self._loaded:
                self._current, self._loaded = self._load(), times
                logger.info("certificate reloaded path=%s", self._files.certificate)
        except OSError as error:
            logger.warning("certificate not reloaded path=%s reason=%s", error.filename, error)
        return self._current

    def _load(self) -> grpc.ServerCertificateConfiguration:
        pair = (self._files.key.read_bytes(), self._files.certificate.read_bytes())
        roots = self._files.client_ca.read_bytes() if self._with_client_ca else None
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)

    def _times(self) -> tuple[int, ...]:
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        return tuple(path.stat().st_mtime_ns for path in files)
