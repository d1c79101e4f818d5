"""Every test draws from its own seed; a worker of xdist uses one thread, so that workers share the cores."""

import importlib.util
import os
import random
import zlib

import numpy
import pytest
import torch

if importlib.util.find_spec("hypothesis"):  # a bare machine with a GPU has none
    from hypothesis import settings

    # The same examples every time, no limit on the time of one, nothing written next to the sources.
    settings.register_profile("glmv", derandomize=True, deadline=None, database=None)
    settings.load_profile("glmv")


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    seed = zlib.crc32(item.nodeid.encode())
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
