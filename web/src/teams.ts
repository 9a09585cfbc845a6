// Who used what over days, and who is due what: the ledger's report and the teams' standing.
import {type App, type View, kFirstPod} from './app';
import {kColours} from './colours';
import {choice, h, named, put, set, show, svg, swatch} from './dom';
import {Drawer} from './explain';
import {day, grouped, hours, percent, printable} from './format';
import {type Report, type Standing, asTree, readReport, readStanding} from './model';
import {question} from './question';
import {type Stack, grid, stackDays, unset} from './stack';

type By = 'team' | 'user' | 'pod' | 'gpu' | 'day';
type StackedBy = 'team' | 'user' | 'pod' | 'gpu' | 'busy';

export class TeamsView implements View {
  readonly element: HTMLElement;

  constructor(private readonly app: App) {
    this.note = h('p', {class: 'trouble', role: 'status', hidden: true});
    this.chart = h('div', {class: 'days'});
    this.sum = h('div', {class: 'sum'});
    this.table = h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Use, table'});
    this.standing = h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Standing, table'});
    this.standingNote = h('p', {class: 'note'});
    this.drawer = new Drawer(app, () => {});
    this.element = h('div', {}, h('h1', {class: 'unseen'}, 'Teams'), this.note,
      h('section', {class: 'panel', 'aria-labelledby': 'history-title'},
        h('div', {class: 'panel-head'}, h('h2', {id: 'history-title'}, 'Use by day, GPU-hours'),
          choice('Window', [['1d', '1 day'], ['7d', '7 days'], ['30d', '30 days'], ['90d', '90 days']] as const, '30d', (value) => {
            this.last = value;
            void this.fetch();
          }),
          choice<StackedBy>('Stacked by', [['team', 'team'], ['user', 'user'], ['pod', 'pod'], ['gpu', 'GPU'], ['busy', 'busy']] as const, 'team', (value) => {
            this.stacked = value;
            void this.fetch();
          })),
        this.chart),
      h('section', {class: 'panel', 'aria-labelledby': 'use-title'},
        h('div', {class: 'panel-head'}, h('h2', {id: 'use-title'}, 'Who used it'),
          choice<By>('By', [['team', 'team'], ['user', 'user'], ['pod', 'pod'], ['gpu', 'GPU'], ['day', 'day']] as const, 'team', (value) => {
            this.by = value;
            void this.fetch();
          })),
        this.sum, this.table),
      h('section', {class: 'panel', 'aria-labelledby': 'standing-title'},
        h('div', {class: 'panel-head'}, h('h2', {id: 'standing-title'}, 'Standing')), this.standingNote, this.standing),
      this.drawer.element);
    this.resized = new ResizeObserver(() => this.days && this.drawDays(this.days));
    this.resized.observe(this.chart);
  }

  update(): void {
    if (this.app.state.kind !== 'live') return;
    // On the first sight of batond, and again after it was away.
    if (!this.asked || this.failed) void this.fetch();
  }
  ledger(): void {
    void this.fetch();
  }
  close(): void {
    this.abort?.abort();
    this.drawer.close();
    this.resized.disconnect();
  }

  private async fetch(): Promise<void> {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    this.asked = true;
    this.failed = false;
    const ask = async <T>(path: string, read: (answer: unknown) => T | null, use: (answer: T) => void): Promise<string> => {
      const answer = await question(this.app, path, read, abort.signal);
      if (answer === null) return '';
      this.failed ||= answer.away;
      if (answer.value !== null) use(answer.value);
      return answer.trouble;
    };
    const troubles = await Promise.all([
      ask(`api/v1/report?by=day${this.stacked === 'busy' ? '' : `,${this.stacked}`}&last=${this.last}`, readReport, (report) => this.drawDays(report)),
      ask(`api/v1/report?by=${this.by}&last=${this.last}`, readReport, (report) => this.drawUse(report)),
      ask('api/v1/standing', readStanding, (standing) => this.drawStanding(standing)),
    ]);
    if (abort.signal.aborted) return;
    const said = [...new Set(troubles.filter((text) => text !== ''))].join(' ');
    put(this.note, said);
    show(this.note, said !== '');
  }

