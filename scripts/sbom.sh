#!/usr/bin/env bash
# Write the bill of materials (CycloneDX 1.5, JSON) of the pinned packages, with the hashes of their
# files: scripts/sbom.sh FILE
set -euo pipefail
out=$(realpath -m "${1:?usage: scripts/sbom.sh FILE}")
cd "$(dirname "$0")/.."
uv export --quiet --preview-features sbom-export --format cyclonedx1.5 --all-extras \
    --output-file "$out" >/dev/null
python3 scripts/sbom_hashes.py "$out" uv.lock
echo "wrote $out"
