# Redis with Leasehold. From the root of the repository:
#
#   docker build -f docker/redis.Dockerfile -t leasehold:redis .
#
# Versions are exact. A tag may be built anew, for repairs below the server; to pin that too, write behind it what
# `docker buildx imagetools inspect redis:8.6.3` prints, as in the first line.
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

FROM redis:8.6.3

COPY --from=build --chmod=755 /libleasehold.so /usr/lib/leasehold/
COPY --chmod=755 docker/entrypoint /usr/local/bin/leasehold-entrypoint
COPY --chmod=755 docker/healthcheck /usr/local/bin/leasehold-healthcheck

# The name that the image has for it; no number is promised.
# hadolint ignore=DL3066
USER redis
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["leasehold-healthcheck", "alive"]
ENTRYPOINT ["leasehold-entrypoint"]
CMD []
