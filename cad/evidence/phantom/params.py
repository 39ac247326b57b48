"""Define the parameters of the phantom (the simulated patient) at 3 T, and name their sources.

The parameters are those of tissues, regions and outlines. They were fixed before any learner was
trained on a cohort simulated with them. A value changes only if its source was misread, or if
docs/phantom.md shows that real images differ from simulated ones.

Sources
-------
[S13] Simpkin et al., Br J Radiol 86 (2013) 20120469: PZ, TZ and tumour T2 149 +- 49, 125 +- 26,
      97 +- 23 ms; ADC 1680 +- 215, 1478 +- 139, 1030 +- 205 (1e-6 mm2/s).
[L11] Liu et al., Magn Reson Med 65 (2011) 1400: T2 100 +- 10 ms malignant, 114 +- 23 suspicious but
      benign, 149 +- 32 normal, 3 T.
[H11] Hambrock et al., Radiology 259 (2011) 453: median ADC of PZ cancer falls from about 1300 (low)
      over 1070 (intermediate) to 940 (high Gleason grade), +- 300.
[N08] Noworolski et al., Magn Reson Imaging 26 (2008) 1071: glandular tissue 1570 +- 150, stromal
      1180 +- 200; stroma enhances more.
[C16] TZ carcinoma against BPH nodules, J Comput Assist Tomogr (2016), PMID
      26760185: ADC cancer 1019, encapsulated BPH 1338, non-encapsulated BPH 1272; no kinetic
      parameter separates them.
[E19] Eurasian J Med 51 (2019) 31: ADC of prostatitis is 1.28 times that of cancer.
[A20] AJR Am J Roentgenol (2020), "Prostatitis, the great mimicker": ve higher in prostatitis,
      Ktrans and kep lower than in cancer.
[R10] Rosenkrantz et al., J Magn Reson Imaging 31 (2010) 1387: haemorrhagic benign PZ lies between
      tumour and benign PZ in T2 and ADC (AUC .97, .96 against tumour).
[K17] Central zone looks like cancer: ADC 1036 against 1072, PMC4807133.
[B04] de Bazelaire et al., Radiology 230 (2004) 652: T1 and T2 at 3 T of prostate (1597, 74 ms),
      muscle (898, 29; others report up to 1412, 50), fat and marrow (about 370 .. 590, 50 .. 70).
[Y17] Yu et al., Radiology 283 (2017) 729: T1 of normal PZ 2247 +- 450, of cancer 1628 +- 344 ms.
[O07] Ocak et al., AJR Am J Roentgenol 189 (2007) W192: Ktrans and kep at 3 T, cancer above PZ.
[G17] Gill et al., Sci Rep 7 (2017) 12727: diffusion images are displaced against T2 by 4.4 +- 1.1
      mm in distorted, 1.9 +- .6 mm in undistorted examinations (what outlining leaves).
[J23] Jeganathan et al., Biomedicines 11 (2023) 3309: Dice of three readers' outlines of one lesion
      on T2 .51; [R13] Radiat Oncol 8 (2013) 183: kappa index of six readers on T2 .61.
[C20] Coskun et al., Istanbul Med J 22 (2021) 31: median size of 154 patients' lesions 12 mm.
[P22] 459 expert outlines of significant cancers in 425 men of the PI-CAI challenge (public labels):
      quartiles .45, 1.07, 2.57 mL, 3, 4, 7 slices of 3 to 3.6 mm, 13, 17, 24 mm across; one slice
      in 6 %; glands 31, 42, 57 mL.
[F20] Song et al., PLoS One 15 (2020) e0237587: benign outlines of 133 men .17, .22, .27 mL; the
      volume alone tells them from 127 men's significant cancers with AUC .865.
[PX]  measured in the two PROSTATEx patients that docs/phantom.md compares with.
[P06] Parker et al., Magn Reson Med 56 (2006) 993: arterial input function.

For a value without a source no measurement was found. It is a plausible value, chosen once.

Of S13, L11, N08, C16, E19, A20, R10, K17, G17, J23, R13 and C20 only the abstracts were read. The
values of H11, B04, Y17 and O07 are given as they are commonly quoted. Ktrans, ve and vp differ by a
factor of two and more between studies (input function, T1, model). The table takes values in the
middle of the published ones, with cancer above PZ as in O07.
"""

