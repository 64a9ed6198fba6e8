# SPDX-License-Identifier: Apache-2.0
"""Pictures of a report, as SVG.

matplotlib is optional and imported when a picture is drawn. Pictures contain
no names of tenants; the page contains them.
"""

import io
import math

import numpy as np

__all__ = ['distribution', 'hosts', 'refusals', 'states']

#: Value at which smaller probabilities are drawn, because axes are
#: logarithmic.
_FLOOR = 1e-6

# Okabe and Ito: colours that colour-blind readers can distinguish.
_COLOURS = ('#0072b2', '#e69f00', '#009e73', '#cc79a7', '#d55e00', '#56b4e9',
            '#f0e442', '#999999')

#: A transition that is rarer than this is not drawn.
_RARE = 0.02

_STYLE = {'svg.fonttype': 'none', 'svg.hashsalt': 'vswitch', 'font.size': 9,
          'axes.spines.top': False, 'axes.spines.right': False}


def _drawn(draw, width, height, margins=(0.85, 0.5, 0.15, 0.1)):
    """Return the SVG that a function draws on axes, as bytes.

    :param margins: left, bottom, right and top in inches; computing a layout
        would take most of the time
    """
    import matplotlib
    from matplotlib import figure
    left_margin, bottom_margin, right_margin, top_margin = margins
    with matplotlib.rc_context(_STYLE):
        picture = figure.Figure(figsize=(width, height))
        picture.subplots_adjust(left_margin / width, bottom_margin / height,
                                1 - right_margin / width,
                                1 - top_margin / height)
        draw(picture.add_subplot(), picture)
        output = io.BytesIO()
        picture.savefig(output, format='svg', transparent=True,
                        metadata={'Date': None, 'Creator': None})
    return output.getvalue()


def _plain_decades(axis):
    """Label an axis with powers of ten by numbers, without formulas."""
    from matplotlib import ticker
    axis.set_major_locator(ticker.LogLocator(numticks=8))
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(lambda value, _: f'{value:g}')


def hosts(rows: list[dict]) -> bytes:
    """Draw how many hosts have which risk and which utilisation."""
    risk = np.log10(np.clip(
        [row['overload_probability'] for row in rows], _FLOOR, 1.0))
    used = np.clip([row['utilisation'] for row in rows], 0.0, 1.2)
    limits = {row['limit'] for row in rows}

    def draw(axes, picture):
        counts, x, y = np.histogram2d(
            used, risk, bins=(24, 24),
            range=((0.0, 1.2), (math.log10(_FLOOR), 0.0)))
        mesh = axes.pcolormesh(
            x, y, np.ma.masked_equal(counts.T, 0), cmap='viridis_r',
            vmin=0, vmax=max(counts.max(), 2))
        picture.colorbar(mesh, ax=axes, label='hosts')
        for limit in sorted(limits)[:5]:
            if limit > _FLOOR:
                axes.axhline(math.log10(limit), color=_COLOURS[4],
                             linestyle='--', linewidth=1)
        axes.set_xlabel('mean utilisation of the tightest limit')
        axes.set_ylabel('overload probability')
        ticks = range(round(math.log10(_FLOOR)), 1)
        axes.set_yticks(list(ticks), [
            ('≤ ' if tick == ticks[0] else '') + f'{10.0 ** tick:g}'
            for tick in ticks])
        axes.xaxis.set_major_formatter(lambda share, _: f'{share:.0%}')

    return _drawn(draw, 6.4, 3.6)


def distribution(values: dict) -> bytes:
    """Draw the distribution of the sum on a host and its capacity."""
    def draw(axes, _):
        axes.plot(values['rates'], np.maximum(values['above'], _FLOOR),
                  color=_COLOURS[0], drawstyle='steps-post')
        axes.axvline(values['capacity'], color=_COLOURS[4], linestyle='--',
                     label='capacity')
        axes.axvline(values['mean'], color=_COLOURS[2], linestyle=':',
                     label='mean')
        axes.set(yscale='log', ylim=(_FLOOR, 1.3), xlim=(0, None),
                 xlabel=values['unit'], ylabel='P(sum is above)')
        _plain_decades(axes.yaxis)
        axes.xaxis.set_major_formatter(lambda rate, _: f'{rate:,.4g}'
                                       if rate < 1000 else f'{rate:,.0f}')
        axes.locator_params(axis='x', nbins=6)
        axes.legend(fontsize='small', frameon=False)

    return _drawn(draw, 5.6, 2.6)


def refusals(intervals: dict) -> bytes:
    """Draw refusals by reason over time."""
    buckets = intervals['buckets']

    def draw(axes, _):
        from matplotlib import dates
        bottom = np.zeros(len(buckets))
        # Days since 1970, as matplotlib has times: UTC.
        starts = intervals['since_seconds'] / 86400 + np.array(
            [bucket['after_seconds'] / 86400 for bucket in buckets])
        judged = np.maximum([bucket['hosts'] for bucket in buckets], 1)
        for number, reason in enumerate(intervals['reasons']):
            share = np.array([bucket['refused'].get(reason, 0)
                              for bucket in buckets]) / judged
            axes.bar(starts, share, intervals['seconds'] / 86400 * .9, bottom,
                     color=_COLOURS[number % len(_COLOURS)],
                     label=reason.replace('$', r'\$'), align='edge')
            bottom += share
        locator = dates.AutoDateLocator()
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        axes.set_xlabel('time, UTC')
        axes.set_ylabel('hosts refused, of those judged')
        axes.yaxis.set_major_formatter(lambda share, _: f'{share:.0%}')
        if intervals['reasons']:
            axes.legend(fontsize='small', frameon=False)

    return _drawn(draw, 6.4, 2.8)


def states(model: dict) -> bytes:
    """Draw the states of a traffic model and the transitions.

    A circle is a state. Its area is the share of time, and its text the number
    of the state.
    """
    rates = np.asarray(model['rates'])[:, :2].sum(axis=1)
    count = len(rates)
    jump = np.asarray(model['jump'])

    def draw(axes, _):
        from matplotlib import patches
        angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
        places = np.column_stack([np.cos(angles), np.sin(angles)]) \
            if count > 1 else np.zeros((1, 2))
        radii = 0.13 + 0.22 * np.sqrt(model['share'])
        for i, j in zip(*np.nonzero(jump > _RARE)):
            direction = places[j] - places[i]
            direction /= np.linalg.norm(direction)
            axes.add_patch(patches.FancyArrowPatch(
                places[i] + direction * radii[i],
                places[j] - direction * radii[j],
                connectionstyle='arc3,rad=0.18', arrowstyle='-|>',
                mutation_scale=8, linewidth=0.4 + 2.2 * jump[i, j],
                color='#888888', alpha=0.35 + 0.65 * jump[i, j]))
        top = max(rates.max(), 1e-12)
        for number, ((x, y), radius) in enumerate(zip(places, radii)):
            axes.add_patch(patches.Circle(
                (x, y), radius, facecolor=_COLOURS[0],
                alpha=0.25 + 0.6 * rates[number] / top,
                edgecolor=_COLOURS[0]))
            axes.text(x, y, f'{number + 1}', ha='center', va='center')
        axes.set(xlim=(-1.5, 1.5), ylim=(-1.45, 1.45), aspect='equal')
        axes.axis('off')

    return _drawn(draw, 2.3, 2.2, (0, 0, 0, 0))
