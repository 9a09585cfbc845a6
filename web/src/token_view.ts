// One GPU's token over the last seconds: who held it, who drained, who waited; and how long waits are.
import type {App} from './app';
import {themed} from './chart';
import {Keyed, choice, h, named, put, set, show, swatch} from './dom';
import {duration, grouped, percent, printable} from './format';
import {ApiError, getJson} from './link';
import type {Pod} from './model';
import {type Cover, type Span, Timeline, at, bins, cover, kWaitBins, quantile, readTimeline, summarise, type Summary} from './timeline';

const kKeepMs = 30_000;
const kEachMs = 1000;
export const kRowsMax = 40;

const kBinNames = ['1 ms', '2 ms', '5 ms', '10 ms', '20 ms', '50 ms', '100 ms', '200 ms', '500 ms', '1 s', '2 s', '5 s', '> 5 s'];

interface Lane {
  element: HTMLTableRowElement;
  canvas: HTMLCanvasElement;
  held: HTMLElement;
  waited: HTMLElement;
  longest: HTMLElement;
}
interface WaitRow {
  element: HTMLTableRowElement;
  bars: HTMLElement[];
  cells: HTMLElement[];
  count: HTMLElement;
  median: HTMLElement;
  p99: HTMLElement;
  longest: HTMLElement;
}
interface LaneItem {
  pod: string;
  colour: number;
  summary: Summary;
  cover: Cover | null;
}

function ms(value: number): string {
  return Number.isFinite(value) ? duration(value * 1e6) : '–';
}

export class TokenView {
  readonly element: HTMLElement;

