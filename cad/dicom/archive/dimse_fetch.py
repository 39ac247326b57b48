"""Take what an archive sends us while we fetch: within C-GET, or for C-MOVE by its own call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydicom.uid import (
    EnhancedMRImageStorage,
    LegacyConvertedEnhancedMRImageStorage,
    MRImageStorage,
    ParametricMapStorage,
    RTStructureSetStorage,
    SegmentationStorage,
)
from pynetdicom import AE, ALL_TRANSFER_SYNTAXES, evt

from cad.dicom.archive.dimse_calls import SUCCESS, Received
from cad.dicom.archive.interface import FoundSeries, check_received, keep_instance
from cad.dicom.archive.listener import listen, silence
from cad.dicom.archive.settings import ArchiveLimits, Move
from cad.dicom.archive.tls import answering
from cad.errors import CadError

FETCHED = [
    MRImageStorage,
    EnhancedMRImageStorage,
    LegacyConvertedEnhancedMRImageStorage,
    ParametricMapStorage,
    SegmentationStorage,
    RTStructureSetStorage,
]
_OUT_OF_RESOURCES, _DOES_NOT_MATCH, _CANNOT_UNDERSTAND = 0xA700, 0xA900, 0xC000


class Kept:
    """Keep the instances of one wanted series as files; refuse and remember any other."""

    def __init__(self, series: FoundSeries, into: Path) -> None:
        self.series, self.into = series, into
        self.arrived: set[str] = set()
        self.refused: list[CadError] = []

    def store(self, event: evt.Event) -> int:
        """Handle one C-STORE of the archive's."""
        request: Any = event.request
        uid = str(request.AffectedSOPInstanceUID)
        try:
            check_received(event.dataset, self.series)
            if str(event.dataset.get("SOPInstanceUID", "")) != uid:
                raise CadError(f"the archive returned an instance that is not {uid}")
            keep_instance(event.encoded_dataset(), uid, self.into)
        except CadError as error:
            self.refused.append(error)
            return _DOES_NOT_MATCH
        except OSError as error:  # a full disk must not look like a stored instance
            self.refused.append(CadError(f"could not be written: {error.strerror}", file=self.into))
            return _OUT_OF_RESOURCES
        except Exception as error:  # a damaged dataset may break the reader anywhere
            what = f"damaged ({type(error).__name__})"
            self.refused.append(CadError(f"the archive returned an instance that is {what}"))
            return _CANNOT_UNDERSTAND
        self.arrived.add(uid)
        return SUCCESS

    def count(self) -> int:
        """Return how many instances have come.

        Raises
        ------
        CadError
            For the first one that was refused.
        """
        if self.refused:
            raise self.refused[0]
        return len(self.arrived)


@contextmanager
def destination(move: Move, aet: str, limits: ArchiveLimits, kept: Kept) -> Iterator[Received]:
    """Listen, for one C-MOVE, as the destination that the archive knows by title, host and port.

    Only the archive may call, by its own title, and only what was asked for is kept; encrypted
    where the limits name certificates.

    Parameters
    ----------
    move : Move
        Own title, host and port, as the archive has them in its list of destinations.
    aet : str
        The archive's application entity title.
    limits : ArchiveLimits
        What the archive may cost.
    kept : Kept
        Stores what arrives.

    Yields
    ------
    Received
        Counts the bytes that came.

    Raises
    ------
    CadError
        When nobody can listen at the port.
    """
    entity = AE(ae_title=move.aet)
    entity.require_called_aet, entity.require_calling_aet = True, [aet]
    entity.network_timeout = entity.dimse_timeout = limits.answer_seconds
    entity.acse_timeout = limits.answer_seconds
    for kind in FETCHED:
        entity.add_supported_context(kind, ALL_TRANSFER_SYNTAXES)
    received = Received(limits)
    handlers = [
        (evt.EVT_CONN_OPEN, received.opened),
        (evt.EVT_DATA_RECV, received.came),
        (evt.EVT_C_STORE, kept.store),
    ]
    encryption = answering(limits.tls) if limits.tls is not None else None
    try:
        server = listen(entity, (move.host, move.port), handlers, encryption, lambda *_, **__: None)
    except OSError as error:
        raise CadError(
            f"nobody can listen for the archive at {move.host}:{move.port}: {error.strerror}",
            hint="another port of `move`, which the archive has to know, too",
        ) from error
    try:
        yield received
    finally:
        silence(entity, server)
