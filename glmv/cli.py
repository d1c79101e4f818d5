"""The `glmv` command. `glmv COMMAND --help` explains each.

env, bench and data use argparse, so that they work where only torch is installed; the training commands take
a dataclass by jsonargparse: `--config file.yaml` and one flag a field, an unknown key is an error.
"""

import argparse
import dataclasses
import difflib
import os
import re
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

RESUMES = "the same command goes on from the last checkpoint"
USAGE = """usage: glmv COMMAND [options]        glmv COMMAND --help explains one

  env     what is installed here, which backend each op will use, and why
  bench   time the ops against eager PyTorch, with the error beside every speed
  demo    the main job, end to end: data, supervised start, RL, table, report
  data    make the built-in visual tasks as JSONL and PNG files
  sft     supervised training on rows with a response
  rl      reinforcement learning with curriculum sampling (RLCS)
  eval    evaluate a checkpoint on held-out rows
  verify  run the verifiers on cases, attack them, compare them with others"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. An error of use is one line and exit code 2."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if argv else 2
    commands: dict[str, Callable[[list[str]], int]] = {
        "env": _env,
        "bench": _bench,
        "demo": _demo,
        "data": _data,
        "sft": _sft,
        "rl": _rl,
        "eval": _eval,
        "verify": _verify,
    }
    # A waiting OpenMP thread spins, by default for about a millisecond. Where other work runs, it then holds
    # the core that the thread it waits for needs: an RL iteration took 70 s, not 1 s. Read by torch's import.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if argv[0] not in commands:
        return _fail(f"unknown command {argv[0]!r}{nearest(argv[0], list(commands))}; see glmv --help")
    try:
        return commands[argv[0]](argv[1:])
    except ModuleNotFoundError as error:
        if (error.name or "glmv").partition(".")[0] == "glmv":
            raise
        return _fail(f"{argv[0]} needs more packages: pip install 'glmv[demo]' (missing: {error.name})")
    except (ValueError, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _stopped(argv[0], "stopped")


def nearest(word: str, known: Sequence[str]) -> str:
    """`, did you mean 'x'?` for the nearest known word, or nothing."""
    match = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {match[0]!r}?" if match else ""


def _fail(message: str) -> int:
    print(f"glmv: {message}", file=sys.stderr)
    return 2


def _stopped(command: str, how: str) -> int:
    print(f"glmv {command}: {how}", file=sys.stderr)
    return 130  # the shell's code for Ctrl-C


def _env(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "glmv env", description="What is installed here and what each op will use."
    )
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--check", action="store_true", help="exit 1 if something expected is missing")
    args = parser.parse_args(argv)
    from glmv import env

    return env.report(json=args.json, check=args.check)


def _bench(argv: list[str]) -> int:
    from glmv import bench

    if argv[:1] == ["compare"]:
        parser = argparse.ArgumentParser(
            "glmv bench compare", description="Compare two results of one machine."
        )
        parser.add_argument("base", help="JSON of glmv bench -o")
        parser.add_argument("new", help="JSON of glmv bench -o")
        parser.add_argument(
            "--fail-over", type=float, default=10.0, help="percent of speed-up that may be lost"
        )
        args = parser.parse_args(argv[1:])
        return bench.compare(args.base, args.new, fail_over=args.fail_over)
    if argv[:1] == ["table"]:
        parser = argparse.ArgumentParser("glmv bench table", description="Print a result.")
        parser.add_argument("path", help="JSON of glmv bench -o")
        bench.table(parser.parse_args(argv[1:]).path)
        return 0
    parser = argparse.ArgumentParser(
        "glmv bench",
        description="Time every op against eager PyTorch, interleaved in one process: read the ratios. "
        "Exit code 1 if a result is wrong.",
        epilog="also: glmv bench compare A.json B.json, glmv bench table A.json",
    )
    parser.add_argument("--suite", choices=("smoke", "full"), default="smoke", help="smoke: under a minute")
    parser.add_argument("--op", help="one family: rope, pos_embed, router, experts, attention, token_loss")
    parser.add_argument("--backend", help="one backend; default: all that run here")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("-o", "--output", help="write the result as JSON")
    args = parser.parse_args(argv)
    result = bench.run(
        suite=args.suite, op=args.op, backend=args.backend, device=args.device, output=args.output
    )
    return 0 if result.ok else 1


def _data(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("glmv data", description="Built-in visual tasks made from real inputs.")
    make = parser.add_subparsers(required=True, metavar="make").add_parser(
        "make",
        help="write <out>/<split>.jsonl and its images",
        description="Write <out>/<split>.jsonl and its images.",
    )
    make.add_argument("--out", required=True, help="folder")
    make.add_argument("--n", type=int, default=1000, help="rows, spread over tasks and difficulties")
    make.add_argument(
        "--split", choices=("train", "heldout"), default="train", help="no source item is in both"
    )
    make.add_argument("--seed", type=int, default=0, help="same seed, same bytes")
    make.add_argument("--tasks", nargs="+", help="names of tasks; default: all")
    args = parser.parse_args(argv)
    from glmv.data.tasks import make as make_tasks

    print(make_tasks(args.out, n=args.n, split=args.split, seed=args.seed, tasks=args.tasks))
    return 0


def _demo(argv: list[str]) -> int:
    from glmv.train.demo import DemoConfig, demo

    return _stage("demo", DemoConfig, demo, argv)


def _sft(argv: list[str]) -> int:
    from glmv.train.config import SftConfig
    from glmv.train.sft import sft

    return _stage("sft", SftConfig, sft, argv)


def _rl(argv: list[str]) -> int:
    from glmv.train.config import RlConfig
    from glmv.train.rl import rl

    return _stage("rl", RlConfig, rl, argv)


def _eval(argv: list[str]) -> int:
    from glmv.train.evaluate import EvalCommand, evaluate_checkpoint

    return _stage("eval", EvalCommand, evaluate_checkpoint, argv)


def _verify(argv: list[str]) -> int:
    from glmv.rewards import command

    return command.main(argv)


def _stage(name: str, config_type: type[Any], run: Callable[[Any], object], argv: list[str]) -> int:
    """Parse a dataclass from flags and YAML, run, and print where the result is."""
    from glmv.train.run import Interrupted

    config = _parse(name, config_type, argv)
    try:
        print(run(config))
    except (Interrupted, KeyboardInterrupt) as stop:
        how = str(stop) or "stopped"
        return _stopped(name, how if name == "eval" else f"{how}; {RESUMES}")
    return 0


def _parse(name: str, config_type: type[Any], argv: list[str]) -> Any:
    import jsonargparse

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)

    class Parser(jsonargparse.ArgumentParser):
        def error(self, message: str, ex: Exception | None = None) -> NoReturn:
            sys.exit(_fail(f"{name}: {_explain(message, self)}"))

    description = (config_type.__doc__ or "").strip()
    parser = Parser(prog=f"glmv {name}", description=description)
    parser.add_argument("--config", action="config", help="YAML file with any of these settings")
    parser.add_class_arguments(config_type, None)
    values = parser.parse_args(argv)
    for key, kind in typing.get_type_hints(config_type).items():
        if dataclasses.is_dataclass(kind) and not isinstance(values[key], jsonargparse.Namespace):
            parser.error(f"{key}: expected a group of settings, got {values[key]!r}")
    values = parser.instantiate(values)
    return config_type(**{k: v for k, v in vars(values).items() if k != "config"})


def _explain(message: str, parser: Any) -> str:
    """The parser's message in one plain line, with the nearest known setting where one was unknown."""
    text = " ".join(message.split())
    for pattern, plain in _PLAIN:
        text = re.sub(pattern, plain, text)
    for pattern in _UNKNOWN:
        if found := re.search(pattern, text):
            key = ".".join(part for part in found.groups() if part)
            known = [action.dest for action in parser._actions]
            inside = [name for name in known if name.endswith(f".{key}")]  # lr -> optim.lr
            return text + nearest(inside[0] if inside else key, known)
    return text


# What jsonargparse says -> what the user reads.
_PLAIN = (
    (r'Parser key "([\w.]+)": ', r"\1: "),
    (
        r"Does not .* Subtypes: \[<class '(\w+)'>, <class 'NoneType'>\] .* Given value: ",
        r"expected \1 or null, got ",
    ),
    (r"Expected a <class '(\w+)'>", r"expected \1"),
    (r"Expected a typing\.Literal\[(.*?)\]", r"expected one of \1"),
    (r"\. Got value: ", ", got "),
)


# How jsonargparse says that a flag, a key of a group, or a key of a file is unknown.
_UNKNOWN = (
    r"[Uu]nrecognized arguments: --([\w.]+)",
    r"Group '([\w.]+)' does not accept option '([\w.]+)'",
    r"Option '([\w.]+)' is not accepted",
)
