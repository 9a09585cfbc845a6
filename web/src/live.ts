// Who gets what of each GPU, just now.
import {type App, type View, kFirstPod, route} from './app';
import {ShareChart, type Line} from './chart';
import {Keyed, arrows, choice, h, named, put, putName, set, setVar, show, swatch} from './dom';
import {bytes, duration, grouped, percent, plural, printable, share, shortGpu} from './format';
import {type Achieved, type Gpu, type Pod, type PodOnGpu, type UnmanagedProcess, byToken, onGpu, readHistory} from './model';
import {Past, joined} from './past';
import {question} from './question';
import {TokenView, kRowsMax} from './token_view';

const kLinesMax = 12;
// What is second by second in this page, at most; a longer chart is of the ledger.
const kSeconds = 900;

interface Part {
  pod: Pod;
  on: PodOnGpu;
  colour: number;
  by_token: boolean;
}

interface Tab {
  element: HTMLAnchorElement;
  name: HTMLElement;
  bar: HTMLElement;
  pieces: Keyed<Part, {element: HTMLElement}>;
  text: HTMLElement;
  flags: HTMLElement;
}
interface Row {
  element: HTMLTableRowElement;
  bar: HTMLElement;
  achieved: HTMLElement;
  asked: HTMLElement;
  due: HTMLElement;
  waited: HTMLElement;
  memory: HTMLElement;
  phase: HTMLElement;
}

export function phaseText(on: {phase: string; mode: string; throttled?: boolean; memory_released?: boolean | null | undefined}): string {
  return on.mode === 'mig' || on.mode === 'mps' ? `by ${on.mode.toUpperCase()}` : on.throttled ? 'at its limit' : on.memory_released ? 'swapped out' : printable(on.phase, 20);
}

// Why it gets no new pods, in a word; empty: it is healthy.
function unhealthy(gpu: Gpu): string {
  return gpu.health && gpu.health !== 'healthy' ? printable(gpu.health, 20) : '';
}

// Processes that launch without a token.
function unmanaged(processes: readonly UnmanagedProcess[]): HTMLElement {
  const rows = processes.slice(0, kRowsMax).map((process) => h('tr', {},
    h('th', {scope: 'row'}, String(process.pid)),
    h('td', {}, named(process.command || 'not visible')),
    h('td', {}, named(process.user || String(process.uid))),
    h('td', {}, printable(process.container.slice(0, 12), 12) || '–'),
    h('td', {}, process.pod === '' ? '–' : named(process.pod)),
    h('td', {class: 'n'}, process.memory > 0 ? bytes(process.memory) : '–')));
  const heads = ['Process', 'Command', 'User', 'Container', 'Pod', 'Memory'];
  return h('div', {class: 'unmanaged'},
    h('p', {class: 'trouble'}, `${plural(processes.length, 'process', 'processes')} without the token: Baton does not manage what they take of this GPU.`),
    h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Processes without the token, table'},
      h('table', {},
        h('caption', {class: 'unseen'}, 'Processes on this GPU that launch without the token'),
        h('thead', {}, h('tr', {}, ...heads.map((head, i) => h('th', {scope: 'col', ...(i === heads.length - 1 ? {class: 'n'} : {})}, head)))),
        h('tbody', {}, ...rows))));
}

export class LiveView implements View {
  readonly element: HTMLElement;

