"""Random numbers in integers: Philox 4x32-10, keyed by a seed, counted by the place of a token.

A number depends on the seed and the place alone, so that neither the machine nor the number of threads nor
the tokens that were tried and thrown away change a text.
"""

from __future__ import annotations

_MASK = 0xFFFF_FFFF
# Constants of the generator: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011).
_M0, _M1 = 0xD251_1F53, 0xCD9E_8D57
_W0, _W1 = 0x9E37_79B9, 0xBB67_AE85


def philox(key: int, counter: int) -> tuple[int, int, int, int]:
    """Four numbers of 32 bits from a key of 64 bits and a counter of 128."""
    k0, k1 = key & _MASK, key >> 32 & _MASK
    c0, c1, c2, c3 = (counter >> shift & _MASK for shift in (0, 32, 64, 96))
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & _MASK, p0 >> 32 ^ c3 ^ k1, p0 & _MASK
        k0, k1 = k0 + _W0 & _MASK, k1 + _W1 & _MASK
    return c0, c1, c2, c3


def draw(seed: int, place: int, below: int) -> int:
    """A number from 0 up to `below`, for a place of a stream. Its bias is below 2**-64 for 64 bits."""
    low, middle, high, top = philox(seed, place)
    bits = low | middle << 32 | high << 64 | top << 96
    return bits * below >> 128
