"""The byte tokenizer's vocabulary; `test_transformers.py` shows that AutoTokenizer agrees."""

import json

from spes_sync.export.tokenizer import byte_characters, byte_tokenizer


def test_the_id_of_every_token_is_its_byte():
    files = byte_tokenizer(vocabulary=256).files
    model = json.loads(files["tokenizer.json"])["model"]
    assert model["vocab"] == {character: i for i, character in enumerate(byte_characters())}
    assert model["merges"] == []


def test_characters_are_the_published_byte_level_table():
    characters = byte_characters()
    assert len(set(characters)) == 256
    assert [characters[byte] for byte in b" \n\x00A~\x7f"] == ["Ġ", "Ċ", "Ā", "A", "~", "ġ"]
    assert [characters[byte] for byte in (0x80, 0xA0, 0xAD, 0xFF)] == ["Ģ", "ł", "Ń", "ÿ"]
