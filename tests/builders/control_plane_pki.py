"""Keys, certificates and kubeconfigs of one test control plane, all below its own CA."""

import ipaddress
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# An API server is known by these names; the address is the first of its service range.
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1", "10.0.0.1")
_LIFE = timedelta(days=1)


class ControlPlanePki:
    """Issues what the processes of one control plane need, as files of its folder."""

    def __init__(self, folder: Path) -> None:
        """A new CA in `folder`."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "control-plane-ca")])
        builder = _unsigned(subject, subject, self._key.public_key())
        self._certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(_pem(self._certificate))

    def server(self) -> tuple[Path, Path]:
        """Certificate and key of the API server."""
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
        names += [x509.IPAddress(ipaddress.ip_address(one)) for one in SERVER_ADDRESSES]
        return self._issue(
            "kube-apiserver",
            (),
            ExtendedKeyUsageOID.SERVER_AUTH,
            x509.SubjectAlternativeName(names),
        )

    def service_account_key(self) -> Path:
        """The key that signs ServiceAccount tokens."""
        return _write_key(
            self._folder / "service-accounts.key", ec.generate_private_key(ec.SECP256R1())
        )

    def kubeconfig(self, url: str, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig that authenticates as `user` by certificate."""
        certificate, key = self._issue(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, None)
        credentials = {"client-certificate": str(certificate), "client-key": str(key)}
        return self.kubeconfig_with(url, user, credentials)

    def kubeconfig_with(self, url: str, user: str, credentials: dict[str, str]) -> Path:
        """A kubeconfig that authenticates by the given means."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "it",
                    "cluster": {"server": url, "certificate-authority": str(self.ca_file)},
                }
            ],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": user}}],
            "current-context": "it",
        }
        path = self._folder / f"{_file_name(user)}.kubeconfig"
        path.write_text(json.dumps(document, indent=1))  # JSON is YAML
        path.chmod(0o600)
        return path

    def _issue(
        self,
        user: str,
        groups: Sequence[str],
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        builder = _unsigned(subject, self._certificate.subject, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            critical=False,
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        path = self._folder / f"{_file_name(user)}.crt"
        path.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        return path, _write_key(path.with_suffix(".key"), key)


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(now + _LIFE)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # kube-apiserver reads no PKCS #8
        serialization.NoEncryption(),
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
    return path


def _file_name(user: str) -> str:
    return user.replace(":", "-")
