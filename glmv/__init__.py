"""glmv: fused kernels, a thin model and RL recipes for GLM-V style vision-language models."""

__version__ = "0.1.0"
