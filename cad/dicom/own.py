"""How objects that this program wrote are recognised: maker, model and series."""

from pydicom.uid import Comprehensive3DSRStorage, ParametricMapStorage, SegmentationStorage

MANUFACTURER = "cad"
OWN_MODEL_NAME = "cad"
SERIES = {
    "SR": (9102, "cad: probability of malignancy", Comprehensive3DSRStorage),
    "SEG": (9101, "cad: regions of interest", SegmentationStorage),
    "OT": (9103, "cad: map of probability", ParametricMapStorage),
}
"""Number, description and SOP class of the series that hold results, by modality."""
