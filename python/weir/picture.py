"""What a notebook shows of runtimes, clients and models: one bar with what is live and pending by class, marks for the peak and the
limit, and the numbers in a table; where clients are suspended, what is away. It is HTML by itself, for light and dark pages."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable

from .names import Class, ResidencyState
from .sizes import format_size
from .statistics import ClientStats, RuntimeStats

WIDTH, HEIGHT = 520, 18
_ids = itertools.count(1)

# By class in the order of the bar; light, dark. The last ones are of a runtime's memory that is in no block.
COLOURS = {"weights": ("#3d6cc4", "#7ea6f0"), "activations": ("#2f8f6b", "#62c79f"), "scratch": ("#b9770e", "#e3ab4d"),
           "kv": ("#9a4fb0", "#cb8fe0"), "other": ("#6b7280", "#a3aab8"), "pending": ("#c0504d", "#ec8b88"),
           "cached": ("#c9ced8", "#4b5260")}
ORDER = (Class.WEIGHTS, Class.ACTIVATIONS, Class.SCRATCH, Class.KV, Class.OTHER)

Part = tuple[str, int]


def _style(name: str) -> str:
    def colours(dark: int) -> str:
        return " ".join(f"--{key}: {pair[dark]};" for key, pair in COLOURS.items())
    return (f"<style>#{name} {{ {colours(0)} --ink: #1f2328; --faint: #656d76; --line: #d0d7de; --room: #f3f4f6; color: var(--ink); "
            "font: 13px/1.45 system-ui, sans-serif; max-width: 560px; }\n"
            f"@media (prefers-color-scheme: dark) {{ #{name} {{ {colours(1)} --ink: #e6edf3; --faint: #9198a1; --line: #3d444d; "
            "--room: #262c36; } }\n"
            f"[data-jp-theme-light='false'] #{name}, .vscode-dark #{name} {{ {colours(1)} --ink: #e6edf3; --faint: #9198a1; "
            "--line: #3d444d; --room: #262c36; }\n"
            f"#{name} svg {{ display: block; width: 100%; height: auto; margin: 4px 0; }}\n"
            f"#{name} table {{ border-collapse: collapse; margin: 6px 0 0; color: inherit; font: inherit; }}\n"
            f"#{name} th, #{name} td {{ padding: 1px 14px 1px 0; text-align: right; border: 0; background: none; "
            "font-variant-numeric: tabular-nums; }\n"
            f"#{name} th {{ color: var(--faint); font-weight: normal; border-bottom: 1px solid var(--line); }}\n"
            f"#{name} th:first-child, #{name} td:first-child {{ text-align: left; max-width: 16em; overflow: hidden; "
            "text-overflow: ellipsis; white-space: nowrap; }\n"
            f"#{name} .key {{ color: var(--faint); }}\n"
            f"#{name} i {{ display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin: 0 4px 0 0; }}\n"
            f"#{name} .key span {{ margin-right: 12px; white-space: nowrap; }}</style>")


def _bar(parts: list[Part], whole: int, marks: list[Part]) -> str:
    """Parts from the left, and marks at places, of so many bytes as a whole."""
    scale, at, drawn = WIDTH / max(whole, 1), 0.0, []
    for name, size in parts:
        if size:
            title = f"<title>{name}: {format_size(size)}</title>"
            place = f'x="{at:.2f}" y="8" width="{max(size * scale, 0.5):.2f}" height="{HEIGHT}"'
            drawn.append(f'<rect {place} fill="var(--{name})">{title}</rect>')
            at += size * scale
    for name, size in marks:
        x = min(max(size * scale, 0.75), WIDTH - 0.75)
        drawn.append(f'<path d="M{x:.2f} 4V{HEIGHT + 12}" stroke="var(--ink)" stroke-width="1.5" stroke-dasharray="3 2">'
                     f"<title>{name}: {format_size(size)}</title></path>")
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 16}" role="img" aria-label="memory"><rect x="0" y="8" width="{WIDTH}" height="{HEIGHT}" '
            f'fill="var(--room)" stroke="var(--line)" rx="2"/>{"".join(drawn)}</svg>')


def _key(parts: list[Part]) -> str:
    told = "".join(f'<span><i style="background: var(--{name})"></i>{name} {format_size(size)}</span>' for name, size in parts if size)
    return f'<div class="key">{told or "nothing is live"}</div>'


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{body}</table>"


def _page(title: str, *pieces: str) -> str:
    name = f"weir-{next(_ids)}"
    return f'<div id="{name}">{_style(name)}<div><b>{title}</b></div>{"".join(pieces)}</div>'


def _by_class(each: ClientStats | Iterable[ClientStats]) -> list[Part]:
    clients = [each] if isinstance(each, ClientStats) else list(each)
    return [(kind.name.lower(), sum(one.live_class[kind] for one in clients)) for kind in ORDER]


def gone(kind: str, name: str) -> str:
    return _page(f"{kind} {html.escape(name)}", "<div>closed</div>")


def of_client(kind: str, name: str, its: ClientStats, budget: int) -> str:
    """A client's account, or a model's."""
    parts, limit = [*_by_class(its), ("pending", its.pending)], min(its.maximum, budget)
    row = [format_size(each) for each in (its.live, its.pending, its.promised, its.peak, its.guaranteed, limit)]
    more = [f"{its.blocks} blocks", f"{its.refusals} refusals"]
    if its.residency != ResidencyState.RESIDENT or its.away:
        more.append(f"{its.residency.name.lower()}, {format_size(its.away)} away")
    if its.outside:
        more.append(f"{format_size(its.outside)} outside")
    return _page(f"{kind} {html.escape(name)}", _bar(parts, limit, [("peak", its.peak)]), _key(parts),
                 _table(("live", "pending", "promised", "peak", "guaranteed", "maximum"), [row]),
                 f'<div class="key">{", ".join(more)}</div>')


def of_runtime(name: str, its: RuntimeStats) -> str:
    """A runtime with its clients."""
    parts = [*_by_class(its.clients), ("pending", its.pending), ("cached", its.cached + its.spare)]
    row = [format_size(each) for each in (its.live, its.pending, its.cached + its.spare, its.held, its.peak, its.budget)]
    heads = ["client", "live", "pending", "peak", "blocks"]
    clients = [[html.escape(one.name), *map(format_size, (one.live, one.pending, one.peak)), str(one.blocks)] for one in its.clients]
    totals = ["live", "pending", "cached", "held", "peak", "budget"]
    if its.away or any(one.residency != ResidencyState.RESIDENT for one in its.clients):
        totals.append("away")
        row.append(format_size(its.away))
        heads += ["away", "state"]
        clients = [[*cells, format_size(one.away), one.residency.name.lower()] for cells, one in zip(clients, its.clients)]
    return _page(f"runtime {html.escape(name)}", _bar(parts, its.budget, [("peak", its.peak)]), _key(parts),
                 _table(totals, [row]), _table(heads, clients) if clients else "")
