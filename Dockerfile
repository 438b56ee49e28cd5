# proxlin with everything that the lock file holds.
#
#   docker build -t proxlin .
#   docker run --rm -v "$PWD:/data" proxlin fit table.csv --target price --out fit
#   docker run --rm -v "$PWD/results:/results" --entrypoint make proxlin -C /proxlin reproduce OUT=/results/
#
# With -u "$(id -u):$(id -g)" the files in the mounted folder are yours. Downloaded data are kept if /cache is mounted.
FROM python:3.12-slim

RUN apt-get update \
 && apt-get install -y --no-install-recommends make \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /proxlin
# first what changes seldom, so that a new commit does not install all packages again
COPY pyproject.toml requirements.lock Makefile README.md LICENSE ./
COPY src/proxlin/__init__.py src/proxlin/__init__.py
RUN make setup
COPY src src

ENV PATH=/proxlin/.venv/bin:$PATH \
    PROXLIN_CACHE=/cache \
    HOME=/tmp
RUN mkdir -m 1777 /cache /data /results

WORKDIR /data
ENTRYPOINT ["proxlin"]
CMD ["--help"]