  constructor(private readonly app: App) {
    this.note = h('p', {class: 'note', role: 'status'});
    this.pause = h('button', {type: 'button', 'aria-pressed': 'false', onclick: () => this.togglePause()}, 'Pause');
    this.token = h('canvas', {class: 'lane token', tabindex: 0, role: 'img'});
    this.body = h('tbody');
    this.axis = h('div', {class: 'axis', 'aria-hidden': 'true'});
    this.readout = h('p', {class: 'readout', 'aria-live': 'off'});
    this.lanes = h('table', {class: 'lanes'},
      h('caption', {class: 'unseen'}, 'Who held, drained and waited for the token'),
      h('thead', {}, h('tr', {},
        h('th', {scope: 'col'}, 'Pod'),
        h('th', {scope: 'col'}, h('span', {class: 'key hold'}, 'holds'), h('span', {class: 'key drain'}, 'drains'), h('span', {class: 'key wait'}, 'waits')),
        h('th', {scope: 'col', class: 'n'}, 'Held'),
        h('th', {scope: 'col', class: 'n mid'}, 'Waited'),
        h('th', {scope: 'col', class: 'n wide'}, 'Longest wait'))),
      h('tbody', {}, h('tr', {class: 'all'},
        h('th', {scope: 'row'}, 'token'),
        h('td', {class: 'draw'}, this.token), (this.taken = h('td', {class: 'n'})), h('td', {class: 'n mid'}), h('td', {class: 'n wide'}))),
      this.body,
      h('tbody', {}, h('tr', {class: 'scale'}, h('td'), h('td', {class: 'draw'}, this.axis), h('td'), h('td', {class: 'mid'}), h('td', {class: 'wide'}))));
    this.waits = h('tbody');
    this.waitsBox = h('section', {class: 'panel', 'aria-labelledby': 'waits-title'},
      h('h3', {id: 'waits-title'}, 'Length of waits'),
      (this.waitsNote = h('p', {class: 'note'})),
      h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Lengths of waits, table'},
        h('table', {class: 'waits'},
          h('caption', {class: 'unseen'}, 'Number of waits by length, for each pod'),
          h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'Pod'),
            h('th', {scope: 'col', class: 'n wide'}, 'Waits'), h('th', {scope: 'col', class: 'n'}, 'Median'),
            h('th', {scope: 'col', class: 'n'}, '99 %'), h('th', {scope: 'col', class: 'n wide'}, 'Longest'),
            ...this.binHeads)),
          this.waits)));
    this.element = h('div', {class: 'token-view'},
      h('section', {class: 'panel', 'aria-labelledby': 'token-title'},
        h('div', {class: 'panel-head'}, h('h3', {id: 'token-title'}, 'Token'),
          choice('Length of the timeline', [['1', '1 s'], ['5', '5 s'], ['30', '30 s']] as const, innerWidth < 760 ? '1' : '5', (value) => {
            this.shown_ms = Number(value) * 1000;
            this.draw();
          }), this.pause),
        this.note, this.lanes, this.readout),
      this.waitsBox);

    this.laneRows = new Keyed<LaneItem, Lane>(this.body, (item) => item.pod, (item) => this.makeLane(item), (lane, item) => {
      put(lane.held, percent((item.summary.held_ms / this.window) * 100));
      put(lane.waited, percent((item.summary.waited_ms / this.window) * 100));
      put(lane.longest, ms(item.summary.longest_ms));
      set(lane.canvas, 'aria-label',
          `held ${percent((item.summary.held_ms / this.window) * 100)}, waited ${percent((item.summary.waited_ms / this.window) * 100)}, longest wait ${ms(item.summary.longest_ms)}`);
    });
    this.waitRows = new Keyed<{pod: string; colour: number; counts: number[]; median: string; p99: string; longest: string}, WaitRow>(
      this.waits, (item) => item.pod, (item) => this.makeWaitRow(item), (row, item) => {
        const total = item.counts.reduce((sum, count) => sum + count, 0);
        const most = Math.max(1, ...item.counts);
        row.bars.forEach((bar, i) => {
          const count = item.counts[i] ?? 0;
          bar.style.height = `${count === 0 ? 0 : Math.max(2, Math.round((count / most) * 20))}px`;
          const cell = row.cells[i]!;
          set(cell, 'title', `${kBinNames[i]}: ${grouped(count)}`);
          put(cell.querySelector('.unseen')!, String(count));
        });
        put(row.count, grouped(total));
        put(row.median, item.median);
        put(row.p99, item.p99);
        put(row.longest, item.longest);
      });

    const over = (event: PointerEvent) => {
      const canvas = (event.target as Element).closest<HTMLElement>('canvas.lane');
      if (!canvas) return this.point(null);
      const box = canvas.getBoundingClientRect();
      this.point((event.clientX - box.left) / box.width);
    };
    this.lanes.addEventListener('pointermove', over);
    this.lanes.addEventListener('pointerleave', () => this.point(null));
    this.token.addEventListener('keydown', (event) => this.onKey(event));
    this.token.addEventListener('blur', () => this.point(null));
    this.resized = new ResizeObserver(() => this.paint());
    this.resized.observe(this.token);
    this.say();
  }

  // Which GPU, and the pods on it in the order in which they are shown.
  set(uuid: string, pods: readonly Pod[]): void {
    this.pods = pods;
    if (uuid !== this.uuid) {
      this.uuid = uuid;
      this.timeline = new Timeline(kKeepMs);
      this.stop();
      this.note.textContent = '';
      if (this.paused) this.togglePause();
      this.draw();
    }
    if (!this.running && this.app.state.kind === 'live' && !document.hidden) void this.follow();
    this.drawWaits();
  }

  themeChanged(): void {
    this.paint();
  }

  close(): void {
    this.stop();
    this.closed = true;
    this.resized.disconnect();
  }

  private stop(): void {
    this.abort?.abort();
    this.abort = null;
    this.running = false;
  }

  // Asks each second for what is new; ends by itself when batond is away, and set() begins again.
  private async follow(): Promise<void> {
    const abort = new AbortController();
    this.abort = abort;
    this.running = true;
    while (!abort.signal.aborted && !this.closed && this.app.state.kind === 'live' && !document.hidden) {
      const begun = performance.now();
      if (!this.paused) {
        try {
          const since = this.last === 0 || Number.isNaN(this.timeline.now) ? kKeepMs : begun - this.last;
          const seconds = Math.min(kKeepMs / 1000, Math.ceil(since / 1000) + 1);
          const answer = readTimeline(await getJson(
            `api/v1/timeline?gpu=${encodeURIComponent(this.uuid)}&seconds=${seconds}`, abort.signal));
          if (abort.signal.aborted) return;
          if (answer) {
            this.timeline.merge(answer, seconds * 1000);
            this.last = begun;
            this.failed = '';
          } else {
            this.failed = 'batond’s answer is not a timeline.';
          }
        } catch (error) {
          if (abort.signal.aborted) return;
          this.failed = error instanceof ApiError ? error.message : 'The timeline cannot be read.';
          if (error instanceof ApiError && error.code === 401) this.app.refused(error.message);
        }
        this.draw();
      }
      const wait = Math.max(200, kEachMs * (this.failed ? 5 : 1) - (performance.now() - begun));
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
    if (this.abort === abort) this.running = false;
  }

  private togglePause(): void {
    this.paused = !this.paused;
    set(this.pause, 'aria-pressed', String(this.paused));
    put(this.pause, this.paused ? 'Resume' : 'Pause');
    this.last = 0;
  }

  private get window(): number {
    return Math.max(1, Math.min(this.shown_ms, this.timeline.now - this.timeline.begin || this.shown_ms));
  }

  private draw(): void {
    const known = !Number.isNaN(this.timeline.now);
    const to = this.timeline.now;
    const from = to - this.shown_ms;
    this.spans = known ? this.timeline.within(from, to) : [];
    const summaries = summarise(this.spans, from, to);
    const none: Summary = {held_ms: 0, drained_ms: 0, waited_ms: 0, longest_ms: 0, waits: []};
    // Those that are there in the order of the shares above, then those that have left.
    const order = [...new Set([...this.pods.map((pod) => pod.name), ...[...summaries.keys()].sort()])];
    const shown = order.slice(0, kRowsMax);
    this.items = shown.map((pod) => ({pod, colour: this.app.colours.of(pod), summary: summaries.get(pod) ?? none, cover: null}));
    this.laneRows.show(this.items);
    const held = [...summaries.values()].reduce((sum, summary) => sum + summary.held_ms, 0);
    put(this.taken, known ? percent(Math.min(100, (held / this.window) * 100)) : '–');
    const said = this.failed !== '' ? this.failed
      : !known ? 'Waiting for the first data.'
      : this.paused ? 'Paused. What happens meanwhile is not recorded.'
      : order.length > shown.length ? `${shown.length} of ${order.length} pods are shown; the token’s lane has all pods.`
      : '';
    put(this.note, said);
    show(this.note, said !== '');
    set(this.token, 'aria-label', [...summaries].filter(([, summary]) => summary.held_ms > 0)
      .sort((a, b) => b[1].held_ms - a[1].held_ms).slice(0, 10)
      .map(([pod, summary]) => `${printable(pod, 60)} held ${percent((summary.held_ms / this.window) * 100)}`)
      .join(', ') || 'Nobody held the token.');
    this.paint();
    this.drawWaits();
    this.say();
  }

  // The canvases, from the spans that are shown.
  private paint(): void {
    const width = this.token.clientWidth;
    if (width === 0) return;
    const scale = Math.min(2, devicePixelRatio || 1);
    const columns = Math.round(width * scale);
    const to = this.timeline.now;
    const covers = Number.isNaN(to) ? new Map<string, Cover>() : cover(this.spans, to - this.shown_ms, to, columns);
    const back = themed('--track');
    const ink = themed('--ink');
    const hatch = this.hatch(scale);
    const begin = (canvas: HTMLCanvasElement): CanvasRenderingContext2D | null => {
      const height = Math.round(canvas.clientHeight * scale);
      if (canvas.width !== columns) canvas.width = columns;
      if (canvas.height !== height) canvas.height = height;
      const context = canvas.getContext('2d');
      if (!context) return null;
      context.fillStyle = back;
      context.fillRect(0, 0, columns, height);
      return context;
    };
    const end = (context: CanvasRenderingContext2D) => {
      if (this.pointed === null) return;
      context.fillStyle = ink;
      context.fillRect(Math.round(this.pointed * columns), 0, Math.max(1, scale), context.canvas.height);
    };

    const all = begin(this.token);
    if (all) {
      // Who has the token, one above the other where a column is longer than a token.
      const height = all.canvas.height;
      const top = new Float32Array(columns).fill(height);
      const order = [...new Set([...this.items.map((item) => item.pod), ...covers.keys()])];
      for (const pod of order) {
        const of_pod = covers.get(pod);
        if (!of_pod) continue;
        const colour = themed(`--c${this.app.colours.of(pod)}`);
        for (let x = 0; x < columns; ++x) {
          const had = Math.min(1, of_pod.hold[x]! + of_pod.drain[x]!) * height;
          if (had < 0.25) continue;
          all.fillStyle = colour;
          all.fillRect(x, top[x]! - had, 1, had);
          const drained = Math.min(had, of_pod.drain[x]! * height);
          if (hatch && drained >= 1) {
            all.fillStyle = hatch;
            all.fillRect(x, top[x]! - had, 1, drained);
          }
          top[x]! -= had;
        }
      }
      end(all);
    }
    for (const item of this.items) {
      const canvas = this.laneRows.get(item.pod)?.canvas;
      const context = canvas ? begin(canvas) : null;
      if (!context) continue;
      const of_pod = covers.get(item.pod);
      const height = context.canvas.height;
      const colour = themed(`--c${item.colour}`);
      const line = Math.max(2, Math.round(3 * scale));
      for (let x = 0; of_pod && x < columns; ++x) {
        const had = Math.min(1, of_pod.hold[x]! + of_pod.drain[x]!) * height;
        // A thin line at the bottom says that it waited for some of this time.
        context.fillStyle = colour;
        if (of_pod.wait[x]! > 0.02) {
          context.globalAlpha = 0.35 + 0.65 * Math.min(1, of_pod.wait[x]!);
          context.fillRect(x, height - line, 1, line);
          context.globalAlpha = 1;
        }
        if (had < 0.25) continue;
        context.fillRect(x, height - had, 1, had);
        const drained = Math.min(had, of_pod.drain[x]! * height);
        if (hatch && drained >= 1) {
          context.fillStyle = hatch;
          context.fillRect(x, height - had, 1, drained);
        }
      }
      end(context);
    }
    this.paintAxis();
  }

  private hatch(scale: number): CanvasPattern | null {
    const size = Math.round(4 * scale);
    const tile = document.createElement('canvas');
    tile.width = tile.height = size;
    const context = tile.getContext('2d');
    if (!context) return null;
    context.strokeStyle = themed('--panel');
    context.lineWidth = Math.max(1, 1.4 * scale);
    context.beginPath();
    for (const shift of [-size, 0, size]) {
      context.moveTo(shift, size);
      context.lineTo(shift + size, 0);
    }
    context.stroke();
    return context.createPattern(tile, 'repeat');
  }

  private paintAxis(): void {
    const parts = this.token.clientWidth < 400 ? 2 : 5;
    const names: string[] = [];
    for (let i = 0; i <= parts; ++i) {
      const before = (this.shown_ms / 1000) * (1 - i / parts);
      names.push(i === parts ? 'now' : `−${+before.toFixed(1)} s`);
    }
    if (this.axis.dataset['is'] === names.join()) return;
    this.axis.dataset['is'] = names.join();
    this.axis.replaceChildren(...names.map((name) => h('span', {}, name)));
  }

  private point(part: number | null): void {
    const pointed = part === null || !(part >= 0 && part <= 1) ? null : part;
    if (pointed === this.pointed) return;
    this.pointed = pointed;
    this.paint();
    this.say();
  }
  private onKey(event: KeyboardEvent): void {
    const now = this.pointed ?? 1;
    const step = 1 / Math.max(1, this.token.clientWidth);
    const to = {ArrowLeft: now - step, ArrowRight: now + step, PageUp: now - 0.1, PageDown: now + 0.1, Home: 0, End: 1}[event.key];
    if (event.key === 'Escape') return this.point(null);
    if (to === undefined) return;
    event.preventDefault();
    // Reading needs it to stand still.
    if (!this.paused) this.togglePause();
    set(this.readout, 'aria-live', 'polite');
    this.point(Math.max(0, Math.min(1, to)));
  }
  private say(): void {
    if (this.pointed === null || Number.isNaN(this.timeline.now)) {
      set(this.readout, 'aria-live', 'off');
      put(this.readout, 'Point at the lanes, or focus the token’s and use the arrow keys, to read them.');
      return;
    }
    const before = this.shown_ms * (1 - this.pointed);
    const {token, waiting} = at(this.spans, this.timeline.now - before);
    const who = token ? `${printable(token.pod, 40)} ${token.kind === 'drain' ? 'drains' : 'holds'}, ${ms(token.to - token.from)}${token.open ? ' so far' : ''}` : 'nobody holds';
    const waits = waiting.length === 0 ? 'nobody waits'
      : `${waiting.slice(0, 6).map((span) => `${printable(span.pod, 40)} waits ${ms(span.to - span.from)}`).join(', ')}${waiting.length > 6 ? ` and ${waiting.length - 6} more wait` : ''}`;
    put(this.readout, `${(before / 1000).toFixed(3)} s ago: ${who}; ${waits}.`);
  }

  private drawWaits(): void {
    const known = !Number.isNaN(this.timeline.now);
    const all = known ? summarise(this.timeline.within(this.timeline.begin, this.timeline.now), this.timeline.begin, this.timeline.now)
      : new Map<string, Summary>();
    const shown = this.pods.slice(0, kRowsMax).map((pod) => {
      const colour = this.app.colours.of(pod.name);
      const waits = all.get(pod.name)?.waits ?? [];
      return {pod: pod.name, colour, counts: bins(waits, kWaitBins), median: ms(quantile(waits, 0.5)),
              p99: ms(quantile(waits, 0.99)), longest: ms(quantile(waits, 1))};
    });
    // Lengths that nobody waited, at either end, are left out.
    const used = kBinNames.map((_name, i) => shown.some((item) => item.counts[i]! > 0));
    const [first, last] = [used.indexOf(true), used.lastIndexOf(true)];
    const hidden = (i: number) => first < 0 || i < first || i > last;
    this.binHeads.forEach((head, i) => show(head, !hidden(i)));
    this.waitRows.show(shown);
    for (const item of shown) this.waitRows.get(item.pod)?.cells.forEach((cell, i) => show(cell, !hidden(i)));
    const seconds = Math.round((this.timeline.now - this.timeline.begin) / 1000);
    put(this.waitsNote, known ? `Waits that began and ended in the last ${seconds} s, by length up to that of the column. Each pod’s bars have their own scale.`
      : 'Waiting for the first data.');
    show(this.waitsBox, this.pods.length > 0);
  }

  private makeLane(item: LaneItem): Lane {
    const canvas = h('canvas', {class: 'lane', role: 'img'});
    const held = h('td', {class: 'n'});
    const waited = h('td', {class: 'n mid'});
    const longest = h('td', {class: 'n wide'});
    const element = h('tr', {}, h('th', {scope: 'row'}, swatch(item.colour), named(item.pod)),
      h('td', {class: 'draw'}, canvas), held, waited, longest);
    return {element, canvas, held, waited, longest};
  }
  private makeWaitRow(item: {pod: string; colour: number}): WaitRow {
    const bars = kBinNames.map(() => h('span', {class: `wait-bar c${item.colour}`, 'aria-hidden': 'true'}));
    const cells = bars.map((bar) => h('td', {class: 'bin'}, bar, h('span', {class: 'unseen'}, '0')));
    const [count, median, p99, longest] = [h('td', {class: 'n wide'}), h('td', {class: 'n'}), h('td', {class: 'n'}), h('td', {class: 'n wide'})];
    const element = h('tr', {}, h('th', {scope: 'row'}, swatch(item.colour), named(item.pod)), count, median, p99, longest, ...cells);
    return {element, bars, cells, count: count!, median: median!, p99: p99!, longest: longest!};
  }

  private readonly note: HTMLElement;
  private readonly pause: HTMLButtonElement;
  private readonly lanes: HTMLElement;
  private readonly token: HTMLCanvasElement;
  private readonly taken: HTMLElement;
  private readonly body: HTMLElement;
  private readonly axis: HTMLElement;
  private readonly readout: HTMLElement;
  private readonly waits: HTMLElement;
  private readonly binHeads = kBinNames.map((name) => h('th', {scope: 'col', class: 'bin'}, name));
  private readonly waitsBox: HTMLElement;
  private readonly waitsNote: HTMLElement;
  private readonly laneRows: Keyed<LaneItem, Lane>;
  private readonly waitRows;
  private readonly resized: ResizeObserver;

  private uuid = '';
  private pods: readonly Pod[] = [];
  private timeline = new Timeline(kKeepMs);
  private spans: Span[] = [];
  private items: LaneItem[] = [];
  // About as many as there are pixels for.
  private shown_ms = innerWidth < 760 ? 1000 : 5000;
  private pointed: number | null = null;
  private paused = false;
  private running = false;
  private closed = false;
  private abort: AbortController | null = null;
  private last = 0;
  private failed = '';
}
