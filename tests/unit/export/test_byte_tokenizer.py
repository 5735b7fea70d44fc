"""The byte tokenizer's vocabulary; `test_transformers.py` shows that AutoTokenizer agrees."""

from spes_api.job import TokenizerSpec
from spes_sync.export.tokenizer import byte_characters, tokenizer_files


def test_the_id_of_every_token_is_its_byte():
    model = tokenizer_files(TokenizerSpec(name="bytes"), vocabulary=256)["tokenizer.json"]["model"]
    assert list(model["vocab"].values()) == list(range(256))
    assert model["merges"] == []


def test_characters_are_the_published_byte_level_table():
    characters = byte_characters()
    assert len(set(characters)) == 256
    assert [characters[byte] for byte in b" \n\x00A~\x7f"] == ["Ġ", "Ċ", "Ā", "A", "~", "ġ"]
    assert [characters[byte] for byte in (0x80, 0xA0, 0xAD, 0xFF)] == ["Ģ", "ł", "Ń", "ÿ"]
