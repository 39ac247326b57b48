"""Settings of an archive (``configs/archive/*.yaml``): its limits, and how it is spoken to."""

from pathlib import Path

from pydantic import Field

from cad.base.settings import Section


class Tls(Section):
    """Name the files of encrypted connections, all PEM: each side shows a certificate.

    Parameters
    ----------
    certificate
        our certificate, and those between it and its authority
    key
        its key, without a pass phrase; for our user alone
    authority
        certificates of the authorities; one must have signed the other side's
    """

    certificate: Path
    key: Path
    authority: Path


class ArchiveTls(Tls):
    """Name the files of encrypted connections to an archive, and the name in its certificate.

    Parameters
    ----------
    name
        name in the archive's certificate, where it is not its host
    """

    name: str = ""


class Move(Section):
    """State what an archive must have in its list to send us images by C-MOVE.

    Parameters
    ----------
    aet
        title of the destination
    host
        address to listen on meanwhile
    port
        port to listen on meanwhile
    """

    aet: str = Field("CAD", min_length=1, max_length=16)
    host: str = "0.0.0.0"  # noqa: S104 - the archive calls
    port: int = Field(11113, ge=1, le=65535)


class ArchiveLimits(Section):
    """State what an archive may cost (waiting, time, bytes, memory), and how it is spoken to.

    Parameters
    ----------
    answer_seconds
        longest wait for a connection and for every answer
    study_seconds
        longest time for one query, for fetching one study, for storing one object
    study_gigabytes
        most that one query, or one study, may bring, unpacked
    answers
        most lines with which a query is answered
    memory_gigabytes
        memory that a conversation with the archive may ask for
    proof_seconds
        how long an archive may take to list what it has stored
    calling
        our AE title when we call
    tls
        certificates for DICOM over TLS, or for HTTPS
    move
        fetch by C-MOVE, to here; by C-GET without it
    """

    answer_seconds: float = Field(60.0, gt=0)
    study_seconds: float = Field(3600.0, gt=0)
    study_gigabytes: float = Field(16.0, gt=0)
    answers: int = Field(10_000, gt=0)
    memory_gigabytes: float = Field(8.0, ge=0.5)
    proof_seconds: float = Field(10.0, ge=0)
    calling: str = Field("CAD", min_length=1, max_length=16)
    tls: ArchiveTls | None = None
    move: Move | None = None
