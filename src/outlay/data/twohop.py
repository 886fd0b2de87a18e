"""Questions over invented people, towns, films and companies, with distractor passages, in the HotpotQA schema.

The world is drawn anew for each question, so no answer can be known from training data.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from outlay.data import Dataset, Example, PromptText, hash_split
from outlay.data.draw import Draw
from outlay.data.hotpotqa import layout
from outlay.errors import ConfigError, DataError
from outlay.schema import option


def _words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


FIRST = _words(
    "Adela Bram Corin Dessa Edvin Farah Goran Hedda Ilmar Jorun Kasper Livia Marek Nadia Oskar Petra Quill Rosa "
    "Sten Tilda Ulric Vera Wendel Ysolde Zora Anselm Birgit Casimir Dorthe Emeric"
)
LAST = _words(
    "Aldane Brookvist Carrow Delmare Eskola Fenwright Galdane Harrowe Istrand Jelmar Kestrin Lorrand Marchetto "
    "Norvell Ostrander Pellworth Quarrie Rendahl Sandoval Thornquist Umberland Vasko Wexford Yarrow Zelinka "
    "Ashgrove Bellamar Corvane Dunmere Ellsworthy"
)
TOWN_STARTS = _words(
    "Alder Birch Crag Dun East Fal Glen Hart Iver Kel Lang Mor Nether Oak Pen Rav Stan Thorn Ulver Wes"
)
TOWN_ENDS = _words(
    "bridge by combe dale field ford gate ham haven holm mere mouth port stead stow ton vale wick"
)
COUNTRIES = _words("Averland Borovia Calderra Dravonia Estmark Felland Gorvania Halvenia Ivonia Jorland")
RIVERS = _words("Arl Brend Cass Dovre Elm Fenn Gault Hale Ister Kell Lune Marl Nidd Orr Pask Rhenn Sarn Tavy")
FILM_STARTS = _words(
    "Silent Golden Broken Distant Hidden Crimson Paper Winter Hollow Velvet Second Burning Glass Iron"
)
FILM_ENDS = _words(
    "Harbor Orchard Lantern Horizon Letters Garden Voyage Mirror Station Echo Crossing Summer Tides"
)
FIRMS = _words("Foods Motors Textiles Shipping Instruments Glassworks Airlines Brewing Press Chemicals")
JOBS = ("film director", "architect", "novelist", "chemist", "painter", "violinist", "engineer", "sculptor")
GENRES = ("drama", "comedy", "thriller", "war", "musical", "mystery")


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    born: int
    town: str
    job: str
    hobby: str


@dataclass(frozen=True, slots=True)
class Town:
    name: str
    country: str
    river: str
    people: int


@dataclass(frozen=True, slots=True)
class Work:
    """A film or a company: what was made, when, and by whom."""

    name: str
    year: int
    maker: str
    kind: str  # the film's genre or the company's trade
    seat: str  # where it was shot, or has its headquarters

    @property
    def when(self) -> str:
        return str(self.year)


@dataclass(frozen=True, slots=True)
class World:
    people: tuple[Person, ...]
    towns: tuple[Town, ...]
    films: tuple[Work, ...]
    firms: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its supporting facts (title, sentence number); `cue` begins an answer in a whole sentence."""

    question: str
    cue: str
    answer: str
    supporting: tuple[tuple[str, int], ...]
    compares: bool = False


@dataclass(frozen=True, kw_only=True)
class TwoHop(Dataset):
    """`meta["difficulty"]` is hops + distractors / 4, rounded down, 1 to 4: 1 asks for one sentence among few passages."""

    count: int = option(400, least=1)
    min_hops: int = option(1, choices=(1, 2))
    max_hops: int = option(2, choices=(1, 2))
    min_distractors: int = option(0, least=0, most=8)
    max_distractors: int = option(8, least=0, most=8)
    comparison: float = option(0.3, least=0, most=1)

    name: ClassVar[str] = "twohop"
    answer: ClassVar[str] = "span"
    prompt: ClassVar[PromptText] = PromptText(
        system="Answer with a name, a year, yes or no, copied from the passages. Give only the answer.",
        user="{% if context %}{{ context }}\n\n{% endif %}{{ question }}",
        prefill="{{ meta.cue }}",
        max_new_tokens=12,
        stop=("\n", ",", " ("),
    )
    embedded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("hops", "distractors"):
            low, high = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if low > high:
                raise ConfigError(
                    f"dataset.min_{name}={low} is above dataset.max_{name}={high}. Swap the two"
                )

    def rows(self) -> Iterator[Example | DataError]:
        for row in hotpot_rows(self):
            document, facts = layout(
                row["context"], [(title, number) for title, number in row["supporting_facts"]]
            )
            yield Example(
                id=row["_id"],
                question=row["question"],
                document=document,
                references=tuple(dict.fromkeys((row["answer"], row["answer"].removeprefix("River ")))),
                facts=facts,
                split=hash_split(row["_id"]),
                meta={
                    name: row[name] for name in ("type", "level", "cue", "hops", "distractors", "difficulty")
                },
            )


