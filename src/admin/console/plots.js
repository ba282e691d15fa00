// plots: uPlot with the page's colours. Each plot has a table under it that says the same in numbers.
import { el } from "./dom.js";
import { clock } from "./format.js";

/* global uPlot */

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const kHour = 3600;
const kShortest = 300;

// An hour, or what there is of it.
function stretch_of(times) {
  const last = times.at(-1) ?? Date.now() / 1000;
  return { min: Math.max(last - kHour, Math.min(times[0] ?? last, last - kShortest)), max: last };
}

// Values without a neighbour, which no line would show.
function lonely(values) {
  const found = [];
  for (let at = 0; at < values.length; ++at) {
    const there = (index) => values[index] !== null && values[index] !== undefined;
    if (there(at) && !there(at - 1) && !there(at + 1)) found.push(at);
  }
  return found;
}

// A plot of the last hour that lives as long as its view. `series`: {name, colour, dash}; `format` a value as text.
export class Plot {
  #plot = null;
  #readout = el("p", { class: "readout", "aria-hidden": "true" });
  #place = el("div", { class: "plot-place" });
  #columns = [[]];
  #watch;

  constructor(series, format, height = 190) {
    this.height = height;
    this.#place.style.minHeight = `${height}px`;
    this.series = series;
    this.format = format;
    this.node = el("div", { class: "plot", role: "img", "data-keep": "" }, this.#place, this.#readout);
    this.#watch = new ResizeObserver(() => this.#fit());
    this.#watch.observe(this.#place);
  }

  // columns[0] are Unix seconds; `summary` is read out in place of the picture.
  draw(columns, summary) {
    this.#columns = columns;
    this.node.setAttribute("aria-label", summary);
    if (this.#plot) {
      this.#plot.setData(columns, false);
      this.#plot.setScale("x", stretch_of(columns[0]));
      this.#plot.redraw(true, true);
    } else {
      this.#fit();
    }
  }

  repaint() {
    this.#plot?.redraw(true, true);
  }

  end() {
    this.#watch.disconnect();
    this.#plot?.destroy();
    this.#plot = null;
  }

  #fit() {
    const width = this.#place.clientWidth;
    if (width === 0 || this.#columns[0].length === 0) return;
    if (this.#plot) {
      if (this.#plot.width !== width) this.#plot.setSize({ width, height: this.height });
      return;
    }
    const axis = {
      stroke: () => colour("--quiet"),
      grid: { stroke: () => colour("--grid"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    this.#plot = new uPlot(
      {
        width,
        height: this.height,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
          x: { time: true, ...stretch_of(this.#columns[0]), range: (_, min, max) => [min, max] },
          y: { range: (_, min, max) => [0, Math.max(max, 0) === 0 ? 1 : max * 1.08] },
        },
        axes: [
          { ...axis, size: 26, space: 64, values: (_, ticks) => ticks.map((tick) => clock(tick).slice(0, 5)) },
          { ...axis, size: 56, space: 34, values: (_, ticks) => ticks.map((tick) => this.format(tick)) },
        ],
        series: [
          {},
          ...this.series.map((each) => ({
            label: each.name,
            width: 1.5,
            dash: each.dash,
            points: { show: true, size: 4, filter: (plot, index) => lonely(plot.data[index]) },
            spanGaps: false,
            stroke: () => colour(each.colour),
            fill: each.fill ? () => `${colour(each.colour)}22` : undefined,
          })),
        ],
        hooks: { setCursor: [(plot) => this.#read_out(plot)] },
      },
      this.#columns,
      this.#place,
    );
  }

  #read_out(plot) {
    const at = plot.cursor.idx;
    if (at === null || at === undefined || plot.cursor.left < 0) {
      this.#readout.textContent = "";
      return;
    }
    const values = this.series
      .map((each, index) => [each.name, this.#columns[index + 1][at]])
      .filter(([, value]) => value !== null && value !== undefined && value !== 0)
      .map(([name, value]) => `${name} ${this.format(value)}`);
    this.#readout.textContent = `${clock(this.#columns[0][at])}  ${values.join("  ·  ") || "nothing"}`;
  }
}

// The sign of a series in the table under its plot.
export function swatch(each) {
  const node = el("span", { class: `swatch ${each.dash ? "dashed" : ""}`, "aria-hidden": "true" });
  node.style.setProperty("--swatch", `var(${each.colour})`);
  return node;
}
