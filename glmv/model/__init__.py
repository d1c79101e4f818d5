"""The GLM-V models on `glmv.ops`: packed forward, cached decoding, transformers' checkpoints in and out."""

from glmv.model.cache import Cache
from glmv.model.config import Glm4vConfig, TextConfig, VisionConfig, preset
from glmv.model.glm4v import Glm4v, ModelOutput
from glmv.model.init import init_

__all__ = ["Cache", "Glm4v", "Glm4vConfig", "ModelOutput", "TextConfig", "VisionConfig", "init_", "preset"]
