"""Encrypted connections in which both sides prove who they are (DICOM PS3.15 B.12, BCP 195).

TLS 1.2 or later; a certificate of the authority that the settings name is asked for on both sides,
no other authority of the system is believed, and a caller checks the name in it, too.
"""

import socket
import ssl

from cad.base.errors import CadError
from cad.dicom.archive.settings import ArchiveTls, Tls

_ALERT_SECONDS = 1.0  # how long an archive may take to say that it does not want our certificate


def answering(tls: Tls) -> ssl.SSLContext:
    """Return the TLS context for connections that others open to us.

    A caller must show a certificate of the authority in the settings.

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

    The archive's certificate must be of the authority in the settings and bear the archive's name.

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
    """Refuse to ask at a terminal for what nobody is there to type."""
    raise ValueError("the key has a pass phrase")


def reason(error: BaseException) -> str:
    """Return in words why an encrypted connection failed.

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
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def probe(connection: socket.socket, tls: ArchiveTls, host: str) -> None:
    """Try an encrypted connection, to learn whether both certificates are accepted.

    With TLS 1.3 a client finishes before the server has judged its certificate; therefore the
    server's verdict is read here.

    Parameters
    ----------
    connection : socket
        Connected, not encrypted yet.
    tls : ArchiveTls
        Certificate files, and the name that the archive's certificate must bear.
    host : str
        The name that it must bear where ``tls`` gives none.

    Raises
    ------
    OSError
        When the other side does not speak TLS, or one of the two certificates is not accepted.
    """
    with calling(tls).wrap_socket(connection, server_hostname=tls.name or host) as encrypted:
        encrypted.settimeout(_ALERT_SECONDS)
        try:
            encrypted.recv(1)
        except TimeoutError:  # it waits for us to speak: nothing is wrong with the encryption
            return
