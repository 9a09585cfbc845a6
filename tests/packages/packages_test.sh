#!/usr/bin/env bash
# packages_test.sh BUILD [FOLDER]: what BUILD/packages holds is installed, upgraded while a pod runs,
# removed and purged, in a copy of this system that is thrown away.
set -euo pipefail

build=$(realpath "$1")
packages=${2:-$build/packages}
skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }

if [ "${BATON_PACKAGES_INSIDE:-}" != 1 ]; then
  ls "$packages"/*.deb >/dev/null 2>&1 || skip "no packages in $packages; scripts/package makes them"
  [ "$(id -u)" = 0 ] || skip "only root may install packages, also into a copy of the system"
  dpkg -s batond >/dev/null 2>&1 && skip "batond is installed on this machine"
  unshare --mount --pid --fork true 2>/dev/null || skip "no namespaces for a copy of the system"
  exec env BATON_PACKAGES_INSIDE=1 unshare --mount --pid --fork --kill-child "$0" "$build" "$packages"
fi

# The copy: what is written goes to memory. A tmpfs, as overlayfs stands on no other overlay.
mount --make-rprivate /
scratch=$(mktemp -d)
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch"/{changes,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/changes,workdir=$scratch/work" "$scratch/root" ||
  skip "no overlay of this system"
root=$scratch/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
for folder in "$build" "$packages"; do
  mkdir -p "$root$folder"
  mount --bind "$folder" "$root$folder"
done
# What programs outside the packages have left of these folders on this system.
rm -rf "$root"/{etc,var/lib}/baton
inside() { chroot "$root" env LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

# Everything of ours, or that anybody put where programs, units and states are.
files() {
  (cd "$root" && find etc usr var/lib run -xdev \( -path var/lib/dpkg -o -path var/lib/apt \) -prune -o -print 2>/dev/null;
   find "$root/run" -mindepth 1 -printf 'run/%P\n') |
    grep -vE '^(etc/ld.so.cache|var/lib/(man-db|dbus)|usr/share/info/dir|run/(mount|lock|systemd))' | sort -u
}

# The same packages, as of a version before.
mkdir "$scratch/before"
for package in "$packages"/*.deb; do
  dpkg-deb --raw-extract "$package" "$scratch/unpacked"
  sed -i -E 's/^Version: .*/Version: 0.0.9/; /^Depends:/s/\(= [^)]*\)/(= 0.0.9)/g' "$scratch/unpacked/DEBIAN/control"
  dpkg-deb --root-owner-group --build "$scratch/unpacked" "$scratch/before" >/dev/null
  rm -rf "$scratch/unpacked"
done
mkdir -p "$root/tmp/before"
cp "$scratch"/before/*.deb "$root/tmp/before/"

files >"$scratch/files.before"
echo "== install"
inside bash -c 'dpkg --install /tmp/before/*.deb' >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "dpkg --install"; }
for program in baton batond baton-frontend baton-k8s baton-burn baton-demo; do
  inside "$program" --help >/dev/null || fail "$program does not start"
done
inside test -e /usr/lib/libbaton.so || fail "there is no hook"
for page in baton.1 baton-run.1 baton-doctor.1 baton-demo.1 batond.8 baton-frontend.8 baton-k8s.8; do
  ls "$root"/usr/share/man/man?/"$page.gz" >/dev/null || fail "there is no manual page $page"
done
page=$(zcat "$root/usr/share/man/man1/baton-run.1.gz")
grep -q '^\.TH BATON-RUN ' <<<"$page" || fail "the manual page of baton run is headed by another name"
# As it stands in the help, a line each.
sed -n '/^\.nf/,/^\.fi/p' <<<"$page" | grep -q '^  baton run .*train\.py  *30 % guaranteed' ||
  fail "the examples of baton run's manual page run together"
# shellcheck disable=SC2016
inside bash -c 'source /usr/share/bash-completion/completions/baton && complete -p baton' >/dev/null ||
  fail "bash does not complete baton"
for unit in batond baton-frontend; do
  exec=$(sed -nE 's/^ExecStart=([^ ]+).*/\1/p' "$root/lib/systemd/system/$unit.service")
  inside test -x "$exec" || fail "$unit.service starts $exec, which is not there"
done
if inside test -x /usr/bin/systemd-analyze; then
  inside systemd-analyze verify --man=no /lib/systemd/system/batond.service || fail "systemd does not like batond.service"
fi
inside batond --check-config /etc/baton/batond.toml || fail "batond does not like its own configuration"

# Without the build: simulated GPUs, the hook and all programs are those that were installed.
inside baton-demo --seconds 3 --no-contrast --http "" --tolerance 20 >"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; fail "the demo"; }
grep -q '^overlaps  *0 kernels' "$scratch/log" || { cat "$scratch/log"; fail "the demo measured nothing"; }

echo "== upgrade, while a pod runs"
echo '# a line of the operator' >>"$root/etc/baton/batond.toml"
inside "$build/bin/baton-simgpu" create /tmp/gpu
with_gpu=(env BATON_SIM_DEVICES=/tmp/gpu "LD_LIBRARY_PATH=$build/lib/sim")
start_batond() {
  # By exec: the process itself is what is stopped later.
  (exec chroot "$root" "${with_gpu[@]}" batond --config /etc/baton/batond.toml) >>"$root/tmp/batond.log" 2>&1 &
  batond=$!
  for _ in $(seq 100); do
    kill -0 "$batond" || break
    ! inside baton ping >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  cat "$root/tmp/batond.log"
  fail "batond does not answer"
}
start_batond
inside "${with_gpu[@]}" baton run --name train --request 50 -- baton-burn --seconds 12 >"$root/tmp/train.log" 2>&1 &
train=$!
sleep 2
mkdir -p "$root/tmp/now"
cp "$packages"/*.deb "$root/tmp/now/"
inside bash -c 'dpkg --install /tmp/now/*.deb' >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "the upgrade"; }
grep -q 'a line of the operator' "$root/etc/baton/batond.toml" || fail "the upgrade lost the operator's configuration"
# shellcheck disable=SC2016
[ "$(inside dpkg-query -W -f '${Version}' batond)" != 0.0.9 ] || fail "batond is of the version before"
# What postinst asks systemd for, which does not run here.
kill "$batond"
wait "$batond" || true
start_batond
inside baton status --json | grep '"train"' >/dev/null || fail "the new batond does not know the pod"
wait "$train" || { cat "$root/tmp/train.log"; fail "the pod did not live through the upgrade"; }
inside baton report --by pod | grep train >/dev/null || fail "the pod is not in the books"

echo "== remove, and purge"
kill "$batond"
wait "$batond" || true
inside dpkg --remove baton-demo baton-k8s batond baton libbaton-hook >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "dpkg --remove"; }
inside test ! -e /usr/bin/batond || fail "removing left the daemon"
inside test -e /etc/baton/batond.toml || fail "removing took the configuration, which is purging's"
inside test -d /var/lib/baton || fail "removing took the books, which is purging's"
inside dpkg --purge baton-demo batond baton libbaton-hook baton-k8s >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "dpkg --purge"; }
files >"$scratch/files.after"
diff "$scratch/files.before" "$scratch/files.after" || fail "purging left or took the files above"
echo "ok"
