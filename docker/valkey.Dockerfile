# Valkey with Leasehold. From the root of the repository:
#
#   docker build -f docker/valkey.Dockerfile -t leasehold:valkey .
#
# Versions are exact, and an image is pinned by its digest too: a tag may be built anew. Valkey's has no digest here, because
# nobody but its registry says it with authority. scripts/image asks for it, and the labels and the release notes have it.
#
# renovate: datasource=docker depName=valkey/valkey
ARG BASE=valkey/valkey:9.1.2

FROM rust:1.88.0-slim-bookworm@sha256:38bc5a86d998772d4aec2348656ed21438d20fcdce2795b56ca434cf21430d89 AS build

# The newest of the release: it is needed to build, and stays behind.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libclang-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /leasehold
COPY . .
RUN cargo build --release --locked --lib \
    && strip --strip-unneeded -o /libleasehold.so target/release/libleasehold.so

# hadolint ignore=DL3006
FROM ${BASE}

LABEL org.opencontainers.image.title="Leasehold" \
    org.opencontainers.image.description="Valkey with locks as native commands" \
    org.opencontainers.image.licenses="BSD-3-Clause"

COPY --from=build --chmod=755 /libleasehold.so /usr/lib/leasehold/
COPY LICENSE /usr/share/doc/leasehold/
COPY --chmod=755 docker/entrypoint /usr/local/bin/leasehold-entrypoint
COPY --chmod=755 docker/healthcheck /usr/local/bin/leasehold-healthcheck

# The name that the image has for it; no number is promised.
# hadolint ignore=DL3066
USER valkey
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["leasehold-healthcheck", "alive"]
ENTRYPOINT ["leasehold-entrypoint"]
CMD []
