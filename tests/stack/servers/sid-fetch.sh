#!/bin/bash
# Unpacks packages of Debian sid, with their libc and libraries, into a folder. The machine's own packages,
# lists and dpkg are not touched. The mirror is that of the machine's own apt sources. Done once: a second
# call finds the stamp and ends.
# usage: sid-fetch.sh FOLDER PACKAGE...
. "$(dirname "$0")/lib.sh"
DEST=$(realpath -m "$1"); shift
STAMP=$DEST/.unpacked.$(tr ' /' '__' <<<"$*")
APT=$CACHE/sid-apt
mkdir -p "$DEST" "$APT"/{etc/apt.conf.d,etc/preferences.d,state/lists/partial,cache/archives/partial}
exec 7>"$APT/lock"; flock 7
[ ! -e "$STAMP" ] || exit 0
MIRROR=$(debian_mirror)
[ -n "$MIRROR" ] || { echo "no Debian mirror found in the machine's apt sources" >&2; exit 1; }
echo "fetching $*" >&2
: >"$APT/state/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $MIRROR sid main" >"$APT/etc/sources.list"
cat >"$APT/apt.conf" <<C
Dir::Etc "$APT/etc";
Dir::Etc::sourcelist "$APT/etc/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::parts "/etc/apt/apt.conf.d";
Dir::State "$APT/state";
Dir::State::status "$APT/state/status";
Dir::Cache "$APT/cache";
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
C
export APT_CONFIG=$APT/apt.conf
find "$APT/state/lists" -name '*Packages*' -mmin -1440 | grep -q . || apt-get update -qq
rm -f "$APT"/cache/archives/*.deb
apt-get install -y -qq --download-only "$@" >/dev/null
for deb in "$APT"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$DEST"; done
rm -f "$APT"/cache/archives/*.deb
touch "$STAMP"
