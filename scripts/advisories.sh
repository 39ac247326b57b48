#!/usr/bin/env bash
# Hold the pinned packages against published security advisories.
# Exit 0: all were checked and none is concerned; 1: an advisory concerns one; 2: not (all) checked.
set -euo pipefail
cd "$(dirname "$0")/.."
unchecked() { echo "advisories: $1: nothing is known" >&2; exit 2; }
pinned=$(mktemp --suffix=.txt)
trap 'rm -f "$pinned"' EXIT
uv export --quiet --format requirements.txt --all-extras --no-emit-project --no-hashes --no-annotate \
    --output-file "$pinned" >/dev/null
uvx --quiet pip-audit --version >/dev/null 2>&1 ||
    unchecked "pip-audit cannot be fetched; is this machine offline?"
said=$(uvx --quiet pip-audit --requirement "$pinned" --no-deps --disable-pip \
    --progress-spinner off 2>&1) || true
echo "$said"
# The tool's exit code is 0 where it could look nothing up, and 1 without a network.
if grep -qE "Found [0-9]+ known vulnerabilit" <<<"$said"; then exit 1; fi
if grep -q "could not be audited" <<<"$said"; then
    unchecked "$(grep -c "could not be audited" <<<"$said") packages could not be looked up"
fi
grep -q "No known vulnerabilities found" <<<"$said" || unchecked "the service did not answer"
