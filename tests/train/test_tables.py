"""Tables of an evaluation: right figures, and narrow enough for 80 columns."""

from io import StringIO

from rich.console import Console

from glmv.train.tables import EvalRow, Figures, cell_table, domain_table, summary_table


def figures(mean: float, greedy: float, n: int = 48) -> Figures:
    return Figures(n=n, mean=mean, greedy=greedy, best=0.9, format=0.995, length=15.04, chance=0.333)


def checkpoint(name: str, mean: float) -> EvalRow:
    domains = {"grounding": figures(mean, 1.0)}
    cells = {"grounding/box/0": figures(mean, 1.0, 16), "grounding/photo/1": figures(mean, 1.0, 16)}
    return EvalRow(name, figures(mean, 0.5), domains, cells)


def text(table: object) -> list[str]:
    console = Console(width=80, file=StringIO())
    with console.capture() as captured:
        console.print(table)
    return [" ".join(line.split()) for line in captured.get().splitlines()]


ROWS = [checkpoint("after SFT", 0.412), checkpoint("after more SFT", 0.725), checkpoint("after RL", 0.6567)]


def test_domain_table_shows_figures_and_the_gain() -> None:
    lines = text(domain_table(ROWS, ("after SFT", "after RL")))
    assert "grounding 48 33.3 41.2 (100) 72.5 (100) 65.7 (100) +24.5" in lines
    assert "all 48 33.3 41.2 (50) 72.5 (50) 65.7 (50) +24.5" in lines


def test_cell_table_has_a_row_for_each_task_and_level() -> None:
    lines = text(cell_table(ROWS, ("after SFT", "after RL")))
    assert "grounding/box/0 16 33.3 41.2 (100) 72.5 (100) 65.7 (100) +24.5" in lines
    assert any(line.startswith("grounding/photo/1 16") for line in lines)


def test_summary_names_the_samples() -> None:
    lines = text(summary_table(ROWS, 8))
    assert "checkpoint mean reward greedy pass@8 format valid tokens" in lines
    assert "after SFT 41.2 50.0 90.0 99.5 15.0" in lines


def test_one_checkpoint_has_no_gain() -> None:
    assert "grounding 48 33.3 41.2 (100)" in text(domain_table(ROWS[:1]))


def test_a_set_without_chance_levels_leaves_them_blank() -> None:
    unknown = Figures(n=3, mean=0.5, greedy=1.0, best=1.0, format=1.0, length=9.0, chance=None)
    row = EvalRow("mine", unknown, {"mine": unknown}, {"mine/mine/0": unknown})
    assert "mine 3 50.0 (100)" in text(domain_table([row]))
