"""The lab: shipped models that load, differ in ability as said, cost by their parameters, and are trained from a seed."""

from itertools import islice, pairwise
from pathlib import Path

import pytest

from outlay.data import Example
from outlay.data.chains import Chains, held_out, solve
from outlay.data.draw import Draw
from outlay.errors import ConfigError
from outlay.generate import Completion, Earlier, Request, Sampling
from outlay.generate.lab import FOLDER, MODELS, Lab, parameters
from outlay.generate.prompting import Prompting
from outlay.generate.spend import UNLIMITED
from outlay.lab import train
from outlay.schema import component
from outlay.score.match import matches, parse

LAB = Lab()
WARM = Sampling(temperature=0.7, max_new_tokens=Chains.prompt.max_new_tokens)
QUESTION, WRONG = "37+8*5?", "37+8=46;46*5=30"


def answer(requests: list[Request], lab: Lab = LAB) -> list[Completion]:
    found = dict(pair for batch in lab.generate(requests, UNLIMITED) for pair in batch)
    return [found[at] for at in range(len(requests))]


def rendered(shown: Earlier, tier: str = "small") -> str:
    prompt = Prompting().prompt(Chains.prompt, Example("e", question=QUESTION), "", (), shown)
    return LAB.render(prompt, tier)


def test_the_tiers_differ_in_ability_as_said() -> None:
    """200 held-out questions of one to five steps, asked of each tier in one call."""
    asked = list(Chains(split="all", count=200, seed=17).examples())
    requests = [Request(tier, one.question, WARM, "attempt", 0, 0) for tier in MODELS for one in asked]
    replies = answer(requests)
    right = {
        tier: sum(
            matches(parse(reply.text, "number"), one.references, "number")
            for one, reply in zip(asked, replies[at * 200 : (at + 1) * 200], strict=True)
        )
        / 200
        for at, tier in enumerate(MODELS)
    }
    assert 0.29 < right["small"] < 0.49 < 0.68 < right["medium"] < 0.87 < 0.91 < right["large"]


def test_greedy_replies_are_written_out_chains() -> None:
    greedy = Sampling(temperature=0.0, max_new_tokens=64)
    (reply,) = answer([Request("large", QUESTION, greedy, "attempt", 0, 0)])
    assert reply.text == solve(QUESTION)[0] and reply.finish_reason == "stop"
    assert reply.prompt_tokens == len(QUESTION) and reply.completion_tokens == len(reply.text) + 1


@pytest.mark.parametrize("tier", MODELS)
def test_price_is_in_proportion_to_parameters(tier: str) -> None:
    from transformers import AutoModelForCausalLM

    size = AutoModelForCausalLM.from_pretrained(FOLDER / tier).num_parameters()
    assert parameters(tier) == size
    price = {one.name: one.price for one in Lab(usd_per_unit=2.0).tiers}[tier]
    assert price.units == pytest.approx(size / 1e6)
    assert price.usd(10**6, 0, 10**6) == pytest.approx(2 * 2.0 * size / 1e6)


def test_the_ladder_is_steep_and_its_weights_are_small() -> None:
    sizes = [parameters(tier) for tier in MODELS]
    assert all(2.5 < above / below < 6 for below, above in pairwise(sizes))
    files = [file for file in FOLDER.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert sum(file.stat().st_size for file in files) < 4e6
    assert {file.suffix for file in files} <= {".py", ".json", ".jinja", ".safetensors"}


@pytest.mark.parametrize(
    ("shown", "sent"),
    [
        (Earlier(), QUESTION),
        (Earlier("carry", WRONG), f"{QUESTION}{WRONG}!{QUESTION}"),
        (Earlier("other", WRONG), f"{QUESTION}{WRONG}~{QUESTION}"),
        (Earlier("reflect", WRONG, "It is wrong."), f"{QUESTION}{WRONG}!{QUESTION}"),
    ],
)
def test_what_is_sent_is_what_the_models_were_trained_on(shown: Earlier, sent: str) -> None:
    assert {rendered(shown, tier) for tier in MODELS} == {sent}
    assert LAB.count([sent], "small") == [len(sent)]
    mark = {"carry": train.OWN, "other": train.OTHERS, "reflect": train.OWN}.get(shown.context)
    assert sent == (train.retry(QUESTION, WRONG, mark) if mark else QUESTION)


def test_the_longest_retry_fits_the_window() -> None:
    longest = next(iter(Chains(min_steps=5, split="all").examples())).question
    reply = Chains.prompt.max_new_tokens
    assert all(2 * (len(longest) + 3 + reply) + 1 <= LAB.window(tier) for tier in MODELS)


def test_the_models_never_trained_on_a_held_out_question() -> None:
    draw = Draw("stream")
    own = [(question, WRONG) for question in islice(train.questions(draw, 5), 50)]
    pairs = list(islice(train.stream(draw, 5, own), 2000))
    asked = [prompt.split("?")[-2] + "?" for prompt, _ in pairs]
    asked = [question.split(train.OWN)[-1].split(train.OTHERS)[-1] for question in asked]
    assert not any(map(held_out, asked))
    assert [reply for _, reply in pairs] == [solve(question)[0] for question in asked]
    shares = [sum(mark in prompt for prompt, _ in pairs) / 2000 for mark in (train.OWN, train.OTHERS)]
    assert sum(shares) == pytest.approx(train.RETRIES, abs=0.04) and min(shares) > 0.05


def test_half_of_the_chains_of_others_are_wrong() -> None:
    draw = Draw("others")
    for question in islice(train.questions(draw, 5), 200):
        chain = train.wrong_chain(draw, question)
        assert chain != solve(question)[0] and chain.count("=") == solve(question)[0].count("=")


def test_training_is_the_same_twice_and_its_models_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setattr(train, "POOL", 8)
    for run in ("a", "b"):
        train.main(["--tier", "small", "--steps", "6", "--check", "2", "--out", str(tmp_path / run)])
    weights = [(tmp_path / run / "small" / "model.safetensors").read_bytes() for run in ("a", "b")]
    assert weights[0] == weights[1]
    train.main(
        ["--tier", "small", "--steps", "6", "--check", "2", "--seed", "1", "--out", str(tmp_path / "c")]
    )
    assert (tmp_path / "c" / "small" / "model.safetensors").read_bytes() != weights[0]
    AutoModelForCausalLM.from_pretrained(tmp_path / "a" / "small")
    assert AutoTokenizer.from_pretrained(tmp_path / "a" / "small").decode([3, 4]) == "01"


def test_an_unknown_or_repeated_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tiers=larg.*'large'"):
        component("generator", "lab", tiers=["larg"])
    with pytest.raises(ConfigError, match="each once"):
        component("generator", "lab", tiers=["small", "small"])
    assert [tier.name for tier in component("generator", "lab", tiers=["large", "small"]).tiers] == [
        "large",
        "small",
    ]


def test_the_identity_does_not_depend_on_where_the_weights_lie() -> None:
    identity = LAB.identity("small")
    assert identity["model"] == "lab/small" and str(FOLDER) not in repr(identity)
    assert identity["weights"] != LAB.identity("large")["weights"]
