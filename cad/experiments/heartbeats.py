"""Seven features per heart beat from one ECG lead, for the premature beats of [A14]."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cad.errors import CadError

FEATURES = (
    "RR interval before (s)",
    "RR interval after (s)",
    "RR before / mean of the last eight",
    "largest deflection within 80 ms (mV)",
    "peak to peak within 120 ms (mV)",
    "width at half of the largest slope (s)",
    "correlation with the record's median beat",
)
RECORDS = ("106", "116", "119", "200")
_HALF_WINDOW_S, _DEFLECTION_S = 0.12, 0.08
_HISTORY = 8


def read_beats(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return features, shape (n, 7), and whether each beat is a premature contraction.

    Parameters
    ----------
    folder : Path
        Holds ``<record>.npz`` with ``signal``, ``adc_gain``, ``fs``, ``beat_sample`` and
        ``beat_is_pvc``.

    Raises
    ------
    CadError
        When a record is missing.
    """
    features, labels = [], []
    for record in RECORDS:
        path = folder / f"{record}.npz"
        if not path.is_file():
            raise CadError("no such ECG record", file=path, hint="give its folder with --data")
        with np.load(path, allow_pickle=False) as data:
            signal = data["signal"].astype(float) / float(data["adc_gain"])
            rows, kept = beat_features(signal, int(data["fs"]), data["beat_sample"])
            features.append(rows)
            labels.append(data["beat_is_pvc"][kept])
    return np.vstack(features), np.concatenate(labels)


def beat_features(signal: np.ndarray, fs: int, beats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return features of the beats with neighbours on both sides, and which beats those are.

    Parameters
    ----------
    signal : ndarray, shape (n_samples,)
        One lead, mV.
    fs : int
        Samples per second.
    beats : ndarray of int, shape (n_beats,)
        Sample of every beat.
    """
    half = round(_HALF_WINDOW_S * fs)
    inner = slice(half - round(_DEFLECTION_S * fs), half + round(_DEFLECTION_S * fs) + 1)
    rr = np.diff(beats) / fs
    kept = np.arange(_HISTORY + 1, len(beats) - 1)
    kept = kept[(beats[kept] >= half) & (beats[kept] + half < len(signal))]
    windows = signal[beats[kept, None] + np.arange(-half, half + 1)]
    windows = windows - np.median(windows, axis=1, keepdims=True)
    history = np.array([rr[k - 1 - _HISTORY : k - 1].mean() for k in kept])
    central = windows[:, inner]
    largest = central[np.arange(len(kept)), np.abs(central).argmax(axis=1)]
    slope = np.abs(np.gradient(windows, axis=1))
    steep = slope >= 0.5 * slope.max(axis=1, keepdims=True)
    width = steep.shape[1] - steep[:, ::-1].argmax(axis=1) - steep.argmax(axis=1)
    template = np.median(windows, axis=0)
    rows = np.column_stack(
        [
            rr[kept - 1],
            rr[kept],
            rr[kept - 1] / history,
            largest,
            np.ptp(windows, axis=1),
            width / fs,
            _correlation(windows, template),
        ]
    )
    return rows, kept


def _correlation(windows: np.ndarray, template: np.ndarray) -> np.ndarray:
    a = windows - windows.mean(axis=1, keepdims=True)
    b = template - template.mean()
    norm = np.linalg.norm(a, axis=1) * np.linalg.norm(b)
    correlation: np.ndarray = np.divide(a @ b, norm, out=np.zeros(len(a)), where=norm > 0)
    return correlation
