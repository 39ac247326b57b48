"""Settings of an archive (``configs/archive/*.yaml``): its limits, and how it is spoken to."""

from pathlib import Path

from pydantic import Field

from cad.settings import Section


class Tls(Section):
    """Name the files of encrypted connections, all PEM: each side shows a certificate."""

    certificate: Path = Field(description="our certificate, and those between it and its authority")
    key: Path = Field(description="its key, without a pass phrase; for our user alone")
    authority: Path = Field(
        description="certificates of the authorities; one must have signed the other side's"
    )


class ArchiveTls(Tls):
    """Name the files, and whom the archive's certificate must name."""

    name: str = Field("", description="name in the archive's certificate, where it is not its host")


class Move(Section):
    """State what an archive must have in its list to send us images by C-MOVE."""

    aet: str = Field("CAD", min_length=1, max_length=16, description="title of the destination")
    host: str = Field("0.0.0.0", description="address to listen on meanwhile")  # noqa: S104  # nosec B104: the archive calls
    port: int = Field(11113, ge=1, le=65535, description="port to listen on meanwhile")


class ArchiveLimits(Section):
    """State what an archive may cost (waiting, time, bytes, memory), and how it is spoken to."""

    answer_seconds: float = Field(
        60.0, gt=0, description="longest wait for a connection and for every answer"
    )
    study_seconds: float = Field(
        3600.0,
        gt=0,
        description="longest time for one query, for fetching one study, for storing one object",
    )
    study_gigabytes: float = Field(
        16.0, gt=0, description="most that one query, or one study, may bring, unpacked"
    )
    answers: int = Field(10_000, gt=0, description="most lines with which a query is answered")
    memory_gigabytes: float = Field(
        8.0, ge=0.5, description="memory that a conversation with the archive may ask for"
    )
    proof_seconds: float = Field(
        10.0, ge=0, description="how long an archive may take to list what it has stored"
    )
    calling: str = Field(
        "CAD", min_length=1, max_length=16, description="our AE title when we call"
    )
    tls: ArchiveTls | None = Field(
        None, description="certificates for DICOM over TLS, or for HTTPS"
    )
    move: Move | None = Field(None, description="fetch by C-MOVE, to here; by C-GET without it")