  private drawDays(report: Report): void {
    this.days = report;
    const stack = stackDays(report);
    if (stack.by) this.app.colours.meet(stack.series.map((name) => ({name, places: [`by ${stack.by}`]})));
    if (stack.days.length === 0) {
      this.chart.replaceChildren(h('div', {class: 'none'}, h('p', {}, 'No use is recorded in this window yet. Recording starts when a pod runs:'), h('pre', {}, kFirstPod)));
      return;
    }
    this.chart.replaceChildren(this.key(stack), this.bars(stack),
      h('details', {open: this.tableOpen, ontoggle: (event: Event) => {
        this.tableOpen = (event.target as HTMLDetailsElement).open;
      }}, h('summary', {}, 'As a table'),
        h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Use by day, table'}, h('table', {},
          h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'Day'), ...stack.series.map((name) => h('th', {scope: 'col', class: 'n'}, named(name))), h('th', {scope: 'col', class: 'n'}, 'All'))),
          h('tbody', {}, ...[...stack.days].reverse().map((of_day) => h('tr', {}, h('th', {scope: 'row'}, printable(of_day.day, 20)),
            ...of_day.parts.map((value) => h('td', {class: 'n'}, hours(value))), h('td', {class: 'n strong'}, hours(of_day.total)))))))));
  }

  private colourClass(stack: Stack, i: number): string {
    if (!stack.by) return i === 0 ? 'fill-busy' : 'fill-held';
    return `c${this.app.colours.of(stack.series[i]!)}`;
  }
  private key(stack: Stack): HTMLElement {
    return h('ul', {class: 'legend'}, ...stack.series.map((name, i) =>
      h('li', {}, h('span', {class: `swatch ${this.colourClass(stack, i)}`, 'aria-hidden': 'true'}), named(name))));
  }

  // Bars in an SVG as wide as the page gives.
  private bars(stack: Stack): SVGElement {
    const width = Math.max(280, this.chart.clientWidth);
    const [height, left, bottom, top] = [180, 52, 20, 8];
    const most = Math.max(...stack.days.map((of_day) => of_day.total));
    const {high, lines} = grid(most);
    const y = (value: number) => top + (height - top - bottom) * (1 - value / high);
    const step = (width - left - 8) / stack.days.length;
    const bar = Math.max(1, Math.min(40, step * 0.8));
    const picture = svg('svg', {class: 'days-chart', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
      'aria-label': `GPU-hours by day, ${stack.days[0]!.day} to ${stack.days[stack.days.length - 1]!.day}; at most ${hours(most)} a day. The table below has the figures.`});
    for (const {value, label} of lines) {
      picture.append(svg('line', {class: 'grid', x1: left, x2: width, y1: y(value), y2: y(value)}),
                     svg('text', {class: 'tick', x: left - 6, y: y(value) + 4, 'text-anchor': 'end'}, label));
    }
    const every = Math.ceil(70 / step);
    stack.days.forEach((of_day, i) => {
      const x = left + step * (i + 0.5);
      const group = svg('g', {}, svg('title', {}, `${printable(of_day.day, 20)}: ${of_day.parts.map((value, k) => `${printable(stack.series[k]!, 40)} ${hours(value)}`).join(', ')}`));
      let below = 0;
      of_day.parts.forEach((value, k) => {
        if (value <= 0) return;
        group.append(svg('rect', {class: this.colourClass(stack, k), x: x - bar / 2, width: bar, y: y(below + value), height: Math.max(0.5, y(below) - y(below + value))}));
        below += value;
      });
      picture.append(group);
      if ((stack.days.length - 1 - i) % every === 0) {
        const last = i === stack.days.length - 1;
        picture.append(svg('text', {class: 'tick', x: last ? Math.min(x + 18, width - 1) : x, y: height - 4, 'text-anchor': last ? 'end' : 'middle'}, of_day.day.slice(5)));
      }
    });
    return picture;
  }

  private drawUse(report: Report): void {
    const rows = [...report.rows].sort((a, b) => report.by === 'day' ? (a.key < b.key ? 1 : -1) : b.held_hours - a.held_hours);
    const held = rows.reduce((sum, row) => sum + row.held_hours, 0);
    const off = report.capacity_hours - held - report.idle_hours - report.unattributed_hours;
    // The largest have a colour here and in the table.
    const coloured = report.by === 'day' ? [] : rows.slice(0, kColours).filter((row) => row.held_hours > 0);
    // By the names that the chart above has.
    const nameOf = (key: string) => key || unset(report.by);
    this.app.colours.meet(coloured.map((row) => ({name: nameOf(row.key), places: [`by ${report.by}`]})));
    const colour = new Map(coloured.map((row) => [row.key, this.app.colours.of(nameOf(row.key))]));
    const others = held - coloured.reduce((sum, row) => sum + row.held_hours, 0);
    const part = (name: string, value: number, fill: string) => {
      const piece = h('span', {class: fill, title: `${printable(name, 60)}: ${hours(value)} GPU-hours`});
      // Of a thousand: where all grow by less than one together, they would not fill the line.
      piece.style.flexGrow = String(1000 * Math.max(0, value) / (report.capacity_hours || 1));
      return piece;
    };
    this.sum.replaceChildren(
      h('p', {}, `${day(report.from_ms)} to ${day(report.to_ms)}: held ${hours(held)} + idle ${hours(report.idle_hours)} + unattributed ${hours(report.unattributed_hours)} = ${hours(held + report.idle_hours + report.unattributed_hours)} of ${hours(report.capacity_hours)} GPU-hours of capacity.`,
        Math.abs(off) > Math.max(0.01, report.capacity_hours * 0.005) ? h('strong', {class: 'trouble'}, ` This does not add up: ${hours(off)} are missing.`) : null),
      h('div', {class: 'stack large', 'aria-hidden': 'true'}, ...coloured.map((row) => part(nameOf(row.key), row.held_hours, `c${colour.get(row.key)}`)),
        part(coloured.length > 0 ? 'others' : 'held', others, 'fill-rest'), part('unattributed', report.unattributed_hours, 'fill-loss'), part('idle', report.idle_hours, 'fill-idle')),
      h('ul', {class: 'legend', 'aria-hidden': 'true'}, ...([[coloured.length > 0 ? 'other holders' : 'held', 'fill-rest', others > 0.005 * held], ['unattributed', 'fill-loss', true], ['idle', 'fill-idle', true]] as const)
        .map(([name, fill, there]) => there && h('li', {}, h('span', {class: `swatch ${fill}`}), name))));
    if (rows.length === 0) {
      this.table.replaceChildren(h('p', {class: 'note'}, 'No use in this window.'));
      return;
    }
    const cost = rows.some((row) => row.cost !== null);
    const energy = report.energy_kwh !== null;
    const budgets = rows.some((row) => row.budget_hours !== null);
    const teams = report.by !== 'team' && rows.some((row) => row.team);
    const n = (text: string, strong = false) => h('td', {class: strong ? 'n strong' : 'n'}, text);
    const head = (text: string, title?: string) => h('th', {scope: 'col', class: 'n', title}, text);
    this.table.replaceChildren(h('table', {class: 'use'},
      h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, {team: 'Team', user: 'User', pod: 'Pod', gpu: 'GPU', day: 'Day'}[report.by] ?? 'Whose'),
        teams && h('th', {scope: 'col'}, 'Team'), head('Held h'), head('of all held'), head('Busy h'), head('Busy', 'fraction of the held time in which the GPU executed'),
        head('Waited h'), head('Memory GiB·h'), head('Launches'), cost && head(report.currency ? `Cost, ${printable(report.currency, 12)}` : 'Cost'),
        energy && head('Energy kWh', 'of the GPU, while these pods held it'),
        budgets && head('Budget h', 'what the team and all below it held in the last period of its budget, whatever the window'))),
      h('tbody', {}, ...rows.slice(0, 1000).map((row) => h('tr', {},
        h('th', {scope: 'row'}, colour.has(row.key) && swatch(colour.get(row.key)!), row.key === '' ? h('i', {}, unset(report.by)) : named(row.key)),
        teams && h('td', {}, row.team ? named(row.team) : '–'),
        n(hours(row.held_hours), true), n(percent(held > 0 ? (row.held_hours / held) * 100 : NaN)), n(hours(row.busy_hours)), n(row.allocated && !row.measured ? '–' : percent(row.efficiency * 100)),
        n(hours(row.waited_hours)), n(hours(row.memory_gib_hours)), n(grouped(row.launches)), cost && n(row.cost === null ? '–' : grouped(row.cost, 2)), energy && n(row.energy_kwh === null ? '–' : hours(row.energy_kwh)),
        budgets && h('td', {class: row.over_budget ? 'n trouble' : 'n'}, row.budget_hours === null ? '–'
          : `${hours(row.budget_held_hours ?? 0)} of ${hours(row.budget_hours)}${row.over_budget ? ', over' : ''}`))))));
    if (rows.length > 1000) this.table.append(h('p', {class: 'note'}, `The first 1000 of ${grouped(rows.length)}.`));
  }

  private drawStanding(standing: Standing): void {
    put(this.standingNote, standing.rows.length === 0 ? 'No teams are configured: time that requests leave over is shared without regard to history.'
      : `Time that requests leave over goes first to teams that used less than their shares. Use counts half after ${span(standing.half_life_s)}; weight of history k = ${+standing.k.toFixed(3)}. Requests do not change.`);
    if (standing.rows.length === 0) {
      this.standing.replaceChildren();
      return;
    }
    const focused = document.activeElement instanceof HTMLElement && this.standing.contains(document.activeElement) ? document.activeElement.dataset['of'] : undefined;
    const head = (text: string, title?: string) => h('th', {scope: 'col', class: 'n', title}, text);
    const n = (text: string) => h('td', {class: 'n'}, text);
    this.standing.replaceChildren(h('table', {class: 'standing'},
      h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'Team, user'), head('Shares'), head('of all shares', 'S: normalised shares'), head('Used h', 'decayed'),
        head('Uncounted h', 'decayed; no other team wanted it'), head('of all use', 'U_A: normalised usage'), head('Effective', 'U_E: effective usage'), head('Factor', 'F = 2^(−U_E / S); ½: use and due agree'),
        head('LevelFS', 'S over U among siblings'), head('Rank', 'Fair Tree; of users'), h('th', {scope: 'col'}, h('span', {class: 'unseen'}, 'Why')))),
      h('tbody', {}, ...asTree(standing.rows).slice(0, 2000).map(({row, depth}) => {
        const label = row.user !== '' ? row.user : row.team === '' ? '(all)' : row.team.split('/').pop()!;
        const of = `${row.team}\n${row.user}`;
        return h('tr', {class: row.user === '' ? 'team' : 'user'},
          h('th', {scope: 'row', class: `depth-${Math.min(6, depth)}`}, named(label, {title: printable(row.team)})),
          n(grouped(row.raw_shares)), n(percent(row.normalized_shares * 100)), n(hours(row.raw_usage_hours)), n(hours(row.uncounted_hours)), n(percent(row.normalized_usage * 100)),
          n(percent(row.effective_usage * 100)), n(row.factor.toFixed(3)), n(row.level_fs === Infinity ? '∞' : row.level_fs.toFixed(2)),
          n(row.rank > 0 ? String(row.rank) : '–'),
          h('td', {}, row.user === '' && row.team !== '' && h('button', {type: 'button', 'data-of': of, 'aria-label': `Explain ${printable(row.team, 60)}`, onclick: () => this.drawer.show('team', row.team)}, 'Explain')));
      }))));
    if (focused !== undefined) {
      for (const button of this.standing.querySelectorAll('button')) if (button.dataset['of'] === focused) button.focus();
    }
    set(this.standing, 'data-rows', standing.rows.length);
  }

  private readonly note: HTMLElement;
  private readonly chart: HTMLElement;
  private readonly sum: HTMLElement;
  private readonly table: HTMLElement;
  private readonly standing: HTMLElement;
  private readonly standingNote: HTMLElement;
  private readonly drawer: Drawer;
  private readonly resized: ResizeObserver;
  private stacked: StackedBy = 'team';
  private last = '30d';
  private by: By = 'team';
  private asked = false;
  private failed = false;
  private tableOpen = false;
  private days: Report | null = null;
  private abort: AbortController | null = null;
}

// A half-life as people say it.
function span(seconds: number): string {
  if (!(seconds > 0)) return 'no time (nothing is forgotten)';
  const days = seconds / 86400;
  return days >= 1 ? `${+days.toFixed(1)} ${days === 1 ? 'day' : 'days'}` : `${+(seconds / 3600).toFixed(1)} hours`;
}