  constructor(private readonly app: App) {
    this.tabs = h('nav', {class: 'gpus', 'aria-label': 'GPUs'});
    this.head = h('div', {class: 'gpu-head'});
    this.chart = new ShareChart();
    this.token = new TokenView(app);
    this.body = h('tbody');
    this.more = h('button', {type: 'button', hidden: true, onclick: () => {
      this.all = true;
      this.draw();
    }});
    this.chartTitle = h('h3', {id: 'chart-title'});
    this.chartNote = h('p', {class: 'note', hidden: true});
    this.none = h('section', {class: 'panel none', hidden: true},
      h('h3', {}, 'No pod has a share of this GPU'),
      h('p', {}, 'Start one:'), h('pre', {}, kFirstPod),
      h('p', {}, 'It gets 30 % of the GPU while it has work, and idle time of other pods.'));
    this.shares = h('section', {class: 'panel', 'aria-labelledby': 'shares-title'},
      h('div', {class: 'panel-head'}, h('h3', {id: 'shares-title'}, 'Shares'),
        h('span', {}, h('span', {class: 'key request'}, 'request'), h('span', {class: 'key limit'}, 'limit')),
        choice('Achieved over the last', [['achieved_1s', '1 s'], ['achieved_10s', '10 s'], ['achieved_60s', '60 s']] as const,
               'achieved_10s', (value) => {
                 this.over = value;
                 this.draw();
               })),
      h('table', {class: 'shares'},
        h('caption', {class: 'unseen'}, 'Each pod’s share of this GPU'),
        h('thead', {}, h('tr', {},
          h('th', {scope: 'col'}, 'Pod'),
          h('th', {scope: 'col', class: 'bar-col'}, 'of the GPU'),
          h('th', {scope: 'col', class: 'n'}, 'Achieved'),
          h('th', {scope: 'col', class: 'n'}, h('abbr', {title: 'request to limit'}, 'Request')),
          h('th', {scope: 'col', class: 'n wide'}, h('abbr', {title: 'its entitlement among the pods that wait or hold now'}, 'Due')),
          h('th', {scope: 'col', class: 'n'}, h('abbr', {title: 'fraction of the last second in which it waited'}, 'Waited')),
          h('th', {scope: 'col', class: 'n wide'}, 'Memory'),
          h('th', {scope: 'col', class: 'wide'}, 'Phase'))),
        this.body),
      this.more);
    this.lines = h('section', {class: 'panel', 'aria-labelledby': 'chart-title'},
      h('div', {class: 'panel-head'}, this.chartTitle,
        choice('Length of the chart', [['60', '1 min'], ['300', '5 min'], ['900', '15 min'], ['3600', '1 h'], ['86400', '1 day']] as const, '300', (value) => {
          this.seconds = Number(value);
          this.draw();
        })),
      this.chart.element, this.chartNote);
    this.detail = h('div', {class: 'gpu'}, this.head,
      h('div', {class: 'two'}, this.shares, this.lines), this.none, this.token.element);
    this.nothing = h('section', {class: 'panel none', hidden: true}, h('h2', {}, 'batond manages no GPU'),
      h('p', {}, 'batond manages the GPUs of its own machine that NVML lists, and those of nodes whose baton-frontend is connected. The events say what it found at its start.'),
      h('p', {}, h('a', {href: route('events')}, 'Events')));
    this.element = h('div', {class: 'live'}, h('h1', {class: 'unseen'}, 'Live'), this.tabs, this.detail, this.nothing);

    this.tabRows = new Keyed<Gpu, Tab>(this.tabs, (gpu) => gpu.uuid, (gpu) => this.makeTab(gpu), (tab, gpu) => this.updateTab(tab, gpu));
    this.rows = new Keyed<Part, Row>(this.body, (part) => part.pod.name, (part) => this.makeRow(part), (row, part) => this.updateRow(row, part));
    arrows(this.tabs, () => [...this.tabs.querySelectorAll('a')], (tab) => {
      tab.focus();
      location.replace(tab.href);
    });
  }

  update(rest: string): void {
    this.wanted = rest;
    // Once more, at the page's own pace.
    if (this.pastFailed && this.app.state.kind === 'live') this.pastOf = '';
    this.draw();
    this.token.themeChanged();
  }

  // A long chart goes on as the ledger does, a bucket at a time.
  ledger(): void {
    if (this.seconds <= kSeconds || !this.past || Date.now() < this.past.end_ms + 2 * this.past.bucket_ms) return;
    void this.fetchPast();
  }

  close(): void {
    this.abort?.abort();
    this.chart.close();
    this.token.close();
  }

