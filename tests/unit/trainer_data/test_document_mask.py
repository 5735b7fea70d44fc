"""With document masks, what stands before a document in a sequence does not change it."""

from __future__ import annotations

import pytest
import torch
from builders.datasets import corpus_of, data_spec, write_texts
from builders.exported_models import PER_HEAD
from builders.nano import NANO, nano_model, nano_spec
from spes_trainer.assembly import build_stepper
from spes_trainer.model.documents import visible_within_documents

FIRST, SECOND = [5, 6, 7, 0], [9, 8, 7, 6, 0]


def logits(model, tokens, **options):
    with torch.no_grad():
        return model(torch.tensor([tokens]), **options).logits_BSV[0]


def test_a_position_sees_its_own_document_up_to_itself():
    visible = visible_within_documents(torch.tensor([[5, 0, 6, 7, 0, 8]]), 0)[0]
    seen = [row.nonzero().flatten().tolist() for row in visible]
    assert seen == [[0], [0, 1], [2], [2, 3], [2, 3, 4], [5]]


def test_an_end_behind_an_end_is_an_empty_document():
    visible = visible_within_documents(torch.tensor([[0, 0, 5]]), 0)[0]
    assert visible.tolist() == torch.eye(3, dtype=torch.bool).tolist()


@pytest.mark.parametrize("config", [NANO, PER_HEAD], ids=["whole", "grouped queries per head"])
def test_documents_packed_equal_documents_alone(config):
    model = nano_model(config=config)
    packed = logits(model, FIRST + SECOND, document_end=0)
    alone = torch.cat((logits(model, FIRST), logits(model, SECOND)))
    torch.testing.assert_close(packed, alone, rtol=1e-5, atol=1e-5)


def test_without_masks_a_document_sees_the_one_before():
    model = nano_model()
    packed = logits(model, FIRST + SECOND)[len(FIRST) :]
    assert not torch.allclose(packed, logits(model, SECOND), atol=1e-3)


def test_one_document_is_the_same_with_and_without_masks():
    model = nano_model()
    masked, plain = logits(model, [5, 6, 7, 8], document_end=0), logits(model, [5, 6, 7, 8])
    torch.testing.assert_close(masked, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask", [True, False])
def test_a_job_says_whether_its_steps_mask(tmp_path, mask):
    write_texts(tmp_path / "data" / "words", {str(i): b"abcdefg" for i in range(9)})
    corpus = corpus_of(tmp_path / "data", data_spec(documentMask=mask, heldOutFraction=0))
    assert corpus.document_end == (0 if mask else None)
    stepper = build_stepper(nano_spec(), document_end=corpus.document_end)
    tokens = torch.tensor([FIRST + SECOND]).byte().numpy()
    plain = build_stepper(nano_spec()).evaluate(tokens)
    assert (stepper.evaluate(tokens) == plain) is not mask
