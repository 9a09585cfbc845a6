// All pods in a table, and one of them in a drawer.
import {type App, type View, kFirstPod, route} from './app';
import {Keyed, h, named, put, putName, set, show, swatch} from './dom';
import {Drawer} from './explain';
import {bytes, duration, grouped, percent, plural, printable, share, shortGpu} from './format';
import {phaseText} from './live';
import type {Pod} from './model';
import {type Column, type Sorting, matches, sorted} from './search';

interface PodColumn extends Column<Pod> {
  text: (pod: Pod) => string;
  title?: (pod: Pod) => string;
  wide?: boolean;    // left out where there is little room
  widest?: boolean;  // left out before the others
}

const kPhases = ['idle', 'paused', 'waiting', 'draining', 'holding'];
const gangText = (pod: Pod) => !pod.gang ? 'no' : pod.gang_name === '' ? 'yes'
  : pod.gang_name + (pod.gang_missing > 0 ? `, waits for ${pod.gang_missing} more` : '');
const latencyText = (pod: Pod) => duration(pod.latency_ns ?? 0) + (pod.latency_waits
  ? `; ${percent(100 - (100 * (pod.latency_late ?? 0)) / pod.latency_waits)} of ${grouped(pod.latency_waits)} waits were no longer` : '');
const waited = (pod: Pod) => pod.gpus.reduce((most, part) => Math.max(most, part.waited_1s), 0);
const efficiency = (pod: Pod) => (pod.held_ns > 0 ? pod.busy_ns / pod.held_ns : NaN);
const kColumns: PodColumn[] = [
  {key: 'name', head: 'Pod', value: (pod) => pod.name, text: (pod) => pod.name},
  {key: 'team', head: 'Team', value: (pod) => pod.team, text: (pod) => printable(pod.team, 60) || '–', wide: true},
  {key: 'gpus', head: 'GPUs', value: (pod) => pod.gpus.length, text: (pod) =>
    pod.gpus.length === 1 ? shortGpu(pod.gpus[0]!.uuid) : grouped(pod.gpus.length),
   title: (pod) => pod.gpus.map((part) => `${printable(part.node, 40)} ${printable(part.uuid, 60)}`).join('\n'), wide: true},
  {key: 'phase', head: 'Phase', value: (pod) => kPhases.indexOf(pod.phase), text: (pod) =>
    phaseText({phase: pod.phase, mode: pod.mode, throttled: pod.gpus.some((part) => part.throttled), memory_released: pod.memory_released}), wide: true},
  {key: 'achieved', head: 'Achieved', number: true, value: (pod) => pod.achieved_10s, text: (pod) => percent(pod.achieved_10s),
   title: () => 'over 10 s, summed over its GPUs'},
  {key: 'request', head: 'Request', number: true, value: (pod) => pod.request, text: (pod) => share(pod.request)},
  {key: 'limit', head: 'Limit', number: true, value: (pod) => pod.limit, text: (pod) => share(pod.limit), wide: true},
  {key: 'waited', head: 'Waited', number: true, value: waited, text: (pod) => percent(waited(pod)),
   title: () => 'fraction of the last second; with several GPUs the longest'},
  {key: 'held', head: 'Held', number: true, value: (pod) => pod.held_ns, text: (pod) => duration(pod.held_ns), wide: true},
  {key: 'efficiency', head: 'Busy', number: true, value: efficiency, text: (pod) => percent(efficiency(pod) * 100),
   title: () => 'fraction of the held time in which the GPU executed', wide: true},
  {key: 'memory', head: 'Memory', number: true, value: (pod) => pod.memory_used, text: (pod) => bytes(pod.memory_used), wide: true},
  {key: 'clients', head: 'Processes', number: true, value: (pod) => pod.clients.length, text: (pod) => grouped(pod.clients.length), widest: true},
];

const widthClass = (column: PodColumn) => column.widest ? 'widest' : column.wide ? 'wide' : '';

interface Row {
  element: HTMLTableRowElement;
  cells: HTMLElement[];
}

export class PodsView implements View {
  readonly element: HTMLElement;

