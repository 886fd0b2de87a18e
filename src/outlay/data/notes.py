"""Synthetic discharge notes with known gold: where each fact stands, in how many words, and what overrides it.

A case is drawn first (the truth: facts and how each changed over the stay), then written. Every sentence that
states a fact is recorded with its span, so gold is known exactly: statements of the value that holds at
discharge are gold, statements of an earlier value are not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from outlay.data import Dataset, Example, Fact, PromptText, Span, hash_split
from outlay.data import notes_cases as cases
from outlay.data import notes_text as text
from outlay.data.draw import Draw
from outlay.errors import DataError
from outlay.schema import option

# Measured on SmolLM2-135M, greedy, given the gold sentences: without the cue it repeats the question.
QA_PROMPT = PromptText(
    system="You answer questions about a discharge note. Give only the answer, a few words copied from the note.",
    user="{% if context %}{{ context }}\n\n{% endif %}{{ question }}",
    prefill="{{ meta.cue }}",
    max_new_tokens=16,
    stop=("\n", ",", ";", " ("),
)
SUMMARY_PROMPT = PromptText(
    user="{% if context %}{{ context }}\n\n{% endif %}Write the hospital course of this patient, one paragraph per problem.",
    max_new_tokens=256,
)

# Note sizes relative to the median, each as likely: a long right tail, as in real discharge notes. Ours.
SIZES = (0.4, 0.5, 0.6, 0.7, 0.85, 0.95, 1.05, 1.15, 1.3, 1.5, 1.8, 2.3, 3.0, 4.2)
MEDIAN_CHARACTERS = 5800  # about 2,000 tokens of SmolLM2
PROGRESS_CHARACTERS = 560  # a daily progress note, as far as the note's size leaves room

OPTIONAL = (
    "event",
    "lab_in",
    "duration",
    "stopped",
    "code",
    "oxygen",
    "cause",
)  # kinds that short notes may lack

Forms = tuple[str, ...]
"""Ways to write one value; the first is the standard one."""


@dataclass(frozen=True, slots=True)
class Truth:
    """A fact of the stay: the values it took, by the hospital day from which each held. The last one is gold."""

    key: str
    kind: str  # of notes_text.KINDS
    words: Mapping[str, Forms]  # what the templates fill in besides the value
    history: tuple[tuple[int, Forms], ...]
    problem: int = -1  # index of its problem; -1: a matter of discharge
    front: bool = False  # stated at the front of the note, or only late
    accepted: Forms = ()  # further right answers

    @property
    def value(self) -> Forms:
        return self.history[-1][1]

    @property
    def question(self) -> str:
        return text.KINDS[self.kind].question.format(**self._standard)

    @property
    def cue(self) -> str:
        return text.KINDS[self.kind].cue.format(**self._standard)

    @property
    def _standard(self) -> dict[str, str]:
        return {name: forms[0] for name, forms in self.words.items()}

    @property
    def answers(self) -> Forms:
        return tuple(dict.fromkeys(self.value + self.accepted))

    def on(self, day: int) -> Forms | None:
        """The value that held on a hospital day, or None before the fact was known."""
        held = [forms for start, forms in self.history if start <= day]
        return held[-1] if held else None


@dataclass(frozen=True, slots=True)
class Statement:
    """A place of the note that states a fact; `gold` where the value is the one that holds at discharge."""

    key: str
    span: Span
    gold: bool


@dataclass(frozen=True, slots=True)
class Note:
    """A discharge note and its truth. `course` is the reference hospital course; it states every fact once."""

    id: str
    document: str
    course: str
    truths: tuple[Truth, ...]
    statements: tuple[Statement, ...]

    def spans(self, key: str) -> tuple[Span, ...]:
        return tuple(sorted({found.span for found in self.statements if found.key == key and found.gold}))


@dataclass(frozen=True, kw_only=True)
class Notes(Dataset):
    """`task=qa`: one example per question, the note shared. `task=summary`: one per note, its course the reference."""

    count: int = option(200, least=1)
    task: str = option("qa", choices=("qa", "summary"))
    questions: int = option(4, least=1)
    front_loading: float = option(0.5, least=0, most=1)
    redundancy: float = option(0.5, least=0, most=1)
    length: float = option(1.0, above=0, most=10)

    name: ClassVar[str] = "notes"
    answer: ClassVar[str] = "span"
    prompt: ClassVar[PromptText] = QA_PROMPT
    embedded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (
            self.task == "summary"
        ):  # an instance attribute hides the class's: what the task is depends on an option
            object.__setattr__(self, "answer", "text")
            object.__setattr__(self, "prompt", SUMMARY_PROMPT)

    def rows(self) -> Iterator[Example | DataError]:
        for index in range(self.count):
            note = discharge_note(
                index,
                seed=self.seed,
                front_loading=self.front_loading,
                redundancy=self.redundancy,
                length=self.length,
                with_course=self.task == "qa",
            )
            yield from self._questions(note, index) if self.task == "qa" else [self._summary(note)]

    def _questions(self, note: Note, index: int) -> Iterator[Example]:
        split = hash_split(note.id)
        for number, truth in enumerate(
            _asked(note.truths, Draw(f"{self.seed}:{index}:questions"))[: self.questions]
        ):
            spans = note.spans(truth.key)
            superseded = sum(found.key == truth.key and not found.gold for found in note.statements)
            yield Example(
                id=f"{note.id}-q{number}",
                question=truth.question,
                document=note.document,
                references=truth.answers,
                facts=(Fact(truth.value[0], spans),),
                split=split,
                meta={
                    "note": note.id,
                    "kind": truth.kind,
                    "cue": truth.cue,
                    "difficulty": 1 + min(superseded, 2),  # 2, 3: earlier values stand in the note too
                    "statements": len(spans),
                    "superseded": superseded,
                    "front": truth.front,
                    "front_loading": self.front_loading,
                    "redundancy": self.redundancy,
                },
            )

    def _summary(self, note: Note) -> Example:
        return Example(
            id=note.id,
            document=note.document,
            references=(note.course,),
            facts=tuple(Fact(truth.value[0], note.spans(truth.key)) for truth in note.truths),
            split=hash_split(note.id),
            meta={
                "note": note.id,
                "statements": sum(found.gold for found in note.statements),
                "superseded": sum(not found.gold for found in note.statements),
                "front": sum(truth.front for truth in note.truths) / len(note.truths),
                "front_loading": self.front_loading,
                "redundancy": self.redundancy,
            },
        )


def _asked(truths: Sequence[Truth], draw: Draw) -> list[Truth]:
    """The facts in the order in which they are asked: every kind once before any kind twice."""
    kinds = draw.shuffled(list(dict.fromkeys(truth.kind for truth in truths)))
    turns = [0] * len(kinds)
    order: list[tuple[int, int, Truth]] = []
    for truth in draw.shuffled(truths):
        kind = kinds.index(truth.kind)
        order.append((turns[kind], kind, truth))
        turns[kind] += 1
    return [truth for _, _, truth in sorted(order, key=lambda item: item[:2])]


# The case: what happened


@dataclass(frozen=True, slots=True)
class Case:
    woman: bool
    days: int
    size: float
    condition: cases.Condition
    problems: tuple[cases.Problem, ...]
    background: tuple[cases.Comorbidity, ...]
    home: Mapping[str, str]  # home drug: its dose before admission
    labs: Mapping[str, tuple[str, ...]]  # lab: its value on each hospital day
    truths: tuple[Truth, ...]

    @property
    def patient(self) -> str:
        return f"___ year old {'woman' if self.woman else 'man'}"

    def truths_of(self, kind: str) -> list[Truth]:
        return [truth for truth in self.truths if truth.kind == kind]


def _case(draw: Draw, front_loading: float, length: float) -> Case:
    size = draw.choice(SIZES) * length
    days = min(4 + int(2.2 * size) + draw.between(0, 3), 21)
    condition = draw.choice(cases.CONDITIONS)
    given = {condition.drug.name}
    background: list[cases.Comorbidity] = []
    for known in draw.shuffled(cases.COMORBIDITIES):
        if (
            len(background) < min(2 + draw.between(0, 1) + int(size), 8)
            and known.name not in condition.baseline_excluded
        ):
            background.append(known)
    given |= {known.drug.name for known in background if known.drug}
    busy = {condition.marker.lab}
    problems: list[cases.Problem] = []
    wanted = min(draw.between(0, 1) + int(0.8 * size + 0.3), 5)
    for problem in draw.shuffled(cases.PROBLEMS):
        clash = problem.drug.name in given or (problem.marker is not None and problem.marker.lab in busy)
        if len(problems) < wanted and not clash and not _same_matter(problem, condition, background):
            problems.append(problem)
            given.add(problem.drug.name)
            busy |= {problem.marker.lab} if problem.marker else set()
    courses = [condition.marker] + [problem.marker for problem in problems if problem.marker]
    labs = {name: _steady(draw, cases.LABS[name], days) for name in cases.LABS}
    labs |= {course.lab: _moving(draw, course, days) for course in courses}
    if condition.marker.lab != "glucose" and condition.drug_class == "insulin":
        labs["glucose"] = _moving(draw, cases.Course("glucose", (420, 612), (142, 196)), days)
    home = {known.drug.name: draw.choice(known.drug.doses) for known in background if known.drug}
    case = Case(draw.chance(0.5), days, size, condition, tuple(problems), tuple(background), home, labs, ())
    return replace(case, truths=tuple(_truths(draw, case, front_loading)))


def _same_matter(
    problem: cases.Problem, condition: cases.Condition, known: Sequence[cases.Comorbidity]
) -> bool:
    """A problem that the reason for admission or the history already names, e.g. constipation."""
    told = " ".join((*condition.names, condition.complaint, *(item.name for item in known))).lower()
    return any(name.split()[-1].lower() in told for name in problem.names)


def _steady(draw: Draw, lab: cases.Lab, days: int) -> tuple[str, ...]:
    return tuple(f"{draw.uniform(lab.low, lab.high):.{lab.decimals}f}" for _ in range(days))


def _moving(draw: Draw, course: cases.Course, days: int) -> tuple[str, ...]:
    """Values from admission to discharge; no earlier day has the discharge value."""
    decimals = cases.LABS[course.lab].decimals
    first, last = draw.uniform(*course.first), draw.uniform(*course.last)
    final = f"{last:.{decimals}f}"
    values = []
    for day in range(days - 1):
        part = min(day * (1.15 + 0.3 * (draw.random() - 0.5)) / (days - 1), 0.97) if day else 0.0
        value = f"{first + (last - first) * part:.{decimals}f}"
        step = 10**-decimals if first > last else -(10**-decimals)
        values.append(f"{float(value) + step:.{decimals}f}" if value == final else value)
    return (*values, final)


def _truths(draw: Draw, case: Case, front_loading: float) -> Iterator[Truth]:
    """Every fact of the stay, each placed at the front with probability `front_loading`."""
    for truth in (
        *_condition_truths(draw, case),
        *_problem_truths(draw, case),
        *_discharge_truths(draw, case),
    ):
        if truth.kind in OPTIONAL and not draw.chance(0.15 + 0.4 * case.size):
            continue
        front = draw.chance(front_loading)
        if front and truth.kind == "allergy":  # an allergy known from the start stands in the header
            truth = replace(truth, history=((1, truth.value),))
        yield replace(truth, front=front)


def _condition_truths(draw: Draw, case: Case) -> Iterator[Truth]:
    condition, days = case.condition, case.days
    marker, drug, change = condition.marker.lab, condition.drug, draw.between(2, 3)
    yield Truth("diagnosis", "diagnosis", {}, ((1, (condition.working,)), (change, condition.names)), 0)
    old = (condition.first_drug,)
    words = {"klass": (condition.drug_class,), "old": old}
    dosed = [
        way for dose in drug.doses for way in (dose, *_directions(dose, drug.sig))
    ]  # "torsemide 40 mg PO DAILY"
    accepted = tuple(f"{drug.name} {way}" for way in dosed)
    yield Truth("drug", "drug", words, ((1, old), (change, (drug.name,))), 0, accepted=accepted)
    yield _dose(draw, drug, change, days, 0)
    if condition.durations:
        final, other, *_ = draw.shuffled(condition.durations)
        history = _revised(draw, 0.5, other, draw.between(change + 1, days), final, change)
        yield Truth(f"duration:{drug.name}", "duration", {"drug": (drug.name,)}, history, 0)
    yield _lab(case, marker, 0)
    first = case.labs[marker][0]
    lab = cases.LABS[marker]
    unit = (f"{first} {lab.unit}",)
    yield Truth(f"lab_in:{marker}", "lab_in", {"lab": lab.names}, ((1, (first,)),), 0, accepted=unit)
    seen = (2, (draw.choice(condition.findings),))
    yield Truth("study", "study", {"study": (condition.study,)}, ((1, ("pending",)), seen), 0)
    happened = draw.between(2, days - 1)
    plans = [(1, _days(draw.choice([day for day in range(2, days + 1) if day != happened])))]
    history = (*(plans if draw.chance(0.5) else ()), (happened, _days(happened)))
    accepted = (f"day {happened}", f"{happened}")
    yield Truth("event", "event", {"event": (condition.event,)}, history, 0, accepted=accepted)
    if condition.oxygen:
        flow, left = draw.between(3, 6), draw.choice((1, 2, 0))
        weaned = _litres(left) if left else ("room air", "RA")
        yield Truth("oxygen", "oxygen", {}, ((1, _litres(flow)), (days - 1, weaned)), 0)


def _problem_truths(draw: Draw, case: Case) -> Iterator[Truth]:
    for number, problem in enumerate(case.problems, start=1):
        name, cause = problem.names[0], (draw.choice(problem.cause),)
        yield Truth(f"cause:{name}", "cause", {"matter": problem.names[:2]}, ((2, cause),), number)
        yield _dose(draw, problem.drug, 2, case.days, number)
        if problem.marker:
            yield _lab(case, problem.marker.lab, number)


def _discharge_truths(draw: Draw, case: Case) -> Iterator[Truth]:
    condition, days = case.condition, case.days
    weight = draw.uniform(54, 104)
    loss = draw.uniform(0.3, 1.1) if condition.drug_class == "diuretic" else draw.uniform(0.1, 0.3)
    scale = [f"{weight - loss * day:.1f} kg" for day in range(days)]
    accepted = (scale[-1].removesuffix(" kg"),)
    history = tuple((day + 1, (value,)) for day, value in enumerate(scale))
    yield Truth("weight", "weight", {}, history, accepted=accepted)
    drugs = [known.drug for known in case.background if known.drug]
    changed = (
        [drug for drug in drugs if len(drug.doses) > 1][:1] if draw.chance(0.3 + 0.5 * case.size) else []
    )
    for drug in changed:
        yield _dose(draw, drug, 1, days, before=case.home[drug.name])
    stoppable = [drug.name for drug in drugs if drug not in changed]
    if stoppable:
        stopped = (draw.between(2, days), (draw.choice(stoppable),))
        yield Truth("stopped", "stopped", {"reason": (draw.choice(cases.STOP_REASONS),)}, (stopped,))
    treated = " ".join((condition.first_drug, condition.drug.name, condition.study, *case.home))
    safe = [name for name, clashes in cases.ALLERGENS.items() if not any(part in treated for part in clashes)]
    found = (draw.between(2, days - 1), (draw.choice(safe),))
    words = {"reaction": (draw.choice(cases.REACTIONS),)}
    yield Truth("allergy", "allergy", words, ((1, ("No Known Allergies",)), found))
    final, other, *_ = draw.shuffled(cases.DISPOSITIONS)
    yield Truth("disposition", "disposition", {}, _revised(draw, 0.6, other, days - 1, final))
    limited = (draw.between(2, days), (draw.choice(("DNR/DNI", "DNR but ok to intubate")),))
    yield Truth("code", "code", {}, ((1, ("full code",)), *([limited] if draw.chance(0.4) else [])))
    final, other, *_ = draw.shuffled(cases.INTERVALS)
    visit = _revised(draw, 0.4, other, days - 1, final)
    yield Truth(
        "followup",
        "followup",
        {"clinic": (condition.clinic,)},
        visit,
        accepted=(f"in {final}", f"{final} after discharge"),
    )


def _dose(draw: Draw, drug: cases.Drug, start: int, days: int, problem: int = -1, before: str = "") -> Truth:
    """The dose of a drug, changed once during the stay; `before` is the dose at home, if it is a home drug."""
    at = drug.doses.index(before) if before else draw.between(0, max(len(drug.doses) - 2, 0))
    others = drug.doses[at + 1 :] or drug.doses[:at]
    final = draw.choice(others) if others else drug.doses[at]
    history = ((start, (drug.doses[at],)), (draw.between(start + 1, days), (final,)))
    accepted = (final.replace(" ", ""), *_directions(final, drug.sig))
    words = {"drug": (drug.name,), "sig": (drug.sig,)}
    return Truth(
        f"dose:{drug.name}", "dose", words, history if others else history[1:], problem, accepted=accepted
    )


def _directions(dose: str, sig: str) -> Forms:
    """Ways to write a dose with its route, its frequency, or both."""
    route, _, often = sig.partition(" ")
    words = cases.FREQUENCIES.get(often, ())
    return tuple(
        f"{dose} {way}" for way in (sig, often, route, *words, *(f"{route} {word}" for word in words))
    )


def _lab(case: Case, name: str, problem: int) -> Truth:
    lab, values = cases.LABS[name], case.labs[name]
    history = tuple((day + 1, (value,)) for day, value in enumerate(values))
    accepted = (f"{values[-1]} {lab.unit}",) if lab.unit else ()
    return Truth(f"lab:{name}", "lab", {"lab": lab.names}, history, problem, accepted=accepted)


def _revised(
    draw: Draw, chance: float, other: str, day: int, final: str, start: int = 1
) -> tuple[tuple[int, Forms], ...]:
    """A plan that was another one before, with the given chance."""
    return ((start, (other,)), (day, (final,))) if draw.chance(chance) else ((day, (final,)),)


def _litres(flow: int) -> Forms:
    return (f"{flow} L NC", f"{flow} L nasal cannula")


def _days(day: int) -> Forms:
    return (f"hospital day {day}", f"HD {day}", f"HD#{day}")


# The writing


@dataclass(slots=True)
class Page:
    """The note so far, and what its sentences state."""

    parts: list[str] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    at: int = 0

    def put(self, words: str, end: str = "\n", *states: tuple[str, bool]) -> None:
        """Appends words; `states` names the facts they state, and whether with the value that holds at discharge."""
        span = (self.at, self.at + len(words))
        self.statements.extend(Statement(key, span, gold) for key, gold in states)
        self.parts += (words, end)
        self.at += len(words) + len(end)

    def shifted(self, by: int) -> list[Statement]:
        return [Statement(one.key, (one.span[0] + by, one.span[1] + by), one.gold) for one in self.statements]

    def end_line(self, blank: bool = False) -> None:
        """Ends a paragraph of sentences: its last space becomes a line end."""
        if self.parts and self.parts[-1] == " ":
            self.parts[-1] = "\n"
        if blank:
            self.parts.append("\n")
            self.at += 1


@dataclass(frozen=True, slots=True)
class Writer:
    """Says facts in words not yet used for them, as far as the paraphrases go."""

    case: Case
    draw: Draw
    used: dict[tuple[str, bool], list[str]] = field(default_factory=dict)

    def sentence(self, truth: Truth, day: int | None = None) -> tuple[str, tuple[tuple[str, bool], ...]]:
        """A sentence that states the fact as of a hospital day (None: as of discharge), and what it states."""
        kind = text.KINDS[truth.kind]
        value = truth.value if day is None else truth.on(day)
        assert value is not None
        gold = value == truth.value
        daily = day is not None and bool(kind.daily) and (kind.daily_fits_last or not gold)
        left = self.used.setdefault((truth.key, daily), [])
        if not left:
            left.extend(self.draw.shuffled(kind.daily if daily else kind.now))
        words = {name: self.draw.choice(forms) for name, forms in truth.words.items()}
        line = _capital(left.pop().format(v=self.draw.choice(value), day=day, **words))
        states = [(truth.key, gold)]
        if truth.kind == "lab" and day == 1:  # a value of day 1 is the admission value
            admission = f"lab_in:{truth.key.removeprefix('lab:')}"
            states += [(other.key, True) for other in self.case.truths_of("lab_in") if other.key == admission]
        if truth.kind == "dose":  # names the drug, whatever the dose
            states += [
                (other.key, True)
                for other in self.case.truths_of("drug")
                if other.value == truth.words["drug"]
            ]
        return line, tuple(states)

    def say(self, page: Page, truths: Sequence[Truth], day: int | None = None, bullet: str = "") -> None:
        for truth in truths:
            line, states = self.sentence(truth, day)
            page.put(bullet, "") if bullet else None
            page.put(line, "\n" if bullet else " ", *states)


def _capital(line: str) -> str:
    """Upper-case first letter, but not of names like pCO2."""
    return line[:1].upper() + line[1:] if line[1:2].islower() or line[1:2] in " -" else line


def _opening(page: Page, writer: Writer, redundancy: float) -> None:
    case, draw, condition = writer.case, writer.draw, writer.case.condition
    page.put("Name:  ___                     Unit No:   ___", "\n\n")
    page.put("Admission Date:  ___              Discharge Date:   ___", "\n\n")
    page.put(f"Date of Birth:  ___             Sex:   {'F' if case.woman else 'M'}", "\n\n")
    page.put(f"Service: {condition.service}", "\n\n")
    page.put("Allergies:")
    allergy = case.truths_of("allergy")[0]
    known = allergy.history[0][1]
    page.put(_capital(known[0]), "\n\n", ("allergy", known == allergy.value))
    page.put("Attending: ___.", "\n\n")

    front = [truth for truth in case.truths if truth.front]
    page.put("Summary of Admission:")
    page.put(
        f"{case.patient} admitted to {condition.service.title()} for {condition.complaint.lower()}.", " "
    )
    writer.say(page, draw.shuffled(front))
    page.end_line(blank=True)
    points = [truth for truth in front if draw.chance(redundancy / 2)]
    if points:
        page.put("Key Points:")
        writer.say(page, points, bullet="- ")
        page.end_line(blank=True)

    page.put("Chief Complaint:")
    page.put(condition.complaint, "\n\n")
    page.put("Major Surgical or Invasive Procedure:")
    page.put(condition.procedure, "\n\n")
    _history(page, writer)
    page.put("Physical Exam:")
    for when, title in ((0, "ADMISSION PHYSICAL EXAM:"), (1, "DISCHARGE PHYSICAL EXAM:")):
        weight = case.truths_of("weight")[0]
        page.put(title)
        page.put(f"VITALS: {_vitals(draw, well=bool(when))}")
        page.put(
            f"WEIGHT: {weight.value[0] if when else weight.history[0][1][0]}", "\n", ("weight", bool(when))
        )
        for system, normal in text.EXAM_IN:
            own = condition.exam[0] == system
            if not own and draw.chance(0.7 - 0.2 * case.size + 0.2 * when):
                continue  # short notes have short exams, at discharge more so
            normal = "well appearing, in no acute distress" if when and system == "GENERAL" else normal
            page.put(f"{system}: {condition.exam[1 + when] if own else normal}")
        page.end_line(blank=True)
    _results(page, writer)


def _history(page: Page, writer: Writer) -> None:
    case, draw, condition = writer.case, writer.draw, writer.case.condition
    known = ", ".join(item.short for item in case.background)
    denies = draw.shuffled(condition.denies)
    page.put("History of Present Illness:")
    page.put(f"{case.patient} with a history of {known} who presents with {condition.story}.", " ")
    page.put(f"Symptoms began ___ days before presentation and worsened until {_he(case)} called ___.", " ")
    page.put(f"{_he(case).title()} denies {', '.join(denies[:-1])} or {denies[-1]}.", "\n\n")
    page.put(f"In the ED, initial VS were: {_vitals(draw, well=False)}.", " ")
    page.put(f"Exam notable for {condition.exam[1]}.", " ")
    page.put(f"Felt at first to represent {condition.working}.", " ", ("diagnosis", False))
    page.put(f"The patient was given {condition.first_drug}.", " ", ("drug", False))
    page.put("On the floor, the patient confirms the above history. 10-point ROS otherwise negative.", "\n\n")
    page.put("Past Medical History:")
    for item in case.background:
        page.put(f"- {_capital(item.name)}")
    page.end_line(blank=True)
    page.put("Social History:")
    page.put(" ".join(draw.shuffled(text.SOCIAL)[: 2 + int(case.size)]), "\n\n")
    page.put("Family History:")
    page.put(" ".join(draw.shuffled(text.FAMILY)[: 1 + int(case.size / 1.5)]), "\n\n")


def _he(case: Case) -> str:
    return "she" if case.woman else "he"


def _vitals(draw: Draw, well: bool) -> str:
    """Vital signs in the order of the chart, without oxygen: the need of oxygen is a fact of its own."""
    warm = draw.uniform(97.6, 98.7) if well else draw.uniform(98.2, 101.9)
    high, low = draw.between(108, 138), draw.between(58, 82)
    heart, breaths = (
        (draw.between(62, 88), draw.between(14, 18))
        if well
        else (draw.between(92, 124), draw.between(18, 26))
    )
    return f"T {warm:.1f} BP {high}/{low} HR {heart} RR {breaths}"


def _results(page: Page, writer: Writer) -> None:
    case, draw, condition = writer.case, writer.draw, writer.case.condition
    page.put("Pertinent Results:")
    middle = [
        1 + round(step * (case.days - 1) / (more + 1))
        for more in [min(int(case.size / 1.25), 4)]
        for step in range(1, more + 1)
    ]
    for title, day in [
        ("ADMISSION LABS:", 1),
        *(("INTERVAL LABS:", day) for day in middle),
        ("DISCHARGE LABS:", case.days),
    ]:
        page.put(title)
        followed = [truth.key[4:] for truth in case.truths_of("lab")]
        rest = [name for name in followed if name not in (*cases.CBC, *cases.CHEMISTRY, *cases.MINERALS)]
        minerals = [cases.MINERALS] if case.size > 1.2 or set(followed) & set(cases.MINERALS) else []
        for panel in (cases.CBC, cases.CHEMISTRY, *minerals, *((name,) for name in rest)):
            _panel(page, writer, panel, day)
        page.end_line(blank=True)
    page.put("MICROBIOLOGY AND STUDIES:")
    writer.say(page, case.truths_of("study"))
    page.put(f"There is {condition.excluded}.")
    page.put(
        f"EKG ___: sinus rhythm at {draw.between(64, 112)}, QTc {draw.between(404, 462)}, no acute ischemic changes."
    )
    page.put("Blood cultures ___ x2: final, see progress notes.", "\n\n")


def _panel(page: Page, writer: Writer, names: Sequence[str], day: int) -> None:
    """A line of the lab table, as the hospital's system prints it; * marks values out of range."""
    case, entries, states = writer.case, [], []
    for name in names:
        lab, value = cases.LABS[name], case.labs[name][day - 1]
        entries.append(f"{lab.printed}-{value}{'' if lab.low <= float(value) <= lab.high else '*'}")
        states += [
            (truth.key, day == case.days) for truth in case.truths_of("lab") if truth.key == f"lab:{name}"
        ]
        states += [
            (truth.key, True)
            for truth in case.truths_of("lab_in")
            if day == 1 and truth.key == f"lab_in:{name}"
        ]
    clock = f"{writer.draw.between(4, 7):02d}:{writer.draw.between(0, 59):02d}AM"
    page.put(f"___ {clock} BLOOD {' '.join(entries)}", "\n", *states)


