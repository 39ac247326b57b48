#!/usr/bin/env bash
# Installs what the tests need beside Python's packages, where it is missing: a C compiler, a
# browser and PDF tools for the pages, an archive with DICOM's tools and openssl for its TLS, and
# strace, which makes a disk fail. Without
# them their tests skip.
set -euo pipefail
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
packages=(build-essential chromium poppler-utils orthanc orthanc-dicomweb dcmtk openssl strace)
if ! dpkg -s "${packages[@]}" >/dev/null 2>&1; then
    as_root apt-get update -q
    # The tests start their own archive; the packaged service must not come up by itself.
    printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
    as_root chmod +x /usr/sbin/policy-rc.d
    DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -q --no-install-recommends "${packages[@]}"
    as_root rm -f /usr/sbin/policy-rc.d
fi
