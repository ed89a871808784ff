"""The certificate authorities this machine trusts, as a file a bundled Java can read (the JKS format)."""

import hashlib
import os
import ssl
import struct
from pathlib import Path

PASSWORD = "changeit"  # Java's customary one: the file holds public certificates only

# Where pip and Python look too, before the places of the distributions.
_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_END = "-----END CERTIFICATE-----"


def authorities() -> list[bytes]:
    """The certificates (DER) of the first bundle found; none if the machine has none."""
    for name in (*(os.environ.get(variable, "") for variable in _VARIABLES), *_FILES):
        if name and (path := Path(name)).is_file():
            blocks = path.read_text(errors="replace").split(_END)[:-1]
            return [
                ssl.PEM_cert_to_DER_cert(b[b.index(ssl.PEM_HEADER) :] + _END) for b in blocks if ssl.PEM_HEADER in b
            ]
    return []


def write(path: Path, certificates: list[bytes]) -> None:
    data = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))  # magic, version, number of entries
    for number, certificate in enumerate(certificates):
        data += struct.pack(">I", 2) + _text(f"authority-{number}") + struct.pack(">Q", 0)  # kind, alias, created
        data += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    path.write_bytes(data + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + data).digest())


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()
