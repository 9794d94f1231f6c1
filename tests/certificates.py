"""Certificates of an authority of a test's own, in PEM."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """An authority that gives certificates for this machine's address 127.0.0.1, and for no host name."""

    def __init__(self, name: str):
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        told = _builder(self._name, self._name, self._key.public_key())
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        self._own = told.add_extension(constraint, critical=True).sign(self._key, hashes.SHA256())

    def write(self, path: Path) -> Path:
        """Write the certificate of the authority itself."""
        path.write_bytes(self._pem)
        return path

    @property
    def _pem(self) -> bytes:
        return self._own.public_bytes(serialization.Encoding.PEM)

    def give(self, name: str, path: Path) -> Path:
        """Write a new key, its certificate, and that of the authority, as Java's stores in PEM have them."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        told = _builder(_named(name), self._name, key.public_key())
        told = told.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        plain = serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        certificate = told.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        path.write_bytes(private + certificate + self._pem)
        return path


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    found = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    found = found.serial_number(x509.random_serial_number())
    return found.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