  constructor(private readonly app: App) {
    this.search = h('input', {type: 'search', id: 'pod-search', autocomplete: 'off', spellcheck: 'false', placeholder: 'name, team, GPU, phase',
                              maxlength: 200, oninput: () => this.draw(true)});
    this.count = h('p', {class: 'note', role: 'status'});
    this.heads = kColumns.map((column) => {
      const button = h('button', {type: 'button', class: 'sort', onclick: () => this.sortBy(column)}, column.head);
      return h('th', {scope: 'col', class: `${column.number ? 'n' : ''} ${widthClass(column)}`}, button);
    });
    this.body = h('tbody');
    this.table = h('table', {class: 'pods'}, h('caption', {class: 'unseen'}, 'Pods'),
                   h('thead', {}, h('tr', {}, ...this.heads)), this.body);
    this.none = h('div', {class: 'none', hidden: true}, h('h2', {}, 'No pod yet'), h('p', {}, 'Start one:'), h('pre', {}, kFirstPod));
    this.drawer = new Drawer(app, () => {
      if (this.rest !== '') location.hash = route('pods');
    });
    this.facts = h('div');
    this.drawer.more.append(this.facts);
    this.panel = h('section', {class: 'panel', 'aria-label': 'Pods'},
      h('div', {class: 'panel-head'}, h('span', {class: 'field'}, h('label', {for: 'pod-search'}, 'Search'), this.search), this.count),
      h('div', {class: 'scroll'}, this.table));
    this.element = h('div', {}, h('h1', {class: 'unseen'}, 'Pods'), this.none, this.panel, this.drawer.element);
    this.rows = new Keyed<Pod, Row>(this.body, (pod) => pod.name, (pod) => this.make(pod), (row, pod) => {
      kColumns.forEach((column, i) => {
        const cell = row.cells[i]!;
        if (i > 0) put(cell, column.text(pod));
        if (column.title && column.number !== true) set(cell, 'title', column.title(pod));
        if (column.key === 'phase') set(cell, 'data-phase', pod.gpus.some((part) => part.throttled) ? 'throttled' : pod.phase);
      });
    });
    kColumns.forEach((column, i) => {
      const title = column.number ? column.title?.({} as Pod) : undefined;
      if (title) set(this.heads[i]!, 'title', title);
    });
  }

  update(rest: string): void {
    this.rest = rest;
    this.draw(false);
    if (rest === '') this.drawer.close();
    // Once for each route: what somebody just closed stays closed.
    else if (this.opened !== rest) this.drawer.show('pod', rest);
    this.opened = rest;
    if (rest !== '' && this.app.status) {
      this.drawFacts(this.app.status.pods.find((pod) => pod.name === rest));
    }
  }

  close(): void {
    this.rest = '';
    this.drawer.close();
  }

  private sortBy(column: PodColumn): void {
    const was = this.sorting;
    this.sorting = {
      key: column.key,
      // Figures are asked for their largest first.
      descending: was.key === column.key ? !was.descending : column.number === true,
    };
    this.draw(true);
    this.app.announce(`Sorted by ${column.head}, ${this.sorting.descending ? 'descending' : 'ascending'}`);
  }

  private draw(asked: boolean): void {
    const status = this.app.status;
    if (!status) return;
    show(this.none, status.pods.length === 0);
    show(this.panel, status.pods.length > 0);
    kColumns.forEach((column, i) => {
      const is = column.key === this.sorting.key;
      set(this.heads[i]!, 'aria-sort', is ? (this.sorting.descending ? 'descending' : 'ascending') : null);
    });
    const found = status.pods.filter((pod) => matches(this.search.value, [
      pod.name, pod.team, pod.phase, pod.priority, ...pod.gpus.flatMap((part) => [part.uuid, part.node])]));
    // Rows do not move away from under a pointer or the focus, except when asked to.
    const busy = !asked && (this.table.matches(':hover') || this.body.contains(document.activeElement));
    let shown = sorted(found, kColumns, this.sorting);
    if (busy) {
      const place = new Map(this.order.map((name, i) => [name, i]));
      shown = [...shown].sort((a, b) => (place.get(a.name) ?? Infinity) - (place.get(b.name) ?? Infinity) || 0);
    }
    this.order = shown.map((pod) => pod.name);
    this.rows.show(shown);
    put(this.count, found.length === status.pods.length ? plural(found.length, 'pod')
      : `${grouped(found.length)} of ${plural(status.pods.length, 'pod')}`);
  }

  private make(pod: Pod): Row {
    const cells: HTMLElement[] = kColumns.map((column, i) => i === 0
      ? h('th', {scope: 'row'}, swatch(this.app.colours.of(pod.name)), h('a', {href: route('pods', pod.name)}, named(pod.name)))
      : h('td', {class: `${column.number ? 'n' : ''} ${widthClass(column)} ${column.key === 'phase' ? 'phase' : column.key === 'gpus' ? 'whole' : ''}`}));
    return {element: h('tr', {}, ...cells), cells};
  }

