"""Reflexion's trial logs on HotpotQA: the same questions over several trials (Shinn et al. 2023, hotpotqa_runs/root).

An agent that was right is not run again, and is printed again in every later trial: it has no more samples. What an
environment said of an answer is cut from the text, since no policy may see gold.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from outlay.errors import ConfigError, DataError
from outlay.imports.log import Log, Options, Question, Reply, digest, sources

PATTERN = r"Finish\[(.*)\]"
CONTEXTS = {"base": "fresh", "last_trial": "carry", "reflexion": "reflect"}
"""What a retry was shown, by the word in the file's name."""

_TRIAL = re.compile(r"#{20,}\nBEGIN TRIAL (\d+)\nTrial summary: Correct: (\d+),[^\n]*\n#{20,}\n")
_SECTION = re.compile(r"-{5,} BEGIN (CORRECT|INCORRECT|HALTED) AGENTS -{5,}\n")
_AGENT = re.compile(r"(.*?)\nCorrect answer: ([^\n]*)\n(?:\n|\Z)", re.DOTALL)
_SAID = re.compile(r"\nObservation(?: \d+)?: Answer is (?:IN)?CORRECT[^\n]*")
_STEPS = re.compile(r"\n(?=Thought(?: 1)?:)")
_SHOWN = re.compile(r"\nReflections: *")  # the log prints what a trial was shown after its own steps


def read(paths: Sequence[str], options: Options) -> Log:
    """<what>_<n>_questions_<n>_trials.txt. The model's name is not in the log: --tier says it."""
    log = Log("span", pattern=PATTERN)
    for path in sources(paths, "*_trials.txt"):
        trials = list(_trials(path))
        context = options.context or _context(path)
        if context == "reflect":
            log.notes.append("The log does not hold the reflections: their tokens are not counted.")
        solved: set[str] = set()
        for trial, (number, claimed, body) in enumerate(trials):
            seen: set[str] = set()
            for flagged, head, text, gold in _agents(path, number, body):
                question = Question(f"hotpot-{digest(head, gold)}", head, (gold,))
                if question.id in seen:
                    continue  # an agent that gave up on its last step is printed as wrong and as halted
                seen.add(question.id)
                log.ask(question, f"{path}: trial {number}")
                if question.id in solved:
                    continue
                own, shown = _own(text)
                after = context if trial else "fresh"
                tier = options.tier or "recorded"
                said = float(flagged == "CORRECT")
                log.replies.append(
                    Reply(question.id, tier, own, said, after, shown if after != "fresh" else "")
                )
                if said:
                    solved.add(question.id)
            if len(solved) != claimed:
                raise DataError(
                    f"{path}: trial {number}: {len(solved)} agents have been right, and its summary says {claimed}"
                )
    return log


def _context(path: Path) -> str:
    for word, context in CONTEXTS.items():
        if word in path.name:
            return context
    raise ConfigError(
        f"{path.name} does not say what its retries were shown ({', '.join(CONTEXTS)}): "
        "give --context fresh, carry or reflect"
    )


def _trials(path: Path) -> Iterator[tuple[int, int, str]]:
    """(number, how many agents are said to have been right by its end, text) of each trial."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 (byte {error.start})") from error
    parts = _TRIAL.split(text)
    if len(parts) == 1:
        raise DataError(f"{path}: line 1: no 'BEGIN TRIAL'; this is no Reflexion log")
    for number, correct, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        yield int(number), int(correct), body


def _agents(path: Path, trial: int, body: str) -> Iterator[tuple[str, str, str, str]]:
    """(section, what was asked, the agent's steps, gold) of each agent of a trial."""
    sections = _SECTION.split(body)
    for name, text in zip(sections[1::2], sections[2::2], strict=True):
        rest = _AGENT.sub("", text).strip()
        if rest:
            raise DataError(f"{path}: trial {trial}: an agent has no 'Correct answer': {rest[:40]!r}")
        for block, gold in _AGENT.findall(text):
            head, *steps = _STEPS.split(block, maxsplit=1)
            if not steps:
                raise DataError(f"{path}: trial {trial}: an agent has no steps: {head.strip()[:40]!r}")
            yield name, head.strip().removeprefix("Context: \n").strip(), steps[0], gold.strip()


def _own(text: str) -> tuple[str, str]:
    """(the trial's own steps, what it was shown of the one before), without what was said of their answers."""
    own, *shown = (_SAID.sub("", part).strip() for part in _SHOWN.split(f"\n{text}", maxsplit=1))
    return own, "\n".join(shown)
