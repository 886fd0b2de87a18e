"""`outlay report` on a small sweep of its own: files, sources, filters, refusals, what stays private."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from outlay.errors import ConfigError
from outlay.record import Ended
from outlay.report.ablation import ablation_rows
from outlay.report.command import filtered, latest, report
from outlay.report.comparison import comparison_rows, few, floored
from outlay.report.page import as_script, charts, read_markdown
from outlay.report.page.browser import gather
from outlay.report.page.charts import SPECS, figure, ticks
from outlay.report.sheets import Cell, Sheet, escaped, latex, markdown, names
from outlay.track import Kept


def outlay(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "outlay", *words],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "150"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


SWEEP = (
    "generator=extract",
    "dataset.limit=10",
    "dataset.questions=1",
    "selector=lead,mmr",
    "budget.tokens=64,256",
    "tracking.experiment=tiny",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep of four points, none of which asks a model."""
    folder = tmp_path_factory.mktemp("swept")
    outlay("-m", *SWEEP, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def made(swept: Path) -> Iterator[Path]:
    """Its report."""
    out = swept / "report"
    assert (
        report(["--sweep", "last", "--out", str(out), "--output-dir", str(swept / "multirun_outputs")]) == 0
    )
    yield out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_table_has_its_forms_and_every_figure_its_data(made: Path) -> None:
    for name in ("overview", "comparison", "ablation"):
        assert (made / f"{name}.md").is_file() and (made / f"{name}.tex").is_file()
    for figure_of in made.glob("*.png"):
        assert figure_of.with_suffix(".svg").is_file()
        assert figure_of.with_suffix(".csv").is_file(), figure_of.name


def test_every_table_has_its_data(made: Path) -> None:
    assert {path.stem for path in made.glob("*.md")} <= {path.stem for path in made.glob("*.csv")}
    whole = {row["run_id"]: row for row in rows(made / "results.csv")}
    for row in rows(made / "overview.csv"):
        assert row["quality/fact_recall_lo"] == whole[row["run_id"]]["quality/fact_recall_lo"]
        assert row["budget.tokens"] == whole[row["run_id"]]["budget.tokens"]


def test_every_row_names_its_runs(made: Path) -> None:
    sources = json.loads((made / "sources.json").read_text())
    known = {run["run_id"] for run in sources["runs"]}
    assert len(known) == 4
    for path in [*made.glob("*.csv"), *made.glob("*.md"), *made.glob("*.tex")]:
        listed = sources["files"][path.name]
        assert listed and all(row and set(row) <= known for row in listed), path.name
        if path.suffix == ".csv":
            assert len(listed) == len(rows(path))
    for run_id in known:
        assert run_id in (made / "report.html").read_text()


def test_pairs_and_factors_agree_with_the_runs(made: Path) -> None:
    quality = {row["run_id"]: float(row["quality/fact_recall"]) for row in rows(made / "results.csv")}
    pairs = rows(made / "comparison.csv")
    assert len(pairs) == 4 * 3 / 2
    for row in pairs:
        gap = quality[row["first_run"]] - quality[row["second_run"]]
        assert float(row["difference"]) == pytest.approx(gap)
        assert float(row["p"]) <= float(row["p_holm"]) <= 1
    (selector,) = (row for row in rows(made / "ablation.csv") if row["factor"] == "selector")
    own = {row["run_id"]: row for row in rows(made / "results.csv")}
    gaps = [
        quality[one] - quality[other]
        for one in own
        for other in own
        if own[one]["selector"] == "mmr" and own[other]["selector"] == "lead"
        and own[one]["budget.tokens"] == own[other]["budget.tokens"]
    ]  # fmt: skip
    assert int(selector["contexts"]) == len(gaps) == 2
    assert float(selector["effect"]) == pytest.approx(sum(gaps) / 2)
    assert float(selector["effect_lo"]) <= float(selector["effect"]) <= float(selector["effect_hi"])


def test_the_page_asks_nothing_of_a_network_and_holds_each_document_once(made: Path) -> None:
    page = (made / "report.html").read_text()
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page)
    assert "http" not in re.sub(
        r"<script type=\"application/json\".*?</script>", "", page, flags=re.S
    ).replace("http-equiv", "")
    held = re.search(r"id=\"data\">(.*?)</script>", page, re.S)
    assert held
    data = json.loads(held[1])
    assert len(data["documents"]) == len(set(data["documents"])) == 10
    assert len(data["answers"]) == 4 * 10
    for answer in data["answers"]:
        document = data["documents"][data["examples"][answer["example"]]["document"]]
        kept = " ".join(document[start:end] for start, end in answer["spans"])
        # The context is the answer here: what is marked as kept is what was sent.
        assert kept.split()[:5] == answer["reply"].split()[:5]
        assert (
            sum(call["prompt_tokens"] + call["completion_tokens"] for call in answer["calls"])
            == answer["tokens"]
        )


