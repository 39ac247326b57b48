"""Headers of MetaImage and NRRD files of 6 x 5 x 4 voxels of a byte."""

from __future__ import annotations


def meta(**entries: object) -> bytes:
    """A MetaImage header; an entry that is None is left out."""
    usual = {
        "ObjectType": "Image",
        "NDims": 3,
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": "False",
        "TransformMatrix": "1 0 0 0 1 0 0 0 1",
        "Offset": "0 0 0",
        "ElementSpacing": "1 1 1",
        "DimSize": "6 5 4",
        "ElementType": "MET_UCHAR",
    }
    last = entries.pop("ElementDataFile", "LOCAL")
    lines = [f"{key} = {value}" for key, value in {**usual, **entries}.items() if value is not None]
    return "\n".join([*lines, f"ElementDataFile = {last}", ""]).encode()


def nrrd(**entries: object) -> bytes:
    """An NRRD header."""
    usual = {
        "type": "uchar",
        "dimension": 3,
        "space": "left-posterior-superior",
        "sizes": "6 5 4",
        "space directions": "(1,0,0) (0,1,0) (0,0,1)",
        "encoding": "raw",
        "space origin": "(0,0,0)",
    }
    lines = [f"{key}: {value}" for key, value in {**usual, **entries}.items() if value is not None]
    return "\n".join(["NRRD0004", *lines, "", ""]).encode()