  private draw(): void {
    const status = this.app.status;
    show(this.nothing, status !== null && status.gpus.length === 0);
    show(this.tabs, status !== null && status.gpus.length > 0);
    show(this.detail, status !== null && status.gpus.length > 0);
    if (!status || status.gpus.length === 0) return;
    this.gpu = status.gpus.find((gpu) => gpu.uuid === this.wanted) ?? status.gpus[0]!;
    this.tabRows.show(status.gpus);

    const gpu = this.gpu;
    const parts = this.partsOn(gpu.uuid);
    this.drawHead(gpu, parts);
    show(this.none, parts.length === 0);
    show(this.shares, parts.length > 0);
    show(this.lines, parts.length > 0);
    const turns = parts.filter((part) => part.by_token);
    show(this.token.element, turns.length > 0);
    const shown = this.all ? parts : parts.slice(0, kRowsMax);
    this.rows.show(shown);
    show(this.more, shown.length < parts.length);
    put(this.more, `Show all ${grouped(parts.length)} pods`);
    if (parts.length === 0) return;
    this.drawChart(gpu.uuid, parts);
    if (turns.length > 0) this.token.set(gpu.uuid, turns.map((part) => part.pod));
  }

  // Those on a GPU, the largest request first: an order that stays while shares move.
  private partsOn(uuid: string): Part[] {
    const parts: Part[] = [];
    const gpu = this.app.status?.gpus.find((one) => one.uuid === uuid) ?? {vendor: null};
    for (const pod of this.app.status?.pods ?? []) {
      const on = onGpu(pod, uuid);
      if (on) parts.push({pod, on, colour: this.app.colours.of(pod.name), by_token: byToken(pod, gpu)});
    }
    return parts.sort((a, b) => b.pod.request - a.pod.request || (a.pod.name < b.pod.name ? -1 : 1));
  }

  private drawHead(gpu: Gpu, parts: readonly Part[]): void {
    const asked = parts.reduce((sum, part) => sum + part.pod.request, 0);
    const other = parts.find((part) => !part.by_token);
    const mode = gpu.mig_enabled ? 'MIG' : (gpu.vendor || 'nvidia') !== 'nvidia' ? 'whole, without a token' : other ? other.pod.mode.toUpperCase() : null;
    const key = JSON.stringify([gpu, parts.length, asked, mode]);
    if (this.head.dataset['is'] === key) return;
    this.head.dataset['is'] = key;
    const fact = (name: string, value: Node | string) => h('div', {}, h('dt', {}, name), h('dd', {}, value));
    this.head.replaceChildren(
      h('h2', {}, printable(gpu.name, 80) || 'GPU', ' ', h('code', {}, printable(gpu.uuid, 80))),
      h('dl', {class: 'facts'},
        fact('Node', named(gpu.node || 'this one')),
        fact('Memory', bytes(gpu.memory)),
        fact('Requested', share(asked)),
        ...(mode !== null ? [fact('Mode', mode)] : [
          fact('Holder', gpu.holder === null ? 'nobody' : named(gpu.holder)),
          fact('Waiting', grouped(gpu.queue.length)),
          fact('Hand-off', duration(gpu.handoff_ns)),
          fact('Tokens granted', grouped(gpu.grants)),
          fact('Overruns', grouped(gpu.overruns))])));
    if (gpu.cordoned) this.head.append(h('p', {class: 'note'}, 'Cordoned: it gets no new pods; those on it stay.'));
    const why = gpu.why ? `: ${printable(gpu.why, 300)}` : '.';
    const trouble = [
      unhealthy(gpu) === 'failed' && `This GPU has failed, and gets no new pods${why}`,
      gpu.present && unhealthy(gpu) === 'missing' && `This GPU is missing, and gets no new pods${why}`,
      !gpu.present && 'This GPU has vanished; its pods cannot run.',
      gpu.hung && 'The holder does not drain: a kernel does not end, or a process is stopped. The token stays until it does.',
      gpu.link === 'cut' && 'The link to its node is cut; the token of this GPU does not move until the link is back.',
    ].filter((text): text is string => text !== false);
    for (const text of trouble) this.head.append(h('p', {class: 'trouble'}, text));
    if (gpu.unmanaged.length > 0) this.head.append(unmanaged(gpu.unmanaged));
  }

