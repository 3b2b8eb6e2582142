# SPDX-License-Identifier: Apache-2.0
"""TLS for both ends: version 1.3 only, by the standard library."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

from qjoule.errors import QjouleError, UsageError

MAX_FILE_BYTES = 1 << 20


def read_secret(path: Path) -> str:
    """A file that only its owner may read. Raises `UsageError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise UsageError(f"{path}: not a file")
            if about.st_mode & 0o077:
                raise UsageError(f"{path}: others may read it: chmod 600")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not text") from None


def server_context(
    certificate: str, key: str, client_ca: str, *, needs_certificate: bool
) -> ssl.SSLContext:
    """`client_ca`: signs certificates of clients; empty: they are not asked for one. Raises
    `UsageError`."""
    read_secret(Path(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a session that goes on would not check a certificate again
    _load(context, certificate, key)
    if client_ca:
        _trust(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if needs_certificate else ssl.CERT_OPTIONAL
    return context


def client_context(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    """Checks the server's certificate and name. `ca`: empty: those of the system. Raises
    `UsageError`."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        _trust(context, ca)
    if certificate:
        read_secret(Path(key or certificate))
        _load(context, certificate, key or certificate)
    return context


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    def no_password() -> str:  # otherwise OpenSSL asks on the terminal
        raise ValueError

    try:
        context.load_cert_chain(certificate, key, no_password)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{certificate}, {key}: no certificate with its key: {_why(error)}"
        ) from None


def _trust(context: ssl.SSLContext, ca: str) -> None:
    try:
        context.load_verify_locations(ca)
    except OSError as error:
        raise UsageError(f"{ca}: no certificates: {_why(error)}") from None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "unknown format"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "the key has a password"


def failed(host: str, error: OSError) -> QjouleError:
    """Why a connection failed, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return QjouleError(f"{host}: its certificate is refused: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return QjouleError(f"{host}: TLS failed: {error.reason or error}")
    return QjouleError(f"{host}: {error.strerror or error}")
