"""Print docs/conformance.md: the DICOM conformance statement, made from the code."""

from __future__ import annotations

from pydicom.uid import UID
from pynetdicom import AE, ALL_TRANSFER_SYNTAXES
from pynetdicom.presentation import DEFAULT_TRANSFER_SYNTAXES

from cad.dicom.archive.dimse import COMMITMENT, FETCHED, FIND, GET, MOVE, STORED
from cad.dicom.archive.interface import IDENTITY, MODALITIES
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.out.objects import CHARACTER_SET
from cad.dicom.own import MANUFACTURER, OWN_MODEL_NAME, SERIES
from cad.hospital.node.receiver import VERIFICATION

HEAD = """# DICOM conformance

*For an archive's administrator: which DICOM services, objects and limits does `cad` have?*

[dicom.md](dicom.md) says how to use `cad` with an archive. This page is generated from the code by
`python scripts/conformance_page.py > docs/conformance.md`. Research use only; not a medical device.

## Implementation

"""
ROLES = """
## Roles

The commands `cad import` and `cad report` only call an archive. They open an association (a
connection of DICOM networking) for a query, for fetching a study and for storing its results, one
at a time. They fetch by C-GET, by C-MOVE or by DICOMweb. For C-MOVE (entry `move` in the file that
`--limits` names) a receiver listens, but only while a series is fetched. The node (`cad serve`)
also receives calls.

The list has the roles of `cad` for each SOP class (kind of object or service). SCU is the side that
calls, and SCP the side that is called. An object, such as an image, may pass in three ways:

- "from the archive": a command asks the archive for the object by C-GET or C-MOVE, and receives it
  (C-STORE SCP);
- "to the archive": `cad` sends the object (C-STORE SCU);
- "to the node": a scanner or an archive sends the object to the node (C-STORE SCP).

The SOP classes and their roles:

"""
RESULTS = """
## Results that are stored

Every result is filed under the archive's own record of the study. The copy that is sent takes over
these values of the record:
{identity}.
Reports follow TID 1500 with TID 1411 groups. [dicom.md](dicom.md#to-the-archive) describes tracking
identifiers, and how a later result names the earlier results.

| object | SOP class | modality | series number | series description |
|---|---|---|---|---|
"""
WEB = """
## DICOMweb

QIDO-RS finds studies, series, instances and earlier results, and proves that an object was stored.
WADO-RS fetches the instances of a series. STOW-RS stores one object in each request. Fetched
objects come as `application/dicom`, in the transfer syntax that the archive chooses. If the
archive redirects `cad` to another address, `cad` does not follow.

## Character sets

"""
END = """
## Limits

In every exchange with an archive, each wait, the whole time, the count of answers and the amount of
bytes are limited. The [settings](settings.md#an-archive-configsarchiveyaml) have the limits.

## Security

Connections are plain DICOM, or encrypted by TLS 1.2 and later (BCP 195, the standard for secure
TLS). Under TLS both sides show a certificate, whether `cad` calls or the node is called. With
DICOMweb `cad` uses HTTP or HTTPS, as the address says. With the entry `tls` in the settings it
refuses an address without HTTPS, and shows the certificate that the entry names. Whether a
certificate was revoked is not checked. There are no passwords.
"""


def conformance_page() -> str:
    """Return ``docs/conformance.md``."""
    entity = AE(ae_title=ArchiveLimits().calling)
    text = HEAD
    text += f"- calling AE title: `{ArchiveLimits().calling}`\n"
    text += f"- implementation class UID: `{entity.implementation_class_uid}`\n"
    text += f"- implementation version name: `{entity.implementation_version_name}`\n"
    text += f"- largest PDU received: {entity.maximum_pdu_size} bytes\n"
    text += f"- manufacturer, model name of results: `{MANUFACTURER}`, `{OWN_MODEL_NAME}`\n"
    text += ROLES
    services = {
        "C-FIND SCU": [FIND],
        "C-GET SCU": [GET],
        "C-MOVE SCU": [MOVE],
        "from the archive": FETCHED,
        "to the archive": STORED,
        "to the node": FETCHED,
        "C-ECHO SCP, the node": [VERIFICATION],
        "where it is configured, the node: N-ACTION SCU, N-EVENT-REPORT SCU": [COMMITMENT],
    }
    roles: dict[str, list[str]] = {}
    for service, uids in services.items():
        for uid in uids:
            roles.setdefault(str(uid), []).append(service)
    text += "".join(f"- {UID(k).name} `{k}`: {', '.join(v)}\n" for k, v in roles.items())
    text += "\nFor each SOP class these transfer syntaxes are proposed:\n\n"
    text += "\n".join(f"- {UID(uid).name} `{uid}`" for uid in DEFAULT_TRANSFER_SYNTAXES)
    count = len(ALL_TRANSFER_SYNTAXES)
    text += f"\n\nThe node accepts {count} transfer syntaxes: all that pynetdicom knows.\n"
    text += f"\nSeries of modality {', '.join(MODALITIES)} are fetched from an archive.\n"
    text += RESULTS.format(identity=", ".join(IDENTITY))
    text += "\n".join(
        f"| `<study>_{'SC_N' if kind == 'SC' else kind}.dcm` | {series.sop_class.name} "
        f"| {series.modality} | {series.number} | {series.description} |"
        for kind, series in SERIES.items()
    )
    text += "\n" + WEB
    text += f"Results are written in `{CHARACTER_SET}` (UTF-8). Received objects are read in the "
    return text + "character set\nthat they state, if pydicom knows it.\n" + END


if __name__ == "__main__":
    print(conformance_page(), end="")
