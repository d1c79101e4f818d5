from pathlib import Path

import pytest
from transformers import Glm4vForConditionalGeneration

from glmv.model import Glm4v
from tests.model.cases import hf_model


@pytest.fixture(scope="session")
def hf() -> Glm4vForConditionalGeneration:
    return hf_model()


@pytest.fixture(scope="session")
def hf_dir(hf: Glm4vForConditionalGeneration, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("hf")
    hf.save_pretrained(directory)
    return directory


@pytest.fixture
def model(hf_dir: Path) -> Glm4v:
    return Glm4v.from_pretrained(hf_dir)