def _progress(page: Page, writer: Writer, last_day: Sequence[Truth], redundancy: float, room: float) -> None:
    """Daily progress notes that copy forward; routine text fills what is left of the note's size."""
    case, draw = writer.case, writer.draw
    page.put("Progress Notes (copied from the daily record):")
    each = max(PROGRESS_CHARACTERS, 250 + 42 * redundancy * len(case.truths))
    count = max(2, min(round(room / each), case.days))
    days = sorted({case.days - (case.days - 1) * step // (count - 1) for step in range(count)})
    told = ""
    routine: list[str] = []
    for day in days:
        start = page.at
        page.put(f"Hospital Day {day}{' (day of discharge)' if day == case.days else ''}:")
        if not told or not draw.chance(redundancy):
            denies = draw.shuffled(case.condition.denies)[:2]
            told = f"S: {' '.join(draw.shuffled(text.SUBJECTIVE)[:2])} Denies {denies[0]} and {denies[1]}."
        page.put(told)
        page.put(
            f"O: {_vitals(draw, well=day > 2)}. {case.condition.exam[0].title()}: {case.condition.exam[1 + (day > case.days // 2)]}."
        )
        if draw.chance(redundancy):
            known = ", ".join(item.short for item in case.background[:3])
            page.put(
                f"A/P: {case.patient} with {known} who presented with {case.condition.story}, now HD {day}."
            )
        for number in (*range(len(case.problems) + 1), -1):
            _plan_of_day(page, writer, number, day, last_day if day == case.days else (), redundancy)
        while page.at - start < min(room / len(days), 2.5 * each) - 60:
            routine = routine or draw.shuffled(text.ROUTINE)
            page.put(routine.pop())
        page.end_line(blank=True)


def _plan_of_day(
    page: Page, writer: Writer, number: int, day: int, home: Sequence[Truth], redundancy: float
) -> None:
    case, draw = writer.case, writer.draw
    heading, plan = _problem(case, number)
    told = [
        truth
        for truth in case.truths
        if truth.problem == number
        and (truth in home or (truth.on(day) is not None and draw.chance(redundancy)))
    ]
    if day == 1 and number == 0:
        page.put(f"# {heading}: Admitted for work-up and treatment.", " ")
    elif (day == 1 and number > 0) or not (told or plan):
        return  # further problems arise later
    else:
        page.put(f"# {heading}:", " ")
        if plan:
            page.put(draw.choice(plan), " ")
    writer.say(page, told, day=day)
    page.end_line()


def _problem(case: Case, number: int) -> tuple[str, Sequence[str]]:
    """Heading and plan sentences of a problem; the reason for admission goes by its complaint."""
    if number == 0:
        return case.condition.complaint, case.condition.plan
    if number < 0:
        return "Chronic issues and discharge planning", ()
    return _capital(case.problems[number - 1].names[0]), case.problems[number - 1].plan


def _course(writer: Writer, share: float) -> Page:
    """A hospital course by problem; each fact is stated with probability `share`."""
    case, draw, page = writer.case, writer.draw, Page()
    known = ", ".join(item.name for item in case.background)
    page.put(
        f"{case.patient} with a history of {known} who presented with {case.condition.complaint.lower()}.",
        "\n\n",
    )
    for number in (*range(len(case.problems) + 1), -1):
        heading, plan = _problem(case, number)
        told = [truth for truth in case.truths if truth.problem == number and draw.chance(share)]
        if not told and not plan:
            continue
        if number == 0:
            page.put("# ", "")
            page.put(_capital(draw.choice(case.condition.names)), ":\n", ("diagnosis", True))
        else:
            page.put(f"# {heading}:")
        for sentence in draw.shuffled(plan)[: 1 + int(case.size / 1.4)]:
            page.put(sentence, " ")
        writer.say(page, [truth for truth in told if number or truth.kind != "diagnosis"])
        if number == 0:
            page.put(f"There was {case.condition.excluded}.", " ")
        page.end_line(blank=True)
    return page


def _closing(page: Page, writer: Writer, home: Sequence[Truth], redundancy: float, with_course: bool) -> None:
    case, draw, condition = writer.case, writer.draw, writer.case.condition
    if with_course:
        page.put("Brief Hospital Course:")
        course = _course(writer, redundancy)
        page.statements += course.shifted(page.at)
        page.parts += course.parts
        page.at += course.at
    page.put("Transitional Issues:")
    page.put("- Pending results at discharge: none.")
    writer.say(page, draw.shuffled(home), bullet="- ")
    page.end_line(blank=True)

    page.put("Medications on Admission:")
    page.put("The Preadmission Medication list is accurate and complete.")
    sigs = {item.drug.name: item.drug.sig for item in case.background if item.drug}
    doses = {truth.key: truth for truth in case.truths_of("dose")}
    for number, (name, dose) in enumerate(case.home.items(), start=1):
        page.put(f"{number}. ", "")
        states = [(f"dose:{name}", False)] if f"dose:{name}" in doses else []
        page.put(f"{_capital(name)} {dose} {sigs[name]}", "\n", *states)
    page.end_line(blank=True)

    page.put("Discharge Medications:")
    stopped = [truth.value[0] for truth in case.truths_of("stopped")]
    taken = {**case.home, **{truth.words["drug"][0]: truth.value[0] for truth in doses.values()}}
    sigs |= {drug.name: drug.sig for drug in (condition.drug, *(problem.drug for problem in case.problems))}
    for number, name in enumerate(draw.shuffled([name for name in taken if name not in stopped]), start=1):
        states = [(f"dose:{name}", True)] if f"dose:{name}" in doses else []
        states += [("drug", True)] if name == condition.drug.name else []
        page.put(f"{number}. ", "")
        page.put(f"{_capital(name)} {taken[name]} {sigs[name]}", "\n", *states)
    page.end_line(blank=True)

    page.put("Discharge Disposition:")
    page.put(case.truths_of("disposition")[0].value[0], "\n\n", ("disposition", True))
    page.put("Facility:\n___", "\n\n")
    page.put("Discharge Diagnosis:")
    page.put(f"PRIMARY: {_capital(draw.choice(condition.names))}", "\n", ("diagnosis", True))
    others = [*(problem.names[0] for problem in case.problems), *(item.name for item in case.background)]
    page.put(f"SECONDARY: {', '.join(others)}", "\n\n")
    page.put("Discharge Condition:")
    page.put("Mental Status: Clear and coherent.")
    page.put("Level of Consciousness: Alert and interactive.")
    walks = draw.choice(
        ("Ambulatory - Independent.", "Ambulatory - requires assistance or aid (walker or cane).")
    )
    page.put(f"Activity Status: {walks}", "\n\n")
    page.put("Discharge Instructions:")
    page.put(f"Dear {'Ms.' if case.woman else 'Mr.'} ___,")
    for line in text.INSTRUCTIONS[:: 2 if case.size < 1.4 else 1]:
        page.put(line.format(lay=condition.lay))
    page.end_line(blank=True)
    page.put("Followup Instructions:")
    page.put(
        f"{_capital(condition.clinic)}: in {case.truths_of('followup')[0].value[0]}", "\n", ("followup", True)
    )


def discharge_note(
    index: int,
    *,
    seed: int = 0,
    front_loading: float = 0.5,
    redundancy: float = 0.5,
    length: float = 1.0,
    with_course: bool = True,
) -> Note:
    """The note of an index: the same bytes on every machine.

    Args:
        front_loading: probability that a fact is stated in the summary at the top; else it is stated only late.
        redundancy: probability that each further place (each day's progress note, the course) restates a fact.
        length: scale of the size; 1 has a median near 2,000 tokens of SmolLM2.
        with_course: keep the section "Brief Hospital Course"; a summary task leaves it out, as it is the answer.
    """
    draw = Draw(f"{seed}:{index}")
    case = _case(draw, front_loading, length)
    page = Page()
    writer = Writer(case, draw)
    late = [truth for truth in case.truths if not truth.front]
    last_day = [truth for truth in late if draw.chance(0.4)]
    tail = Page()  # written first: the progress notes fill what the other sections leave of the note's size
    _closing(tail, writer, [truth for truth in late if truth not in last_day], redundancy, with_course)
    _opening(page, writer, redundancy)
    _progress(page, writer, last_day, redundancy, MEDIAN_CHARACTERS * case.size - page.at - tail.at)
    document = "".join(page.parts + tail.parts)
    course = _course(Writer(case, Draw(f"{seed}:{index}:course")), 1.0)
    return Note(
        f"n{index:04d}",
        document,
        "".join(course.parts).strip(),
        case.truths,
        (*page.statements, *tail.shifted(page.at)),
    )
