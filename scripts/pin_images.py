"""Pin the base images of a Containerfile by digest: pin_images.py [Containerfile] [--check].

The script requests the digest of each `FROM name:tag` from its registry, and writes the digest
behind the tag. Exit 0: every base image is pinned (with --check: it was pinned before). Exit 1:
with --check, an image is not pinned, or its tag has moved. Exit 2: a registry was not reached, or a
FROM names no registry and tag; nothing was written, because nothing is known. A stage of the same
file may stand behind FROM.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

# As for builders, the first word of a name is a registry if it has a dot or a port: in
# `mhubai/base` it is an account of Docker Hub.
FROM = re.compile(
    r"^FROM (?P<image>[^\s/:]*[.:][^\s/]*/\S+?):(?P<tag>[\w.-]+)(?P<digest>@sha256:[0-9a-f]{64})?",
    re.MULTILINE,
)
KINDS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Docker Hub is named docker.io, but its registry has another host name.
HOSTS = {"docker.io": "registry-1.docker.io"}
SECONDS = 20


def digest_of(image: str, tag: str) -> str:
    """Return the digest of a tag, as its registry states it now."""
    host, _, name = image.partition("/")
    scheme = "http" if os.environ.get("PIN_IMAGES_PLAIN") == host else "https"
    address = f"{scheme}://{HOSTS.get(host, host)}/v2/{name}/manifests/{tag}"
    request = urllib.request.Request(address, method="HEAD", headers={"Accept": KINDS})  # noqa: S310
    try:
        answer = urllib.request.urlopen(request, timeout=SECONDS)  # noqa: S310 - as above
    except urllib.error.HTTPError as refused:
        if refused.code != 401:
            raise
        request.add_header("Authorization", f"Bearer {_token(refused.headers)}")
        answer = urllib.request.urlopen(request, timeout=SECONDS)  # noqa: S310
    with answer:
        digest = str(answer.headers.get("Docker-Content-Digest", ""))
    if not DIGEST.fullmatch(digest):
        raise OSError(f"{host} states no digest of {name}:{tag}")
    return digest


def _token(headers: object) -> str:
    """Return the token that everybody gets from the address that a registry names."""
    named = dict(re.findall(r'(\w+)="([^"]*)"', str(headers.get("WWW-Authenticate", ""))))
    query = urlencode({key: named[key] for key in ("service", "scope") if key in named})
    with urllib.request.urlopen(f"{named['realm']}?{query}", timeout=SECONDS) as answer:  # noqa: S310
        return str(json.load(answer)["token"])


def _unclear(text: str) -> str:
    """Return the first FROM that names neither an image of a registry nor a stage before it."""
    stages = set()
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].upper() != "FROM":
            continue
        if not FROM.match(line) and (len(words) < 2 or words[1] not in stages):
            return line
        if len(words) == 4 and words[2].upper() == "AS":
            stages.add(words[3])
    return ""


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    path = Path(next((word for word in arguments if word != "--check"), "Containerfile"))
    text = path.read_text(encoding="utf-8")
    if unclear := _unclear(text):
        print(f"{unclear!r} was not looked up: name a registry, an image and a tag, and no option")
        return 2
    digests: dict[tuple[str, str], str] = {}
    for match in FROM.finditer(text):
        key = match["image"], match["tag"]
        try:
            digests[key] = digests.get(key) or digest_of(*key)
        except (OSError, KeyError, ValueError) as error:
            print(f"{':'.join(key)} was not looked up ({error}): nothing is known of it")
            return 2
    pinned = FROM.sub(
        lambda match: (
            f"FROM {match['image']}:{match['tag']}@{digests[match['image'], match['tag']]}"
        ),
        text,
    )
    for (image, tag), digest in digests.items():
        print(f"{image}:{tag} is {digest}")
    if check:
        return int(pinned != text)
    path.write_text(pinned, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
