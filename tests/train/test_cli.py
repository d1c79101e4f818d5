"""The command line: every command explains itself, every mistake is one line that says what to do."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from glmv import cli
from glmv.cli import main
from glmv.train.config import RlConfig, SftConfig

COMMANDS = ["env", "bench", "demo", "data", "sft", "rl", "eval"]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    try:
        code = main(argv)
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"glmv {command}" in out


@pytest.mark.parametrize("command", ["sft", "rl", "demo", "eval"])
def test_every_setting_is_explained(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, command, "--help")
    bare = [block for block in out.split("\n  --")[1:] if block.count("(") and not _has_prose(block)]
    assert not bare


def _has_prose(block: str) -> bool:
    """A flag's help is more than its own name and its default."""
    text = " ".join(block.split()).split("(required")[0].split("(type:")[0]
    return len(text.split()) > 2


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "evl")
    assert (code, err) == (2, "glmv: unknown command 'evl', did you mean 'eval'?; see glmv --help\n")


def test_an_unknown_flag_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("rl", "--data", "a", "--out", "b", "--model", "c", "--loss.eps_hihg", "0.3")
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert "did you mean 'loss.eps_high'?" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "want"),
    [("optim:\n  warmup_step: 3\n", "optim.warmup_steps"), ("stps: 3\n", "steps")],
)
def test_an_unknown_key_of_a_file_names_the_nearest(
    text: str, want: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("data: a\nout: b\nmodel: c\n" + text)
    code, _, err = run(capsys, "rl", "--config", str(path))
    assert code == 2
    assert f"did you mean {want!r}?" in err


def test_a_bad_value_names_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("rl", "--data", "a", "--out", "b", "--model", "c", "--group_size", "1")
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert "rl.group_size must be >= 2" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--steps", "many"), "glmv: rl: steps: expected int, got many"),
        (("--loss.agg", "x"), "glmv: rl: loss.agg: expected one of 'sample', 'token', 'constant', got x"),
        (("--loss.dual_clip", "x"), "glmv: rl: loss.dual_clip: expected float or null, got x"),
        (("--loss.dual_clip", "0"), "glmv: config: loss.dual_clip must be null or > 1, got 0.0"),
        (("--lr", "3"), "glmv: rl: unrecognized arguments: --lr 3, did you mean 'optim.lr'?"),
        (("--seed", "-1"), "glmv: config: rl.seed must be >= 0, got -1"),
        (("--capacity_tokens", "57"), "glmv: config: rl.capacity_tokens must be > 57, the longest answer"),
        (("--loss.objective", "cispo", "--loss.level", "sequence"), "glmv: config: loss.level must be token"),
        (("--sampling.temperature", "0"), "glmv: config: rl.sampling.temperature must be > 0 in training"),
    ],
)
def test_a_mistake_is_one_line(
    argv: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "rl", "--data", "a", "--out", "b", "--model", "c", *argv)
    assert code == 2
    assert err.startswith(message)
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["optim: 3\n", "optim: [1, 2]\n", "- 1\n- 2\n", "steps: [1\n", ""])
def test_a_file_of_another_shape_is_one_line(
    text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    argv = ("--data", "a", "--out", "b", "--model", "c", "--config", str(tmp_path / "x.yaml"))
    code, _, err = run(capsys, "rl", *argv)
    assert code == 2
    assert err.startswith("glmv: rl: ")
    assert err.count("\n") == 1


def test_an_output_that_cannot_be_a_folder_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data_dir: Path
) -> None:
    (tmp_path / "file").write_text("")
    argv = ("sft", "--data", str(data_dir / "train.jsonl"), "--out", str(tmp_path / "file"), "--threads", "1")
    code, _, err = run(capsys, *argv)
    assert (code, err.count("\n")) == (2, 1)
    assert str(tmp_path / "file") in err


@dataclass(frozen=True)
class Empty:
    """A command without settings."""


@pytest.mark.parametrize(
    ("name", "ending"),
    [("rl", "stopped; the same command goes on from the last checkpoint"), ("eval", "stopped")],
)
def test_ctrl_c_says_how_to_go_on(name: str, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(config: object) -> None:
        raise KeyboardInterrupt

    assert cli._stage(name, Empty, interrupted, []) == 130
    assert capsys.readouterr().err == f"glmv {name}: {ending}\n"


def test_ctrl_c_while_making_data_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glmv.data.tasks.make", interrupted)
    code, _, err = run(capsys, "data", "make", "--out", str(tmp_path))
    assert (code, err) == (130, "glmv data: stopped\n")


def test_a_missing_setting_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "sft", "--out", "b")
    assert code == 2
    assert "data" in err


def test_a_missing_data_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "sft", "--data", str(tmp_path / "no.jsonl"), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "no.jsonl" in err


def test_a_model_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    argv = ("rl", "--data", "a", "--out", str(tmp_path), "--model", str(tmp_path / "nothing"))
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert "must be 'tiny' or a directory" in err


@pytest.mark.parametrize(("name", "config"), [("sft-tiny", SftConfig), ("rlcs-tiny", RlConfig)])
def test_recipes_hold_known_settings_and_say_the_defaults(name: str, config: type) -> None:
    values = yaml.safe_load(Path(f"recipes/{name}.yaml").read_text())
    defaults = config(**{k: values[k] for k in ("data", "out", "model")})
    for key, value in values.items():
        got = getattr(defaults, key)
        nested = value.items() if isinstance(value, dict) else []
        assert all(getattr(got, k) == v for k, v in nested), key
        assert isinstance(value, dict) or got == value, key


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "glmv", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("usage: glmv COMMAND")