def test_filters_and_baselines(swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--output-dir", str(swept / "multirun_outputs")]
    words = ["--experiment", "tiny", "--filter", "budget.tokens=64", "--out", str(tmp_path), *store]
    report(words)
    assert "2 runs" in capsys.readouterr().out
    assert {row["selector"] for row in rows(tmp_path / "results.csv")} == {"lead", "mmr"}
    report(["--against", "selector=lead", "--out", str(tmp_path / "against"), *store])
    pairs = rows(tmp_path / "against" / "comparison.csv")
    # Each with the lead of its own budget.
    assert [(row["first"], row["second"]) for row in pairs] == [
        ("mmr · budget 64", "lead · budget 64"),
        ("mmr · budget 256", "lead · budget 256"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sweep", "2026"], "no such sweep"),
        (["--experiment", "tinny"], "Did you mean 'tiny'"),
        (["--filter", "budget.token=64"], "Did you mean 'budget.tokens'"),
        (["--filter", "budget.tokens=65"], "It is one of: 256, 64"),
        (["--filter", "budget"], "expected KEY=VALUE"),
        (["--against", "selector=rcd"], "no run of the report has these settings"),
        (["--swep", "last"], "report: unrecognized arguments: --swep"),
    ],
)
def test_refusals_name_the_way_out(swept: Path, tmp_path: Path, words: list[str], said: str) -> None:
    given = [*words, "--out", str(tmp_path / "out"), "--output-dir", str(swept / "multirun_outputs")]
    with pytest.raises(ConfigError, match=re.escape(said)):
        report(given)


def test_runs_whose_folder_is_gone_are_read_from_the_tracking_store(
    swept: Path, made: Path, tmp_path: Path
) -> None:
    """The same numbers, and the same page data, as from the folders."""
    (home,) = (swept / "multirun_outputs" / "tiny").iterdir()
    aside = home.rename(tmp_path / "aside")
    try:
        report(["--out", str(tmp_path / "out"), "--output-dir", str(swept / "multirun_outputs")])
    finally:
        aside.rename(home)
    for name in ("comparison.csv", "ablation.csv", "accuracy_over_cost.csv"):
        assert rows(tmp_path / "out" / name) == rows(made / name)
    held = [
        re.search(r"id=\"data\">(.*?)</script>", (folder / "report.html").read_text(), re.S)
        for folder in (made, tmp_path / "out")
    ]
    assert held[0] and held[1] and held[0][1] == held[1][1]
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4


def test_private_runs_keep_their_texts(tmp_path: Path) -> None:
    """From the folder the numbers; not one text of it on the page. Without the folder, the metrics' tables."""
    outlay(
        "-m",
        *SWEEP[:3],
        "selector=lead,mmr",
        "tracking.log_text=false",
        "tracking.experiment=secret",
        cwd=tmp_path,
    )
    store = ["--output-dir", str(tmp_path / "multirun_outputs")]
    report(["--out", str(tmp_path / "here"), *store])
    page = (tmp_path / "here" / "report.html").read_text()
    assert "2 of 2 runs are private" in page
    assert '"documents": []' in page and '"answers": []' in page
    assert rows(tmp_path / "here" / "comparison.csv")
    (home,) = (tmp_path / "multirun_outputs" / "secret").iterdir()
    home.rename(tmp_path / "gone")
    report(["--out", str(tmp_path / "there"), *store])
    assert (tmp_path / "there" / "overview.md").read_text() == (tmp_path / "here" / "overview.md").read_text()
    assert not (tmp_path / "there" / "comparison.csv").exists()
    assert "private" in (tmp_path / "there" / "report.html").read_text()


# ---------------------------------------------------------------- parts


def kept(run_id: str, started: int = 0, **params: str) -> Kept:
    return Kept(
        run_id, run_id, "e", "s", "0", started, params, {"config_hash": params.get("hash", run_id)}, {}
    )


def test_of_runs_with_one_config_the_latest_counts() -> None:
    runs = [kept("a", 1, hash="x"), kept("b", 3, hash="y"), kept("c", 2, hash="x")]
    found, left_out = latest(runs)
    assert [run.run_id for run in found] == ["c", "b"] and left_out == 1


def test_values_of_one_key_are_alternatives_and_keys_are_conditions() -> None:
    runs = [kept("a", k="1", m="x"), kept("b", k="2", m="x"), kept("c", k="3", m="y")]
    assert [run.run_id for run in filtered(runs, ["k=1,3"])] == ["a", "c"]
    assert [run.run_id for run in filtered(runs, ["k=1", "k=2", "m=x"])] == ["a", "b"]


HOSTILE = "</script><script>alert(1)</script><!-- \" ' & \0 \u2028 \ud800"


def test_a_hostile_text_stays_a_text() -> None:
    held = as_script({"text": HOSTILE})
    assert "<" not in held and ">" not in held and "\0" not in held
    assert json.loads(held)["text"] == HOSTILE


def test_latex_prints_what_it_is_given() -> None:
    sheet = Sheet(
        "t",
        "50 % of a_b",
        ("a & b", "c"),
        ((Cell("x_1 * {y}"), Cell("≥ 3 % [−1, ∞]")),),
        (("run1",),),
        ("# note",),
    )
    text = latex(sheet)
    assert r"a \& b & c \\" in text and r"x\_1 \textsuperscript{*} \{y\}" in text
    assert r"$\geq$ 3 \% [$-$1, $\infty$]" in text and r"50 \% of a\_b" in text
    assert "% runs: run1" in text and r"\toprule" in text and r"\bottomrule" in text
    assert escaped("\\~^") == r"\textbackslash{}\textasciitilde{}\textasciicircum{}"


def test_markdown_is_read_back_as_written(tmp_path: Path) -> None:
    sheet = Sheet("t", "Title", ("a", "b|c"), ((Cell("x *"), Cell("1 | 2")),), (("r",),), ("note *",))
    path = tmp_path / "t.md"
    path.write_text(markdown(sheet))
    text = read_markdown(path)
    assert text.title == "Title"
    assert [[cell.text for cell in row] for row in text.blocks[0][1]] == [["a", "b|c"], ["x *", "1 | 2"]]
    assert text.blocks[1] == ("item", "note *")


@dataclass(frozen=True)
class Answered:
    """A run with made-up answers."""

    right: tuple[int, ...]
    settings: dict[str, object]
    documents: tuple[str, ...] = ()


def written(folder: Path, run: Answered) -> Ended:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    ids = [f"q{at}" for at in range(len(run.right))]
    with (folder / "predictions.jsonl").open("w") as file:
        for at, (name, right) in enumerate(zip(ids, run.right, strict=True)):
            document = run.documents[at] if run.documents else name
            one = {
                "id": name,
                "document": document,
                "correct": bool(right),
                "tier": "t",
                "tokens": 10,
                "usd": 0.0,
            }
            file.write(json.dumps({**one, "context_tokens": 0, "metrics": {"accuracy": float(right)}}) + "\n")
    lines = {"example_id": ids, "kind": ["attempt"] * len(ids), "cost_units": [1.0] * len(ids)}
    tokens = {"prompt_tokens": [6] * len(ids), "completion_tokens": [4] * len(ids)}
    pq.write_table(pa.table(lines | tokens), folder / "ledger.parquet")
    metrics = {"quality/accuracy": sum(run.right) / len(run.right)}
    return Ended(
        folder.name, "FINISHED", {"retry": run.settings}, {"dataset": "d"}, metrics, str(folder), folder.name
    )


def test_a_comparison_is_the_exact_test_of_what_was_won_and_lost(tmp_path: Path) -> None:
    base = written(tmp_path / "a", Answered((1, 0, 0, 0, 0, 0, 0, 0, 0, 0), {"k": 1}))
    better = written(tmp_path / "b", Answered((0, 1, 1, 1, 1, 1, 1, 1, 0, 0), {"k": 2}))
    (row,) = comparison_rows([base, better])
    assert (row.gains, row.losses, row.test) == (7, 1, "McNemar")
    assert row.p == pytest.approx(2 * 9 / 2**8) and row.difference == pytest.approx(0.6)
    assert row.difference_lo < 0.6 < row.difference_hi


def test_one_document_is_one_document() -> None:
    assert few([1, 40]) == ["Only 1 document in some rows: their intervals are too narrow."]
    assert few([2, 40])[0].startswith("Only 2 documents in")


def test_few_documents_prove_nothing(tmp_path: Path) -> None:
    """Ten questions on two documents, all won: a sign-flip test over two documents cannot go below one half."""
    documents = ("x",) * 5 + ("y",) * 5
    points = [written(tmp_path / str(k), Answered((k,) * 10, {"k": k}, documents)) for k in (0, 1)]
    (row,) = comparison_rows(points)
    assert (row.test, row.documents, row.p) == ("bootstrap", 2, 0.5)
    assert ablation_rows(points)[0].p == 0.5
    assert floored(0.001, 100) == 0.001


def test_a_factor_is_compared_only_where_all_else_is_equal(tmp_path: Path) -> None:
    """k=2 was run under m=1 alone; its effect is the mean of that context, not of all runs."""
    grid = {(1, 1): (0, 0, 0, 1), (2, 1): (1, 1, 0, 1), (1, 2): (1, 1, 1, 1)}
    points = [
        written(tmp_path / f"{k}{m}", Answered(right, {"k": k, "m": m})) for (k, m), right in grid.items()
    ]
    found = {(row.factor, row.value): row for row in ablation_rows(points)}
    assert set(found) == {("retry.k", "2"), ("retry.m", "2")}
    assert found["retry.k", "2"].effect == pytest.approx(0.5) and found["retry.k", "2"].contexts == 1
    assert found["retry.m", "2"].effect == pytest.approx(0.75)
    assert set(found["retry.k", "2"].run_ids.split()) == {"11", "21"}


def test_a_name_has_no_setting_that_tells_nothing(tmp_path: Path) -> None:
    points = [
        Ended(
            f"r{at}", "FINISHED", {"retry": {"k": k, "same_as_k": 10 * k}}, {"dataset": "d"}, {}, "", str(at)
        )
        for at, k in enumerate((1, 2, 3))
    ]
    found = names(points)
    assert len(set(found.values())) == 3 and all("·" not in name for name in found.values())
    starred = names([replace(points[0], oracle=True), *points[1:]])
    assert starred["0"].endswith("*") and not starred["1"].endswith("*")


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 100), (3, 3), (-0.04, 0.3), (1e-6, 2e-6), (0, 123456)])
def test_ticks_are_few_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 1 <= len(found) <= 8
    assert all(low - 1e-9 <= one <= high + 1e-9 for one in found)


