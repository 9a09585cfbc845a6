// The line chart of achieved shares.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

import {h, put, set} from './dom';
import {clock, percent, printable} from './format';
import type {Lines} from './history';

export interface Line {
  name: string;
  colour: number;
  request: number;
}

// A colour of the theme, for what is drawn on a canvas.
export function themed(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const kHeight = 200;
const kFont = '12px system-ui, sans-serif';
// From the edge of the plot to a label: uPlot's tick and gap.
const kToLabel = 15;

// As wide as the longest label, in whatever font the reader's machine has.
function labelsWidth(plot: uPlot, labels: readonly string[] | null): number {
  plot.ctx.save();
  plot.ctx.font = kFont;
  const widest = Math.max(0, ...(labels ?? []).map((label) => plot.ctx.measureText(label).width));
  plot.ctx.restore();
  return Math.ceil(kToLabel + widest + 3);
}

export class ShareChart {
  readonly element: HTMLElement;

  constructor() {
    this.readout = h('p', {class: 'readout', 'aria-live': 'off'});
    this.box = h('div', {class: 'chart', tabindex: 0, role: 'img', 'aria-label': 'Achieved share'});
    this.element = h('div', {class: 'chart-box'}, this.box, this.readout);
    this.box.addEventListener('keydown', (event) => this.onKey(event));
    this.box.addEventListener('blur', () => this.point(null));
    this.resized = new ResizeObserver(() => {
      const width = this.box.clientWidth;
      if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({width, height: kHeight});
    });
    this.resized.observe(this.box);
  }

  // `marked`: the pod that stands out, with its request as a dashed line.
  show(lines: readonly Line[], data: Lines, from_s: number, to_s: number, marked: string | null, label: string): void {
    this.lines = lines;
    this.data = data;
    this.range = [from_s, to_s];
    set(this.box, 'aria-label', label);
    const key = JSON.stringify([lines, marked, document.documentElement.dataset['shown']]);
    const columns: uPlot.AlignedData = [data.xs, ...data.ys];
    if (this.plot && key === this.key) {
      this.plot.setData(columns, true);
    } else {
      this.key = key;
      this.plot?.destroy();
      this.plot = new uPlot(this.options(lines, marked), columns, this.box);
    }
    this.say();
  }

  close(): void {
    this.resized.disconnect();
    this.plot?.destroy();
  }

  private options(lines: readonly Line[], marked: string | null): uPlot.Options {
    const ink = themed('--ink-2');
    const grid = {stroke: themed('--line'), width: 1};
    const font = kFont;
    const request = lines.find((line) => line.name === marked)?.request;
    return {
      width: this.box.clientWidth || 300,
      height: kHeight,
      legend: {show: false},
      cursor: {y: false, drag: {x: false, y: false}, points: {size: 6}},
      padding: [8, 28, 0, 0],
      scales: {
        x: {time: true, range: () => this.range},
        // As far as anybody came, but never so near that noise looks like news; a line at 100 is seen whole.
        y: {range: (_plot, _low, high) => [0, Math.min(102, Math.max(10, Math.ceil((high ?? 0) / 10) * 10 + 5))]},
      },
      axes: [
        {stroke: ink, grid, ticks: grid, font, size: 30, space: 70,
         values: (_plot, splits) => splits.map((at) => clock(at * 1000))},
        {stroke: ink, grid, ticks: grid, font, size: labelsWidth, space: 34,
         values: (_plot, splits) => splits.map((value) => `${value} %`)},
      ],
      series: [
        {},
        ...lines.map((line): uPlot.Series => ({
          label: line.name,
          stroke: themed(`--c${line.colour}`),
          width: line.name === marked ? 2.5 : 1.5,
          alpha: marked === null || line.name === marked ? 1 : 0.3,
          points: {show: false},
          spanGaps: false,
        })),
      ],
      hooks: {
        setCursor: [() => this.say()],
        draw: request === undefined ? [] : [(plot) => {
          const y = Math.round(plot.valToPos(request, 'y', true)) + 0.5;
          const {ctx, bbox} = plot;
          ctx.save();
          ctx.strokeStyle = themed('--ink');
          ctx.setLineDash([4, 4]);
          ctx.beginPath();
          ctx.moveTo(bbox.left, y);
          ctx.lineTo(bbox.left + bbox.width, y);
          ctx.stroke();
          ctx.restore();
        }],
      },
    };
  }

  // The figures under the cursor, in words.
  private say(): void {
    const at = this.plot?.cursor.idx;
    const time = at === null || at === undefined ? undefined : this.data.xs[at];
    if (at === null || at === undefined || time === undefined) {
      put(this.readout, 'Point at the chart, or focus it and use the arrow keys, to read it.');
      return;
    }
    const values = this.lines
      .map((line, i) => ({name: line.name, value: this.data.ys[i]?.[at] ?? null}))
      .filter((entry): entry is {name: string; value: number} => entry.value !== null)
      .sort((a, b) => b.value - a.value)
      .map(({name, value}) => `${printable(name, 40)} ${percent(value)}`);
    put(this.readout, `${clock(time * 1000)}: ${values.join(' · ') || 'no data'}`);
  }

  private onKey(event: KeyboardEvent): void {
    const last = this.data.xs.length - 1;
    if (!this.plot || last < 0) return;
    const now = this.plot.cursor.idx ?? last;
    const to = {ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - 30, PageDown: now + 30, Home: 0, End: last}[event.key];
    if (event.key === 'Escape') this.point(null);
    if (to === undefined) return;
    event.preventDefault();
    set(this.readout, 'aria-live', 'polite');
    this.point(Math.max(0, Math.min(last, to)));
  }
  private point(index: number | null): void {
    if (!this.plot) return;
    const x = index === null ? undefined : this.data.xs[index];
    this.plot.setCursor({left: x === undefined ? -10 : this.plot.valToPos(x, 'x'), top: x === undefined ? -10 : 10});
    if (index === null) set(this.readout, 'aria-live', 'off');
  }

  private readonly box: HTMLElement;
  private readonly readout: HTMLElement;
  private readonly resized: ResizeObserver;
  private plot: uPlot | null = null;
  private key = '';
  private lines: readonly Line[] = [];
  private data: Lines = {xs: [], ys: []};
  private range: [number, number] = [0, 1];
}