  private async fetchPast(): Promise<void> {
    const uuid = this.gpu!.uuid;
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    this.pastOf = this.pastWanted();
    const answer = await question(this.app, `api/v1/history?gpu=${encodeURIComponent(uuid)}&last=${Math.max(kSeconds, this.seconds)}s`,
                                  readHistory, abort.signal);
    if (answer === null) return;
    this.past = answer.value && new Past(answer.value);
    this.pastTrouble = answer.trouble;
    this.pastFailed = answer.away;
    // Colours of those who are gone, beside those who are there.
    const names = [...this.partsOn(uuid).map((part) => part.pod.name), ...(this.past?.pods ?? [])];
    this.app.colours.meet(names.map((name) => ({name, places: [uuid]})));
    this.draw();
  }
  private pastWanted(): string {
    return `${this.gpu!.uuid} ${Math.max(kSeconds, this.seconds)}`;
  }

  private drawChart(uuid: string, parts: readonly Part[]): void {
    const now = Date.now();
    const long = this.seconds > kSeconds;
    if (this.pastOf !== this.pastWanted() && this.app.state.kind === 'live') {
      this.past = null;
      this.pastTrouble = '';
      this.pastFailed = false;
      void this.fetchPast();
    }
    const past = this.past;
    // As much as is known, but a minute at least.
    const known = Math.min(...[this.app.history.begin_ms, past?.begin_ms ?? NaN].map((begin) => begin || now));
    const from = Math.max(now - this.seconds * 1000, Math.min(now - 60_000, known));
    // The same lines from second to second: by request, not by what moves. Then those who are gone.
    const all: Line[] = parts.map((part) => ({name: part.pod.name, colour: part.colour, request: part.pod.request}));
    if (long) {
      const there = new Set(all.map((line) => line.name));
      for (const name of past?.pods ?? []) {
        if (!there.has(name)) all.push({name, colour: this.app.colours.of(name), request: 0});
      }
    }
    const lines = all.slice(0, kLinesMax);
    const marked = all.find((line) => line.name === this.marked);
    if (marked && !lines.includes(marked)) lines.push(marked);
    const names = lines.map((line) => line.name);
    // The ledger's figures where this page has none, and in a long chart wherever there are any.
    const since = long ? past?.end_ms ?? from : this.app.history.begin_ms || now;
    const live = this.app.history.lines(uuid, names, Math.max(from, since));
    const data = past ? joined(past.lines(names, from, since), live) : live;
    const most = parts.slice(0, 4).map((part) => `${printable(part.pod.name, 40)} ${percent(part.on.achieved_1s)}`);
    put(this.chartTitle, !long ? 'Achieved share'
      : `Achieved share, every ${past === null || past.bucket_ms < 60_000 ? '10 s' : past.bucket_ms < 3_600_000 ? 'minute' : 'hour'}`);
    this.chart.show(lines, data, from / 1000, now / 1000, marked?.name ?? null,
                    `Achieved share over time; now ${most.join(', ')}`);
    const notes = [
      all.length > lines.length && `${lines.length} of ${all.length} pods, those with the largest requests. Point at the row of another pod to add it.`,
      long && this.pastTrouble,
    ].filter((text): text is string => typeof text === 'string' && text !== '');
    show(this.chartNote, notes.length > 0);
    put(this.chartNote, notes.join(' '));
  }

  private makeTab(gpu: Gpu): Tab {
    const name = h('span', {class: 'gpu-name'});
    const bar = h('span', {class: 'stack', 'aria-hidden': 'true'});
    const text = h('span', {class: 'gpu-text'});
    const flags = h('span', {class: 'gpu-flags'});
    const element = h('a', {class: 'gpu-tab', href: route('live', gpu.uuid)}, name, bar, text, flags);
    const pieces = new Keyed<Part, {element: HTMLElement}>(bar, (part) => part.pod.name,
      (part) => ({element: h('span', {class: `c${part.colour}`})}),
      (row, part) => setVar(row.element, '--part', `${Math.max(0, Math.min(100, part.on.achieved_10s)).toFixed(1)}%`));
    return {element, name, bar, pieces, text, flags};
  }
  private updateTab(tab: Tab, gpu: Gpu): void {
    const is = gpu.uuid === this.gpu?.uuid;
    set(tab.element, 'aria-current', is ? 'true' : null);
    tab.element.tabIndex = is ? 0 : -1;
    putName(tab.name, shortGpu(gpu.uuid));
    const parts = this.partsOn(gpu.uuid);
    tab.pieces.show(parts);
    const held = parts.reduce((sum, part) => sum + part.on.achieved_10s, 0);
    put(tab.text, `${gpu.node ? `${printable(gpu.node, 30)} · ` : ''}${plural(parts.length, 'pod')} · ${percent(Math.min(100, held))} held`);
    const flags = [!gpu.present ? 'gone' : unhealthy(gpu), gpu.cordoned && 'cordoned', gpu.hung && 'hung', gpu.link === 'cut' && 'link cut',
                   gpu.unmanaged.length > 0 && `${gpu.unmanaged.length} without token`].filter(Boolean).join(', ');
    put(tab.flags, flags);
    show(tab.flags, flags !== '');
  }

