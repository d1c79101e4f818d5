"""PEP 517 backend: setuptools', plus torch as a build requirement where the extension will be compiled.

The extension uses torch's stable ABI, so any torch from 2.10 on will do, also another one than at run time.
GLMV_TORCH_DIR names a torch that is there already: then nothing is downloaded for the build.
"""

import os
import shutil

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that stay as they are)


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + _torch()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + _torch()


def _torch():
    names = os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++"]
    compiles = any(shutil.which(name) for name in names)
    return ["torch>=2.10"] if compiles and not os.environ.get("GLMV_TORCH_DIR") else []