  private drawFacts(pod: Pod | undefined): void {
    const key = JSON.stringify(pod ?? null);
    if (this.facts.dataset['is'] === key) return;
    this.facts.dataset['is'] = key;
    if (!pod) {
      this.facts.replaceChildren(h('p', {class: 'trouble'}, 'This pod no longer exists.'));
      return;
    }
    const fact = (name: string, value: string) => {
      const of = h('dd');
      putName(of, value);
      return h('div', {}, h('dt', {}, name), of);
    };
    const clients = pod.clients.slice(0, 100);
    this.facts.replaceChildren(
      h('h3', {}, 'Figures'),
      h('dl', {class: 'facts'},
        fact('Request', share(pod.request)), fact('Limit', share(pod.limit)),
        fact('Achieved 1 / 10 / 60 s', [pod.achieved_1s, pod.achieved_10s, pod.achieved_60s].map((value) => value.toFixed(1)).join(' / ') + ' %'),
        fact('Held', duration(pod.held_ns)), fact('Busy', duration(pod.busy_ns)), fact('Waited', duration(pod.waited_ns)),
        fact('Owed (lag)', duration(pod.lag_ns)),
        fact('Unmanaged', duration(pod.unmanaged_ns)),
        fact('Memory', pod.memory > 0 ? `${bytes(pod.memory_used)}; cap ${bytes(pod.memory)} per GPU` : bytes(pod.memory_used)),
        ...(pod.latency_ns ? [fact('Latency', latencyText(pod))] : []),
        fact('Launches', grouped(pod.launches)), fact('Tokens', grouped(pod.grants)), fact('Revoked', grouped(pod.revocations)),
        ...(pod.mode && pod.mode !== 'time-slice' ? [fact('Mode', pod.mode)] : []),
        fact('Priority', pod.priority === 'low' ? 'normal' : pod.priority), fact('Team', pod.team || '–'), fact('Gang', gangText(pod))),
      h('h3', {}, 'On its GPUs'),
      h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'On its GPUs, table'}, h('table', {},
        h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'GPU'), h('th', {scope: 'col'}, 'Phase'), h('th', {scope: 'col', class: 'n'}, 'Achieved'),
          h('th', {scope: 'col', class: 'n'}, 'Due'), h('th', {scope: 'col', class: 'n'}, 'Waited'), h('th', {scope: 'col', class: 'n'}, 'Memory'))),
        h('tbody', {}, ...pod.gpus.map((part) => h('tr', {},
          h('th', {scope: 'row'}, h('a', {href: route('live', part.uuid), title: printable(part.uuid)}, `${printable(part.node, 40)} ${shortGpu(part.uuid)}`)),
          h('td', {class: 'phase', 'data-phase': part.throttled ? 'throttled' : part.phase}, phaseText({...part, mode: pod.mode})),
          h('td', {class: 'n'}, percent(part.achieved_10s)), h('td', {class: 'n'}, percent(part.fluid)),
          h('td', {class: 'n'}, percent(part.waited_1s)), h('td', {class: 'n'}, bytes(part.memory_used))))))),
      h('h3', {}, plural(pod.clients.length, 'process', 'processes')),
      pod.clients.length === 0 ? h('p', {class: 'note'}, 'No process is attached.')
        : h('ul', {class: 'clients'}, ...clients.map((client) => h('li', {},
          h('span', {class: 'n'}, String(client.pid)), ' ', h('code', {}, printable(client.command, 300)), ' ',
          h('span', {class: 'note'}, `${printable(client.phase, 20)}${client.connected ? '' : ', not connected'}, uid ${client.uid}`)))));
  }

  private readonly search: HTMLInputElement;
  private readonly count: HTMLElement;
  private readonly heads: HTMLElement[];
  private readonly body: HTMLElement;
  private readonly table: HTMLElement;
  private readonly none: HTMLElement;
  private readonly panel: HTMLElement;
  private readonly facts: HTMLElement;
  private readonly drawer: Drawer;
  private readonly rows: Keyed<Pod, Row>;
  private sorting: Sorting = {key: 'achieved', descending: true};
  private order: string[] = [];
  private rest = '';
  private opened = '';
}
