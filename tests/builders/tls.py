"""A throw-away CA with a server's and a hub's certificate, in the files that the server wants."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class TestTls:
    """A directory for `--tls`, and what peers and the hub hold."""

    directory: Path
    ca_file: Path
    hub_certificate: bytes
    hub_key: bytes

    __test__ = False


@dataclass(frozen=True)
class _Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def make_tls(directory: Path, *, hub_name: str = "spes-hub", names=("localhost",)) -> TestTls:
    """Write tls.crt, tls.key and client-ca.crt below `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = make_authority()
    ca_pem = _pem(authority.certificate)
    key, certificate = issue(authority, "spes-sync", names=names)
    (directory / "tls.key").write_bytes(key)
    (directory / "tls.crt").write_bytes(certificate)
    (directory / "client-ca.crt").write_bytes(ca_pem)
    (directory / "ca.crt").write_bytes(ca_pem)
    hub_key, hub_certificate = issue(authority, hub_name)
    return TestTls(directory, directory / "ca.crt", hub_certificate, hub_key)


def make_authority() -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("test CA")
    builder = _builder(name, name, key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    return _Authority(key, builder.sign(key, hashes.SHA256()))


def issue(authority: _Authority, common_name: str, *, names=()) -> tuple[bytes, bytes]:
    """Key and certificate of a name under this authority, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    sans = [x509.DNSName(name) for name in names]
    sans += [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))] if names else []
    builder = _builder(_name(common_name), authority.certificate.subject, key.public_key())
    if sans:
        builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private, _pem(certificate)


def _builder(subject: x509.Name, issuer: x509.Name, public_key) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
