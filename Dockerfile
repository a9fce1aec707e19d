# jaxrl on the CPU, or on NVIDIA GPUs: --build-arg EXTRAS=gpu (CUDA 13) or gpu12 (CUDA 12).
# JAX's packages bring CUDA with them, so that both have the same small base.
FROM python:3.12-slim

ARG EXTRAS=""

# Any user may write runs, and compiled programs in the cache.
ENV PYTHONUNBUFFERED=1 XDG_CACHE_HOME=/work/.cache MPLCONFIGDIR=/work/.cache/matplotlib
RUN useradd --create-home --uid 1000 jaxrl \
    && mkdir -p /work/runs /work/.cache \
    && chown -R jaxrl /work \
    && chmod -R a+rwX /work

# The lock as a constraint: its versions, without the packages that only developers need.
COPY pyproject.toml requirements.lock LICENSE README.md /src/
COPY jaxrl /src/jaxrl
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install -c /src/requirements.lock "/src${EXTRAS:+[$EXTRAS]}" \
    && rm -rf /src

USER jaxrl
WORKDIR /work
CMD ["jaxrl", "train"]
