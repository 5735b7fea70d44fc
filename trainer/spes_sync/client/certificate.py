"""Why TLS failed: gRPC says only "unavailable", so the handshake is tried again and looked at."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from cryptography import x509

from spes_sync.errors import CertificateError

_TIMEOUT_SECONDS = 5.0
# OpenSSL's X509_V_ERR_* codes, from x509_vfy.h.
_NOT_YET_VALID = 9
_EXPIRED = 10
_HOSTNAME_MISMATCH = 62
_IP_MISMATCH = 64


def read_ca(ca_file: Path) -> bytes:
    """The certificates by which a server is known.

    Raises:
        CertificateError: there are none.
    """
    try:
        ssl.create_default_context(cafile=str(ca_file))
        return ca_file.read_bytes()
    except OSError as error:  # ssl.SSLError is one
        raise CertificateError(
            f"cannot use the CA file {ca_file} (got {error}, expected certificates in PEM form); "
            "give the file that came with the invitation"
        ) from error


def check_server_certificate(address: str, ca_file: Path) -> None:
    """Say what is wrong with the server's certificate; silent if it is fine or nobody answers.

    Raises:
        CertificateError: names the certificate's names, what was expected, and what to do.
    """
    host, port = _split(address)
    context = ssl.create_default_context(cafile=str(ca_file))
    context.set_alpn_protocols(["h2"])
    try:
        _handshake(host, port, context)
    except ssl.SSLCertVerificationError as error:
        raise CertificateError(_explain(error.verify_code, address, ca_file)) from error
    except OSError:
        return  # refused, timed out, or no TLS: an outage like any other


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _handshake(host: str, port: int, context: ssl.SSLContext) -> bytes:
    with (
        socket.create_connection((host, port), timeout=_TIMEOUT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def _explain(verify_code: int, address: str, ca_file: Path) -> str:
    host, port = _split(address)
    names, issuer = _read_names(host, port)
    if verify_code in (_HOSTNAME_MISMATCH, _IP_MISMATCH):
        return (
            f"the sync server's certificate is not for {host!r} (it names {names}); "
            "connect by one of these names or have it issued for this one"
        )
    if verify_code in (_NOT_YET_VALID, _EXPIRED):
        state = "expired" if verify_code == _EXPIRED else "not yet valid"
        return (
            f"the sync server's certificate is {state} by this machine's clock; "
            "set the clock or renew the certificate"
        )
    return (
        f"the sync server at {address} shows a certificate for {names}, issued by {issuer}, which "
        f"the CA in {ca_file} did not sign; use the CA file of this hub"
    )


def _read_names(host: str, port: int) -> tuple[str, str]:
    """The names and issuer of a certificate that is not trusted: for the message only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        shown = x509.load_der_x509_certificate(_handshake(host, port, context))
        extension = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return "no names", "an unknown issuer"
    names = [str(general.value) for general in extension.value]
    return ", ".join(names), shown.issuer.rfc4514_string()