def hotpot_rows(data: TwoHop) -> Iterator[dict[str, Any]]:
    """The questions as rows of the original HotpotQA files, with `cue`, `hops`, `distractors`, `difficulty` besides."""
    for index in range(data.count):
        draw = Draw(f"{data.seed}:{index}")
        hops = draw.between(data.min_hops, data.max_hops)
        distractors = draw.between(data.min_distractors, data.max_distractors)
        world = _world(draw)
        asked = _asked(draw, world, hops, data.comparison)
        gold = dict.fromkeys(title for title, _ in asked.supporting)
        passages = _passages(world)
        others = draw.shuffled([title for title in passages if title not in gold])[:distractors]
        difficulty = hops + distractors // 4
        yield {
            "_id": f"twohop-{index:05d}",
            "question": asked.question,
            "answer": asked.answer,
            "supporting_facts": [list(fact) for fact in asked.supporting],
            "context": [[title, passages[title]] for title in draw.shuffled([*gold, *others])],
            "type": "comparison" if asked.compares else "bridge",
            "level": ("easy", "medium", "hard")[min(difficulty - 1, 2)],
            "cue": asked.cue,
            "hops": hops,
            "distractors": distractors,
            "difficulty": difficulty,
        }


def write_hotpotqa(data: TwoHop, path: str | Path) -> int:
    """Writes every question as one JSON list in the original schema; returns how many.

    `dataset=hotpotqa dataset.path=PATH` reads it back, and gives the same documents and facts.
    """
    keys = ("_id", "question", "answer", "supporting_facts", "context", "type", "level")
    rows = [{key: row[key] for key in keys} for row in hotpot_rows(data)]
    Path(path).write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return len(rows)


def _world(draw: Draw) -> World:
    """Four of each kind; every name once, every value that is asked for once, so that questions have one answer."""
    firsts, lasts = draw.shuffled(FIRST), draw.shuffled(LAST)
    starts, ends = draw.shuffled(TOWN_STARTS), draw.shuffled(TOWN_ENDS)
    rivers, countries = draw.shuffled(RIVERS), draw.shuffled(COUNTRIES)
    years = draw.shuffled(range(1921, 2009))
    counts = [100 * hundreds for hundreds in draw.shuffled(range(21, 940))]  # all different, so one is larger
    towns = tuple(
        Town(starts[i] + ends[i], countries[max(i - 1, 0)], f"River {rivers[i]}", counts[i]) for i in range(4)
    )
    homes = (towns[0], towns[0], towns[1], towns[2])  # the first two share a town
    hobbies = draw.shuffled(("chess", "sailing", "beekeeping", "gardening", "fencing", "bird watching"))
    people = tuple(
        Person(f"{firsts[i]} {lasts[i]}", years[i] - 40, homes[i].name, draw.choice(JOBS), hobbies[i])
        for i in range(4)
    )
    heads, tails = draw.shuffled(FILM_STARTS), draw.shuffled(FILM_ENDS)
    films = tuple(
        Work(
            f"The {heads[i]} {tails[i]}", years[4 + i], people[i].name, draw.choice(GENRES), towns[3 - i].name
        )
        for i in range(4)
    )
    trades = draw.shuffled(FIRMS)
    firms = tuple(
        Work(
            f"{lasts[4 + i]} {trades[i]}", years[8 + i], people[3 - i].name, trades[i].lower(), towns[i].name
        )
        for i in range(4)
    )
    return World(people, towns, films, firms)


def _passages(world: World) -> dict[str, list[str]]:
    """Title to sentences; as in HotpotQA, sentences after the first begin with their space."""
    passages = {}
    for person in world.people:
        passages[person.name] = [
            f"{person.name} is {_article(person.job)} {person.job} known for a love of {person.hobby}.",
            f" {person.name} was born in {person.town}.",
            f" The year of birth of {person.name} is {person.born}.",
        ]
    for town in world.towns:
        passages[town.name] = [
            f"{town.name} is a town in {town.country}.",
            f" {town.name} lies on the {town.river}.",
            f" {town.name} has {town.people} inhabitants.",
        ]
    for film in world.films:
        passages[film.name] = [
            f"{film.name} is a {film.kind} film.",
            f" {film.name} was directed by {film.maker}.",
            f" {film.name} was released in {film.year}.",
            f" Most scenes were shot in {film.seat}.",
        ]
    for firm in world.firms:
        passages[firm.name] = [
            f"{firm.name} is a company that trades in {firm.kind}.",
            f" {firm.name} was founded by {firm.maker}.",
            f" {firm.name} was started in {firm.year}.",
            f" The headquarters of {firm.name} are in {firm.seat}.",
        ]
    return passages


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _asked(draw: Draw, world: World, hops: int, comparison: float) -> Asked:
    if hops == 1:
        return _lookup(draw, world)
    return _comparison(draw, world) if draw.chance(comparison) else _bridge(draw, world)


