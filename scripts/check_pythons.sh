#!/usr/bin/env bash
# Resolve every extra, and build and import those that users install, on each Python that
# pyproject.toml promises.
# A Python that is not on this machine is resolved only, and the last line says so. Of the next one
# it says which package keeps it from being promised.
set -euo pipefail
cd "$(dirname "$0")/.."

promised=(3.11 3.12 3.13)
imports="import cad, radiomics, pywt, distributed, dicomweb_client, neuroCombat, fhir.resources
import sys; print('imported on', sys.version)"
only_resolved=()
# The project's own environment, where there is one, is that of its Python.
own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)

# Interpreters are looked for beside the usual places: a version manager's shims may name one
# version only.
interpreter() {
    local path
    for path in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        [ -x "$path" ] && { echo "$path"; return; }
    done
    uv python find --no-project --offline "$1" 2>/dev/null || true
}

for version in "${promised[@]}"; do
    python=$(interpreter "$version")
    if [ -z "$python" ]; then
        echo "== Python $version: resolve"
        uv pip compile --quiet --all-extras --python-version "$version" pyproject.toml -o /dev/null
        only_resolved+=("$version")
        continue
    fi
    # `uv sync` resolves every extra for all promised Pythons before it installs for one.
    echo "== Python $version: resolve, build and import"
    if [ "$version" = "$own" ]; then
        uv sync --quiet --all-extras
        .venv/bin/python -c "$imports"
        continue
    fi
    environment=$(mktemp -d)
    UV_PROJECT_ENVIRONMENT="$environment" uv sync --quiet --all-extras --no-extra dev --no-extra docs \
        --python "$python"
    "$environment/bin/python" -c "$imports"
    rm -rf "$environment"
done

# Not promised yet: which package of a plain installation has no wheel (docs/how-to.md says so).
next=3.14
echo "== Python $next: wheels"
if lacking=$(uv pip compile --quiet --only-binary :all: --python-version "$next" pyproject.toml \
    -o /dev/null 2>&1); then
    echo "every package has a wheel for $next: promise it"
else
    grep -m 1 -oE "[^ ]+ ha(s|ve) no usable wheels" <<< "$lacking" || echo "$lacking"
fi
[ ${#only_resolved[@]} = 0 ] || echo "NOT BUILT, no interpreter here: ${only_resolved[*]}"
