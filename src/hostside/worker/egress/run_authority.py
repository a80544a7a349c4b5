"""A run's own certificate authority: the host reads what the run asks of a registry over TLS, and of nobody else (D25).

Lock files name their registries by https addresses. So that those stay as they are and yet only GET and HEAD pass, the
proxy ends the TLS of these hosts itself, with certificates that only processes of this run are told to trust. A tunnel
to a listed `host:port` is never opened this way.
"""

import datetime as dt
import ipaddress
import os
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hostside.worker.sandbox import data_descriptor

_BEFORE = dt.timedelta(hours=1)
_AFTER = dt.timedelta(days=2)
_MAX_HOSTS = 1_000
_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Hostside run")])


class RunAuthority:
    """Its keys are in the host's memory alone. Make one for each run and share it between the run's proxies."""

    def __init__(self, now: dt.datetime) -> None:
        """`now`: aware; the certificates hold from an hour before it for two days."""
        self._valid = (now - _BEFORE, now + _AFTER)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[str, ssl.SSLContext] = {}
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            self._builder(_NAME, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """The authority's certificate as PEM, for the trust stores inside the run."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context(self, host: str) -> ssl.SSLContext:
        """Return the server's side of TLS for `host`."""
        if host not in self._contexts:
            if len(self._contexts) >= _MAX_HOSTS:
                self._contexts.clear()
            self._contexts[host] = self._issue(host)
        return self._contexts[host]

    def _issue(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        certificate = (
            self._builder(x509.Name([]), key.public_key())
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # The library reads keys from files only: this one is in memory and has no name.
        descriptor = data_descriptor(secret + certificate.public_bytes(serialization.Encoding.PEM))
        try:
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(_NAME)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._valid[0])
            .not_valid_after(self._valid[1])
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