def _lookup(draw: Draw, world: World) -> Asked:
    person, town = draw.choice(world.people), draw.choice(world.towns)
    film, firm = draw.choice(world.films), draw.choice(world.firms)
    return draw.choice(
        (
            Asked(
                f"Who directed {film.name}?", f"{film.name} was directed by", film.maker, ((film.name, 1),)
            ),
            Asked(f"Who founded {firm.name}?", f"{firm.name} was founded by", firm.maker, ((firm.name, 1),)),
            Asked(
                f"Where was {person.name} born?",
                f"{person.name} was born in",
                person.town,
                ((person.name, 1),),
            ),
            Asked(
                f"Which river flows through {town.name}?", "The river is the", town.river, ((town.name, 1),)
            ),
            Asked(f"In which country is {town.name}?", "The country is", town.country, ((town.name, 0),)),
            Asked(
                f"When was {film.name} released?",
                f"{film.name} was released in",
                film.when,
                ((film.name, 2),),
            ),
            Asked(
                f"When was {firm.name} started?", f"{firm.name} was started in", firm.when, ((firm.name, 2),)
            ),
        )
    )


def _bridge(draw: Draw, world: World) -> Asked:
    """The passage of the question names an entity, whose passage holds the answer."""
    film, firm, person = draw.choice(world.films), draw.choice(world.firms), draw.choice(world.people)
    people = {one.name: one for one in world.people}
    towns = {one.name: one for one in world.towns}
    director, founder, home, seat = (
        people[film.maker],
        people[firm.maker],
        towns[person.town],
        towns[firm.seat],
    )
    return draw.choice(
        (
            Asked(
                f"Where was the director of {film.name} born?", f"The director of {film.name} was born in",
                director.town, ((film.name, 1), (director.name, 1)),
            ),
            Asked(
                f"What is the year of birth of the director of {film.name}?", "The year of birth is",
                str(director.born), ((film.name, 1), (director.name, 2)),
            ),
            Asked(
                f"Where was the founder of {firm.name} born?", f"The founder of {firm.name} was born in",
                founder.town, ((firm.name, 1), (founder.name, 1)),
            ),
            Asked(
                f"Which river flows through the town where {person.name} was born?", "The river is the",
                home.river, ((person.name, 1), (home.name, 1)),
            ),
            Asked(
                f"In which country are the headquarters of {firm.name}?", "The country is",
                seat.country, ((firm.name, 3), (seat.name, 0)),
            ),
        )
    )  # fmt: skip


def _comparison(draw: Draw, world: World) -> Asked:
    film, film2, *_ = draw.shuffled(world.films)
    person, person2, *_ = draw.shuffled(world.people)
    town, town2, *_ = draw.shuffled(world.towns)
    earlier = film if film.year < film2.year else film2
    older = person if person.born < person2.born else person2
    larger = town if town.people > town2.people else town2
    films, people, towns = (film.name, film2.name), (person.name, person2.name), (town.name, town2.name)
    return draw.choice(
        (
            _compared(
                f"Which film was released first, {' or '.join(films)}?",
                "The film released first is",
                earlier.name,
                films,
                2,
            ),
            _compared(f"Who is older, {' or '.join(people)}?", "The older person is", older.name, people, 2),
            _compared(
                f"Which town has more inhabitants, {' or '.join(towns)}?",
                "The larger town is",
                larger.name,
                towns,
                2,
            ),
            _same(draw, "born in the same town", "Were", world.people, 1),
            _same(draw, "in the same country", "Are", world.towns, 0),
        )
    )


def _same(draw: Draw, what: str, verb: str, kind: Sequence[Person | Town], sentence: int) -> Asked:
    """Yes and no as often: of each kind, the first two share it, the second and third do not."""
    holds = draw.chance(0.5)
    both = draw.shuffled([one.name for one in (kind[:2] if holds else kind[1:3])])
    answer = "yes" if holds else "no"
    return _compared(
        f"{verb} {' and '.join(both)} {what}?", "The answer is", answer, (both[0], both[1]), sentence
    )


def _compared(question: str, cue: str, answer: str, both: tuple[str, str], sentence: int) -> Asked:
    return Asked(question, cue, answer, tuple((name, sentence) for name in both), compares=True)
