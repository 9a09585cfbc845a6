# syntax=docker/dockerfile:1
# One image with all of Baton's programs: batond, baton-frontend, baton-k8s, baton, and the hook.
#
#   docker build --tag ghcr.io/baton/baton:0.1.0 .
#
# The hook is built on Debian 12 and runs in containers whose glibc is 2.31 or later.

FROM debian:12 AS build
WORKDIR /src
# By itself, so that a change of the sources does not fetch everything again.
COPY scripts/setup scripts/setup
RUN scripts/setup --quiet && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset release \
 && cmake --build build/release --target batond baton-frontend baton baton-k8s baton_hook
# What goes into the image, and the packages that it needs beside what is in every Debian: those of
# the libraries that the programs are linked with, and time zones for reports.
RUN set -eu; \
    cd build/release; \
    install -D --strip -t /image/usr/local/bin bin/batond bin/baton-frontend bin/baton bin/baton-k8s; \
    install -D --strip --mode=0644 -t /image/usr/local/lib lib/libbaton.so; \
    install -D --mode=0644 -t /image/usr/share/doc/baton /src/LICENSE; \
    for program in /image/usr/local/bin/*; do ldd "$program"; done | \
      awk '/=> \//{print $3}' | sort -u | xargs readlink -f | \
      while read -r library; do \
        dpkg-query --search "$library" 2>/dev/null || dpkg-query --search "${library#/usr}"; \
      done | cut -d: -f1 | sort -u > /packages; \
    echo tzdata >> /packages; \
    test -s /packages

FROM debian:12-slim
COPY --from=build /packages /tmp/packages
RUN apt-get update \
 && xargs apt-get install --yes --no-install-recommends < /tmp/packages \
 && rm -rf /tmp/packages /var/lib/apt/lists/* /var/cache/* /var/log/*
COPY --from=build /image/ /
# Everything is there, and starts.
RUN batond --version && baton-frontend --version && baton --version && baton-k8s --version
LABEL org.opencontainers.image.title="Baton" \
      org.opencontainers.image.description="Shares GPUs among pods by time, fairly and provably" \
      org.opencontainers.image.licenses="Apache-2.0"
# The programs of the node are run as root by the DaemonSet, whose folders on the host are root's.
USER 65532:65532
CMD ["baton-k8s", "--help"]
