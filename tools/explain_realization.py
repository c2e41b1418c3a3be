"""The picture of `bmojo explain --realization`: the time constants of each layer's poles, what the
memories add to each attention's output, and how white outputs and innovations are."""

from metrics import is_number
from plot import PIXELS_AN_INCH, save

WIDTH, TOP, HEIGHT, BOTTOM = 1500, 92, 360, 64  # pixels
LEFT, GAP, RIGHT = 74, 84, 24
GREY, PALE = "#777777", "#e6e6e6"


def colours_of(num_layers):
    """From dark to light with depth: none is the colour of a memory."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    deepest = max(num_layers - 1, 1)
    return [to_hex(colormaps["plasma"](0.85 * i / deepest)) for i in range(num_layers)]


def tidy(axes, title, x, y):
    axes.set_title(title, fontsize=13, loc="left")
    axes.set_xlabel(x, fontsize=12)
    axes.set_ylabel(y, fontsize=12)
    axes.grid(color=PALE, lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=11)


def occupied(layers):
    """The bins from the first to the last that any layer uses."""
    used = [i for layer in layers for i, n in enumerate(layer["time_constants"]["counts"]) if n]
    return min(used), max(used) + 1


def draw_poles(axes, layers, colours, window):
    """A line of steps for each layer; its area is all of the layer's poles."""
    first, end = occupied(layers)
    top = 0
    for layer in layers:
        found = layer["time_constants"]
        shares = [100 * n / found["poles"] for n in found["counts"][first:end]]
        axes.stairs(shares, found["edges"][first:end + 1], color=colours[layer["layer"]], lw=1.8)
        top = max(top, *shares)
    axes.set_xscale("log")
    tidy(axes, "time constants of the poles", "τ = -1 / (Δ A), tokens", "% of a layer's poles")
    axes.set_ylim(0, 1.14 * top)
    for place, name in ((1, "one token"), (window, f"window, {window}")):
        if place and axes.get_xlim()[0] < place < axes.get_xlim()[1]:
            axes.axvline(place, color=GREY, lw=1, ls="--")
            axes.text(place, 1.13 * top, f" {name}", color=GREY, fontsize=11, va="top")


def draw_memories(axes, layers, memories):
    """A bar for each layer; what pulls against the output lies left of 0."""
    thick = 0.62 * min(1, len(layers) / 3)
    for y, layer in enumerate(layers):
        right = left = 0
        for memory, colour in memories.items():
            share = layer["memories"]["output"][memory]
            share = 100 * share if is_number(share) else 0
            start = right if share >= 0 else left
            axes.barh(y, share, left=start, height=thick, color=colour)
            right, left = right + max(share, 0), left + min(share, 0)
    tidy(axes, "part of the attention's output", "%", "")
    axes.axvline(0, color="black", lw=0.8)
    axes.axvline(100, color=GREY, lw=1, ls="--")
    axes.set_yticks(range(len(layers)), [f"layer {layer['layer']}" for layer in layers])
    axes.set_ylim(len(layers) - 0.4, -0.6)


def draw_whiteness(axes, layers, colours):
    """Solid: innovations. Dotted: the outputs they are taken from. Dashed: a white series."""
    for layer in layers:
        found, colour = layer["whiteness"], colours[layer["layer"]]
        lags = range(1, len(found["outputs"]["autocorrelation"]) + 1)
        axes.plot(lags, found["outputs"]["autocorrelation"], ":", color=colour, lw=1.8)
        axes.plot(lags, found["innovations"]["autocorrelation"], "-", color=colour, lw=1.8)
    axes.axhline(layers[0]["whiteness"]["tokens"]**-0.5, color=GREY, lw=1, ls="--")
    tidy(axes, "autocorrelation (rms over channels)", "lag, tokens", "")
    axes.set_ylim(bottom=0)
    axes.set_xticks([1, 5, 10, 15, 20])


def add_legends(figure, layers, colours, memories, height, whiteness):
    from matplotlib.lines import Line2D

    def legend(handles, x):
        figure.legend(handles=handles, loc="upper left", ncols=len(handles), frameon=False,
                      fontsize=12, bbox_to_anchor=(x / WIDTH, 1 - 32 / height), borderpad=0.1,
                      borderaxespad=0, handlelength=1.4, handletextpad=0.5, columnspacing=1.3)

    shown = layers if len(layers) <= 5 else [layers[0], layers[-1]]
    legend([Line2D([], [], color=colours[each["layer"]], lw=3, label=f"layer {each['layer']}")
            for each in shown], 8)
    wide = (WIDTH - LEFT - RIGHT + GAP) / 3
    legend([Line2D([], [], ls="", marker="s", color=colour, label=name, markersize=9)
            for name, colour in memories.items()], LEFT + wide)
    if whiteness:
        legend([Line2D([], [], color="black", ls=style, lw=1.8, label=name) for style, name in
                (("-", "innovations"), (":", "outputs y"), ("--", "white"))], LEFT + 2 * wide - 40)


def draw(told, path, memories):
    """One PNG. `memories` has their colours."""
    from matplotlib.figure import Figure

    layers = told["layers"]
    colours = colours_of(len(layers))
    height = TOP + HEIGHT + BOTTOM
    figure = Figure(figsize=(WIDTH / PIXELS_AN_INCH, height / PIXELS_AN_INCH), dpi=PIXELS_AN_INCH)
    wide = (WIDTH - LEFT - RIGHT - 2 * GAP) / 3

    def panel(number):
        x = LEFT + number * (wide + GAP)
        return figure.add_axes((x / WIDTH, BOTTOM / height, wide / WIDTH, HEIGHT / height))

    def having(part):
        return [layer for layer in layers if layer[part]]

    draw_poles(panel(0), having("time_constants"), colours, told["memory"]["window"])
    draw_memories(panel(1), having("memories"), memories)
    if having("whiteness"):
        draw_whiteness(panel(2), having("whiteness"), colours)
    title = told["task"] or f"{len(told['ids']):,} tokens"
    figure.text(8 / WIDTH, 1 - 6 / height, title, ha="left", va="top", fontsize=13)
    add_legends(figure, layers, colours, memories, height, having("whiteness"))
    save(figure, path)
