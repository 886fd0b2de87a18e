"""Which metrics a run reports, and the run's metrics from its predictions and its ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outlay.schema import option
from outlay.score.correct import SCORERS

if TYPE_CHECKING:
    import numpy as np

    from outlay.generate import Tally


@dataclass(frozen=True)
class Metrics:
    """choice: auto takes the data set's own set; bertscore_model: a folder or hub id, null the packaged MiniLM."""

    choice: str = option("auto", choices=("auto", "qa", "summary", "all"))
    bertscore_model: str | None = None
    scorer: str = option("outlay", choices=SCORERS)  # when an answer counts as right; see `score.correct`
    resamples: int = option(2000, least=100)  # of the bootstrap


def run_metrics(
    predictions: Sequence[Mapping[str, Any]],
    lines: Sequence[Mapping[str, Any]],
    tally: "Tally",
    skipped: int,
    resamples: int,
    seed: int,
) -> dict[str, float]:
    """Every metric of DESIGN section 4 that the run has, by name; not-a-number where a mean has no cases.

    Args:
        predictions: one mapping per example, as in predictions.jsonl, plus `context` and `solved`.
        lines: the ledger's numbers, one mapping per line.
    """
    import numpy as np

    from outlay.score.statistics import interval, ratio_of_means, share

    out: dict[str, float] = {}
    documents = [one["document"] for one in predictions]
    names = dict.fromkeys(name for one in predictions for name in one["metrics"])
    for name in names:
        values = np.array([one["metrics"].get(name, np.nan) for one in predictions], float)
        mean, low, high = share(values, resamples=resamples, seed=seed, clusters=documents)
        out |= {f"quality/{name}": mean, f"quality/{name}_lo": low, f"quality/{name}_hi": high}

    def column(key: str, rows: Sequence[Mapping[str, Any]] = predictions) -> "np.ndarray":
        return np.array([np.nan if row[key] is None else row[key] for row in rows], float)

    with_document = [one for one in predictions if one["document_tokens"]]
    if with_document:
        tokens = column("context_tokens", with_document)
        out["context/tokens_mean"] = float(tokens.mean())
        out["context/tokens_max"] = float(tokens.max())
        out["context/compression"] = float(tokens.sum() / column("document_tokens", with_document).sum())
        for name in ("optimality", "phi", "rho"):
            values = np.array([one["context"].get(name, np.nan) for one in with_document], float)
            if not np.isnan(values).all():
                out[f"context/{name}{'_mean' if name == 'optimality' else ''}"] = float(np.nanmean(values))
                if name == "optimality":
                    out["context/optimality_min"] = float(np.nanmin(values))

    tokens = column("tokens")
    per_query = interval(tokens, resamples=resamples, seed=seed)
    spent = {
        kind: sum(line["tokens"] for line in lines if line["kind"] == kind) for kind in ("probe", "attempt")
    }
    first = sum(line["tokens"] for line in lines if line["attempt"] == 1 and line["kind"] == "attempt")
    correct = sum(bool(one["correct"]) for one in predictions)
    waits = [line["latency_s"] for line in lines if line["kind"] != "verify" and not line["error"]]
    out |= {
        "cost/tokens_total": float(sum(line["tokens"] for line in lines)),
        "cost/tokens_prompt": float(sum(line["prompt_tokens"] for line in lines)),
        "cost/tokens_completion": float(sum(line["completion_tokens"] for line in lines)),
        "cost/tokens_probe": float(spent["probe"]),
        "cost/tokens_retry": float(spent["attempt"] - first),
        "cost/tokens_per_query": per_query.value,
        "cost/tokens_per_query_lo": per_query.lo,
        "cost/tokens_per_query_hi": per_query.hi,
        "cost/usd_total": float(sum(line["usd"] for line in lines)),
        "cost/cost_units_total": float(sum(line["cost_units"] for line in lines)),
        "cost/latency_p50": float(np.percentile(waits, 50)) if waits else float("nan"),
        "cost/latency_p95": float(np.percentile(waits, 95)) if waits else float("nan"),
    }
    if any(one["correct"] is not None for one in predictions):
        right = np.array([bool(one["correct"]) for one in predictions], float)
        # Right answers a token have an interval also where a resample has none; its ends, inverted, are these.
        each = ratio_of_means(right, tokens, resamples=resamples, seed=seed)
        out |= {
            "cost/per_correct": out["cost/tokens_total"] / correct if correct else float("inf"),
            "cost/per_correct_lo": 1 / each.hi if each.hi else float("inf"),
            "cost/per_correct_hi": 1 / each.lo if each.lo else float("inf"),
        }

    ratios = column("inflation")
    known = ~np.isnan(ratios)
    if known.any():
        solved = np.array([bool(one["solved"]) for one in predictions])
        real, direct = column("attempt_tokens"), column("direct_tokens")
        parts = {
            "mean": interval(ratios[known], resamples=resamples, seed=seed),
            "ratio_of_means": ratio_of_means(real[known], direct[known], resamples=resamples, seed=seed),
            "share_ge_2": share((ratios[known] >= 2).astype(float), resamples=resamples, seed=seed),
            "share_exhausted": share((~solved[known]).astype(float), resamples=resamples, seed=seed),
            "solved": interval(ratios[known & solved], resamples=resamples, seed=seed),
            "exhausted": interval(ratios[known & ~solved], resamples=resamples, seed=seed),
        }
        for name, one in parts.items():
            out |= {
                f"inflation/{name}": one.value,
                f"inflation/{name}_lo": one.lo,
                f"inflation/{name}_hi": one.hi,
            }
        out |= {
            "inflation/p50": float(np.percentile(ratios[known], 50)),
            "inflation/p95": float(np.percentile(ratios[known], 95)),
        }
        if retries := sum(
            one["retries"] for one in predictions
        ):  # word for word as before: nothing was bought
            out["inflation/identical_attempts"] = sum(one["identical"] for one in predictions) / retries
    entropies = column("cbe")
    if not np.isnan(entropies).all():
        mean, low, high = interval(entropies[~np.isnan(entropies)], resamples=resamples, seed=seed)
        out |= {"probe/cbe_mean": mean, "probe/cbe_mean_lo": low, "probe/cbe_mean_hi": high}
    out |= {
        "cache/hits": float(tally.hits),
        "cache/misses": float(tally.misses),
        "cache/generated_tokens": float(tally.generated_tokens),
        "data/examples": float(len(predictions)),
        "data/documents": float(len(set(documents))),
        "data/skipped_rows": float(skipped),
        "data/cut_replies": float(sum(line["finish_reason"] == "length" for line in lines)),
        "data/failed_calls": float(sum(bool(line["error"]) for line in lines)),
    }
    return out
