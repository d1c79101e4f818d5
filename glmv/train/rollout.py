"""Rollouts: sample answers from the model with a key/value cache.

The prompt is read once for all n answers of its group. Log-probs are those of the full distribution at the
rollout temperature with forbidden tokens masked: what the trainer computes again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from glmv.data.packing import decode_batch, pack_prompts
from glmv.data.process import Processor
from glmv.data.template import MARKER_TOKENS
from glmv.data.types import FINISH, Completion, Prompt
from glmv.model import Cache, Glm4v
from glmv.train.config import SamplingConfig

# A forbidden token's logit. Finite, so that p log p is 0 and not NaN; exp(-1e4) is 0 in fp32.
FORBIDDEN_LOGIT = -1e4
# Finished rows leave the batch when fewer than this share are alive: copying the cache costs about a step.
COMPACT_BELOW = 0.8


def logit_bias(processor: Processor, vocab_size: int) -> Tensor:
    """[V] float32: 0 where a token may be sampled, FORBIDDEN_LOGIT for prompt-only tokens and unused ids.

    An image placeholder in an answer would ask the model for features that do not exist.
    """
    tokenizer = processor.tokenizer
    bias = torch.zeros(vocab_size)
    bias[tokenizer.vocab_size :] = FORBIDDEN_LOGIT
    bias[list(tokenizer.special_ids)] = FORBIDDEN_LOGIT
    bias[[tokenizer.id(t) for t in MARKER_TOKENS]] = 0.0
    bias[list(processor.stop_ids)] = 0.0
    return bias


@dataclass
class _Rows:
    """The answers still being written, one row each (all tensors share the first dimension)."""

    index: Tensor  # [B] int64: row of the output
    pos: Tensor  # [B] int32: position of the next token
    thinking: Tensor  # [B] bool: no `</think>` yet
    count: Tensor  # [B] int64: tokens written in the current part
    done: Tensor  # [B] bool: finished, waits for the next compaction

    @classmethod
    def start(cls, prompts: Sequence[Prompt], n: int) -> "_Rows":
        pos = torch.tensor([p.next_pos for p in prompts], dtype=torch.int32).repeat_interleave(n)
        none = torch.zeros(len(pos), dtype=torch.bool)
        count = torch.zeros(len(pos), dtype=torch.int64)
        return cls(torch.arange(len(pos)), pos, thinking=~none, count=count, done=none)

    def advance(self, closes: Tensor) -> None:
        """Count one more token; where `closes` the thinking part ends and the answer's count starts."""
        closes = closes & self.thinking
        self.pos = self.pos + 1
        self.thinking = self.thinking & ~closes
        self.count = torch.where(closes, 0, self.count + 1)

    def select(self, keep: Tensor) -> "_Rows":
        return _Rows(*(getattr(self, f.name)[keep] for f in fields(self)))


@torch.no_grad()
def generate(
    model: Glm4v,
    processor: Processor,
    prompts: Sequence[Prompt],
    n: int,
    sampling: SamplingConfig,
    seed: int,
    policy_version: int = 0,
) -> list[list[Completion]]:
    """Sample n answers to every prompt.

    Args:
        prompts: any lengths; each is read once.
        n: answers a prompt (1 with temperature 0).
        sampling: temperature (0 = greedy), top_p, budgets. A thinking part that reaches its budget gets
            `</think>` inserted: that token is marked `forced` and its logp is 0.
        seed: the whole result is a function of (weights, prompts, n, sampling, seed, thread count).

    Returns:
        one list of n completions a prompt, in order.
    """
    if not prompts:
        return []
    limit = sampling.max_tokens
    hidden, cache = _prefill(model, prompts, n, limit)
    out, rows = _Output(len(prompts) * n, limit), _Rows.start(prompts, n)
    head, bias = model.lm_head_weight.T, logit_bias(processor, model.lm_head_weight.shape[0])
    think_end, stops = processor.tokenizer.id("</think>"), torch.tensor(processor.stop_ids)
    generator = torch.Generator().manual_seed(seed)
    for t in range(limit):
        tokens, logp = sample(hidden @ head + bias, sampling, generator)
        forced = rows.thinking & (rows.count == sampling.think_tokens)
        tokens = torch.where(forced, think_end, tokens)
        out.write(rows.index, t, tokens, logp.masked_fill(forced, 0.0), forced)
        rows.advance(tokens == think_end)
        stopped = torch.isin(tokens, stops) & ~rows.done
        full = ~rows.thinking & (rows.count == sampling.answer_tokens) & ~stopped & ~rows.done
        out.finish(rows.index[stopped], rows.index[full], t + 1)
        rows.done |= stopped | full
        alive = ~rows.done
        if not bool(alive.any()):
            break
        if int(alive.sum()) < COMPACT_BELOW * alive.numel():
            rows, tokens, cache = rows.select(alive), tokens[alive], cache.select(alive)
        hidden = model(decode_batch(tokens, rows.pos - 1), cache).hidden
    return out.completions(prompts, n, policy_version)


