"""Encrypt connections so that both sides prove who they are (DICOM PS3.15 B.12, BCP 195).

TLS 1.2 or later is used. Each side must show a certificate that an authority of the settings has
signed. The authorities that the system trusts do not count. A caller also checks the name in the
certificate.
"""

import socket
import ssl

from cad.base.errors import CadError
from cad.dicom.archive.settings import ArchiveTls, Tls

_ALERT_SECONDS = 1.0  # seconds within which an archive may report that it rejects our certificate


def answering(tls: Tls) -> ssl.SSLContext:
    """Return the TLS context for connections that other programs open to us.

    A caller must show a certificate that an authority named in the settings has signed.

    Parameters
    ----------
    tls : Tls
        The files of certificate, key and authority.

    Raises
    ------
    CadError
        For a file that is missing or unusable.
    """
    context = _tls_context(ssl.PROTOCOL_TLS_SERVER, tls)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def calling(tls: ArchiveTls) -> ssl.SSLContext:
    """Return the TLS context for connections that we open to an archive.

    An authority named in the settings must have signed the archive's certificate, and the
    certificate must bear the archive's name.

    Parameters
    ----------
    tls : ArchiveTls
        The files of certificate, key and authority.

    Raises
    ------
    CadError
        For a file that is missing or unusable.
    """
    return _tls_context(ssl.PROTOCOL_TLS_CLIENT, tls)


def _tls_context(side: int, tls: Tls) -> ssl.SSLContext:
    """Return a TLS context with our certificate that trusts the authorities of the settings alone.

    ``side`` is ``ssl.PROTOCOL_TLS_SERVER`` or ``ssl.PROTOCOL_TLS_CLIENT``.
    """
    for path in (tls.certificate, tls.key, tls.authority):
        if not path.is_file():
            raise CadError("no such file: TLS needs certificate, key and authority", file=path)
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_pass_phrase)
    except (OSError, ValueError) as error:
        raise CadError(
            f"certificate and key cannot be used: {reason(error)}",
            file=tls.key,
            hint=f"PEM files, the key that of {tls.certificate.name}, without a pass phrase",
        ) from error
    try:
        context.load_verify_locations(tls.authority)
    except (OSError, ValueError) as error:
        raise CadError(
            f"no certificates of an authority: {reason(error)}", file=tls.authority, hint="PEM"
        ) from error
    return context


def _no_pass_phrase() -> str:
    """Raise an error instead of asking for a pass phrase: perhaps nobody is at the terminal."""
    raise ValueError("the key has a pass phrase")


def reason(error: BaseException) -> str:
    """Return the reason, in words, for which an encrypted connection failed.

    Parameters
    ----------
    error : BaseException
        The exception of the connection.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, TimeoutError):
        return "no answer in time"
    # Not every error has a text; the name of its type is better than none.
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def probe(connection: socket.socket, tls: ArchiveTls, host: str) -> None:
    """Try an encrypted connection, to learn whether both certificates are accepted.

    With TLS 1.3 a client ends its handshake before the server has judged the client's certificate.
    The function therefore waits a moment for an alert of the server.

    Parameters
    ----------
    connection : socket
        A connected socket, not encrypted yet.
    tls : ArchiveTls
        Certificate files, and the name that the archive's certificate must bear.
    host : str
        The name that the certificate must bear if ``tls`` states none.

    Raises
    ------
    OSError
        When the other side does not speak TLS, or one of the two certificates is not accepted.
    """
    with calling(tls).wrap_socket(connection, server_hostname=tls.name or host) as encrypted:
        encrypted.settimeout(_ALERT_SECONDS)
        try:
            encrypted.recv(1)
        except TimeoutError:  # no alert: the server accepts our certificate and waits for a message
            return
