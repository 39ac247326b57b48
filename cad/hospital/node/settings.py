"""Settings of a node (``configs/node/*.yaml``): senders, computing, archive and models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydicom.datadict import tag_for_keyword

from cad.base.settings import Section
from cad.dicom.archive.settings import ArchiveLimits, Tls


class ReceiverSettings(Section):
    """Say who may send to the node, and how much.

    Parameters
    ----------
    host
        address on which the node listens for senders
    port
        port on which the node listens
    aet
        the node's AE title (DICOM name); a caller that asks for another title is refused
    callers
        AE titles of the senders that may connect to the node; all other callers are refused
    associations
        most associations (DICOM connections) that one caller may have at once
    association_gigabytes
        most gigabytes that one association may bring; if more come, it is cut off
    idle_seconds
        seconds of silence after which an association is cut off
    reserve_gigabytes
        gigabytes of the disk that must be free; with fewer, the node refuses to receive
    tls
        certificates; a caller must show a certificate that the authority has signed
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
        seconds without a new instance of a study after which the study is complete
    count
        whether the archive is also asked if it has more images of a study than have come
    wait_hours
        hours after which a study fails if images that the archive has are still missing
    jobs
        how many studies are computed at once, each in a process of its own
    time_limit
        seconds of processor time that one study may take; in addition it may spend as many seconds
        waiting, for a disk for example
    memory_limit
        gigabytes of memory that one study may take
    keep_days
        days after which the files of a study that is done or failed are deleted
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
        address of the archive: HOST:PORT, or the root of a DICOMweb service
    aet
        AE title of the archive
    limits
        limits of time and data, and ways to reach the archive (docs/dicom.md)
    retry_seconds
        seconds of the first wait after sending has failed; each further wait is twice as long
    pdf
        whether each man's sheet for the tumour board is also sent, as Encapsulated PDF
    capture
        whether the sheet is also sent as pictures (Secondary Capture)
    language
        language of the sheet
    commitment
        whether a study is done only when the archive has promised to keep the result (DICOM only)
    commitment_seconds
        seconds without an answer after which the archive is asked again for its promise
    retry_most
        seconds of the longest wait before sending is tried again
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
        seconds between two queries to the archive
    days
        greatest age of a study, in days by its date; 0 for today's studies only, by UTC
    match
        further conditions on a study, such as `{StudyDescription: '*prostate*'}`
    address
        address of the archive that is queried, if it is not the archive that gets the results
    aet
        AE title of the archive at poll.address
    limits
        limits of the archive at poll.address
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
        folder that is searched for new DICOM files, with all folders in it; nothing in it is
        deleted
    quiet_seconds
        seconds for which a file must keep its size and time before it is taken
    """

    folder: Path
    quiet_seconds: float = Field(10.0, gt=0)


class StatusSettings(Section):
    """Say where the status page is shown.

    Parameters
    ----------
    port
        port of the status page, on 127.0.0.1
    """

    port: int = Field(8080, ge=0, le=65535)


class ModelsInUse(Section):
    """Name the models that score studies, and the models on trial beside them.

    Parameters
    ----------
    champion
        models in order; each study is scored by the first one whose images it has, and this result
        is shown and sent
    shadow
        models on trial, which score every study, too; their numbers are kept for comparison, and
        are never shown or sent
    """

    champion: tuple[str, ...] = Field(min_length=1)
    shadow: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _plain_list(cls, content: Any) -> Any:
        """Take a plain list of models for a list of champions."""
        if isinstance(content, (list, tuple)):
            return {"champion": content}
        return content

    @model_validator(mode="after")
    def _apart(self) -> ModelsInUse:
        both = [name for name in self.shadow if name in self.champion]
        if both:
            raise ValueError(f"{both[0]} is named as champion and as shadow")
        return self


class NodeSettings(Section):
    """Hold all settings of a node.

    Parameters
    ----------
    home
        folder of the queue, of received studies and of their runs
    rules
        rules of the import: a file, or a name in configs/import
    models
        champion and shadow models; a plain list names champions
    decision
        settings of the decision at this site: a file, or a name in configs/decision
    audit
        path of the audit trail; `audit.jsonl` in `home` is then a link to this path. By default the
        audit trail is the file `audit.jsonl` in `home`
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
        """Refuse settings under which the archive could not send its promise to the node."""
        archive = self.archive
        is_dicomweb = "://" in archive.address  # a web service cannot call back
        may_call = archive.aet in self.receiver.callers
        if archive.commitment and (is_dicomweb or not may_call):
            raise ValueError(
                "archive.commitment: the archive calls back to promise: it needs HOST:PORT, and "
                f"its title {archive.aet!r} in receiver.callers"
            )
        return self
