#!/usr/bin/env bash
# Installs Debian's Chromium and the PDF tools that the page tests use, where they are missing.
# No other browser is fetched: Playwright drives the system's.
set -euo pipefail
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
packages=()
command -v chromium >/dev/null || packages+=(chromium)
command -v pdftoppm >/dev/null || packages+=(poppler-utils)
if [ ${#packages[@]} -gt 0 ]; then
    as_root apt-get update -q
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -q --no-install-recommends "${packages[@]}"
fi
chromium --version
