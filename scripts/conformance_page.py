"""Print docs/conformance.md: the DICOM conformance statement, from what the code uses."""

from __future__ import annotations

from pydicom.uid import UID
from pynetdicom import AE, ALL_TRANSFER_SYNTAXES
from pynetdicom.presentation import DEFAULT_TRANSFER_SYNTAXES

from cad.dicom.archive.dimse import COMMITMENT, FIND, GET, MOVE, STORED
from cad.dicom.archive.dimse_fetch import FETCHED
from cad.dicom.archive.interface import IDENTITY, MODALITIES
from cad.dicom.archive.settings import ArchiveLimits
from cad.dicom.out.objects import CHARACTER_SET
from cad.dicom.own import MANUFACTURER, OWN_MODEL_NAME, SERIES
from cad.node.receiver import VERIFICATION

HEAD = """# DICOM conformance

Generated from the code: `python scripts/conformance_page.py > docs/conformance.md`. How it is used
is in [dicom.md](dicom.md). Research use only; not a medical device.

## Implementation

"""
ROLES = """
## Roles

The commands ask: they open an association for a query, for fetching a study and for storing its
results, one at a time. Fetched is by C-GET, or by C-MOVE to a place that listens meanwhile
(`move` in the archive's limits), or by DICOMweb. The node (`cad serve`) also answers, where the
table says so.

| service | role | information model or SOP class |
|---|---|---|
"""
RESULTS = """
## Results that are stored

Every result is filed under the archive's own record of the study: the sent copy takes over
{identity}.
Reports are Comprehensive 3D SR after TID 1500 with TID 1411 groups; every region has a Tracking
Identifier and a Tracking Unique Identifier, the same in SR and SEG and in every later result. A
report that says something new names the study's earlier reports in its Predecessor Documents
Sequence and their segmentations and maps in its Pertinent Other Evidence Sequence.

| object | SOP class | modality | series number | series description |
|---|---|---|---|---|
"""
WEB = """
## DICOMweb

| service | what for |
|---|---|
| QIDO-RS | a patient's studies, series, instances; proof of storing; earlier results |
| WADO-RS | instances of a series |
| STOW-RS | one object a request; stored when listed as stored, not as failed, and found again |

`application/dicom` in what the archive chooses; redirects are not followed.

## Character sets

"""
LIMITS = """
## Limits

Every wait, time, count of answers and amount of bytes is limited, by the archive's settings
(`configs/archive/*.yaml`):

| key | default | meaning |
|---|---|---|
"""
SECURITY = """
## Security

Plain DICOM, or TLS 1.2 and later (BCP 195) with certificates of both sides, as caller and in the
node; DICOMweb by HTTPS, with client certificates where they are named. Revocation is not looked up;
there are no passwords.
"""


def rows(uids: list[str], service: str, role: str) -> list[str]:
    """Return a table's rows, one for each SOP class."""
    return [f"| {service} | {role} | {UID(uid).name} `{uid}` |" for uid in uids]


def conformance_page() -> str:
    """Return ``docs/conformance.md``."""
    entity = AE(ae_title=ArchiveLimits().calling)
    text = HEAD
    text += "| | |\n|---|---|\n"
    text += f"| calling AE title | `{ArchiveLimits().calling}` |\n"
    text += f"| implementation class UID | `{entity.implementation_class_uid}` |\n"
    text += f"| implementation version name | `{entity.implementation_version_name}` |\n"
    text += f"| largest PDU received | {entity.maximum_pdu_size} bytes |\n"
    text += f"| manufacturer, model name of results | `{MANUFACTURER}`, `{OWN_MODEL_NAME}` |\n"
    text += ROLES
    asked = {"C-FIND": FIND, "C-GET": GET, "C-MOVE": MOVE}
    table = [row for service, uid in asked.items() for row in rows([uid], service, "SCU")]
    table += rows([str(uid) for uid in FETCHED], "C-STORE within C-GET, for C-MOVE", "SCP")
    table += rows([str(uid) for uid in STORED], "C-STORE", "SCU")
    table += rows([VERIFICATION], "C-ECHO", "SCP, the node")
    table += rows([str(uid) for uid in FETCHED], "C-STORE", "SCP, the node")
    table += rows([COMMITMENT], "N-ACTION", "SCU, the node, where it is configured")
    table += rows([COMMITMENT], "N-EVENT-REPORT", "SCU, the node; the archive is the SCP")
    text += "\n".join(table) + "\n\nTransfer syntaxes proposed for each:\n\n"
    text += "\n".join(f"- {UID(uid).name} `{uid}`" for uid in DEFAULT_TRANSFER_SYNTAXES)
    text += f"\n\nThe node takes {len(ALL_TRANSFER_SYNTAXES)}: all that pynetdicom knows.\n"
    text += f"\nSeries of modality {', '.join(MODALITIES)} are fetched.\n"
    text += RESULTS.format(identity=", ".join(IDENTITY))
    text += "\n".join(
        f"| `<study>_{'PM' if modality == 'OT' else modality}.dcm` | {uid.name} | {modality} "
        f"| {number} | {description} |"
        for modality, (number, description, uid) in SERIES.items()
    )
    text += "\n" + WEB
    text += f"Results are written in `{CHARACTER_SET}` (UTF-8). What comes in is read in its own "
    text += "set, by pydicom's\ntable of them.\n" + LIMITS
    for name, field in ArchiveLimits.model_fields.items():
        shown = "-" if field.default is None else repr(field.default)
        text += f"| `{name}` | {shown} | {field.description} |\n"
    return text + SECURITY


if __name__ == "__main__":
    print(conformance_page(), end="")