def test_a_chart_draws_every_row_and_escapes_names(tmp_path: Path) -> None:
    path = tmp_path / "retry_curves.csv"
    lines = ["dataset,setting,attempts,solved,solved_lo,solved_hi,voted,inflation,run_id"]
    lines += [
        f'd,"<b>&""{name}""",{k},{k / 10},{k / 20},{k / 5},0.1,1.5,run{name}'
        for name in "ab"
        for k in (1, 2, 3)
    ]
    path.write_text("\n".join(lines) + "\n")
    found = figure(path)
    assert found and found.title == SPECS["retry_curves"].title
    ((_, svg),) = found.panels
    assert svg.count('class="pt"') == 6 and svg.count('tabindex="0"') == 1
    assert "<b>" not in svg and "&lt;b&gt;&amp;" in svg
    assert "solved *: 30 % [15, 60]" in svg


def test_gather_reads_no_text_of_an_unknown_data_set() -> None:
    """A run whose data set is not known here may be credentialed: its texts are left out."""
    unknown = Ended("r", "FINISHED", {"dataset": {"_target_": "outlay.data.gone.Gone"}}, {}, {}, "", "r")
    found = gather([unknown])
    assert not found.answers and "private" in found.notes[0]


def test_a_report_of_the_last_sweep_says_what_else_there_is(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(swept / "multirun_outputs", tmp_path / "multirun_outputs")
    outlay("-m", *SWEEP[:-1], "budget.tokens=32", "tracking.experiment=other", cwd=tmp_path)
    here = ["--output-dir", str(tmp_path / "multirun_outputs")]
    assert report(["--out", str(tmp_path / "a"), *here]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 runs,")
    assert said.splitlines()[-1] == "1 other sweep is not in it: --experiment tiny, or --sweep all"
    for words in (["--experiment", "tiny,other"], ["--experiment", "tiny", "other"], ["--sweep", "all"]):
        assert report([*words, "--out", str(tmp_path / "b"), *here]) == 0
        said = capsys.readouterr().out
        assert said.startswith("6 runs,") and "not in it" not in said


def test_marks_are_explained_only_where_one_stands(made: Path) -> None:
    assert "explained at the top" not in (made / "report.html").read_text()


def test_a_tuned_sweep_says_its_trials_and_what_was_held_out(tmp_path: Path) -> None:
    outlay(
        *("-m", "experiment=tune", "tune.trials=4", "tune.batch=4", "dataset.limit=6"),
        *("selector=lead,mmr", "budget.tokens=interval(32,256)", "tracking.experiment=searched"),
        cwd=tmp_path,
    )
    out = tmp_path / "report"
    assert report(["--out", str(out), "--output-dir", str(tmp_path / "multirun_outputs")]) == 0
    (trials_csv,) = (tmp_path / "multirun_outputs").glob("searched/*/trials.csv")
    found = {row["run_id"]: row for row in rows(trials_csv)}
    searched = rows(out / "overview_trials.csv")
    assert {row["run_id"] for row in searched} == set(found)
    for row in searched:
        own = found[row["run_id"]]
        assert row["run"].startswith(f"trial {own['trial']} · ")
        assert f"budget {own['budget.tokens']}" in row["run"] and "split" not in row["run"]
    front = {row["run_id"]: row for row in rows(out / "pareto.csv")}
    held = rows(out / "overview_held_out.csv")
    assert {row["run_id"] for row in held} == {run for run, row in front.items() if row["held_out"] == "True"}
    for row in held:
        assert row["run"].startswith(f"trial {front[row['run_id']]['trial']} held out · ")
    assert {row["run_id"] for row in rows(out / "quality_over_cost.csv")} == {row["run_id"] for row in held}
    page = (out / "report.html").read_text()
    assert "the front, held out" in page and 'id="figure-pareto"' in page
    assert "held-out runs;" in page


def test_colours_of_a_page_are_as_many_as_it_counts(made: Path) -> None:
    style = (Path(charts.__file__).parent / "report.css").read_text()
    themes = [re.findall("#[0-9a-f]{6}", part.split("--grey")[0]) for part in style.split("--c0")[1:]]
    assert len([theme for theme in themes if theme]) == 3  # light, dark by hand, dark by the system
    assert all(len(set(theme)) == len(theme) == charts.COLORS for theme in themes if theme)
    assert {f"c{at}" for at in range(charts.COLORS)} == set(re.findall(r"\.(c\d) \{", style))
