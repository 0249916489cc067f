"""The identity of one end of the call of ``elasticrun.run``: a certificate of the job's authority, and its private key.

The driver issues both ends their identities. It passes that of the caller over a pipe (driver/src/call_identity.rs). The workers
of a host share one, which their agent gives to processes of its user. So no key is in a variable or a file.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
from dataclasses import dataclass, field

from . import _native

__all__ = ["CALLER", "WORKER", "Identity"]

#: The names in the certificates of both ends (worker/tls/src/role.rs).
CALLER, WORKER = "caller.elasticrun", "worker.elasticrun"


@dataclass(frozen=True)
class Identity:
    """An identity, as DER: the job's root certificate, the certificate of this end, and its key as PKCS #8."""

    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)

    @classmethod
    def decode(cls, text: str | bytes) -> Identity:
        """Parses the JSON text of an identity (worker/tls/src/identity.rs).

        Raises:
            ValueError: it is none.
        """
        found = json.loads(text)
        try:
            return cls(*(base64.b64decode(found[name]) for name in ("authority", "certificate", "key")))
        except (KeyError, TypeError) as error:
            raise ValueError("the identity of the call cannot be read") from error

    def context(self, *, serves: bool) -> ssl.SSLContext:
        """The settings of a connection: mutual TLS 1.3 under the job's authority.

        The end that dials accepts a certificate with the name :data:`CALLER` alone. The end that serves must check the name
        itself.

        Raises:
            OSError: the identity is damaged, or the system has no memory for it.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.authority)
        if serves:
            # A worker has few connections, and would read a ticket only before the answer.
            context.num_tickets = 0
        # The library reads a key from a file only. This one is in memory and has no name in the file system. Some builds of Python
        # lack os.memfd_create.
        file = _native.memory_file("elasticrun-identity")
        try:
            os.write(file, _pem("CERTIFICATE", self.certificate) + _pem("PRIVATE KEY", self.key))
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
        return context


def _pem(label: str, der: bytes) -> bytes:
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label.encode(), base64.encodebytes(der), label.encode())
