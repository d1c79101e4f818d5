"""Keys and values of sequences that are being generated."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glmv import check
from glmv.model.config import Glm4vConfig


@dataclass
class Cache:
    """One row per sequence, filled from the left; rows may have different lengths.

    The model writes the keys and values of new tokens at `used` and moves `used` on: prefilling ragged
    prompts and decoding one token for each row is the same call. What lies beyond `used` is never read.
    """

    k: Tensor  # [L, B, max_len, Hk, D], rotated
    v: Tensor  # [L, B, max_len, Hk, D]
    used: Tensor  # [B] int32: tokens held by each row
    longest: int  # an upper bound of `used` that the host knows without asking the device

    @classmethod
    def empty(
        cls, config: Glm4vConfig, batch: int, max_len: int, dtype: torch.dtype, device: torch.device | str
    ) -> "Cache":
        """Room for `max_len` tokens in each of `batch` rows; dtype and device are those of the model."""
        text = config.text
        shape = (text.num_hidden_layers, batch, max_len, text.num_key_value_heads, text.head_dim)
        k, v = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        return cls(k, v, torch.zeros(batch, dtype=torch.int32, device=device), longest=0)

    @property
    def batch_size(self) -> int:
        return self.k.shape[1]

    @property
    def max_len(self) -> int:
        return self.k.shape[2]

    def repeat(self, n: int, max_len: int) -> "Cache":
        """Each row `n` times in a row (0, 0, .., 1, 1, ..) with room for `max_len` tokens, in new memory.

        Raises ValueError if a row holds more than `max_len` tokens.
        """
        check.that("Cache.repeat", "n", n >= 1, "at least 1", n)
        longest = self._fit(0, 0, max_len)
        layers, batch, _, heads, dim = self.k.shape
        k, v = (x.new_zeros(layers, batch, n, max_len, heads, dim) for x in (self.k, self.v))
        k[:, :, :, :longest] = self.k[:, :, None, :longest]
        v[:, :, :, :longest] = self.v[:, :, None, :longest]
        return Cache(k.flatten(1, 2), v.flatten(1, 2), self.used.repeat_interleave(n), longest)

    def select(self, index: Tensor) -> "Cache":
        """The rows `index` ([B'] int64, or [B] bool = True keeps) in new memory: drops rows that are done."""
        index = index.nonzero()[:, 0] if index.dtype == torch.bool else index
        k, v = self.k.index_select(1, index), self.v.index_select(1, index)
        used = self.used.index_select(0, index)
        return Cache(k, v, used, int(used.max()) if len(used) else 0)

    def append(self, cu_seqlens: Tensor, num_tokens: int, max_seqlen: int) -> "Append":
        """Plan to add segment b of a batch of `num_tokens` to row b; nothing changes before `commit`.

        Raises ValueError if there is not one segment for each row, or a row would pass `max_len`.
        """
        rows = self.batch_size
        expected = f"[{rows + 1}]: one segment for each row of the cache"
        check.that("Cache", "cu_seqlens", len(cu_seqlens) == rows + 1, expected, cu_seqlens)
        lengths = cu_seqlens.diff()
        longest = self._fit(lengths, max_seqlen, self.max_len)
        first = torch.arange(rows, device=self.used.device) * self.max_len + self.used  # [B] int64
        if num_tokens == rows and max_seqlen == 1:
            slots = first
        else:
            offset = (first - cu_seqlens[:-1]).repeat_interleave(lengths, output_size=num_tokens)
            slots = offset + torch.arange(num_tokens, device=offset.device)
        bounds = torch.arange(rows + 1, dtype=torch.int32, device=self.used.device) * self.max_len
        return Append(self, slots, bounds, self.used + lengths, longest)

    def _fit(self, new: Tensor | int, max_new: int, max_len: int) -> int:
        """The bound of `used` after `new` more tokens; asks the device only if the known one is too loose."""
        longest = self.longest + max_new
        if longest > max_len:
            longest = int((self.used + new).max())
            check.that(
                "Cache", "max_len", longest <= max_len, f"at least {longest} for the longest row", max_len
            )
        return longest


@dataclass(frozen=True)
class Append:
    """New tokens on their way into a cache; made by `Cache.append`."""

    cache: Cache
    slots: Tensor  # [T] int64: where each new token goes in the [B * max_len] rows of a layer
    cu_seqlens_k: Tensor  # [B+1] int32: bounds of the rows, max_len apart
    used: Tensor  # [B] int32: tokens of each row once the new ones are in
    longest: int  # bound of `used`

    @property
    def fresh(self) -> bool:
        """The cache is empty: the new tokens need to look at each other alone."""
        return self.cache.longest == 0

    def write(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put k, v [T, Hk, D] of a layer into the cache; returns its rows as views [B * max_len, Hk, D]."""
        keys, values = self.cache.k[layer].flatten(0, 1), self.cache.v[layer].flatten(0, 1)
        keys.index_copy_(0, self.slots, k)
        values.index_copy_(0, self.slots, v)
        return keys, values

    def commit(self) -> None:
        """Count the new tokens, after all layers have written theirs."""
        self.cache.used, self.cache.longest = self.used, self.longest
