"""Lines over the hours of a day, as an SVG text: small enough to need no library."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 90, 48, 48
COLOURS = ("#2a6fbb", "#c8562b", "#3a8a4d", "#7a5aa6")
STEP_Y = 5

Points = Sequence[tuple[float, float]]


def svg(title: str, x_label: str, y_label: str, lines: Mapping[str, Points]) -> str:
    """One line for each name, labelled at its end; the y axis begins at 0 or, for negative values, below it."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    x_min, x_max = min(xs), max(max(xs), min(xs) + 1)
    y_min = min(0, STEP_Y * (min(ys) // STEP_Y))
    y_max = max(STEP_Y * (max(ys) // STEP_Y + 1), y_min + STEP_Y)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_min) / (x_max - x_min) * (WIDTH - LEFT - RIGHT)
        up = (y - y_min) / (y_max - y_min) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + across, 1), round(HEIGHT - BOTTOM - up, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="16">{escape(title)}</text>',
    ]
    value = y_min
    while value <= y_max:
        _, y = place(x_min, value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#555">{value:g}</text>')
        value += STEP_Y
    for hour in range(int(x_min), int(x_max) + 1, 2):
        x, _ = place(hour, y_min)
        parts.append(
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#555">{hour}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle" fill="#555">{escape(x_label)}</text>'
    )
    parts.append(f'<text x="{LEFT}" y="{TOP - 8}" fill="#555">{escape(y_label)}</text>')
    for colour, (name, points) in zip(COLOURS, sorted(lines.items()), strict=False):
        places = [place(*point) for point in sorted(points)]
        path = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        x, y = places[-1]
        parts.append(f'<text x="{x + 6}" y="{y + 4}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
