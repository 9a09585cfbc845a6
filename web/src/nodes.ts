// All nodes whose books are kept here, and what their GPUs were used for: of a batond that grants
// the tokens of all, or to which the others send their use.
import {type App, type View, route} from './app';
import {choice, h, named, put, show} from './dom';
import {grouped, hours, percent, plural, printable, shortGpu} from './format';
import {readReport} from './model';
import {type NodeUse, type Use, nodesOf, pageOf, sum} from './node_use';
import {question} from './question';
import {matches} from './search';

const kRowsMax = 500;
const kWindows = [['1h', '1 h'], ['1d', '1 day'], ['7d', '7 days'], ['30d', '30 days']] as const;

export class NodesView implements View {
  readonly element: HTMLElement;

  constructor(private readonly app: App) {
    this.trouble = h('p', {class: 'trouble', role: 'status', hidden: true});
    this.search = h('input', {type: 'search', id: 'node-search', autocomplete: 'off', spellcheck: 'false', placeholder: 'node, model, GPU',
                              maxlength: 200, oninput: () => this.draw()});
    this.count = h('p', {class: 'note', role: 'status'});
    this.total = h('div', {class: 'sum'});
    this.table = h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Nodes, table'});
    this.element = h('div', {}, h('h1', {class: 'unseen'}, 'Nodes'), this.trouble,
      h('section', {class: 'panel', 'aria-labelledby': 'nodes-title'},
        h('div', {class: 'panel-head'}, h('h2', {id: 'nodes-title'}, 'Nodes'),
          h('span', {class: 'field'}, h('label', {for: 'node-search'}, 'Search'), this.search), this.count,
          choice('Window', kWindows, '1h', (value) => {
            this.last = value;
            void this.fetch();
          })),
        this.total, this.table));
  }

  update(): void {
    if (this.app.state.kind === 'live' && (!this.asked || this.failed)) void this.fetch();
  }
  ledger(): void {
    void this.fetch();
  }
  close(): void {
    this.abort?.abort();
  }

  private async fetch(): Promise<void> {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    this.asked = true;
    const answer = await question(this.app, `api/v1/report?by=node,model,gpu&last=${this.last}`, readReport, abort.signal);
    if (answer === null) return;
    this.failed = answer.away;
    if (answer.value !== null) {
      this.nodes = nodesOf(answer.value);
      this.window = (answer.value.to_ms - answer.value.from_ms) / 3_600_000;
    }
    put(this.trouble, answer.trouble);
    show(this.trouble, answer.trouble !== '');
    this.draw();
  }

