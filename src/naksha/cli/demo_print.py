"""Print the demonstration on a terminal: maps, tables and explanations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from naksha.cli import demo_town as town
from naksha.cli.demo_story import WATCHED, DemoConflict, DemoResults, TownSnapshot
from naksha.model.state import XYZ

_SYMBOLS: Final = {
    "street": ("·", "bright_black"),
    "house": ("⌂", "yellow"),
    "hall": ("■", "red"),
    "shop": ("●", "cyan"),
    "tree": ("♣", "green"),
}


def show(story: DemoResults, console: Console) -> None:
    """Print the whole story."""
    console.rule("[bold]Naksha: a map that forgets nothing")
    place = story.location if story.schema is None else f"{story.location}, schema {story.schema}"
    console.print(
        f"Storage [bold]{story.storage}[/] in {place}, collection [bold]{story.collection}[/].\n"
    )
    _heading(
        console, 1, "The change log", "Every edit is a transaction, with author, app and message."
    )
    console.print(_log(story))
    _heading(
        console,
        2,
        "The map, then and now",
        f"The same query at version {story.then.version} and at version {story.now.version}.",
    )
    console.print(Columns([_map(story.then, "then"), _map(story.now, "now")], padding=(0, 1)))
    console.print(_legend())
    _heading(
        console, 3, f"One feature through time: {WATCHED}", "Each state has its period of validity."
    )
    console.print(_history(story.history))
    _heading(
        console,
        4,
        "A conflict",
        "ben edits an outdated state: nothing is written, and the error contains HEAD.",
    )
    console.print(_clash(story.clash))
    _heading(console, 5, "Plain SQL", "Triggers write history and log for edits from an SQL shell.")
    console.print(Syntax(story.plain_edit.script.strip(), "sql", background_color="default"))
    if story.plain_edit.skipped:
        console.print(f"[yellow]Skipped: {story.plain_edit.skipped}.[/]")
    _heading(console, 6, "Timings", "One client, one step after the other, including commits.")
    console.print(_timings(story))


def _heading(console: Console, number: int, title: str, words: str) -> None:
    console.print(f"\n[bold blue]{number}  {title}[/]\n   [dim]{words}[/]")


def _log(story: DemoResults) -> Table:
    table = Table("version", "time (UTC)", "author", "app", "changes", "message", box=None)
    for change in story.changes:
        counts = (("+", change.created), ("~", change.updated), ("−", change.deleted))
        table.add_row(
            str(change.version),
            _time(change.started_ms),
            change.author,
            change.app_id,
            " ".join(f"{sign}{count}" for sign, count in counts if count),
            change.message,
        )
    return table


def _map(snapshot: TownSnapshot, title: str) -> Panel:
    cells: dict[tuple[int, int], str] = {}
    for feature in sorted(snapshot.features, key=lambda f: f["properties"]["kind"] != "street"):
        for cell in town.cells_of(feature):
            cells[cell] = feature["properties"]["kind"]
    text = Text(no_wrap=True)
    for y in range(town.HEIGHT):
        for x in range(town.WIDTH):
            symbol, style = _SYMBOLS.get(cells.get((x, y), ""), (" ", ""))
            text.append(symbol, style)
        text.append("\n" if y < town.HEIGHT - 1 else "")
    count = len(snapshot.features)
    return Panel.fit(text, title=f"{title}: version {snapshot.version}, {count} features")


def _legend() -> Text:
    text = Text("   ")
    for kind, (symbol, style) in _SYMBOLS.items():
        text.append(f"{symbol} ", style)
        text.append(f"{kind}   ", "dim")
    return text


def _history(states: list[dict[str, Any]]) -> Table:
    table = Table("state", "action", "author", "name", "from transaction", "until", box=None)
    for state in states:
        xyz = state["properties"][XYZ]
        until = "now" if xyz["txn_next"] == "0" else xyz["txn_next"]
        name = state["properties"]["name"]
        table.add_row(str(xyz["version"]), xyz["action"], xyz["author"], name, xyz["txn"], until)
    return table


def _clash(clash: DemoConflict) -> Table:
    table = Table("", "based on state", "name", "author", box=None)
    for title, feature in (("sent", clash.sent), ("HEAD", clash.head)):
        if feature is not None:
            xyz = feature["properties"][XYZ]
            author = "ben" if feature is clash.sent else xyz["author"]
            table.add_row(title, xyz["uuid"], feature["properties"]["name"], author)
    table.add_row("error", f"[red]{clash.code}[/]: {clash.message}")
    return table


def _timings(story: DemoResults) -> Table:
    table = Table("step", "features", "ms", box=None)
    table.columns[1].justify = table.columns[2].justify = "right"
    for timing in story.timings:
        table.add_row(timing.step, str(timing.count or ""), f"{timing.ms:.1f}")
    return table


def _time(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%H:%M:%S")