  private makeRow(part: Part): Row {
    const bar = h('div', {class: `bar c${part.colour}`, 'aria-hidden': 'true'},
      h('span', {class: 'beyond'}), h('span', {class: 'fill'}), h('span', {class: 'limit'}), h('span', {class: 'request'}));
    const [achieved, asked, due, waited, memory] = [h('td', {class: 'n strong'}), h('td', {class: 'n'}), h('td', {class: 'n wide'}),
                                                    h('td', {class: 'n'}), h('td', {class: 'n wide'})];
    const phase = h('td', {class: 'wide phase'});
    const link = h('a', {href: route('pods', part.pod.name)}, named(part.pod.name));
    const mark = (on: boolean) => {
      this.marked = on ? part.pod.name : null;
      this.drawChart(this.gpu!.uuid, this.partsOn(this.gpu!.uuid));
    };
    const element = h('tr', {onpointerenter: () => mark(true), onpointerleave: () => mark(false),
                             onfocusin: () => mark(true), onfocusout: () => mark(false)},
      h('th', {scope: 'row'}, swatch(part.colour), link), h('td', {class: 'bar-col'}, bar),
      achieved!, asked!, due!, waited!, memory!, phase);
    return {element, bar, achieved: achieved!, asked: asked!, due: due!, waited: waited!, memory: memory!, phase};
  }
  private updateRow(row: Row, {pod, on, by_token}: Part): void {
    const of = (value: number) => `${Math.max(0, Math.min(100, value)).toFixed(2)}%`;
    setVar(row.bar, '--achieved', of(on[this.over]));
    setVar(row.bar, '--request', of(pod.request));
    setVar(row.bar, '--limit', of(pod.limit));
    put(row.achieved, percent(on[this.over]));
    put(row.asked, pod.request === pod.limit || !by_token ? share(pod.request) : `${+pod.request.toFixed(2)}–${share(pod.limit)}`);
    put(row.due, by_token ? percent(on.fluid) : '–');
    put(row.waited, by_token ? percent(on.waited_1s) : '–');
    put(row.memory, bytes(on.memory_used));
    set(row.memory, 'title', pod.memory > 0 ? `of ${bytes(pod.memory)}` : 'no cap');
    put(row.phase, phaseText({...on, mode: pod.mode}));
    set(row.phase, 'data-phase', on.throttled ? 'throttled' : on.phase);
  }

  private readonly tabs: HTMLElement;
  private readonly head: HTMLElement;
  private readonly detail: HTMLElement;
  private readonly nothing: HTMLElement;
  private readonly none: HTMLElement;
  private readonly shares: HTMLElement;
  private readonly lines: HTMLElement;
  private readonly body: HTMLElement;
  private readonly more: HTMLButtonElement;
  private readonly chartTitle: HTMLElement;
  private readonly chartNote: HTMLElement;
  private readonly chart: ShareChart;
  private readonly token: TokenView;
  private readonly tabRows: Keyed<Gpu, Tab>;
  private readonly rows: Keyed<Part, Row>;

  private wanted = '';
  private gpu: Gpu | null = null;
  private over: Achieved = 'achieved_10s';
  private seconds = 300;
  private all = false;
  private marked: string | null = null;
  private past: Past | null = null;
  private pastOf = '';  // what was asked for last
  private pastTrouble = '';
  private pastFailed = false;
  private abort: AbortController | null = null;
}