from dataclasses import dataclass

from cad.base.terms.beside import table_beside


@dataclass(frozen=True)
class Tissue:
    """Hold the mean parameters of one tissue.

    Parameters
    ----------
    t1, t2 : float
        Relaxation times T1 and T2, seconds.
    adc : float
        Apparent diffusion coefficient, 1e-6 mm2/s.
    density : float
        Proton density relative to water.
    ktrans : float
        Transfer constant Ktrans, 1/min.
    ve, vp : float
        Volume fractions of extravascular extracellular space and of plasma.
    texture : float
        Standard deviation of log T2 from place to place; ADC and Ktrans vary in proportion.
    septa : float
        How much the septa (thin fibrous walls) in the tissue differ from the tissue: 0 means not at
        all, and 1 as much as fibrous stroma.
    """

    t1: float
    t2: float
    adc: float
    density: float
    ktrans: float
    ve: float
    vp: float
    texture: float
    septa: float = 0.0


@dataclass(frozen=True)
class Finding:
    """Describe one kind of region of interest, such as prostatitis.

    The tissue parameters of a region lie between the parameters of the zone's tissue and of cancer.

    Parameters
    ----------
    zones : tuple of str
        Zones of the gland in which the finding arises.
    severity : float
        Mean share (0 to 1) of the way from the zone's tissue to cancer. The share is computed from
        published ADC values: log(ADC of zone / ADC of finding) / log(ADC of zone / ADC of cancer).
    t1, t2, adc, ktrans, ve : float
        Factors by which these parameters are multiplied after the severity has set them, because a
        finding is not just weak cancer.
    capsule : bool
        Whether a dark rim surrounds the region.
    weight : float
        Relative frequency among the benign regions.
    """

    zones: tuple[str, ...]
    severity: float
    t1: float = 1.0
    t2: float = 1.0
    adc: float = 1.0
    ktrans: float = 1.0
    ve: float = 1.0
    capsule: bool = False
    weight: float = 1.0


_TABLES = table_beside(__file__)
TISSUES = {name: Tissue(*row) for name, row in _TABLES["tissues"].items()}
BENIGN = {
    name: Finding(**{**row, "zones": tuple(row["zones"])})
    for name, row in _TABLES["benign"].items()
}
CANCER = Finding(("PZ", "TZ"), 0.0)
# Radius (mm) of a ball of a region's volume: its median, and the standard deviation of its
# logarithm. Cancers (source [P22]) are larger than benign regions (source [F20]), as in real men.
# The benign radius of [F20] is enlarged, because an outline of a small region loses part of the
# region.
RADIUS_MM = {"benign": (3.8, 0.20), "cancer": (6.8, 0.52)}
# Least and largest radius (mm) of a region.
RADIUS_LIMITS_MM = (2.8, 20.0)
# Proportions of a region's semi-axes along the capsule, across the capsule and along z (source
# [P22]).
PROPORTIONS = {"benign": (1.10, 0.95, 1.00), "cancer": (1.28, 0.76, 1.03)}
# Volume of the gland in mL: median, standard deviation of the logarithm, and limits (source [P22]).
GLAND_ML = 42.0
GLAND_SD = 0.45
GLAND_LIMITS_ML = (18.0, 110.0)
# Severity of cancers by ISUP grade. It follows from the ADC of cancers of three grades (source
# [H11]), in a peripheral zone with an ADC of 1680 (all ADC in 1e-6 mm2/s). An ADC of 1300 (low
# grade) gives a severity of .38, 1070 (intermediate) gives .66, and 940 (high grade) gives .85. The
# severities of ISUP 1 to 5 lie about on the line through these three.
CANCER_SEVERITY = {1: 0.40, 2: 0.60, 3: 0.70, 4: 0.80, 5: 0.86}
# Shares of ISUP grades 1 to 5 among cancers at prostatectomy.
ISUP_SHARES = (0.22, 0.38, 0.20, 0.10, 0.10)
# Share of cancers that arise in the peripheral zone, the PZ (about 70 % by McNeal).
CANCER_IN_PZ = 0.72
# Standard deviation of a region's latent (probit of its severity) about the mean of its kind.
LATENT_SD = 0.50
# For each parameter of a region's tissue: standard deviation of the random part of its logarithm
# that does not depend on the latent.
UNEXPLAINED = {"t1": 0.06, "t2": 0.12, "adc": 0.09, "ktrans": 0.30, "ve": 0.18, "vp": 0.25}
# Differences between patients: each parameter has one random factor for the whole gland of a man.
# The numbers are the standard deviations of the factor's logarithm.
PATIENT_SD = {"t1": 0.05, "t2": 0.12, "adc": 0.06, "ktrans": 0.25, "ve": 0.10, "vp": 0.15}

