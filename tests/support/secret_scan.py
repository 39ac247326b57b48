"""Search everything that was produced for names: every byte, also of what is packed."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from PIL import Image

_EMBEDDED = re.compile(rb"base64,([A-Za-z0-9+/=]{16,})")


def unpacked(name: str, data: bytes) -> list[bytes]:
    """A file's bytes, and the bytes of what it packs."""
    found = [data]
    if data[:2] == b"\x1f\x8b":
        found += unpacked(name.removesuffix(".gz"), gzip.decompress(data))
    elif data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as bundle:
            for member in bundle.namelist():
                found += [member.encode(), *unpacked(member, bundle.read(member))]
    elif data[:4] == b"PAR1":
        found.append(pd.read_parquet(io.BytesIO(data)).to_csv().encode())
    elif data[:8] == b"\x89PNG\r\n\x1a\n":
        with Image.open(io.BytesIO(data)) as image:
            found.append(repr(image.info).encode())
    elif data[:5] == b"%PDF-":
        for part in re.findall(rb"stream\r?\n(.*?)endstream", data, re.DOTALL):
            try:
                found.append(zlib.decompress(part))
            except zlib.error:
                continue
    for part in _EMBEDDED.findall(data):
        try:
            found += unpacked(name, base64.b64decode(part, validate=True))
        except binascii.Error:
            continue
    return found


def hits(roots: Iterable[Path], secrets: Iterable[str], said: Iterable[str] = ()) -> list[str]:
    """Every secret found in files, their names, and what was said; in any common encoding."""
    forms = {
        secret: {secret.encode(code) for code in ("utf-8", "latin-1", "utf-16-le", "utf-32-le")}
        for secret in secrets
    }
    found = []
    for root in roots:
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            place = str(path.relative_to(root))
            for data in [place.encode(), *unpacked(path.name, path.read_bytes())]:
                found += [
                    f"{s} in {place}"
                    for s, any_of in forms.items()
                    if any(form in data for form in any_of)
                ]
    found += [f"{s} said: {text[:200]}" for text in said for s in forms if s in text]
    return sorted(set(found))
