#!/usr/bin/env bash
# Resolve, build and import every extra on each Python that pyproject.toml promises.
# A Python that is not on this machine is resolved only, and the last line says so.
set -euo pipefail
cd "$(dirname "$0")/.."

promised=(3.11 3.12 3.13)
modules="cad, radiomics, distributed, dicomweb_client, neuroCombat, fhir.resources"
only_resolved=()

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
    echo "== Python $version: resolve"
    uv pip compile --quiet --all-extras --python-version "$version" pyproject.toml -o /dev/null
    python=$(interpreter "$version")
    if [ -z "$python" ]; then
        only_resolved+=("$version")
        continue
    fi
    echo "== Python $version: build and import"
    environment=$(mktemp -d)
    UV_PROJECT_ENVIRONMENT="$environment" uv sync --quiet --all-extras --python "$python"
    "$environment/bin/python" -c "import $modules; import sys; print('imported on', sys.version)"
    rm -rf "$environment"
done
[ ${#only_resolved[@]} = 0 ] || echo "NOT BUILT, no interpreter here: ${only_resolved[*]}"
