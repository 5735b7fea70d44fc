"""Which positions see each other when attention ends at the borders of documents.

Dimension key: B sequences, S positions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def visible_within_documents(tokens_BS: Tensor, document_end: int) -> Tensor:
    """Return for every position which others it sees, (B, S, S), itself and those before it.

    Only positions of its own document are seen. The token that ends a document belongs to it.
    Rotary positions need no restart: attention depends on distances alone.
    """
    ends_BS = (tokens_BS == document_end).long()
    document_BS = ends_BS.cumsum(dim=1) - ends_BS
    same_BSS = document_BS.unsqueeze(2) == document_BS.unsqueeze(1)
    return torch.tril(same_BSS)