def sample(logits: Tensor, sampling: SamplingConfig, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw one token a row.

    Args:
        logits: [B, V] float32.

    Returns:
        tokens [B] int64 and logp [B] float32 under softmax(logits / temperature), before top_p.
    """
    if sampling.temperature == 0:
        logp = torch.log_softmax(logits, -1)
        tokens = logp.argmax(-1)
    else:
        logp = torch.log_softmax(logits / sampling.temperature, -1)
        probs = logp.exp()
        if sampling.top_p < 1:
            probs = _nucleus(probs, sampling.top_p)
        # p / Exp(1) has its maximum at i with probability p_i: exact, and no cumulative sum over V.
        noise = torch.empty_like(probs).exponential_(generator=generator)
        tokens = (probs / noise).argmax(-1)
    return tokens, logp.gather(-1, tokens[:, None])[:, 0]


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Zero all but the smallest set of most likely tokens whose mass reaches top_p."""
    ordered, order = probs.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probs).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))


def _prefill(model: Glm4v, prompts: Sequence[Prompt], n: int, limit: int) -> tuple[Tensor, Cache]:
    batch = pack_prompts(prompts)
    longest = batch.max_seqlen
    weight = model.lm_head_weight
    cache = Cache.empty(model.config, len(prompts), longest, weight.dtype, weight.device)
    last = model(batch, cache).hidden[batch.rows]
    return last.repeat_interleave(n, 0), cache.repeat(n, longest + limit)


class _Output:
    """Tokens and log-probs of all answers; a row that left the batch keeps its length."""

    def __init__(self, total: int, limit: int):
        self.tokens = torch.zeros(total, limit, dtype=torch.int64)
        self.logp = torch.zeros(total, limit)
        self.forced = torch.zeros(total, limit, dtype=torch.bool)
        self.length = torch.zeros(total, dtype=torch.int64)
        self.stopped = torch.zeros(total, dtype=torch.bool)

    def write(self, index: Tensor, t: int, tokens: Tensor, logp: Tensor, forced: Tensor) -> None:
        self.tokens[index, t] = tokens
        self.logp[index, t] = logp
        self.forced[index, t] = forced

    def finish(self, stopped: Tensor, full: Tensor, length: int) -> None:
        self.length[stopped] = length
        self.stopped[stopped] = True
        self.length[full] = length

    def completions(self, prompts: Sequence[Prompt], n: int, policy_version: int) -> list[list[Completion]]:
        return [
            [self._completion(i * n + j, prompt.sample.id, j, policy_version) for j in range(n)]
            for i, prompt in enumerate(prompts)
        ]

    def _completion(self, row: int, prompt_id: str, index: int, policy_version: int) -> Completion:
        length = int(self.length[row])
        forced = self.forced[row, :length].clone()
        finish: FINISH = "length"
        if self.stopped[row]:
            finish = "forced" if bool(forced.any()) else "stop"
        return Completion(
            prompt_id=prompt_id,
            index=index,
            tokens=self.tokens[row, :length].clone(),
            logp=self.logp[row, :length].clone(),
            forced=forced,
            finish=finish,
            policy_version=policy_version,
        )
