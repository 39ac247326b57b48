"""The one table of modalities: what an image of a study is called, where it lies, what it measures.

Every loop over T2, ADC and DCE goes over :data:`MODALITIES`. A further modality is a row here, a
field of :class:`cad.imaging.study.Study`, its features and its tests.
"""

from dataclasses import dataclass

from cad.errors import CadError


@dataclass(frozen=True)
class Modality:
    """Describe one kind of image that a study may hold.

    Parameters
    ----------
    name : str
        Stem of feature names, key of settings and rules, field of a study.
    title : str
        What a reader is told it is.
    short : str
        The same where there is little room.
    folder, suffix : str
        Folder and last part of the file name in a cohort (BIDS where BIDS has the datatype).
    unit : str
        Unit of the voxels; empty where the scale is arbitrary.
    decimals : int
        Digits behind the point with which values are shown.
    dynamic : bool
        Whether it is a series in time.
    optional : bool
        Whether a study without it lacks nothing worth a note.
    """

    name: str
    title: str
    short: str
    folder: str
    suffix: str
    unit: str = ""
    decimals: int = 0
    dynamic: bool = False
    optional: bool = False


T2W = Modality("t2w", "T2-weighted image", "T2", "anat", "T2w")
ADC = Modality("adc", "ADC map", "ADC", "dwi", "ADC", "1e-6 mm2/s")
DCE = Modality("dce", "dynamic series", "DCE", "perf", "dce", dynamic=True)
# The name differs from the b-values that a study brings (``acq-b<b>_dwi``): this is one image.
HBV = Modality("hbv", "high-b diffusion image", "high-b DWI", "dwi", "acq-highb_dwi", optional=True)

MODALITIES: tuple[Modality, ...] = (T2W, ADC, DCE, HBV)


def modality(name: str) -> Modality:
    """Return what is known of a modality.

    Parameters
    ----------
    name : str
        ``t2w``, ``adc``, ``hbv`` or ``dce``.

    Raises
    ------
    CadError
        For a name that is not in the table.
    """
    for entry in MODALITIES:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in MODALITIES)
    raise CadError(f"no modality is called {name!r}", hint=f"known are {known}")


def short_name(name: str) -> str:
    """Return what a page calls a modality; the name itself for one that is not in the table."""
    return next((entry.short for entry in MODALITIES if entry.name == name), name)
