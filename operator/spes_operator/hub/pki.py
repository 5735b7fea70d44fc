"""The hub's certificates: who a peer may trust as sync server, and who may drive one.

Two authorities, so that a sync server's own certificate never opens its control port: one signs
servers, the other the hub's client certificate. Keys stay in files of mode 0600.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from spes_api.private_files import write_private

from spes_operator.errors import ConfigError
from spes_operator.names import CLIENT_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE

# Common name of the one certificate that control ports accept.
HUB_CLIENT = "spes-hub"
# A certificate is valid from this long before it was made: other clocks may lag.
_BACKDATED = timedelta(days=1)
_CA_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=365)
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
# Of both authorities, in the order in which a folder gets them: the last says that all are there.
_LAST_FILE = "client-ca.key"
_FILES = ("ca.crt", "ca.key", "client-ca.crt", _LAST_FILE)


class Identity(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


class _Authority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True, slots=True)
class Pki:
    """The hub's two authorities."""

    _servers: _Authority
    _clients: _Authority

    @classmethod
    def new(cls) -> Pki:
        """Two authorities that nobody knows yet."""
        return cls(_new_authority("spes-ca"), _new_authority("spes-client-ca"))

    @classmethod
    def open(cls, folder: Path) -> Pki:
        """The authorities in `folder`, made there if there are none.

        Raises:
            ConfigError: The folder holds something else.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _LAST_FILE).exists():
            files = cls.new().files()
            for name in _FILES:
                write_private(folder / name, files[name])
        try:
            return cls.from_files({name: (folder / name).read_bytes() for name in _FILES})
        except (ConfigError, FileNotFoundError) as error:
            raise ConfigError(f"{folder} is damaged ({error}); remove it and start anew") from error

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Pki:
        """The authorities that `files` gave.

        Raises:
            ConfigError: They are something else.
        """
        return cls(_read_authority(files, "ca"), _read_authority(files, "client-ca"))

    def files(self) -> dict[str, bytes]:
        """Certificates and keys, to be kept secret."""
        return {
            f"{name}.{ending}": data
            for name, authority in (("ca", self._servers), ("client-ca", self._clients))
            for ending, data in (("crt", authority.pem), ("key", _key_pem(authority.key)))
        }

    @property
    def ca_pem(self) -> str:
        """What peers need to recognise a sync server."""
        return self._servers.pem.decode()

    def server_files(self, names: Sequence[str] = ()) -> dict[str, bytes]:
        """The files of a sync server's TLS folder; it is known as localhost and by `names`."""
        certificate, key = _issue(
            self._servers, "spes-sync", ExtendedKeyUsageOID.SERVER_AUTH, names=names
        )
        return {TLS_CERT_FILE: certificate, TLS_KEY_FILE: key, CLIENT_CA_FILE: self._clients.pem}

    @property
    def client_ca(self) -> bytes:
        """The authority of those who may drive a sync server, PEM."""
        return self._clients.pem

    def still_serves(self, certificate: bytes, names: Sequence[str], *, now: datetime) -> bool:
        """Whether a server's certificate is of this CA, has `names`, and is not to be renewed yet.

        It is renewed at two thirds of its life.
        """
        try:
            found = x509.load_pem_x509_certificate(certificate)
            found.verify_directly_issued_by(self._servers.certificate)
            extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        life = found.not_valid_after_utc - found.not_valid_before_utc
        is_young = now < found.not_valid_before_utc + life * 2 / 3
        return is_young and {_alternative(name) for name in names} <= set(extension.value)

    def hub_client(self) -> Identity:
        """The hub's own certificate for control ports."""
        return _issue(self._clients, HUB_CLIENT, ExtendedKeyUsageOID.CLIENT_AUTH)


def _issue(
    authority: _Authority, name: str, usage: x509.ObjectIdentifier, *, names: Sequence[str] = ()
) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, authority.certificate.subject, key.public_key(), _LEAF_LIFE)
    alternatives = [_alternative(one) for one in dict.fromkeys((*_LOCAL_NAMES, *names))]
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage([usage]), False),
        (x509.SubjectAlternativeName(alternatives), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical)
    certificate = builder.sign(authority.key, hashes.SHA256())
    return Identity(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    name: str, issuer: x509.Name | None, key: ec.EllipticCurvePublicKey, life: timedelta
) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
    )


def _read_authority(files: Mapping[str, bytes], name: str) -> _Authority:
    try:
        key = serialization.load_pem_private_key(files[f"{name}.key"], password=None)
        certificate = x509.load_pem_x509_certificate(files[f"{name}.crt"])
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{name}.crt or {name}.key is missing or damaged ({error})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{name}.key is no elliptic-curve key")
    return _Authority(certificate, key)


def _new_authority(name: str) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, None, key.public_key(), _CA_LIFE)
    for extension, critical in (
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical)
    return _Authority(builder.sign(key, hashes.SHA256()), key)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