  private draw(): void {
    if (!this.nodes) return;
    const found = this.nodes.filter((node) => matches(this.search.value, [node.node, ...node.models, ...node.gpus.map((gpu) => gpu.uuid)]));
    const gpus = found.reduce((all, node) => all + node.gpus.length, 0);
    put(this.count, `${found.length === this.nodes.length ? plural(found.length, 'node') : `${grouped(found.length)} of ${plural(this.nodes.length, 'node')}`}, ${plural(gpus, 'GPU')}`);
    const all = sum(found);
    this.total.replaceChildren(
      h('p', {}, `Held ${hours(all.held)} + idle ${hours(all.idle)} + unattributed ${hours(all.unattributed)} of ${hours(all.capacity)} GPU-hours of capacity.`),
      parts(all, true),
      h('ul', {class: 'legend', 'aria-hidden': 'true'}, ...([['held', 'fill-rest'], ['unattributed', 'fill-loss'], ['idle', 'fill-idle']] as const)
        .map(([name, fill]) => h('li', {}, h('span', {class: `swatch ${fill}`}), name))));
    if (found.length === 0) {
      this.table.replaceChildren(h('p', {class: 'note'}, this.nodes.length === 0 ? 'No GPU is in the books of this window.' : 'No node has these words.'));
      return;
    }
    const head = (text: string, title?: string) => h('th', {scope: 'col', class: 'n', title}, text);
    this.table.replaceChildren(h('table', {class: 'nodes'},
      h('caption', {class: 'unseen'}, 'Nodes'),
      h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'Node'), h('th', {scope: 'col', class: 'wide'}, 'GPUs'), h('th', {scope: 'col', class: 'bar-col'}, h('span', {class: 'unseen'}, 'Use')),
        head('Held', 'of the capacity in the books'), head('Busy', 'of the capacity: held, and the GPU executed'), head('Idle', 'nobody held or wanted it'),
        head('Waiting', 'pods that waited, on average, for each GPU'), head('In the books', 'part of the window that is booked; less: it was away, or is booked later'))),
      h('tbody', {}, ...found.slice(0, kRowsMax).flatMap((node) => this.rows(node)))));
    if (found.length > kRowsMax) this.table.append(h('p', {class: 'note'}, `The first ${kRowsMax} of ${grouped(found.length)}.`));
  }

  private rows(node: NodeUse): HTMLElement[] {
    const open = this.open.has(node.node);
    const toggle = h('button', {type: 'button', class: 'sort', 'aria-expanded': String(open), onclick: () => {
      if (!this.open.delete(node.node)) this.open.add(node.node);
      this.draw();
      this.table.querySelector<HTMLElement>(`[data-node="${CSS.escape(node.node)}"]`)?.focus();
    }}, open ? '▾ ' : '▸ ', node.node === '' ? 'this one' : named(node.node));
    toggle.dataset['node'] = node.node;
    const template = this.app.status?.daemon.node_page ?? '';
    const page = template === '' || node.node === '' ? null : pageOf(template, node.node);
    const models = node.models.map((model) => `${grouped(node.gpus.filter((gpu) => gpu.model === model).length)} × ${printable(model, 40) || 'GPU'}`).join(', ');
    const rows = [this.row(h('th', {scope: 'row'}, toggle, page !== null && h('a', {class: 'out', href: page, 'aria-label': `Page of ${printable(node.node, 60)}`}, 'page')), models, node, node.gpus.length)];
    if (!open) return rows;
    const there = new Set(this.app.status?.gpus.map((gpu) => gpu.uuid));
    for (const gpu of node.gpus) {
      const name = there.has(gpu.uuid) ? h('a', {href: route('live', gpu.uuid), title: printable(gpu.uuid, 80)}, shortGpu(gpu.uuid))
        : h('span', {title: printable(gpu.uuid, 80)}, shortGpu(gpu.uuid));
      rows.push(this.row(h('th', {scope: 'row', class: 'below'}, name), printable(gpu.model, 40), gpu, 1));
    }
    return rows;
  }
  private row(name: HTMLElement, models: string, use: Use, gpus: number): HTMLElement {
    const n = (text: string, strong = false) => h('td', {class: strong ? 'n strong' : 'n'}, text);
    const of = (value: number) => percent(use.capacity > 0 ? (100 * value) / use.capacity : NaN);
    return h('tr', {}, name, h('td', {class: 'wide'}, models), h('td', {class: 'bar-col'}, parts(use)), n(of(use.held), true), n(of(use.busy)), n(of(use.idle)),
             n(use.capacity > 0 ? (use.waited / use.capacity).toFixed(1) : '–'), n(percent(Math.min(100, (100 * use.capacity) / (gpus * this.window)))));
  }

  private readonly trouble: HTMLElement;
  private readonly search: HTMLInputElement;
  private readonly count: HTMLElement;
  private readonly total: HTMLElement;
  private readonly table: HTMLElement;
  private readonly open = new Set<string>();
  private nodes: NodeUse[] | null = null;
  private window = 1;  // hours
  private last: (typeof kWindows)[number][0] = '1h';
  private asked = false;
  private failed = false;
  private abort: AbortController | null = null;
}

function parts(use: Use, large = false): HTMLElement {
  const part = (value: number, fill: string) => {
    const piece = h('span', {class: fill});
    piece.style.flexGrow = String(1000 * Math.max(0, value) / (use.capacity || 1));
    return piece;
  };
  return h('div', {class: `stack large${large ? '' : ' in-row'}`, 'aria-hidden': 'true'},
    part(use.held, 'fill-rest'), part(use.unattributed, 'fill-loss'), part(use.idle, 'fill-idle'));
}
