# Valkey with Leasehold. From the root of the repository:
#
#   docker build -f docker/valkey.Dockerfile -t leasehold:valkey .
#
# Versions are exact, and each image is pinned by its digest too: a tag may be built anew. The digest is that of all machines.
# Several repositories on GitHub have recorded it. scripts/image asks the registry whether it has it.
#
# renovate: datasource=docker depName=valkey/valkey
ARG BASE=valkey/valkey:9.1.2@sha256:418652cfb58ef879d4978c33553735d7147016032d5aefaa14c828e611eb9dfd

FROM rust:1.88.0-slim-bookworm@sha256:38bc5a86d998772d4aec2348656ed21438d20fcdce2795b56ca434cf21430d89 AS build

# The newest of the release: it is needed to build, and stays behind.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libclang-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /leasehold
COPY . .
RUN cargo build --release --locked --lib \
    && cargo build --release --locked --package leasehold-cli \
    && mkdir /lib-for-servers /bin-for-all \
    && strip --strip-unneeded -o /lib-for-servers/libleasehold.so target/release/libleasehold.so \
    && strip -o /bin-for-all/leasehold target/release/leasehold \
    && chmod 755 /lib-for-servers/libleasehold.so /bin-for-all/leasehold

# What the image gets of Leasehold. Built here, it is for this image alone. A release puts target/image/ in place of
# this stage, by --build-context: the files that were checked, for either C library. scripts/image makes that folder.
FROM scratch AS files
COPY --from=build /bin-for-all /bin
COPY --from=build /lib-for-servers /lib
COPY LICENSE /doc/

# hadolint ignore=DL3006
FROM ${BASE}

LABEL org.opencontainers.image.title="Leasehold" \
    org.opencontainers.image.description="Valkey with locks as native commands" \
    org.opencontainers.image.licenses="BSD-3-Clause"

COPY --from=files /bin/ /usr/local/bin/
COPY --from=files /lib/ /usr/lib/leasehold/
COPY --from=files /doc/ /usr/share/doc/leasehold/
COPY --chmod=755 docker/entrypoint /usr/local/bin/leasehold-entrypoint
COPY --chmod=755 docker/healthcheck /usr/local/bin/leasehold-healthcheck

# The name that the image has for it; no number is promised.
# hadolint ignore=DL3066
USER valkey
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["leasehold-healthcheck", "alive"]
ENTRYPOINT ["leasehold-entrypoint"]
CMD []
