"""The public ops. Importing this needs torch alone; every function is defined in the file of its family."""

from glmv.backend import BackendError, backends, last_backend, use_backend
from glmv.ops.attention import attention, attention_with_lse
from glmv.ops.experts import experts
from glmv.ops.policy_loss import PolicyLoss, policy_loss
from glmv.ops.pos_embed import pos_embed
from glmv.ops.rope import rope, rope_
from glmv.ops.router import Routing, route
from glmv.ops.router_balance import balance_loss, update_router_bias_
from glmv.ops.token_loss import logp
from glmv.ops.token_loss_grpo import grpo_loss
from glmv.ops.token_loss_linear import linear_logp

__all__ = [
    "BackendError",
    "PolicyLoss",
    "Routing",
    "attention",
    "attention_with_lse",
    "backends",
    "balance_loss",
    "experts",
    "grpo_loss",
    "last_backend",
    "linear_logp",
    "logp",
    "policy_loss",
    "pos_embed",
    "rope",
    "rope_",
    "route",
    "update_router_bias_",
    "use_backend",
]
