"""Settings of a node (``configs/node/*.yaml``): who may send, what is computed."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator
from pydicom.datadict import tag_for_keyword

from cad.dicom.archive.settings import ArchiveLimits, Tls
from cad.settings import Section


class ReceiverSettings(Section):
    """Say who may send, and how much."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(11112, ge=0, le=65535, description="DICOM port")
    aet: str = Field(
        "CAD", min_length=1, max_length=16, description="our AE title; a call of another is refused"
    )
    callers: tuple[str, ...] = Field(
        min_length=1, description="AE titles that may send; all others are refused"
    )
    associations: int = Field(10, ge=1, description="associations at once")
    association_gigabytes: float = Field(
        16.0, gt=0, description="most that one association may bring; then it is cut"
    )
    idle_seconds: float = Field(60.0, gt=0, description="silence after which a caller is cut off")
    reserve_gigabytes: float = Field(
        2.0, ge=0, description="free disk below which nothing more is taken"
    )
    tls: Tls | None = Field(
        None, description="certificates: who shows none of the authority's is refused"
    )


class StudySettings(Section):
    """Say when a study is complete, and what its computing may cost."""

    quiet_seconds: float = Field(
        60.0, gt=0, description="a study is complete when nothing of it has come for so long"
    )
    count: bool = Field(
        False, description="ask the archive, too, whether it has more images of the study"
    )
    wait_hours: float = Field(
        24.0, gt=0, description="how long images that the archive has are waited for"
    )
    jobs: int = Field(1, ge=1, description="studies computed at once, a process each")
    time_limit: float = Field(
        1800.0, ge=1, description="seconds that one study may compute, or wait"
    )
    memory_limit: float = Field(8.0, ge=0.5, description="gigabytes that one study may ask for")
    keep_days: float = Field(
        30.0, gt=0, description="a study that is done or failed is swept after so many days"
    )


class ArchiveSettings(Section):
    """Name the archive that gets the results."""

    address: str = Field(description="HOST:PORT, or the root of a DICOMweb service")
    aet: str = Field("ANY-SCP", description="its AE title")
    limits: ArchiveLimits = Field(ArchiveLimits(), description="what it may cost (docs/dicom.md)")
    retry_seconds: float = Field(10.0, gt=0, description="first wait after a failed sending")
    commitment: bool = Field(
        False, description="done only when the archive has promised to keep the result (DICOM only)"
    )
    commitment_seconds: float = Field(
        300.0, gt=0, description="how long a promise is waited for before it is asked for again"
    )
    retry_most: float = Field(900.0, gt=0, description="longest wait; each is twice the one before")


class PollSettings(Section):
    """Say which archive is asked for new studies, and how often."""

    every_seconds: float = Field(60.0, gt=0, description="how often the archive is asked")
    days: int = Field(1, ge=0, description="how far back a study's date may lie; 0 is today, UTC")
    match: dict[str, str] = Field(
        {}, description="what else a study must match: `{StudyDescription: '*prostate*'}`"
    )
    address: str = Field("", description="another archive than that of the results")
    aet: str = Field("", description="its AE title, where it is another")
    limits: ArchiveLimits | None = Field(None, description="what it may cost, where it is another")

    @field_validator("match")
    @classmethod
    def _keywords(cls, match: dict[str, str]) -> dict[str, str]:
        unknown = [keyword for keyword in match if tag_for_keyword(keyword) is None]
        if unknown:
            raise ValueError(f"not a DICOM keyword: {unknown[0]!r}")
        return match


class WatchSettings(Section):
    """Name a folder to which a site exports."""

    folder: Path = Field(description="looked through with all folders in it; nothing is deleted")
    quiet_seconds: float = Field(
        10.0, gt=0, description="a file is taken when size and time have been the same for so long"
    )


class StatusSettings(Section):
    """Say where the status page is."""

    port: int = Field(8080, ge=0, le=65535, description="port on 127.0.0.1")


class NodeSettings(Section):
    """Hold everything that a node is configured with."""

    home: Path = Field(description="folder of the queue, of received studies and of their runs")
    rules: str = Field(description="rules of the import: a file, or a name in configs/import")
    models: tuple[str, ...] = Field(
        min_length=1, description="models; each study is scored by the first that it suffices for"
    )
    decision: str | None = Field(
        None, description="a site's costs: a file, or a name in configs/decision"
    )
    receiver: ReceiverSettings
    archive: ArchiveSettings
    studies: StudySettings = StudySettings()
    watch: WatchSettings | None = None
    poll: PollSettings | None = None
    status: StatusSettings = StatusSettings()
    audit: Path | None = Field(
        None, description="audit trail; `audit.jsonl` in `home` leads there, or is it"
    )

    @model_validator(mode="after")
    def _can_be_promised(self) -> NodeSettings:
        archive = self.archive
        if archive.commitment and (
            "://" in archive.address or archive.aet not in self.receiver.callers
        ):
            raise ValueError(
                "archive.commitment: the archive calls back to promise: it needs HOST:PORT, and "
                f"its title {archive.aet!r} in receiver.callers"
            )
        return self
