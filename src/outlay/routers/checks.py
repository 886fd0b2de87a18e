"""What can be known to go wrong with a router: each check gives the sentences to show, with its numbers, or none."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import log2

from outlay.inflation import cannot_fire

FEW = 20
"""Failures (or successes) below which a tier's fit says little (ours)."""


def unreachable(utility: Mapping[str, float], direct: Mapping[str, float], attempts: int) -> list[str]:
    """Tiers that the exchange rate can never choose first, however hard the query (ours).

    utility: U(m); direct: mean cost of one call; attempts: the most that a query may take, and so its inflation.
    A tier wins only if its U / cost at inflation 1 passes another's at the largest inflation.
    """
    found = []
    for tier, worth in utility.items():
        rivals = {
            other: utility[other] / (direct[other] * attempts)
            for other in utility
            if other != tier and direct[other] > 0
        }
        if not rivals or direct[tier] <= 0:
            continue
        rival = max(rivals, key=rivals.__getitem__)
        if worth / direct[tier] <= rivals[rival]:
            ratio = direct[tier] / direct[rival]
            most = attempts * worth / utility[rival] if utility[rival] else 0.0
            found.append(
                f"tier {tier} can never be chosen by its exchange rate: a call costs {ratio:.1f} times one on {rival}, and "
                f"with at most {attempts} attempts only a ratio below {most:.1f} can pay ({attempts} x U {worth:.2f} / "
                f"{utility[rival]:.2f}). Use router=lagrangian"
            )
    return found


def dead_zone(predicted: Sequence[float], factor: float, attempts: int) -> list[str]:
    """The share of queries for which observed inflation cannot pass factor x predicted, if attempts cost alike."""
    dead = sum(cannot_fire(one, factor, attempts) for one in predicted)
    if not dead:
        return []
    return [
        f"the {factor:g}x rule cannot fire on {dead} of {len(predicted)} tune queries ({dead / len(predicted):.0%}): "
        f"their predicted inflation is {attempts / factor:.2f} or more, and {attempts} attempts are allowed. "
        "Use router.escalate.rule=index, or more retry.max_attempts"
    ]


def never_fires(factor: float, attempts: int) -> list[str]:
    """Of the options alone: predicted inflation is at least 1, and attempts of like cost inflate by their number."""
    if not cannot_fire(1.0, factor, attempts):
        return []
    return [
        f"the {factor:g}x rule can never fire: {attempts} attempts inflate a bill by about {attempts} at most. "
        "Raise retry.max_attempts, lower router.escalate.factor, or use router.escalate.rule=index"
    ]


def repeats(attempts: int, temperature: float, option: str) -> list[str]:
    """Fresh attempts on one tier at temperature 0: each is the first, word for word."""
    if temperature > 0 or attempts <= 1:
        return []
    return [
        f"{option}={attempts} at temperature 0: every attempt on a tier repeats the first word for word, and is paid for. "
        f"Use a temperature above 0 (retry.temperature=0.7), or {option}=1"
    ]


def probe_saves(probe: float, with_probe: float, without: float, unit: str) -> list[str]:
    """Whether a probe costs more than what it saves: expected costs a query of the choices with and without it."""
    saving = without - with_probe
    if probe <= 0 or probe <= saving:
        return []
    return [
        f"the probe costs {probe:.4g} {unit} a query and saves {saving:.4g} ({without:.4g} without it, {with_probe:.4g} "
        "with it, probe left out). Use probe=none, a smaller probe.k, or probe.reuse=true"
    ]


def entropy_levels(k: int) -> int:
    """How many values the entropy of k answers can take: 3 for k = 3, 7 for 5, 39 for 10."""
    return len({round(sum(n / k * log2(k / n) for n in parts), 9) for parts in _partitions(k, k)})


def few_entropies(k: int) -> list[str]:
    levels = entropy_levels(k)
    if levels > 3:
        return []
    return [
        f"probe.k={k}: CBE takes {levels} values only, and agreement tells the same; k=5 gives {entropy_levels(5)}"
    ]


def few_failures(counts: Mapping[str, tuple[float, float]], least: int = FEW) -> list[str]:
    """counts: by tier, failures and attempts of the train split."""
    found = []
    for tier, (failures, made) in counts.items():
        kind, rarer = (
            ("failures", failures) if failures <= made - failures else ("successes", made - failures)
        )
        if rarer < least:
            found.append(
                f"tier {tier}: {rarer:g} {kind} in {made:g} train attempts; a fit on fewer than {least} says little. "
                "Raise dataset.fit_limit or router.samples"
            )
    return found


def not_rehearsed(verifier: str | None, known: Collection[str]) -> list[str]:
    """A stop rule whose verdicts were not recorded while exploring, so that its retries cannot be played."""
    if verifier is None or verifier in known:
        return []
    return [
        f"retry.verifier={verifier} is not asked on the train split, so U and inflation are those of one attempt. "
        "Use router.predictor, or retry.verifier=agreement"
    ]


def budget_missed(budget: float, expected: float, unit: str) -> list[str]:
    """A mean budget below what the cheapest choice costs."""
    if expected <= budget * (1 + 1e-6):
        return []
    return [
        f"router.mean_cost: {budget:.4g} {unit} a query cannot be kept; the cheapest way costs {expected:.4g} on the tune split"
    ]


def _partitions(total: int, largest: int) -> Iterator[tuple[int, ...]]:
    if total == 0:
        yield ()
    for first in range(min(total, largest), 0, -1):
        for rest in _partitions(total - first, first):
            yield (first, *rest)
