# Two images: `operator` (hub, agent and sync servers, without torch) and `trainer`.
#
#   docker build --target operator --build-arg VERSION=0.1.0 --tag registry.example.org/spes/operator:0.1.0 .
#
# Programs are started directly, by uid 65532, and write to mounted folders alone; the root file system may be
# read-only. BASE_IMAGE may be one without shell and pip, as long as it has BUILD_IMAGE's Python at the same path.
ARG BUILD_IMAGE=python:3.13-slim-trixie
ARG BASE_IMAGE=python:3.13-slim-trixie

FROM ${BUILD_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements requirements
RUN ["python", "-m", "venv", "--without-pip", "/opt/spes"]

FROM build AS wheel
RUN ["python", "-m", "pip", "install", "--require-hashes", "--only-binary=:all:", "--requirement", "requirements/build.txt"]
COPY pyproject.toml README.md LICENSE ./
COPY crds crds
COPY operator operator
COPY proto proto
COPY trainer trainer
RUN ["python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "/dist", "."]

FROM ${BASE_IMAGE} AS base
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# No user of that number need exist: libraries that ask for a name and a home get them here.
ENV PATH=/opt/spes/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    USER=spes
USER 65532:65532
WORKDIR /

# The pins come before SPES itself: a change of its code does not install them again.
FROM build AS operator-environment
RUN ["python", "-m", "pip", "--python", "/opt/spes/bin/python", "install", "--require-hashes", "--only-binary=:all:", "--requirement", "requirements/operator.txt"]
COPY --from=wheel /dist /dist
RUN python -m pip --python /opt/spes/bin/python install --no-deps --no-index /dist/*.whl
# Requests are made from paths and JSON: nothing here imports the Kubernetes package's calls, of two clients, and
# hardly any of its models, which are loaded one by one and go without bytecode. Nor numpy's own tests.
RUN cd /opt/spes/lib/python3.*/site-packages && \
    rm -r kubernetes/client/api kubernetes/aio/client/api kubernetes/client/models/__pycache__ kubernetes/aio/client/models/__pycache__ && \
    find numpy -depth -type d -name tests -exec rm -r {} +

FROM base AS operator
LABEL org.opencontainers.image.title="spes-operator" \
      org.opencontainers.image.description="SPES: the hub, a member's agent, and sync servers"
COPY --from=operator-environment /opt/spes /opt/spes
ENTRYPOINT ["spes-operator"]

FROM build AS trainer-environment
RUN ["python", "-m", "pip", "--python", "/opt/spes/bin/python", "install", "--require-hashes", "--only-binary=:all:", "--requirement", "requirements/trainer.txt"]
COPY --from=wheel /dist /dist
RUN python -m pip --python /opt/spes/bin/python install --no-deps --no-index /dist/*.whl

FROM base AS trainer
LABEL org.opencontainers.image.title="spes-trainer" \
      org.opencontainers.image.description="SPES: the trainer of one peer"
COPY --from=trainer-environment /opt/spes /opt/spes
ENTRYPOINT ["spes-trainer"]