# Texture is made of two random fields. Within these two lengths (mm) tissue is similar.
TEXTURE_MM = (1.3, 6.0)
# Share of the variance that belongs to the longer length.
TEXTURE_LONG = 0.80
# Share of the variance that is common to T2, ADC and Ktrans.
TEXTURE_COMMON = 0.5
# How much the logarithms of ADC and Ktrans vary, relative to the logarithm of T2 (measured in the
# two real patients of source [PX]).
TEXTURE_ADC = 0.35
TEXTURE_KTRANS = 0.35
# Septa are thin sheets where a random field changes sign. The numbers are the length (mm) over
# which the field is smooth, and the half-thickness (mm), T2 (s) and ADC (1e-6 mm2/s) of septa. They
# are plausible values, without a source.
SEPTA_MM = 1.6
SEPTUM_HALF_MM = 0.4
SEPTUM_T2 = 0.055
SEPTUM_ADC = 1000.0

# Blood from an earlier biopsy lies in patches in the PZ, outside all regions. The numbers are the
# share of men who have such patches, and the number and radius (mm) of the patches. They are
# plausible values, without a source.
HAEMORRHAGE_SHARE = 0.3
HAEMORRHAGE_PATCHES = (1, 4)
HAEMORRHAGE_RADIUS_MM = (2.0, 6.0)
# Factors by which blood changes T1, T2 and ADC of the tissue (source [R10]).
HAEMORRHAGE = {"t1": 0.60, "t2": 0.80, "adc": 0.85}

# Gas in the rectum shifts diffusion images along y. These are the mean and the standard deviation
# (mm) of the shift, averaged over the gland. The shift stands for the difference between distorted
# and undistorted examinations (source [G17]).
DISTORTION_MM = (2.5, 1.1)
# Distance (mm) from the rectal wall over which the shift fades. It is a plausible value, without a
# source.
DISTORTION_DEPTH_MM = 25.0
# Shift averaged over the gland, as a share of the shift at the wall: also without a source.
DISTORTION_MEAN = 0.5

# Drift of a man during the dynamic series: standard deviations, in mm per minute, along x and y.
# They are plausible values, without a source. The two real patients of PX drift by .02 and .13 mm
# per minute.
DRIFT_MM_MIN = (0.08, 0.15)
# Share of men who jump once, and standard deviation (mm) of the jump along x and y: plausible
# values, without a source.
JUMP_SHARE = 0.25
JUMP_MM = 1.0
# Standard deviation of the signal of a whole dynamic frame, as a share of the signal (measured in
# the two real patients of source [PX]).
FRAME_SD = 0.010

# How a reader's outline differs from the region, for a reader whose ``error`` is 1 (readers.py).
# The numbers are the standard deviations of its shift (mm along x and y) and of the logarithm of
# its size factor, and the roughness of its edge. They have no source of their own. With them, the
# outlines of two readers agree with a Dice of .55 to .6, about as in the sources [J23] and [R13].
OUTLINE_SHIFT_MM = 3.0
OUTLINE_SIZE_SD = 0.35
OUTLINE_WAVES = 0.12
# Share of regions that are outlined in their largest slice only (source [P22]).
ONE_SLICE_SHARE = 0.06

RELAXIVITY = 4.5  # T1 relaxivity of the contrast agent (gadolinium chelate) at 3 T, 1/(s mM)
HAEMATOCRIT = 0.42
# The concentration of contrast agent in a patient's artery is Parker's curve (source [P06]) times a
# random factor. This is the standard deviation of the factor's logarithm.
INPUT_SCALE_SD = 0.12
