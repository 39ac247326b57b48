#!/usr/bin/env bash
# Runs a command beside a real archive that nobody else can reach:
#
#     tests/support/with_orthanc.sh COMMAND [ARGUMENT...]
#
# Orthanc (Debian packages orthanc and orthanc-dicomweb) starts in a network namespace and a folder
# of its own, answers on 127.0.0.1 inside that namespace only, and stops with the command. The
# command finds CAD_ARCHIVE (HOST:PORT), CAD_ARCHIVE_AET, CAD_DICOMWEB and CAD_ORTHANC (REST root).
# With CAD_ORTHANC_TLS, a folder of tests/support/certificates.py, its DICOM is TLS and nothing else.
set -euo pipefail

if [ $# -eq 0 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
fi
for tool in Orthanc unshare ip; do
    if ! PATH="$PATH:/usr/sbin:/sbin" command -v "$tool" >/dev/null; then
        echo "with_orthanc.sh: $tool is not installed (Debian: orthanc orthanc-dicomweb util-linux iproute2)" >&2
        exit 3
    fi
done
plugin=${CAD_ORTHANC_DICOMWEB:-/usr/share/orthanc/plugins/libOrthancDicomWeb.so}
if [ ! -f "$plugin" ]; then
    echo "with_orthanc.sh: Orthanc's DICOMweb plugin is not installed (Debian: orthanc-dicomweb): $plugin" >&2
    exit 3
fi
if [ "${CAD_IN_NAMESPACE:-}" != yes ]; then
    CAD_IN_NAMESPACE=yes exec unshare --map-root-user --net --mount "$0" "$@"
fi

export PATH="$PATH:/usr/sbin:/sbin"
ip link set lo up
# In memory where there is room: every stored instance is a transaction.
home=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
mkdir "$home/storage" "$home/index"
# Debian's Orthanc 1.10.1 crashes where HTTPS asks for certificates: tests/support/tls_front.py does that.
encryption=
if [ -n "${CAD_ORTHANC_TLS:-}" ]; then
    encryption="\"DicomTlsEnabled\": true, \"DicomTlsRemoteCertificateRequired\": true,
  \"DicomTlsCertificate\": \"$CAD_ORTHANC_TLS/orthanc.pem\",
  \"DicomTlsPrivateKey\": \"$CAD_ORTHANC_TLS/orthanc.key\",
  \"DicomTlsTrustedCertificates\": \"$CAD_ORTHANC_TLS/authority.pem\","
fi
cat > "$home/orthanc.json" <<JSON
{
  "Name": "cad tests",
  $encryption
  "StorageDirectory": "$home/storage",
  "IndexDirectory": "$home/index",
  "Plugins": ["$plugin"],
  "RemoteAccessAllowed": false,
  "AuthenticationEnabled": false,
  "LuaScripts": [${CAD_ORTHANC_LUA:+"\"$CAD_ORTHANC_LUA\""}],
  "HttpPort": 8042,
  "DicomAet": "ORTHANC",
  "DicomPort": 4242,
  "DicomCheckCalledAet": ${CAD_ORTHANC_STRICT:-false},
  "DicomAlwaysAllowEcho": true,
  "DicomAlwaysAllowStore": true,
  "DicomAlwaysAllowFind": true,
  "DicomAlwaysAllowGet": true,
  "DicomAlwaysAllowMove": true,
  "DicomScuTimeout": 20,
  "DicomWeb": {"Enable": true, "Root": "/dicom-web/", "StudiesMetadata": "Full", "SeriesMetadata": "Full"}
}
JSON
TCP_NODELAY=1 Orthanc "$home/orthanc.json" > "$home/log" 2>&1 &
server=$!
stop() {
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    rm -rf "$home"
}
trap stop EXIT

for attempt in $(seq 600); do
    if ! kill -0 "$server" 2>/dev/null; then
        cat "$home/log" >&2
        exit 3
    fi
    if (exec 3<>/dev/tcp/127.0.0.1/8042 && exec 4<>/dev/tcp/127.0.0.1/4242) 2>/dev/null; then
        break
    fi
    if [ "$attempt" -eq 600 ]; then
        echo "with_orthanc.sh: Orthanc did not answer within a minute" >&2
        exit 3
    fi
    sleep 0.1
done
export CAD_ARCHIVE=127.0.0.1:4242 CAD_ARCHIVE_AET=ORTHANC
export CAD_ORTHANC=http://127.0.0.1:8042 CAD_DICOMWEB=http://127.0.0.1:8042/dicom-web
"$@"
