"""Every numeric tolerance of the tests, with the reason for its size."""

from torch import Tensor


def assert_error_relative(got: Tensor, truth: Tensor, plain: Tensor, factor: float = 2.0) -> None:
    """The error of `got` is at most `factor` times that of plain low-precision PyTorch, plus two roundings.

    truth: fp64; plain: the same function in plain PyTorch, in the dtype of `got`. The rule is that of
    flash-attention's tests; the second term, the error of adding and taking off 0.3 in that dtype, keeps a
    lucky `plain` from failing `got`.
    """
    assert got.dtype == plain.dtype, (got.dtype, plain.dtype)
    rounded = truth.to(got.dtype)
    floor = 2 * (rounded + 0.3 - 0.3 - rounded).abs().max().item()
    allowed = factor * (plain.double() - truth).abs().max().item() + floor
    error = (got.double() - truth).abs().max().item()
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"


# ---- attention, token_loss, policy_loss ----------------------------------------------------------------
# Softmax over up to 100 keys in fp64 against a loop that sums in another order.
ATTENTION_FP64 = 1e-12
# The same in fp32, values of size 1; gradients are sums over up to 100 queries.
ATTENTION_FP32, ATTENTION_GRAD_FP32 = 2e-6, 2e-5
# A row of up to 500 logits in fp64, summed in another order.
TOKEN_LOSS_FP64 = 1e-12
# logp and ent of size 5 in fp32: a few ulp of lse; gradients of size 1 through GEMMs of up to 500 terms.
TOKEN_LOSS_FP32, TOKEN_LOSS_GRAD_FP32 = 5e-6, 2e-5
# One exp and a handful of products per row in fp64.
POLICY_FP64 = 1e-12
# Sums over at most 100 rows of size 1 in fp32, split or not.
POLICY_FP32 = 2e-6


# ---- pos_embed, router, experts ------------------------------------------------------------------------

# grid_sample's normalised coordinate costs a few ulp of the position (up to 48 cells), times a slope near 4.
POS_EMBED_FP64 = 1e-12
# 16 products of values up to about 4 with weights up to 1.4, summed in fp32.
POS_EMBED_FP32 = 4e-6
# Sums of some hundred gradients of size 1 in fp32, in another order.
POS_EMBED_GRAD_FP32 = 4e-5
# A sigmoid, a sum of up to 8 scores and a division in fp64, against Python floats.
ROUTER_FP64 = 1e-12
# The same in fp32, one rounding each.
ROUTER_FP32_REL = 2e-6
# A sum over experts and tokens of a sequence in fp32.
BALANCE_FP32_REL = 5e-6
# Two matrix products over at most 32 terms of size 1 in fp64.
EXPERTS_FP64 = 1e-12
# The same in fp32, as a share of the largest value: the two sides may sum in another order.
EXPERTS_FP32 = 2e-6


# ---- rope ----------------------------------------------------------------------------------------------
ROPE_ABS = 2e-6  # fp32 arithmetic on |x| < 5: a few ulp of the products
ROPE_SINCOS_ABS = 1e-6  # promised for positions up to 1,048,576
ROPE_FP64_ABS = 1e-14  # a few ulp of fp64 on |x| < 5
ROPE_INVERSE_ABS = 4e-6  # there and back: twice ROPE_ABS
ROPE_GRAD_ABS = 1e-4  # fp32 sums of 68 terms of size up to 50


# ---- data ----------------------------------------------------------------------------------------------
# Normalised pixels reach 2.7 and transformers rounds each of three fp32 steps; ours are rounded once.
PATCH_ATOL = 1e-6
# Dearest rank over the mean, 8 ranks, 1024 rows: what one rank's idling may cost. Measured: 1.0001.
PLAN_IMBALANCE = 1.003
# Bars for 1024 lengths, and for 400 rows of 60 tokens: one percent of a step. Measured: 1.3 ms and 2 ms.
PACK_SECONDS, PACK_ROWS_SECONDS = 0.02, 0.01


# ---- rewards -------------------------------------------------------------------------------------------
REWARDS_BALL_REL = 1e-50  # 60 digits, less what series and squaring may lose; a wider ball says nothing
REWARD_MODEL_ABS = 1e-5  # fp32 logits of a padded batch; an endpoint's value passes with six digits


# ---- model ---------------------------------------------------------------------------------------------
# Logits of size 1 after two layers each: transformers' own eager and sdpa attention differ by 6e-7.
MODEL_LOGITS_ATOL = 2e-5
# Relative L2 error of each parameter's gradient in fp32: sums over tokens in another order.
MODEL_GRAD_RTOL = 1e-4
# Mean bf16 error against fp32, relative to transformers' own. Measured: 0.95 to 0.985 over six samples.
MODEL_BF16_RATIO = 1.0
# Hidden states of a cached step against one full pass: the same sums, split over other tiles.
MODEL_CACHE_ATOL = 1e-5
# Standard deviation of at least 10,000 normal draws: five times 1 / sqrt(2 * 10,000).
MODEL_INIT_STD_RTOL = 0.035
# Share of bf16 / fp16 outputs with transformers' bits: a sum in another order turns a rounding now and then.
MODEL_NORM_SAME_BITS = 0.999
# fp32 norm and gradients relative to the row's largest: a few ulp, sums over 500 rows in the weight's.
MODEL_NORM_RTOL = 1e-5


# ---- built-in tasks ------------------------------------------------------------------------------------
TASK_CHANCE_ABS = 0.07  # about three standard errors of a rate near 1/2 over 400 drawn items


# ---- training ------------------------------------------------------------------------------------------

# Rollout (cache, one token at a time) and update (packed) add the same fp32 terms in another order.
ROLLOUT_LOGP_ATOL = 2e-5
# fp32 gradients of one step whose rows were packed in another way.
PACKING_GRAD_RTOL = 2e-4
# A mean of some ten fp32 losses, with packed rows or one row at a time.
LOSS_RTOL = 1e-5


def five_sigma(n: int, p: float) -> float:
    """Five standard deviations of a count of n draws with probability p."""
    return float(5 * (n * p * (1 - p)) ** 0.5)
