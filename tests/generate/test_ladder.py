"""Several tiers behind one name: each row goes to its own tier's server, at its own price."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty import Faulty, at_random, serving

import outlay
from outlay.errors import ConfigError, SpendLimitReached
from outlay.generate import Prompt, Request, Sampling, Tally
from outlay.generate.ladder import Ladder
from outlay.generate.spend import UNLIMITED
from outlay.generate.store import Store, complete
from outlay.schema import component


def correct(prompt: str, sample: int) -> str:
    """The sum that a prompt asks for."""
    terms = re.search(r"Calculate ([-+ 0-9]+)\.", prompt)
    return f" {eval(terms.group(1))}" if terms else "?"  # digits and signs only


@pytest.fixture
def servers() -> Iterator[tuple[Faulty, Faulty]]:
    with (
        serving(
            Faulty(at_random(0.2, ("429", "503", "close", "garbage")), lambda prompt, sample: " 0")
        ) as small,
        serving(Faulty(lambda prompt, tried: "", correct)) as big,
    ):
        yield small, big


def options(small: Faulty, big: Faulty) -> dict[str, dict[str, object]]:
    price = {"input": 1.0, "output": 4.0, "units": 1.0}
    own = {"tokenizer": None, "backoff_s": 0.002, "max_tries": 12, "price": price}
    return {"qwen2_5_7b": {"base_url": small.url, **own}, "gpt_4o": {"base_url": big.url, **own}}


def test_the_papers_three_tiers_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ladder = component("generator", "ladder")
    assert [tier.name for tier in ladder.tiers] == ["qwen2.5-7b", "gpt-4o-mini", "gpt-4o"]
    units = [tier.price.units for tier in ladder.tiers]
    assert units == sorted(units), "cheapest first"
    assert ladder.samples and ladder.stored and not ladder.stays_home
    assert component("generator", "ladder", tiers=["smollm2", "qwen2_5_7b"]).stays_home


def test_each_row_goes_to_its_tier(servers: tuple[Faulty, Faulty], tmp_path: Path) -> None:
    ladder = Ladder(tiers=["qwen2_5_7b", "gpt_4o"], options=options(*servers))
    asked = []
    for at in range(20):
        tier = ladder.tiers[at % 2].name
        text = ladder.render(Prompt((("user", f"Calculate {at} + 1."),)), tier)
        asked.append(Request(tier, text, Sampling(0.0, 8), "attempt", 0, 0))
    store = Store(tmp_path / "s.sqlite")
    rows = complete(asked, ladder, store, Tally())
    assert [row.text for row in rows] == [" 0" if at % 2 == 0 else f" {at + 1}" for at in range(20)]
    for at, server in enumerate(servers):
        mine = rows[at::2]
        shown = sum(row.prompt_tokens + row.completion_tokens for row in mine)
        assert shown == server.tokens and len(server.bills) == 10
    assert {body["model"] for body in servers[0].bodies} == {"Qwen/Qwen2.5-7B-Instruct"}
    assert ladder.identity("gpt-4o") != ladder.identity("qwen2.5-7b")
    assert dict(next(iter(ladder.generate(asked[1:2], UNLIMITED))))[0].text == " 2"
    store.close()


def test_ladders_that_differ_in_an_option_are_told_apart(servers: tuple[Faulty, Faulty]) -> None:
    one = Ladder(tiers=["qwen2_5_7b", "gpt_4o"], options=options(*servers))
    other = Ladder(tiers=["qwen2_5_7b", "gpt_4o"], options=options(servers[1], servers[0]))
    assert repr(one) != repr(other), "a sweep shares the work of generators that read alike"


@pytest.mark.parametrize(
    ("tiers", "given", "says"),
    [
        (["gpt_4o", "gpt_4o"], {}, r"two tiers are named 'gpt-4o'.*generator\.options\.gpt_4o\.tier"),
        (["gpt_4p"], {}, "Did you mean 'gpt_4o'"),
        (["gpt_4o"], {"gpt_4": {}}, r"options\.gpt_4: not one of the tiers. Did you mean 'gpt_4o'"),
        (["gpt_4o"], {"gpt_4o": {"timeout": 3}}, r"unknown option 'generator\.timeout'.*timeout_s"),
        (["openai"], {"openai": {"model": "mine"}}, r"price of model 'mine' is not known"),
        ([], {}, "tiers is empty"),
    ],
)
def test_what_is_wrong_with_a_ladder_is_said_before_anything_is_paid(
    tiers: list[str], given: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        component("generator", "ladder", tiers=tiers, options=given)


def test_a_ladder_from_the_command_line_stops_at_its_limit_and_goes_on(
    servers: tuple[Faulty, Faulty], own_cache: Path, tmp_path: Path
) -> None:
    words = [
        "dataset=arithmetic",
        "dataset.limit=30",
        "generator=ladder",
        "generator.tiers=[qwen2_5_7b,gpt_4o]",
    ]
    words += ["router.tier=gpt-4o", "verbose=false"]
    for choice, server in zip(("qwen2_5_7b", "gpt_4o"), servers, strict=True):
        own = {"base_url": server.url, "tokenizer": "null", "price": "{input:1.0,output:4.0,units:1.0}"}
        words += [f"+generator.options.{choice}.{name}={value}" for name, value in own.items()]
    big = servers[1]
    with pytest.raises(SpendLimitReached, match="spend limit reached"):
        outlay.run([*words, "generator.spend_limit_tokens=500"], str(tmp_path / "runs"))
    first = len(big.bills)
    assert 0 < first < 30 and big.tokens <= 500
    result = outlay.run([*words, "generator.spend_limit_tokens=100000"], str(tmp_path / "runs"))
    assert len(big.bills) == 30, "only the rest was paid for"
    assert result.metrics["quality/accuracy"] == 1 and result.metrics["cost/tokens_total"] == big.tokens
    assert result.ledger["usd"].sum() == pytest.approx(sum((p + 4 * c) / 1e6 for p, _, c in big.bills))
    assert not servers[0].bodies and set(result.ledger["tier"]) == {"gpt-4o"}
