#!/usr/bin/env bash
# Build wheel and source, check their metadata, and use the wheel as a stranger does: in an empty
# environment on every promised Python, from another folder, without extras.
set -euo pipefail
cd "$(dirname "$0")/.."

dist=$(mktemp -d)
away=$(mktemp -d)
trap 'rm -rf "$dist" "$away"' EXIT
uv build --quiet --out-dir "$dist"
uvx --quiet twine check --strict "$dist"/*
wheel=$(echo "$dist"/*.whl)

# The source alone must give the same wheel.
uv build --quiet --wheel --out-dir "$away/again" "$dist"/*.tar.gz
python3 - "$wheel" "$away"/again/*.whl <<'EOF'
import sys
import zipfile

names = [sorted(zipfile.ZipFile(path).namelist()) for path in sys.argv[1:]]
assert names[0] == names[1], set(names[0]) ^ set(names[1])
wanted = ("cad/py.typed", "cad/__init__.pyi", "cad/base/share/pipelines/psvm.yaml")
assert not [name for name in wanted if name not in names[0]]
print(f"wheel from checkout and from source: the same {len(names[0])} files")
EOF

not_tried=()
for version in ${PYTHONS:-3.11 3.12 3.13}; do
    python=$(ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python 2>/dev/null | head -1 ||
        uv python find --no-project --offline "$version" 2>/dev/null || true)
    if [ -z "$python" ]; then
        not_tried+=("$version")
        continue
    fi
    echo "== Python $version"
    uv venv --quiet --python "$python" "$away/$version"
    uv pip install --quiet --python "$away/$version/bin/python" "$wheel"
    bin=$away/$version/bin
    (
        cd "$away"
        "$bin/python" -c "import cad, importlib.util as u; assert u.find_spec('cvxopt') is None; print(cad.__file__)"
        "$bin/cad" model verify phantom-psvm
        "$bin/cad" model verify phantom-psvm-biparametric
        "$bin/cad" demo -o "out-$version" | tail -3
        test -s "out-$version/report/index.html"
    )
    rm -rf "${away:?}/$version"
done
[ ${#not_tried[@]} = 0 ] || echo "NOT TRIED, no interpreter here: ${not_tried[*]}"
