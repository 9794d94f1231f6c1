"""`sqlstream port`: what of a Flink script runs, what is noticed about it, and what to write instead."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sqlstream.cli.arguments import open_session, with_folders
from sqlstream.compiler.porting import Port, PortedStatement, port
from sqlstream.errors import UsageError

_WORDS = {
    "runs": "runs",
    "connector": "runs once its connector is replaced",
    "refused": "is refused",
    "waits": "waits for line {}",
}


@click.command("port", short_help="Say what of a Flink script runs, and what to write instead.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@click.option("--write", "target", metavar="FILE", type=click.Path(dir_okay=False), help="Write a script that runs.")
@with_folders
def port_script(file: str, form: str, target: str | None, project: str | None, warehouse: str | None) -> int:
    """Say which statements of a Flink script run, what is noticed, and what to write instead. Nothing starts or is created.

    --write writes a script that runs: refused statements become comments with their reason, and tables of connectors that do
    not exist here lose them. Exit codes: 0 all runs as it is, 1 something does not. The file - is standard input.
    """
    from sqlstream.project import read_source

    if target is not None and file != "-" and Path(target).resolve() == Path(file).resolve():
        raise UsageError("--write names the script itself", hint="Give the new script another name.")
    with open_session(project, warehouse, ()) as session:
        ported = port(read_source(file, root=session.project.root), session.compiler)
    click.echo(json.dumps(as_json(ported), indent=2) if form == "json" else as_text(ported))
    if target is not None:
        Path(target).write_text(ported.script)
    return 0 if ported.count("runs") == len(ported.statements) else 1


def as_text(ported: Port) -> str:
    """Return the statements that do not run as they are, or about which something is noticed, and a line with the counts."""
    blocks = [_block(one) for one in ported.statements if one.problem is not None or one.notices]
    counts = [f"{ported.count('runs')} of {len(ported.statements)} statements run as they are"]
    if connectors := ported.count("connector"):
        counts.append(f"{connectors} once their connectors are replaced")
    if refused := ported.count("refused", "waits"):
        counts.append(f"{refused} do not")
    return "\n\n".join([*blocks, ", ".join(counts)])


def _block(one: PortedStatement) -> str:
    lines = [f"line {one.line}: {one.first_line}", f"  {_WORDS[one.outcome].format(one.waits_for)}"]
    said = [*((one.problem,) if one.problem is not None and one.outcome != "waits" else ()), *one.notices]
    lines += [f"  {line}" for problem in said for line in problem.render().split("\n")]
    return "\n".join(lines)


def as_json(ported: Port) -> dict[str, object]:
    """Return the statements with their outcomes, and the counts, as JSON has them."""
    outcomes = ("runs", "connector", "refused", "waits")
    return {
        "statements": [
            {
                "line": one.line,
                "statement": one.first_line,
                "outcome": one.outcome,
                "problem": one.problem and {"message": one.problem.message, "hint": one.problem.hint},
                "notices": [{"message": notice.message, "hint": notice.hint} for notice in one.notices],
                "waits_for": one.waits_for,
            }
            for one in ported.statements
        ],
        "counts": {outcome: ported.count(outcome) for outcome in outcomes},
    }
