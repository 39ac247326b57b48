"""Define the modalities in one table: names, places in a cohort, units and meaning of the values.

A modality is a kind of image. Every loop over the modalities uses :data:`MODALITIES`. A new
modality needs a row here, a field of :class:`cad.mri.imaging.study.Study`, its features and tests.
"""

from dataclasses import dataclass

from cad.base.errors import CadError


@dataclass(frozen=True)
class Modality:
    """Describe one kind of image that a study may hold.

    Parameters
    ----------
    name : str
        First part of feature names, key in settings, field of :class:`cad.mri.imaging.study.Study`.
    title : str
        Name on a page.
    short : str
        Short name where a page has little room.
    folder, suffix : str
        Folder and last part of the file name in a cohort (BIDS where BIDS has the datatype).
    unit : str
        Unit of the voxels; empty where the scale is arbitrary.
    decimals : int
        Decimals with which values are shown.
    dynamic : bool
        Whether the image is a series in time.
    optional : bool
        Whether a study may lack the image without a note that says so.
    least : float or None
        The least value that is a measurement, in ``unit``. A scanner writes a smaller value where
        it measured nothing. None where every value is a measurement.
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
    least: float | None = None


T2W = Modality("t2w", "T2-weighted image", "T2", "anat", "T2w")
LEAST_ADC = 1.0
ADC = Modality("adc", "ADC map", "ADC", "dwi", "ADC", "1e-6 mm2/s", least=LEAST_ADC)
DCE = Modality("dce", "dynamic series", "DCE", "perf", "dce", dynamic=True)
# The name of this image's file differs from the names of the images of single b values that a study
# may also contain (``acq-b<b>_dwi``).
HBV = Modality("hbv", "high-b diffusion image", "high-b DWI", "dwi", "acq-highb_dwi", optional=True)
# This map was computed by another program, from a dynamic series that the study may lack. It is
# read as it is. Ktrans that this program fits to a dynamic series is a feature of DCE.
KTRANS = Modality(
    "ktrans", "Ktrans map", "Ktrans map", "perf", "Ktrans", "1/min", decimals=2, optional=True
)

MODALITIES: tuple[Modality, ...] = (T2W, ADC, DCE, HBV, KTRANS)


def modality(name: str) -> Modality:
    """Return the row of :data:`MODALITIES` that has a name.

    Parameters
    ----------
    name : str
        ``t2w``, ``adc``, ``dce``, ``hbv`` or ``ktrans``.

    Raises
    ------
    CadError
        For a name that is not in the table.
    """
    for entry in MODALITIES:
        if entry.name == name:
            return entry
    names = ", ".join(entry.name for entry in MODALITIES)
    raise CadError(f"no modality is called {name!r}", hint=f"known are {names}")


def short_name(name: str) -> str:
    """Return a modality's short name for a page; a name that is not in the table is unchanged."""
    for entry in MODALITIES:
        if entry.name == name:
            return entry.short
    return name
