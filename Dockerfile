# Two images. The default has Askback alone:       docker build -t askback .
# The target `engines` has the engine CLIs as well: docker build --target engines -t askback:engines .

ARG PYTHON=3.13
ARG NODE=22

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY requirements-files.txt requirements-mcp.txt requirements-otel.txt requirements-postgres.txt pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python3 -m venv /opt/askback \
    && /opt/askback/bin/pip install --no-cache-dir --require-hashes -r requirements-files.txt -r requirements-mcp.txt -r requirements-otel.txt -r requirements-postgres.txt \
    && /opt/askback/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:${PYTHON}-slim AS base
# bubblewrap and slirp4netns are the sandbox of the engines; git is what most of them expect.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap ca-certificates git slirp4netns \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --user-group --create-home --home-dir /var/lib/askback --shell /usr/sbin/nologin askback \
    && install -d -o askback -g askback -m 0700 /data
COPY --from=build /opt/askback /opt/askback
ENV PATH=/opt/askback/bin:/usr/local/bin:/usr/bin:/bin \
    ASKBACK_DATA_DIR=/data \
    ASKBACK_SERVER__HOST=0.0.0.0 \
    ASKBACK_LOG__FORMAT=json
USER 10001
WORKDIR /var/lib/askback
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/healthz', timeout=4)"]
ENTRYPOINT ["askback"]
CMD ["serve"]

FROM node:${NODE}-slim AS node
WORKDIR /opt/engines
COPY tests/real/package.json tests/real/package-lock.json ./
# Some of the packages fetch their program in a script of their own.
RUN npm ci --no-audit --no-fund

FROM base AS engines
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /opt/engines /opt/engines
ENV PATH=/opt/askback/bin:/opt/engines/node_modules/.bin:/usr/local/bin:/usr/bin:/bin

FROM base AS slim
