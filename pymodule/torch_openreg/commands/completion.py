"""``openreg completion bash`` and ``zsh``: print a completion script for a shell.

The script is generated from the parsers, so it knows all their options. After the options of `run`
and `sanitize`, the shell completes the program's arguments as it does for that program. Zsh reads
the script of bash with its `bashcompinit`.
"""

import argparse
import sys
from collections.abc import Sequence

from . import doctor, fit, plans, run, sanitize, smi
from .cli import USAGE_STATUS, make_parser

SHELLS = ("bash", "zsh")

# The names in device/process/profile.c.
PROFILES = (
    *("b200", "h200", "h100", "h100-pcie", "a100", "a100-80gb", "v100", "v100-32gb"),
    *("l40s", "l4", "t4", "rtx4090", "rtx3090", "a10g", "rtx4090d", "h20", "rtx3060"),
)

_SCRIPT = r"""# Completion of openreg for @SHELL@: source it, or put
#   eval "$(openreg completion @SHELL@)"
# into @FILE@.
@BEFORE@
# The options of a command.
_openreg_options() {
  case $1 in
@OPTIONS@
  esac
}

# Whether an option of a command takes the next word as its value.
_openreg_with_value() {
  case "$1 $2" in
    @WITH_VALUE@) return 0 ;;
  esac
  return 1
}

# Completes the program of `run` or `sanitize`: with its own completion if bash has one, else files.
_openreg_program() {
  if (( COMP_CWORD == $1 )); then
    COMPREPLY=($(compgen -c -- "$2") $(compgen -f -- "$2"))
  elif [ -z "$ZSH_VERSION" ] && declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  else
    COMPREPLY=($(compgen -f -- "$2"))
  fi
}

# Completes a command line in which the word `openreg` is at a given position.
_openreg_at() {
  local start=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[start+1]} place
  COMPREPLY=()
  if (( COMP_CWORD == start + 1 )); then
    COMPREPLY=($(compgen -W "@COMMANDS@ --help --version" -- "$word"))
    return
  fi
  case $command in
    run|sanitize)
      place=$(( start + 2 ))
      while (( place < COMP_CWORD )); do
        case ${COMP_WORDS[place]} in
          --|-m) place=$(( place + 1 )); break ;;
          -*)
            if _openreg_with_value "$command" "${COMP_WORDS[place]}"; then
              place=$(( place + 1 ))
              # bash splits words at "=": --devices=2 is three words
              [ "${COMP_WORDS[place]}" = "=" ] && place=$(( place + 1 ))
            fi
            place=$(( place + 1 )) ;;
          *) break ;;
        esac
      done
      if (( place < COMP_CWORD )) && [ "${COMP_WORDS[place]}" = openreg ]; then
        _openreg_at "$place"
        return
      fi
      if (( place < COMP_CWORD )) || { (( place == COMP_CWORD )) && [[ $word != -* ]]; }; then
        _openreg_program "$place" "$word"
        return
      fi ;;
  esac
  if [ "$before" = "=" ]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  elif [ "$word" = "=" ]; then
    word=
  fi
  case "$command $before" in
    "run --profile") COMPREPLY=($(compgen -W "@PROFILES@" -- "$word")); return ;;
    "sanitize --only") COMPREPLY=($(compgen -W "@KINDS@" -- "$word")); return ;;
    "sanitize --json"|"sanitize --suppressions"|"run --report")
      COMPREPLY=($(compgen -f -- "$word"))
      return ;;
  esac
  _openreg_with_value "$command" "$before" && return
  if [ "$command" = fit ] && [[ $word != -* ]]; then
    COMPREPLY=($(compgen -f -- "$word"))
    return
  fi
  COMPREPLY=($(compgen -W "$(_openreg_options "$command")" -- "$word"))
}

_openreg() {
  _openreg_at 0
}

complete -o filenames -F _openreg openreg
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    made = make_parser(
        "openreg completion",
        "Prints a script that makes a shell complete the commands of openreg, their options and "
        "the arguments after them.",
        ((0, "success"), USAGE_STATUS),
        examples=(
            'eval "$(openreg completion bash)"   # in ~/.bashrc',
            'eval "$(openreg completion zsh)"    # in ~/.zshrc, after compinit',
        ),
    )
    made.add_argument("shell", choices=SHELLS, help="the shell to print a script for")
    return made


def _options(of: argparse.ArgumentParser) -> list[str]:
    return [name for action in of._actions for name in action.option_strings if name[:2] == "--"]


def _with_value(of: argparse.ArgumentParser) -> list[str]:
    return [
        name
        for action in of._actions
        for name in action.option_strings
        if action.nargs is None and not isinstance(action, argparse._HelpAction)
    ]


def script(shell: str) -> str:
    """Return the script for a shell: ``bash`` or ``zsh``."""
    from ..__main__ import COMMANDS
    from ..sanitizer.finding import KINDS

    parsers = {
        "run": run.parser(),
        "sanitize": sanitize.parser(),
        "smi": smi.parser(),
        "doctor": doctor.parser(),
        "fit": fit.parser(),
        "plans": plans.parser(),
        "completion": parser(),
    }
    options = {name: _options(of) for name, of in parsers.items()}
    options["completion"] += SHELLS
    options["plans"] += ["install", "show"]
    pairs = [f'"{name} {option}"' for name, of in parsers.items() for option in _with_value(of)]
    parts = {
        "SHELL": shell,
        "FILE": f"~/.{shell}rc",
        "BEFORE": "autoload -Uz bashcompinit && bashcompinit" if shell == "zsh" else "",
        "OPTIONS": "\n".join(f'    {n}) echo "{" ".join(o)}" ;;' for n, o in options.items()),
        "WITH_VALUE": "|".join(pairs),
        "COMMANDS": " ".join(COMMANDS),
        "PROFILES": " ".join(PROFILES),
        "KINDS": " ".join(kind.replace(" ", "-") for kind in KINDS),
    }
    text = _SCRIPT
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    arguments
        The arguments after ``openreg completion``.

    Returns
    -------
    int
        The exit status.
    """
    chosen = parser().parse_args(arguments)
    sys.stdout.write(script(chosen.shell))
    return 0
