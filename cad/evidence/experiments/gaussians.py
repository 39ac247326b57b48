"""Draw two Gaussian classes: the synthetic data of [N14], section IV, and of [N13], section V.

The true probability of each class is known at every point.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit


@dataclass(frozen=True)
class Gaussians:
    """Draw from two isotropic Gaussian classes of equal prior.

    Parameters
    ----------
    negative, positive : tuple of float
        Means of the negative and of the positive class.
    sigma : float
        Standard deviation of every coordinate.
    """

    negative: tuple[float, ...]
    positive: tuple[float, ...]
    sigma: float

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw n points in d dimensions: the negative and the positive class take turns.

        Parameters
        ----------
        n : int
            Number of points; the first is negative.
        rng : Generator
            Source of the random draws.

        Returns
        -------
        ndarray, shape (n, d)
        """
        class_of_point = np.arange(n) % 2  # 0 and 1 take turns
        means = np.array([self.negative, self.positive], float)[class_of_point]
        return means + self.sigma * rng.standard_normal(means.shape)

    def posterior(self, X: np.ndarray) -> np.ndarray:
        """Return the true probability of the positive class at points, shape (n,).

        It is equation (16) of [N14].
        """
        to_negative = ((X - np.array(self.negative, float)) ** 2).sum(axis=1)
        to_positive = ((X - np.array(self.positive, float)) ** 2).sum(axis=1)
        # The log-odds are the difference of the squared distances to the two means, over 2 sigma².
        return np.asarray(expit((to_negative - to_positive) / (2 * self.sigma**2)))


def noisy(p: np.ndarray, amplitude: float, rng: np.random.Generator) -> np.ndarray:
    """Return a copy of probabilities with added uniform noise, clipped to [0, 1].

    Parameters
    ----------
    p : ndarray, shape (n,)
        Probabilities.
    amplitude : float
        Noise is drawn from -amplitude to amplitude.
    rng : Generator
        Source of the random draws.

    Returns
    -------
    ndarray, shape (n,)
        The probabilities with noise, from 0 to 1.

    Examples
    --------
    Noise never leaves the range of a probability:

    >>> import numpy as np
    >>> p = noisy(np.array([0.0, 0.5, 1.0]), 0.1, np.random.default_rng(0))
    >>> bool((p >= 0).all() and (p <= 1).all() and abs(p[1] - 0.5) <= 0.1)
    True
    """
    return np.clip(p + rng.uniform(-amplitude, amplitude, len(p)), 0.0, 1.0)


def five_levels(p: np.ndarray) -> np.ndarray:
    """Round each probability to the nearest of 0, .25, .5, .75, 1, the levels that readers use.

    Parameters
    ----------
    p : ndarray, shape (n,)
        Probabilities.

    Returns
    -------
    ndarray, shape (n,)
        The rounded probabilities. A probability in the middle between two levels goes to 0, .5 or
        1, and NaN stays NaN.

    Examples
    --------
    >>> import numpy as np
    >>> five_levels(np.array([0.1, 0.2, 0.6, 0.9])).tolist()
    [0.0, 0.25, 0.5, 1.0]
    """
    return np.round(4 * p) / 4
