"""``millrace data``."""

from __future__ import annotations

import os

import click


@click.group("data", short_help="Where files lie, and what each place costs.")
def command() -> None:
    """Files wherever they lie: on disks, behind URLs, or in several places at once.

    Where else the bytes of a file are is said by [[replica]] in /etc/millrace.toml, ~/.config/millrace.toml or a job file.
    """


@command.command("locate", short_help="Show all places of a file.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def locate(names: tuple[str, ...], as_json: bool) -> None:
    """Show all places of a file, and which of them have its bytes now. NAME is a path or a URL.

    \b
    millrace data locate /db/nr.faa
    """
    from millrace import site
    from millrace.cli.run import print_json
    from millrace.replicas import shown
    from millrace.storage import choice
    from millrace.words import size

    rules = site.replicas(os.environ)
    found = {name: choice.look(choice.absolute(name), rules) for name in names}
    if as_json:
        print_json(found)
        return
    for name, places in found.items():
        click.echo(shown(name))
        for each in places:
            click.echo(f"  {shown(each.place)}  {each.why_not or size(each.about.size if each.about else 0)}")
