"""Convert units, as headers write them, to the unit of a modality."""

import dataclasses
import re

import numpy as np

from cad.base.errors import CadError
from cad.base.terms.beside import table_beside
from cad.base.terms.modality import Modality
from cad.mri.imaging.volume import Volume

# For each modality, the factor to its unit from each unit that a header may state.
_FACTORS: dict[str, dict[str, float]] = table_beside(__file__)
# Texts that some headers have in the place of a unit, and that state no unit ("us" stands for
# unspecified).
_UNSTATED = {"", "1", "us", "normalized", "none", "unspecified", "nounits"}


def in_unit(image: Volume, modality: Modality, scale: float | None = None) -> tuple[Volume, str]:
    """Convert an image to the unit of its modality.

    Parameters
    ----------
    image : Volume
        ``image.unit`` is the unit that its source states.
    modality : Modality
        The modality. Where it has no unit, the values are returned as they are.
    scale : float, optional
        Factor to the modality's unit from the site's import rule; used instead of the stated unit.

    Returns
    -------
    image : Volume
        In ``modality.unit``.
    source : str
        Text on how the unit is known: stated, from the import rule, or judged by the values. Empty
        for a modality without a unit.

    Raises
    ------
    CadError
        For a stated unit that does not fit the modality.
    """
    if not modality.unit:
        return dataclasses.replace(image, unit=""), ""
    if scale is not None:
        return _converted(image, scale, modality), f"import rule: values x {scale:g}"
    spelt = plain_unit(image.unit)
    if not spelt:
        # Other checks refuse values that no such image has.
        source = "not stated by the source; judged by the values' range"
        return _converted(image, 1.0, modality), source
    factors = _FACTORS.get(modality.name, {})
    if spelt not in factors:
        raise CadError(
            f"{modality.short} in {image.unit!r}: no unit of this quantity; expected "
            f"{modality.unit} or another of {', '.join(factors)}",
            hint=f"give the factor to {modality.unit} as scale in the import rule",
        )
    return _converted(image, factors[spelt], modality), f"stated: {image.unit}"


def factor_between(unit: str, other: str) -> float | None:
    """Return the factor that turns values in one unit into values in another unit.

    Parameters
    ----------
    unit, other : str
        Units as headers write them.

    Returns
    -------
    float or None
        None for units of two quantities, where a text states no unit, and for two different units
        of which one is unknown.

    Examples
    --------
    >>> factor_between("mm2/s", "um2/s")
    1000000.0
    >>> factor_between("US", "US") is None
    True
    """
    spelt = plain_unit(unit)
    spelt_other = plain_unit(other)
    for factors in _FACTORS.values():
        if spelt in factors and spelt_other in factors:
            return factors[spelt] / factors[spelt_other]
    # An unknown unit is still the same unit as itself.
    return 1.0 if spelt and spelt == spelt_other else None


def plain_unit(unit: str) -> str:
    """Return a unit in the spelling of this module's table of units; empty if a text states none.

    Parameters
    ----------
    unit : str
        Unit as a header writes it.

    Examples
    --------
    >>> plain_unit("mm^2 / s"), plain_unit("US")
    ('mm2/s', '')
    """
    text = re.sub(r"[\s*^.·×()]", "", unit.strip().lower()) if unit else ""
    text = text.replace("²", "2").replace("⁻", "-").replace("⁶", "6").replace("³", "3")
    return "" if text in _UNSTATED else text


def _converted(image: Volume, factor: float, modality: Modality) -> Volume:
    """Return an image with its values times a factor, in the unit of its modality."""
    array = image.array
    if factor != 1.0:
        array = (array * np.float64(factor)).astype(np.float32)
    return dataclasses.replace(image, array=array, unit=modality.unit)
