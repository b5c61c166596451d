"""The one entry: finds the command, parses its flags, and turns errors into exit codes.

A command's module has `add_to(commands)`, which adds its parser. The parser's `does` takes the parsed flags and returns
an exit code or None. Exit code 0: all is right; 1: something is wrong or not done; 2: a wrong flag.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gpu_lab.launch import Launcher, is_rank, ranks_command
from gpu_lab.machine import Tools, WrongFlag

Flags = argparse.Namespace


def add_command(commands: Any, name: str, does: Callable[[Flags], int | None], doc: str | None, needs: str,
                *, takes_command: bool = False) -> argparse.ArgumentParser:
    """Adds a command. The first line of `doc` is in the list of commands, all of it in the command's own help."""
    text = (doc or "").strip()
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text.splitlines()[0].replace("%", "%%"), description=f"{text}\n\nNeeds: {needs}.",
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.set_defaults(does=does, takes_command=takes_command)
    return parser


def add_group(commands: Any, name: str, doc: str) -> Any:
    """Adds a command with commands of its own, and returns these."""
    parser = commands.add_parser(name, help=doc, description=doc)
    return parser.add_subparsers(dest=f"{name}_command", required=True, metavar="COMMAND")


def add_bin(parser: argparse.ArgumentParser) -> None:
    """--bin and --dry-run, of commands that run tools of mfsdp."""
    parser.add_argument("--bin", type=pathlib.Path, metavar="DIR",
                        help="the tools: the bin of an installation, or a build tree; default: PATH. Nothing is built")
    add_dry_run(parser)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """--dry-run, of commands that start processes."""
    parser.add_argument("--dry-run", action="store_true", help="prints the commands and runs none")


def tools_of(flags: Flags) -> Tools:
    """The tools of --bin."""
    if flags.bin is not None and not flags.bin.is_dir() and not flags.dry_run:
        raise WrongFlag(f"--bin: expected a folder, got {flags.bin}")
    return Tools(flags.bin, must_exist=not flags.dry_run)


def launcher_of(flags: Flags, ends: float | None = None) -> Launcher:
    """Starts processes, or prints them with --dry-run."""
    return Launcher(dry_run=flags.dry_run, ends=ends)


def on_ranks(flags: Flags, work: Callable[[Flags], None]) -> int:
    """Does the work of a command on --gpus GPUs: starts the same command on each, or works where this process is one."""
    if is_rank():
        work(flags)
        return 0
    words = [word for word in flags.words if word != "--dry-run"]
    return launcher_of(flags).run(ranks_command(flags.gpus, *words), inherit=True).code


def build_parser() -> argparse.ArgumentParser:
    """All commands. No import here loads PyTorch."""
    from gpu_lab.campaign import commands as campaign
    from gpu_lab.checks import device, kills, options
    from gpu_lab.engines import commands as engines
    from gpu_lab import own_runs, plans, ranks, saves
    from gpu_lab.pytorch import commands as pytorch
    parser = argparse.ArgumentParser(prog="python3 -m gpu_lab", allow_abbrev=False,
                                     description="Measures mfsdp-exec and other training engines on GPUs.",
                                     epilog="COMMAND --help: what a command does and what it needs.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (device, options, kills, own_runs, engines, campaign, pytorch, saves, plans, ranks):
        module.add_to(commands)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code."""
    arguments = list(sys.argv[1:] if words is None else words)
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = build_parser()
    flags = parser.parse_args(arguments[:split])
    flags.words, flags.after = arguments, arguments[split + 1:]
    if bool(flags.after) != flags.takes_command:
        parser.error("expected -- and a command" if flags.takes_command else "-- is not expected here")
    try:
        return flags.does(flags) or 0
    except WrongFlag as error:
        print(f"gpu_lab {flags.command}: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"gpu_lab {flags.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
