"""Settings of a node (``configs/node/*.yaml``): who may send, what is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydicom.datadict import tag_for_keyword

from cad.base.settings import Section
from cad.dicom.archive.settings import ArchiveLimits, Tls


class ReceiverSettings(Section):
    """Say who may send, and how much.

    Parameters
    ----------
    host
        address to listen on
    port
        DICOM port
    aet
        our AE title; a call of another is refused
    callers
        AE titles that may send; all others are refused
    associations
        associations at once
    association_gigabytes
        most that one association may bring; then it is cut
    idle_seconds
        silence after which a caller is cut off
    reserve_gigabytes
        free disk below which nothing more is taken
    tls
        certificates: who shows none of the authority's is refused
    """

    host: str = "127.0.0.1"
    port: int = Field(11112, ge=0, le=65535)
    aet: str = Field("CAD", min_length=1, max_length=16)
    callers: tuple[str, ...] = Field(min_length=1)
    associations: int = Field(10, ge=1)
    association_gigabytes: float = Field(16.0, gt=0)
    idle_seconds: float = Field(60.0, gt=0)
    reserve_gigabytes: float = Field(2.0, ge=0)
    tls: Tls | None = None


class StudySettings(Section):
    """Say when a study is complete, and what its computing may cost.

    Parameters
    ----------
    quiet_seconds
        a study is complete when nothing of it has come for so long
    count
        ask the archive, too, whether it has more images of the study
    wait_hours
        how long images that the archive has are waited for
    jobs
        studies computed at once, a process each
    time_limit
        seconds that one study may compute, or wait
    memory_limit
        gigabytes that one study may ask for
    keep_days
        a study that is done or failed is swept after so many days
    """

    quiet_seconds: float = Field(60.0, gt=0)
    count: bool = False
    wait_hours: float = Field(24.0, gt=0)
    jobs: int = Field(1, ge=1)
    time_limit: float = Field(1800.0, ge=1)
    memory_limit: float = Field(8.0, ge=0.5)
    keep_days: float = Field(30.0, gt=0)


class ArchiveSettings(Section):
    """Name the archive that gets the results.

    Parameters
    ----------
    address
        HOST:PORT, or the root of a DICOMweb service
    aet
        its AE title
    limits
        what it may cost (docs/dicom.md)
    retry_seconds
        first wait after a failed sending
    pdf
        each man's sheet for the tumour board, too, as Encapsulated PDF
    capture
        the same sheet as Secondary Capture pictures
    language
        of the sheet
    commitment
        done only when the archive has promised to keep the result (DICOM only)
    commitment_seconds
        how long a promise is waited for before it is asked for again
    retry_most
        longest wait; each is twice the one before
    """

    address: str
    aet: str = "ANY-SCP"
    limits: ArchiveLimits = ArchiveLimits()
    retry_seconds: float = Field(10.0, gt=0)
    pdf: bool = False
    capture: bool = False
    language: Literal["en", "de", "fr"] = "en"
    commitment: bool = False
    commitment_seconds: float = Field(300.0, gt=0)
    retry_most: float = Field(900.0, gt=0)


class PollSettings(Section):
    """Say which archive is asked for new studies, and how often.

    Parameters
    ----------
    every_seconds
        how often the archive is asked
    days
        how far back a study's date may lie; 0 is today, UTC
    match
        what else a study must match: `{StudyDescription: '*prostate*'}`
    address
        another archive than that of the results
    aet
        its AE title, where it is another
    limits
        what it may cost, where it is another
    """

    every_seconds: float = Field(60.0, gt=0)
    days: int = Field(1, ge=0)
    match: dict[str, str] = Field({})
    address: str = ""
    aet: str = ""
    limits: ArchiveLimits | None = None

    @field_validator("match")
    @classmethod
    def _keywords(cls, match: dict[str, str]) -> dict[str, str]:
        unknown = [keyword for keyword in match if tag_for_keyword(keyword) is None]
        if unknown:
            raise ValueError(f"not a DICOM keyword: {unknown[0]!r}")
        return match


class WatchSettings(Section):
    """Name a folder to which a site exports.

    Parameters
    ----------
    folder
        looked through with all folders in it; nothing is deleted
    quiet_seconds
        a file is taken when size and time have been the same for so long
    """

    folder: Path
    quiet_seconds: float = Field(10.0, gt=0)


class StatusSettings(Section):
    """Say where the status page is.

    Parameters
    ----------
    port
        port on 127.0.0.1
    """

    port: int = Field(8080, ge=0, le=65535)


class ModelsInUse(Section):
    """Say which models score, and which are watched beside them.

    Parameters
    ----------
    champion
        each study is scored by the first of these that it suffices for; this is shown and sent
    shadow
        each scores every study, too; what it says is kept for comparison, never shown or sent
    """

    champion: tuple[str, ...] = Field(min_length=1)
    shadow: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _plain_list(cls, given: Any) -> Any:
        if isinstance(given, (list, tuple)):
            return {"champion": given}
        return given

    @model_validator(mode="after")
    def _apart(self) -> ModelsInUse:
        both = [name for name in self.shadow if name in self.champion]
        if both:
            raise ValueError(f"{both[0]} is named as champion and as shadow")
        return self


class NodeSettings(Section):
    """Hold everything that a node is configured with.

    Parameters
    ----------
    home
        folder of the queue, of received studies and of their runs
    rules
        rules of the import: a file, or a name in configs/import
    models
        champion and shadow models; a plain list names champions
    decision
        a site's costs: a file, or a name in configs/decision
    audit
        audit trail; `audit.jsonl` in `home` leads there, or is it
    """

    home: Path
    rules: str
    models: ModelsInUse
    decision: str | None = None
    receiver: ReceiverSettings
    archive: ArchiveSettings
    studies: StudySettings = StudySettings()
    watch: WatchSettings | None = None
    poll: PollSettings | None = None
    status: StatusSettings = StatusSettings()
    audit: Path | None = None

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
