"""Check a stored estimator against the attributes that its class declares, before it is used.

The hashes of a bundle (a model on disk) show that its files were not changed by accident. They do
not show that the files contain a valid model, because whoever changes an array can write new
hashes. So each class declares the kinds, shapes and ranges of its fitted attributes, in the class
attribute ``stored``. A letter in a shape stands for a length, which is the same wherever the letter
stands in one object. After the check, compiled code reads nothing outside its arrays, and all loops
end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cad.base.errors import CadError

COLUMNS = "d"
"""Letter that stands for the number of features, ``n_features_in_``."""
SMALLEST = float(np.finfo(float).tiny)
"""Least value of a number that is used as a divisor."""
# No feature table has more columns than this; a stored number above it is no number of columns.
_MOST_COLUMNS = 1_000_000
# Plain values are checked by recursion. A file with a value nested without end would exceed
# Python's limit of recursion, so deeper values are refused.
_MOST_DEEP = 20


@dataclass(frozen=True)
class Numbers:
    """Declare an attribute that is an array or a number; by default of floats, none NaN or
    infinite.

    Parameters
    ----------
    shape : tuple of int or str
        Lengths of the axes; empty for a single number. A text, such as ``"n"``, stands for a length
        that is the same wherever the text stands. ``"d"`` is the number of features.
    kind : str
        Allowed kinds, as numpy's ``dtype.kind``: ``"f"`` floats, ``"iu"`` whole numbers, ``"U"``
        words.
    low, high : float
        Least and largest value.
    below : str
        For indices: name of the length that every value must be below; empty for no such limit.
    bits : int
        Number of bits of a value, if compiled code relies on it; 0 if any number is allowed.
    needed : bool
        Whether every stored estimator has the attribute; False if earlier versions did not store
        it.

    Examples
    --------
    >>> Numbers(("n", "d")).shape
    ('n', 'd')
    """

    shape: tuple[int | str, ...] = ()
    kind: str = "f"
    low: float = -math.inf
    high: float = math.inf
    below: str = ""
    bits: int = 0
    needed: bool = True


@dataclass(frozen=True)
class Inside:
    """Declare an attribute of an estimator that holds further fitted estimators.

    The held estimators take the same feature columns as the estimator that holds them. The
    attribute is one estimator, a dictionary of estimators, or, where ``optional``, None.

    Parameters
    ----------
    classes : tuple of str
        Names of the classes that an estimator may have. Empty if every class that a bundle may
        contain is allowed.
    optional : bool
        Whether the attribute may be None.
    """

    classes: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class Plain:
    """Declare an attribute of texts, numbers, lists or dictionaries that no prediction is computed
    from.

    Parameters
    ----------
    needed : bool
        Whether every stored estimator has the attribute; False if earlier versions did not store
        it.
    """

    needed: bool = True


Declared = Mapping[str, Numbers | Inside | Plain]


def floats(*shape: int | str, low: float = -math.inf, high: float = math.inf) -> Numbers:
    """Declare an array of finite floats of 64 bits; without a shape, a single number.

    Parameters
    ----------
    *shape : int or str
        Length of each axis. A text, such as ``"n"``, stands for a length that is the same wherever
        the text stands; ``"d"`` is the number of features. Empty for a single number.
    low, high : float
        Least and largest value.

    Returns
    -------
    Numbers
        The declaration of an array of 64-bit floats. Without a shape it is that of one number,
        which may also be a whole number.
    """
    # Compiled code reads only arrays, so a single number may be of any kind and size.
    kind = "f" if shape else "fiu"
    bits = 64 if shape else 0
    return Numbers(shape, kind=kind, low=low, high=high, bits=bits)


def whole(*shape: int | str, below: str = "", bits: int = 0) -> Numbers:
    """Declare whole numbers from 0.

    Parameters
    ----------
    *shape : int or str
        Length of each axis. A text, such as ``"n"``, stands for a length that is the same wherever
        the text stands; ``"d"`` is the number of features. Empty for a single number.
    below : str
        Name of the length that every value must be below; empty for no such limit.
    bits : int
        Number of bits of a value; 0 if any number is allowed.

    Returns
    -------
    Numbers
        The declaration of an array of whole numbers of at least 0; without a shape, of one such
        number.
    """
    return Numbers(shape, kind="iu", low=0.0, below=below, bits=bits)


def words(*shape: int | str) -> Numbers:
    """Declare an array of texts that no prediction is computed from.

    ``shape`` has the length of each axis. A text, such as ``"n"``, stands for a length that is the
    same wherever the text stands.
    """
    return Numbers(shape, kind="U")


def declared_by(cls: type) -> Declared | None:
    """Return how the attributes of a class are stored, as the class and its bases declare it.

    A class declares this in its class attribute ``stored``, a dictionary by attribute. The result
    joins the dictionaries of the class and its bases. It is None if none of them has ``stored``.

    Parameters
    ----------
    cls : type
        Class of an estimator.
    """
    # From the most general base to the class itself, so that a class may redeclare an attribute.
    declarations = [
        vars(base)["stored"] for base in reversed(cls.__mro__) if "stored" in vars(base)
    ]
    if not declarations:
        return None
    joined: dict[str, Numbers | Inside | Plain] = {}
    for declaration in declarations:
        joined.update(declaration)
    return joined


def check_declared(
    estimator: Any, declared: Declared, parameters: set[str], width: int | None
) -> int:
    """Check that an estimator's fitted attributes agree with the declaration of its class.

    Parameters
    ----------
    estimator : object
        An estimator whose attributes were set from a file, without a call of its constructor.
    declared : mapping
        The declaration of the estimator's class. Attributes that are estimators themselves are not
        checked here; the caller checks them.
    parameters : set of str
        Names of the constructor's parameters.
    width : int or None
        Number of columns of the data that the estimator will be given; None to take its
        ``n_features_in_``.

    Returns
    -------
    int
        The estimator's number of features.

    Raises
    ------
    CadError
        Where an attribute differs from its declaration. The message names the class, the attribute,
        the stored value or shape, and the declared one.
    """
    class_name = type(estimator).__name__
    attributes = vars(estimator)
    needed_attributes = set()
    for attribute, rule in declared.items():
        if isinstance(rule, Inside) or rule.needed:
            needed_attributes.add(attribute)
    allowed_attributes = {*declared, *parameters, "n_features_in_", "feature_names_in_"}
    missing = sorted((needed_attributes | parameters) - set(attributes))
    if missing:
        raise CadError(f"{class_name} lacks {', '.join(missing)}")
    undeclared = sorted(set(attributes) - allowed_attributes)
    if undeclared:
        # A file may hold a name of any length, so the message has its beginning only.
        raise CadError(
            f"{class_name} has the attribute {undeclared[0][:80]!r}, "
            "which its `stored` does not declare",
            hint="declare every attribute that fit sets (docs/extending.md)",
        )

    # An estimator that does not store its number of columns takes those that it is given.
    columns = attributes.get("n_features_in_", width)
    # ``isinstance`` would accept True, which Python counts as a whole number.
    if type(columns) is not int or not 0 < columns <= _MOST_COLUMNS:
        raise CadError(
            f"{class_name}.n_features_in_ = {str(columns)[:80]}, must be a number of columns"
        )
    if width is not None and columns != width:
        raise CadError(f"{class_name} takes {columns} columns, and would be given {width}")

    # Lengths by their letters. The first shape that has a letter sets its length.
    lengths = {COLUMNS: columns}
    for attribute in parameters - set(declared):
        _check_plain(f"{class_name}.{attribute}", attributes[attribute], depth=0)
    for attribute, rule in declared.items():
        if attribute in attributes and isinstance(rule, Plain):
            _check_plain(f"{class_name}.{attribute}", attributes[attribute], depth=0)
        if attribute in attributes and isinstance(rule, Numbers):
            _check_shape(
                f"{class_name}.{attribute}", np.asarray(attributes[attribute]), rule, lengths
            )
    # Values are checked only now, because a limit may be a length that is known after all shapes
    # were read.
    for attribute, rule in declared.items():
        if attribute in attributes and isinstance(rule, Numbers):
            _check_range(
                f"{class_name}.{attribute}", np.asarray(attributes[attribute]), rule, lengths
            )
    return columns


def _check_shape(where: str, array: np.ndarray, rule: Numbers, lengths: dict[str, int]) -> None:
    """Raise an error if an array's kind, number of bits or shape is not as declared.

    ``lengths`` has the lengths by their letters. A letter of ``rule.shape`` that it does not yet
    have is added, with the length that the array has.
    """
    # A rule of 0 bits allows any number of bits.
    wrong_bits = rule.bits and array.dtype.itemsize * 8 != rule.bits
    # Compiled code can read arrays in the machine's own byte order only.
    if array.dtype.kind not in rule.kind or wrong_bits or not array.dtype.isnative:
        raise CadError(f"{where} holds {array.dtype}, declared are {_kinds_in_words(rule)}")
    if array.ndim != len(rule.shape):
        raise CadError(f"{where} has shape {array.shape}, declared is {_shape(rule)}")
    for length, axis in zip(array.shape, rule.shape, strict=True):
        # A letter gets its length from the first array whose shape contains it.
        expected = axis if isinstance(axis, int) else lengths.setdefault(axis, length)
        if length != expected:
            raise CadError(
                f"{where} has shape {array.shape}, declared is {_shape(rule)}: {length} is not "
                f"{expected}"
            )


def _check_range(where: str, array: np.ndarray, rule: Numbers, lengths: dict[str, int]) -> None:
    """Check the range of an array of numbers; :func:`_check_shape` has checked kind and shape."""
    # Texts, and values that are yes or no, have no range.
    if array.dtype.kind not in "fiu":
        return
    # An empty array has no least and no largest value.
    if array.size == 0:
        return
    if not np.isfinite(array).all():
        raise CadError(f"{where} holds NaN or infinity")
    lowest = array.min()
    highest = array.max()
    if lowest < rule.low or highest > rule.high:
        raise CadError(
            f"{where} holds {lowest:g} to {highest:g}, declared are {rule.low:g} to {rule.high:g}"
        )
    # Indices stay below a length, such as the number of nodes. `rule.below` is its name.
    if rule.below:
        below_length = lengths[rule.below]
        if highest >= below_length:
            raise CadError(f"{where} holds {highest}, declared are places below {below_length}")


def _check_plain(where: str, value: Any, depth: int) -> None:
    """Raise an error unless a value is plain: nothing, a number, a text, or a nest of these.

    ``where`` names the attribute in messages. ``depth`` is the number of lists and dictionaries
    around the value.
    """
    if depth > _MOST_DEEP:
        raise CadError(f"{where} is nested more than {_MOST_DEEP} deep")
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return
    # An array of kind "O" may hold any object, so it is not plain.
    if isinstance(value, np.dtype) or (isinstance(value, np.ndarray) and value.dtype.kind != "O"):
        return
    if isinstance(value, dict):
        for item in value.values():
            _check_plain(where, item, depth + 1)
        return
    if isinstance(value, (list, tuple)):
        for item in value:
            _check_plain(where, item, depth + 1)
        return
    raise CadError(f"{where} holds a {type(value).__name__}, declared is a plain value")


def _kinds_in_words(rule: Numbers) -> str:
    """Return the declared kinds of numbers in words, such as ``floats of 64 bits``."""
    # "u" has no words of its own, since "iu" would then name whole numbers twice.
    names = {"f": "floats", "i": "whole numbers", "u": "", "U": "texts", "b": "yes or no"}
    text = " or ".join(names[kind] for kind in rule.kind if names[kind])
    return f"{text} of {rule.bits} bits" if rule.bits else text


def _shape(rule: Numbers) -> str:
    """Return the declared shape as a message writes it, such as ``(n, d)``."""
    return f"({', '.join(map(str, rule.shape))})"


def check_trees(
    roots: np.ndarray, left: np.ndarray, right: np.ndarray, name: str = "the trees"
) -> None:
    """Check that every walk through trees ends at a leaf and stays inside the arrays.

    A walk goes from a node to its left or its right next node. Both next nodes of an inner node
    must have a higher number than the node, so a walk only goes forward. Both next nodes of a leaf
    must be the leaf itself. All numbers must be below the number of nodes, so no read is out of
    bounds.

    Parameters
    ----------
    roots : ndarray of int, shape (trees,)
        Node where each tree begins.
    left, right : ndarray of int, shape (nodes,)
        Numbers of the next nodes of each node; for a leaf both are its own number.
    name : str
        Name of the trees in the error's message.

    Raises
    ------
    CadError
        For a node that breaks one of these rules; the message names it.

    Examples
    --------
    >>> import numpy as np
    >>> check_trees(np.array([0]), np.array([1, 1, 2]), np.array([2, 1, 2]))
    """
    nodes = np.arange(len(left))
    is_leaf = (left == nodes) & (right == nodes)
    is_inner = (left > nodes) & (right > nodes)
    if not (is_leaf | is_inner).all():
        # The first node that is neither: ``argmin`` returns the place of the first False.
        wrong_node = int(np.argmin(is_leaf | is_inner))
        raise CadError(
            f"{name}: node {wrong_node} leads to {left[wrong_node]} and {right[wrong_node]}; "
            "children stand behind their parent, and a leaf names itself"
        )
    for values, node_kind in ((left, "left"), (right, "right"), (roots, "root")):
        if values.size and not 0 <= values.min() <= values.max() < len(nodes):
            raise CadError(f"{name}: a {node_kind} node lies outside the {len(nodes)} nodes")
