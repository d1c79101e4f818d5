"""Training: supervised cold start and RL with curriculum sampling.

Read first: rl.py (the loop), curriculum.py (RLCS), rollout.py, step.py.
"""

from glmv.train.curriculum import Curriculum

__all__ = ["Curriculum"]
