"""Documents and tokens: what is read, how it is split, what is refused."""

import random
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import gpt
from chainrule.gpt import tokenizer as tokenizers


def test_the_bundled_names_are_lower_case_letters_each_once():
    names = gpt.names()
    assert len(names) == len(set(names)) == 5163
    assert all(name.isascii() and name.isalpha() and name.islower() for name in names)
    assert {"mary", "james", "zachary"} <= set(names)
    assert names == sorted(names)
    assert gpt.Tokenizer.of(names).size == 27


def write(tmp_path, content):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "documents"),
    [
        (b"emma\nolivia\n", ["emma", "olivia"]),
        (b"\n  emma  \n\n\nolivia", ["emma", "olivia"]),
        (b"emma\r\nolivia\r\n", ["emma", "olivia"]),
        (b"emma\rolivia", ["emma", "olivia"]),
        (b"\xef\xbb\xbfemma\n", ["emma"]),
        ("zoë\n小明\n".encode(), ["zoë", "小明"]),
        (b"the cat sat\n", ["the cat sat"]),
    ],
)
def test_a_document_is_a_line_without_the_white_space_around_it(tmp_path, content, documents):
    assert gpt.read_documents(write(tmp_path, content)) == documents


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\t\n\r\n", "is empty"),
        (b"\x7fELF\x02\x00\x01", "is a binary file"),
        (b"caf\xe9\n", "is not UTF-8 text: byte 0xe9 at position 3"),
    ],
)
def test_files_that_are_no_text_are_refused(tmp_path, content, message):
    with pytest.raises(gpt.GPTError, match=message):
        gpt.read_documents(write(tmp_path, content))


@given(st.lists(st.sampled_from(["a", "é", "小", "\U0001f600", " ", "\n", "\r", "\x85", "\ufeff"])))
def test_reading_line_by_line_is_reading_the_whole_text(parts):
    text = "".join(parts)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), text.encode())
        lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        expected = [line.strip() for line in lines if line.strip()]
        if expected:
            assert gpt.read_documents(path) == expected
        else:
            with pytest.raises(gpt.GPTError, match="is empty"):
                gpt.read_documents(path)


def test_the_place_of_a_wrong_byte_counts_from_the_beginning(tmp_path):
    content = "zoë\n".encode() * 1000 + b"caf\xe9"
    with pytest.raises(gpt.GPTError, match="byte 0xe9 at position 5003"):
        gpt.read_documents(write(tmp_path, content))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full"])
def test_what_never_ends_is_refused_at_once(path):
    with pytest.raises(gpt.GPTError, match="is a binary file"):
        gpt.read_documents(path)


def test_a_name_with_a_null_byte_is_refused():
    with pytest.raises(gpt.GPTError, match="null byte"):
        gpt.read_documents("a\0b")


@pytest.mark.parametrize("tokens", ["char", "word"])
def test_one_very_long_line_takes_little_more_memory_than_itself(tmp_path, tokens):
    size = 10_000_000
    path = write(tmp_path, b"some words " * (size // 11) + b"\nshort\n")
    tracemalloc.start()
    documents = gpt.read_documents(path)
    config = gpt.Config(width=2, heads=1, block=3, steps=2, tokens=tokens)
    run = gpt.Run.start(documents, config, validation=0)
    rows = gpt.train(run)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(rows) == 2
    assert peak < 4 * size


def test_a_document_can_be_encoded_as_far_as_it_is_read():
    for tokenizer, text in (
        (gpt.Tokenizer.of(["abc"]), "abc"),
        (gpt.WordTokenizer.of(["a b c"]), "a b\x85\u2003c"),
    ):
        whole = tokenizer.encode(text)
        assert whole == [3, 0, 1, 2, 3]
        assert [tokenizer.encode(text, most) for most in range(7)] == [
            *(whole[:most] for most in range(5)),
            *(whole, whole),
        ]


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(gpt.GPTError, match="there is no file"):
        gpt.read_documents(tmp_path / "nothing")
    with pytest.raises(gpt.GPTError, match="cannot read"):
        gpt.read_documents(tmp_path)


@given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=30), st.floats(0, 0.99))
def test_every_document_is_in_one_part_and_training_is_never_empty(documents, share):
    data = gpt.Data.split(documents, random.Random(1), share)
    assert sorted(data.training + data.validation) == sorted(documents)
    assert data.training
    assert len(data.validation) <= share * len(documents)


