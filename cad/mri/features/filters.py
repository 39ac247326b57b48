"""Filter images as IBSI 2 defines it: mean, Laplacian of Gaussian, separable stationary wavelets.

IBSI is the standard of image biomarkers, and IBSI 2 its part on filters. Kernels are sampled at
voxel centres and cut off as the manual of IBSI says. A filter is made for voxels of equal sides: in
the slice (``dimension: slice``) or in space (``3D``). Voxels of unequal sides are refused and not
rescaled. ``boundary`` says which values the image has beyond its border. A response is NaN where
the support of the filter (the voxels that it uses) holds a voxel without a value. A region smaller
than the support is measured all the same: the response at the region's voxels includes their
surroundings.
"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import permutations, product

import numpy as np
from scipy.ndimage import convolve1d

from cad.base.errors import CadError, install
from cad.base.settings import FeatureSettings, FilterSettings
from cad.mri.columns import filter_name

# IBSI's name and SciPy's name for each way to extend an image beyond its border. IBSI's ``mirror``
# repeats the voxel at the border; SciPy calls this ``reflect``.
_MODES = {"mirror": "reflect", "nearest": "nearest", "zero": "constant", "periodic": "wrap"}
# The settings that each kind of filter has, besides ``dimension`` and ``boundary``.
_KEYS = {
    "mean": ("support_mm",),
    "log": ("sigma_mm", "truncate"),
    "wavelet": ("wavelet", "bands", "level", "rotations"),
}
# The settings without which a filter of this kind cannot be made.
_NEEDED = {"mean": ("support_mm",), "log": ("sigma_mm",), "wavelet": ("wavelet", "bands")}
# Sides of voxels count as equal if they differ by no more than this share.
_EQUAL = 0.01
# More voxels than an image has along any axis.
_WHOLE_IMAGE = 1 << 20


def filter_words(chosen: FilterSettings) -> str:
    """Return a filter's name and parameters in words, such as ``log3mm (2D, mirror cut at 4 SD)``.

    Parameters
    ----------
    chosen : FilterSettings
        The settings of the filter.
    """
    where_cut = f" cut at {chosen.truncate:g} SD" if chosen.kind == "log" else ""
    return f"{filter_name(chosen)} ({chosen.dimension}, {chosen.boundary}{where_cut})"


def check_filters(settings: FeatureSettings) -> None:
    """Raise an error for settings of filters that are wrong whatever the image is.

    Parameters
    ----------
    settings : FeatureSettings
        Settings, with the filters of each modality in ``filters``.

    Raises
    ------
    CadError
        For a missing setting, a setting that this kind of filter does not have, an unknown wavelet,
        bands that do not fit the dimension, or two filters of one name. Also for any wavelet, if
        the package that computes wavelets is not installed.
    """
    for image, filters in settings.filters.items():
        for filter_settings in filters:
            problem = _problem(filter_settings)
            if problem:
                raise CadError(f"features.filters.{image}: {problem}", hint="see docs/filters.md")
        names = [filter_name(filter_settings) for filter_settings in filters]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise CadError(
                f"features.filters.{image}: two filters would be called {repeated[0]}",
                hint="let them differ in size, wavelet, bands, level or dimension",
            )


def _problem(chosen: FilterSettings) -> str:
    """Return what is wrong with the settings of a filter; an empty text if nothing is."""
    missing = [key for key in _NEEDED[chosen.kind] if getattr(chosen, key) is None]
    # Settings that only other kinds of filters have. A pipeline that states one of them would not
    # get what it asks for.
    other_keys = set().union(*(keys for kind, keys in _KEYS.items() if kind != chosen.kind))
    unusable = sorted(other_keys & chosen.model_fields_set)
    if missing or unusable:
        problem = f"needs {missing[0]}" if missing else f"has no {unusable[0]}"
        return f"the filter {chosen.kind} {problem} (it takes {', '.join(_KEYS[chosen.kind])})"
    if chosen.kind != "wavelet":
        return ""
    # ``bands`` has a letter for each axis along which the filter works. It is stated, as a wavelet
    # without it was refused above; the type checker does not know that.
    letters = 3 if chosen.dimension == "3D" else 2
    if len(chosen.bands or "") != letters or set(chosen.bands or "") - set("LH"):
        return f"bands {chosen.bands!r}: {chosen.dimension} takes {letters} letters, each L or H"
    return _wavelet_problem(chosen.wavelet or "")


def _wavelet_problem(name: str) -> str:
    """Return an error text for a wavelet that PyWavelets does not know, else an empty text."""
    if importlib.util.find_spec("pywt") is None:
        raise CadError(
            f"features.filters asks for the wavelet {name}, and PyWavelets is not installed",
            hint=f"{install('wavelets')}; or leave the wavelet out",
        )
    import pywt

    names = pywt.wavelist(kind="discrete")
    return "" if name in names else f"unknown wavelet {name!r}; known: {', '.join(names)}"


def filter_reach(
    filters: Sequence[FilterSettings], spacing: tuple[float, float, float]
) -> tuple[int, int, int]:
    """Return how many voxels on each side of a voxel enter its filtered value.

    Parameters
    ----------
    filters : sequence of FilterSettings
        The filters of one image; the widest decides.
    spacing : tuple of 3 floats
        Voxel size in mm along x, y, z.

    Returns
    -------
    tuple of 3 ints
        Numbers of voxels along z, y, x.

    Raises
    ------
    CadError
        When a filter cannot be made for voxels of this size.
    """
    furthest = [0, 0, 0]
    for chosen in filters:
        reach = max(len(kernel) // 2 for kernel in _kernels(chosen, spacing))
        if chosen.kind == "wavelet":
            # The kernel of each level is twice as wide as that of the level before, and the image
            # is filtered by all levels in turn: 1 + 2 + 4 + ... times the reach of level 1.
            reach *= 2**chosen.level - 1
        for axis in _filter_axes(chosen):
            # A periodic image goes on with its other end, so that no part of it can be cut off.
            axis_reach = _WHOLE_IMAGE if chosen.boundary == "periodic" else reach
            furthest[axis] = max(furthest[axis], axis_reach)
    return furthest[0], furthest[1], furthest[2]


def response_map(
    image: np.ndarray, spacing: tuple[float, float, float], chosen: FilterSettings
) -> np.ndarray:
    """Return an image's response to a filter.

    Parameters
    ----------
    image : ndarray, shape (z, y, x)
        The image, in any unit; voxels without a value are not finite.
    spacing : tuple of 3 floats
        Voxel size in mm along x, y, z.
    chosen : FilterSettings
        The filter; :func:`check_filters` must have accepted its settings.

    Returns
    -------
    ndarray of float64, shape (z, y, x)
        The response, in the image's unit. For the Laplacian of Gaussian it is in the image's unit
        per mm2: IBSI defines this response per voxel, and here it is divided by the squared side of
        a voxel, so that it does not change with the voxel size.

    Raises
    ------
    CadError
        For voxels of unequal sides, for an image of one slice with a 3D filter, and for a kernel
        that is smaller than the voxels.

    Examples
    --------
    >>> import numpy as np
    >>> from cad.base.settings import FilterSettings
    >>> image = np.zeros((3, 5, 5))
    >>> image[1, 2, 2] = 9.0
    >>> mean = FilterSettings(kind="mean", support_mm=3.0)
    >>> float(response_map(image, (1.0, 1.0, 1.0), mean)[1, 2, 2].round(3))
    1.0
    """
    if chosen.dimension == "3D" and image.shape[0] == 1:
        raise CadError(
            f"the filter {filter_name(chosen)} is 3D, and the image has one slice",
            hint="set its dimension to slice",
        )
    kernels = _kernels(chosen, spacing)
    # The image is filtered in float64. In float32, a sum over the many voxels of a wide filter
    # would lose the digits of a small response.
    values = np.where(np.isfinite(image), image, np.nan).astype(np.float64)
    if chosen.kind == "mean":
        return _filtered_along_axes(values, dict.fromkeys(_filter_axes(chosen), kernels[0]), chosen)
    if chosen.kind == "log":
        gauss, second_derivative = kernels
        # The kernels are in units of voxels; ``_kernels`` has refused voxels of unequal sides.
        return _laplacian(values, gauss, second_derivative, chosen) / spacing[0] ** 2
    # A wavelet filters the image by the kernels of each level in turn. The responses of all
    # rotations of the kernels are averaged.
    filtered = partial(_filtered_along_axes, chosen=chosen)
    responses = [reduce(filtered, levels, values) for levels in _turns(kernels, chosen)]
    return np.asarray(sum(responses) / len(responses))


def _filter_axes(chosen: FilterSettings) -> tuple[int, ...]:
    """Return the numbers of the axes along which a filter works (0 is z, 1 is y, 2 is x).

    They are in the order x, y, z. The setting ``bands`` of a wavelet has a letter for each of these
    axes: L for the low-pass kernel, H for the high-pass kernel.
    """
    return (2, 1, 0) if chosen.dimension == "3D" else (2, 1)


def _kernels(chosen: FilterSettings, spacing: tuple[float, float, float]) -> list[np.ndarray]:
    """Return a filter's kernels of one dimension for voxels of this size.

    The mean has one kernel. The Laplacian has a Gaussian and its second derivative. A wavelet has
    the low-pass and high-pass kernel of level 1.
    """
    sides = spacing if chosen.dimension == "3D" else spacing[:2]
    if max(sides) > (1 + _EQUAL) * min(sides):
        raise CadError(
            f"the filter {filter_name(chosen)} ({chosen.dimension}) needs voxels of equal sides, "
            f"found {' x '.join(f'{side:.3g}' for side in spacing)} mm",
            hint="set dimension: slice, or images.spacing_t2w (spacing_adc) to equal numbers",
        )
    side = float(spacing[0])
    if chosen.kind == "wavelet":
        import pywt

        wavelet = pywt.Wavelet(chosen.wavelet)
        # A filter kernel is placed with its middle on a voxel, and only a kernel of odd length has
        # a middle. A kernel of even length therefore gets a 0 at its end.
        kernels = []
        for kernel in (np.array(wavelet.dec_lo), np.array(wavelet.dec_hi)):
            kernels.append(np.append(kernel, 0.0) if len(kernel) % 2 == 0 else kernel)
        return kernels
    # ``support_mm`` and ``sigma_mm`` are stated: check_filters() has refused filters without them.
    if chosen.kind == "mean":
        support = (chosen.support_mm or 0.0) / side  # in voxels
        # The kernel has an odd number of voxels: the middle one, and as many to each side as are
        # nearest to the support that the settings state.
        half_width = int(np.floor((support - 1) / 2 + 0.5))
        if half_width < 1:  # a mean over one voxel would be the image itself
            _too_small(chosen, "support_mm", side, 2 * side)
        return [np.full(2 * half_width + 1, 1.0 / (2 * half_width + 1))]
    sigma = (chosen.sigma_mm or 0.0) / side  # in voxels
    if sigma < 1 - _EQUAL:  # a Gaussian narrower than a voxel is hardly sampled
        _too_small(chosen, "sigma_mm", side, side)
    half_width = int(np.floor(chosen.truncate * sigma + 0.5))
    offset = np.arange(-half_width, half_width + 1.0)
    gauss = np.exp(-(offset**2) / (2 * sigma**2)) / (np.sqrt(2 * np.pi) * sigma)
    second_derivative = gauss * (offset**2 / sigma**2 - 1) / sigma**2
    return [gauss, second_derivative]


def _too_small(chosen: FilterSettings, key: str, side: float, smallest: float) -> None:
    """Raise an error for a filter whose kernel would be smaller than voxels of ``side`` mm.

    ``key`` is the setting of the filter's size, and ``smallest`` its least value (mm).
    """
    raise CadError(
        f"the filter {filter_name(chosen)} is too small for voxels of {side:.3g} mm",
        hint=f"raise {key} to {smallest:.3g} or more, or interpolate to smaller voxels",
    )


def _filtered_along_axes(
    values: np.ndarray, kernels: Mapping[int, np.ndarray], chosen: FilterSettings
) -> np.ndarray:
    """Return an image that is filtered along each axis by the kernel of this axis."""
    for axis, kernel in kernels.items():
        values = convolve1d(values, kernel, axis=axis, mode=_MODES[chosen.boundary])
    return values


def _laplacian(
    values: np.ndarray, gauss: np.ndarray, second_derivative: np.ndarray, chosen: FilterSettings
) -> np.ndarray:
    """Return an image's response to the Laplacian of Gaussian, a filter made of two 1D kernels.

    The kernel ``gauss`` is a Gaussian, and the kernel ``second_derivative`` its second derivative.
    Both count distance in voxels and not in mm, and so does the response.
    """
    # IBSI defines the Laplacian of Gaussian by one kernel that fills a cube. This kernel is a sum
    # of one term per axis: the second derivative along this axis, times Gaussians along the other
    # axes. Each term is therefore computed by 1D filters, one after another.
    smooth = values
    laplacian = np.zeros_like(values)
    for axis in _filter_axes(chosen):
        # The terms of the axes before get their Gaussian along this axis. The term of this axis has
        # Gaussians along the axes before, which are in ``smooth``.
        laplacian = _filtered_along_axes(laplacian, {axis: gauss}, chosen)
        laplacian += _filtered_along_axes(smooth, {axis: second_derivative}, chosen)
        smooth = _filtered_along_axes(smooth, {axis: gauss}, chosen)
    return laplacian


def _turns(
    kernels: Sequence[np.ndarray], chosen: FilterSettings
) -> Iterator[list[dict[int, np.ndarray]]]:
    """Yield the kernels of every wavelet level by axis, for every rotation of the image by right
    angles (4 in a slice, 24 in space).

    The image itself is not turned: kernels that change axes and direction give the same response.
    Rotations that give equal kernels are yielded once. This does not change the mean response over
    rotations, because each set of kernels comes from equally many rotations.
    """
    axes = _filter_axes(chosen)
    low_kernel = kernels[0]
    # The kernel that the letter of each axis names.
    bands = [kernels["LH".index(letter)] for letter in chosen.bands or ""]
    yielded = set()
    # A rotation by right angles puts the axes into another order, and turns some of them round.
    for order in permutations(range(len(axes))):
        for directions in product((1, -1), repeat=len(axes)):
            rotation = np.zeros((len(axes), len(axes)))
            rotation[range(len(axes)), order] = directions
            if np.linalg.det(rotation) < 0:  # a reflection, and no rotation
                continue
            unturned = list(order) == sorted(order) and min(directions) > 0
            if not (chosen.rotations or unturned):  # only the image as it lies is wanted
                continue
            band_kernels = []
            for axis, direction in zip(order, directions, strict=True):
                band_kernels.append(bands[axis][::direction])
            low_pass = [low_kernel[::direction] for direction in directions]
            # Only the last level has the stated bands. The levels before it are low-pass.
            kernels_by_level = [low_pass] * (chosen.level - 1) + [band_kernels]
            levels = []
            kernel_bytes = []
            for level, axis_kernels in enumerate(kernels_by_level):
                widened = [_holes(kernel, level) for kernel in axis_kernels]
                levels.append(dict(zip(axes, widened, strict=True)))
                kernel_bytes += [kernel.tobytes() for kernel in widened]
            if tuple(kernel_bytes) not in yielded:
                yielded.add(tuple(kernel_bytes))
                yield levels


def _holes(kernel: np.ndarray, level: int) -> np.ndarray:
    """Return a wavelet's kernel for a level above 1: the weights with zeros between them.

    ``kernel`` is that of the first level, which has the number 0 in ``level``. With such kernels,
    the image can keep its grid at every level. This is the algorithm a trous ("with holes").
    """
    step = 2**level
    # The last weight is followed by no zeros.
    out = np.zeros((len(kernel) - 1) * step + 1)
    out[::step] = kernel
    return out
