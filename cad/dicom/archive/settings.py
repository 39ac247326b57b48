"""Settings of an archive (``configs/archive/*.yaml``): limits, and ways to reach it."""

from pathlib import Path

from pydantic import Field

from cad.base.settings import Section


class Tls(Section):
    """Name the files of encrypted connections, all PEM: each side shows a certificate.

    Parameters
    ----------
    certificate
        file with our certificate, and with the certificates between it and its authority
    key
        file with the key of our certificate, without a pass phrase; only the user who runs the
        program may read it
    authority
        certificates of the authorities that count; one of them must have signed the certificate of
        the other side of the connection
    """

    certificate: Path
    key: Path
    authority: Path


class ArchiveTls(Tls):
    """Name the files of encrypted connections to an archive, and the name in its certificate.

    Parameters
    ----------
    name
        name in the archive's certificate, if it differs from the archive's host
    """

    name: str = ""


class Move(Section):
    """State the entry that an archive needs in its list of destinations to send us images (C-MOVE).

    Parameters
    ----------
    aet
        our AE title (DICOM name) as a destination of C-MOVE
    host
        address on which we listen while the archive sends
    port
        port on which we listen while the archive sends images to us
    """

    aet: str = Field("CAD", min_length=1, max_length=16)
    host: str = "0.0.0.0"  # noqa: S104 - the archive calls
    port: int = Field(11113, ge=1, le=65535)


class ArchiveLimits(Section):
    """Limit the waiting, time, bytes and memory that an archive may cost, and say how to reach it.

    Parameters
    ----------
    answer_seconds
        longest wait for a connection and for every answer, in seconds
    study_seconds
        longest time for one query, for fetching one study, or for storing one object, in seconds
    study_gigabytes
        most gigabytes that one query or one study may bring, counted after unpacking
    answers
        largest number of entries in the answer to one query
    memory_gigabytes
        gigabytes of memory that a process that speaks with the archive may take
    proof_seconds
        seconds that an archive may take to list an object that it has taken; after that time the
        object counts as not proved to be stored
    calling
        our AE title (DICOM name), under which we call the archive
    tls
        certificates for DICOM over TLS, or for HTTPS
    move
        destination to fetch to by C-MOVE; without it C-GET is used
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
