#!/bin/sh
# usage: run_path_test.sh BUILD
#
# The programs as they are built are those of the container image: none may look for libraries in the
# folder that it happens to be started in.
set -eu
found=0
for program in baton batond baton-frontend baton-k8s baton-place baton-burn; do
  for path in $(readelf -d "$1/bin/$program" | sed -n 's/.*R\(UN\)\{0,1\}PATH.*\[\(.*\)\]/[\2]/p'); do
    found=$((found + 1))
    case "$path" in
      '[/'*'::'* | '[$'*'::'* | '[:'* | *':]' | '[]')
        echo "$program looks for libraries in the current folder: $path" >&2
        exit 1 ;;
    esac
  done
done
[ "$found" -gt 0 ] || { echo "readelf shows no run path of any program" >&2; exit 1; }