def test_the_order_is_microgpts():
    shuffled = gpt.names()
    random.Random(42).shuffle(shuffled)
    data = gpt.Data.split(gpt.names(), random.Random(42))
    assert data.training == shuffled[:4647]
    assert data.validation == shuffled[4647:]


def test_batches_follow_each_other_and_start_over():
    data = gpt.Data(["a", "b", "c"], [], "")
    assert [data.batch(step, 2) for step in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_a_fingerprint_tells_documents_and_orders_apart():
    prints = {
        gpt.Data(training, validation, "").fingerprint
        for training, validation in [
            (["a", "b"], []),
            (["b", "a"], []),
            (["a"], ["b"]),
            (["ab"], []),
            (["a", "b", "c"], []),
        ]
    }
    assert len(prints) == 5
    assert gpt.Data(["a"], [], "here").fingerprint == gpt.Data(["a"], [], "there").fingerprint


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_must_be_one(share):
    with pytest.raises(gpt.GPTError, match="validation share"):
        gpt.Data.split(["a"], random.Random(1), share)


def test_no_documents_are_refused():
    with pytest.raises(gpt.GPTError, match="no documents"):
        gpt.Data.split([], random.Random(1))


# --- tokens -------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=8), min_size=1, max_size=8))
def test_characters_go_out_and_come_back(documents):
    tokenizer = gpt.Tokenizer.of(documents)
    for text in documents:
        numbers = tokenizer.encode(text)
        assert numbers[0] == numbers[-1] == tokenizer.bos == tokenizer.size - 1
        assert tokenizer.decode(numbers[1:-1]) == text


def test_words_go_out_and_come_back():
    tokenizer = gpt.WordTokenizer.of(["the cat  sat", "the dog"])
    assert tokenizer.tokens == ["cat", "dog", "sat", "the"]
    assert tokenizer.encode("the dog sat") == [4, 3, 1, 2, 4]
    assert tokenizer.decode([3, 0]) == "the cat"


def test_what_was_never_seen_is_named():
    tokenizer = gpt.Tokenizer.of(["abc"])
    with pytest.raises(gpt.GPTError, match=r"never seen the characters 'Z', 'ß'$"):
        tokenizer.numbers("aZbßZ")
    with pytest.raises(gpt.GPTError, match=r"never seen the word 'zebra'$"):
        gpt.WordTokenizer.of(["a cat"]).numbers("a zebra")
    with pytest.raises(gpt.GPTError, match=r"'7', \.\.\.$"):
        tokenizer.numbers("0123456789")


@pytest.mark.parametrize("kind", [gpt.Tokenizer, gpt.WordTokenizer])
def test_tokenizers_as_plain_data(kind):
    tokenizer = kind.of(["a cat", "a dog"])
    again = tokenizers.from_dict(tokenizers.to_dict(tokenizer))
    assert type(again) is kind
    assert again.tokens == tokenizer.tokens


@pytest.mark.parametrize(
    "saved",
    [None, [], {}, {"kind": "char"}, {"kind": "bpe", "tokens": []}, {"kind": "char", "tokens": [1]},
     {"kind": "char", "tokens": [""]}, {"kind": "char", "tokens": ["a", "a"]}],
)  # fmt: skip
def test_what_is_no_tokenizer_is_refused(saved):
    with pytest.raises(gpt.GPTError):
        tokenizers.from_dict(saved)
