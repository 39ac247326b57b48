"""Every perfusion map: its meaning, unit and source; names follow OSIPI's lexicon."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MapDefinition:
    """Say what a map holds: one sentence, its unit and its source."""

    definition: str
    unit: str
    source: str


_OSIPI = "OSIPI lexicon"
_KINETIC = {
    "ktrans": ("volume transfer constant", "1/min"),
    "ve": ("extravascular extracellular volume fraction", "1"),
    "vp": ("plasma volume fraction", "1"),
    "kep": ("exchange rate constant", "1/min"),
    "amplitude": ("amplitude A, relative to the baseline signal", "1"),
    "kel": ("elimination rate constant", "1/min"),
    "r2": ("coefficient of determination of the fit", "1"),
}


def _definitions() -> dict[str, MapDefinition]:
    found = {
        "t1": MapDefinition("longitudinal relaxation time before contrast", "s", _OSIPI),
        "baseline_signal": MapDefinition("mean signal before the bolus", "a.u.", _OSIPI),
        "bolus_arrival": MapDefinition(
            "bolus arrival after the study's, linear-linear corner", "s", "Cheong 2003"
        ),
        "maximum_enhancement": MapDefinition("largest signal minus baseline", "a.u.", _OSIPI),
        "relative_enhancement": MapDefinition("maximum enhancement / baseline", "1", _OSIPI),
        "time_to_peak": MapDefinition("largest signal after the study's arrival", "s", _OSIPI),
        "wash_in": MapDefinition("relative enhancement / time to peak", "1/min", _OSIPI),
        "wash_out": MapDefinition(
            "slope of the relative enhancement from the peak on", "1/min", _OSIPI
        ),
        "iauc60": MapDefinition("area under the concentration, first 60 s", "mM s", _OSIPI),
        "iauc90": MapDefinition("area under the concentration, first 90 s", "mM s", _OSIPI),
    }
    models = {
        "tofts": ("Tofts", ("ktrans", "ve", "kep"), "mM", "Tofts 1999"),
        "extended_tofts": ("extended Tofts", ("ktrans", "ve", "vp", "kep"), "mM", "Tofts 1999"),
        "brix": ("Brix", ("amplitude", "kep", "kel"), "1", "Brix 1991"),
        "patlak": ("Patlak", ("ktrans", "vp"), "mM", "Patlak 1983"),
    }
    for model, (title, names, unit, source) in models.items():
        for name in (*names, "r2"):
            text, symbol = _KINETIC[name]
            found[f"{model}_{name}"] = MapDefinition(f"{title}: {text}", symbol, source)
        found[f"{model}_residual"] = MapDefinition(
            f"{title}: root mean square of curve minus model", unit, source
        )
        found[f"{model}_did_not_fit"] = MapDefinition(
            f"{title}: 1 where a parameter is on its bound, singular or not converged", "1", source
        )
    return found


MAPS: dict[str, MapDefinition] = _definitions()
"""Every map that :func:`perfusion_maps` can make, in a stable order."""
