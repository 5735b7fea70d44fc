"""Compares tensors; `torch.testing` would import a compiler, which takes seconds."""

from __future__ import annotations

import torch
from torch import Tensor


def assert_close(got: Tensor, want: Tensor, *, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Fail with the largest difference unless |got - want| <= atol + rtol * |want| everywhere."""
    assert got.shape == want.shape, f"shape {list(got.shape)}, expected {list(want.shape)}"
    off = ((got - want).abs() - rtol * want.abs()).max().item() if got.numel() else 0.0
    assert torch.allclose(got, want, rtol=rtol, atol=atol), f"differs by {off:.3g} beyond rtol"
