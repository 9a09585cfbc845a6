// What happened lately, batond's last hundred lines, and who changed what, from the ledger; the
// newest first.
import {type LogRow, log} from './api';
import type {App, View} from './app';
import {Keyed, h, put, set, show} from './dom';
import {clock, day, plural, printable} from './format';
import type {DaemonEvent} from './model';
import {ApiError, getJson} from './link';
import {matches} from './search';

export class EventsView implements View {
  readonly element: HTMLElement;

  constructor(private readonly app: App) {
    this.changes = new Changes(app);
    this.search = h('input', {type: 'search', id: 'event-search', autocomplete: 'off', maxlength: 200, oninput: () => this.draw()});
    this.kind = h('select', {id: 'event-kind', onchange: () => this.draw()}, h('option', {value: ''}, 'all'));
    this.count = h('p', {class: 'note', role: 'status'});
    this.body = h('tbody');
    this.none = h('p', {class: 'note', hidden: true}, 'No events, or none that match.');
    this.element = h('div', {}, h('h1', {class: 'unseen'}, 'Events'),
      h('section', {class: 'panel', 'aria-label': 'Events'},
        h('div', {class: 'panel-head'}, h('span', {class: 'field'}, h('label', {for: 'event-kind'}, 'Kind'), this.kind),
          h('span', {class: 'field'}, h('label', {for: 'event-search'}, 'Search'), this.search), this.count),
        h('table', {class: 'events'}, h('caption', {class: 'unseen'}, 'Events, the newest first'),
          h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'Time'), h('th', {scope: 'col'}, 'Kind'), h('th', {scope: 'col'}, 'What'))),
          this.body), this.none),
      this.changes.element);
    this.rows = new Keyed<DaemonEvent, {element: Element}>(this.body,
      (event) => `${event.time_ms} ${event.kind} ${event.text}`,
      (event) => ({element: h('tr', {},
        h('td', {class: 'time'}, h('time', {datetime: new Date(event.time_ms).toISOString(), title: day(event.time_ms)}, clock(event.time_ms))),
        h('td', {class: 'kind'}, printable(event.kind, 20)), h('td', {class: 'what'}, printable(event.text, 1000)))}),
      () => {});
  }

  update(): void {
    this.draw();
    this.changes.update();
  }
  ledger(): void {
    void this.changes.fetch();
  }
  close(): void {
    this.changes.close();
  }

  private draw(): void {
    // A time that no calendar has is no event's.
    const events = (this.app.status?.events ?? []).filter((event) => Math.abs(event.time_ms) < 8.64e15);
    const kinds = [...new Set(events.map((event) => event.kind))].sort();
    const known = [...this.kind.options].map((option) => option.value);
    for (const kind of kinds) {
      if (!known.includes(kind)) this.kind.append(h('option', {value: kind}, printable(kind, 20)));
    }
    const found = events.filter((event) => (this.kind.value === '' || event.kind === this.kind.value) &&
      matches(this.search.value, [event.text, event.kind])).reverse();
    this.rows.show(found);
    show(this.none, found.length === 0);
    put(this.count, plural(found.length, 'event'));
    set(this.count, 'title', 'batond keeps the last 100 events; the log has all');
  }

  private readonly changes: Changes;
  private readonly search: HTMLInputElement;
  private readonly kind: HTMLSelectElement;
  private readonly count: HTMLElement;
  private readonly body: HTMLElement;
  private readonly none: HTMLElement;
  private readonly rows: Keyed<DaemonEvent, {element: Element}>;
}

const kChangesShown = 200;

// Of the last thirty days.
class Changes {
  readonly element: HTMLElement;

  constructor(private readonly app: App) {
    this.search = h('input', {type: 'search', id: 'change-search', autocomplete: 'off', maxlength: 200, oninput: () => this.draw()});
    this.note = h('p', {class: 'note', role: 'status'});
    this.body = h('tbody');
    const head = ['Time', 'Who', 'What', 'Of', 'Change'].map((name) => h('th', {scope: 'col'}, name));
    this.table = h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Changes, table'},
      h('table', {class: 'changes'}, h('caption', {class: 'unseen'}, 'Changes, the newest first'), h('thead', {}, h('tr', {}, ...head)), this.body));
    this.element = h('section', {class: 'panel', 'aria-labelledby': 'changes-title'},
      h('div', {class: 'panel-head'}, h('h2', {id: 'changes-title'}, 'Who changed what'),
        h('span', {class: 'field'}, h('label', {for: 'change-search'}, 'Search changes'), this.search)),
      this.note, this.table);
  }

  update(): void {
    // On the first sight of batond, and again after it was away.
    if (this.app.state.kind === 'live' && (!this.asked || this.failed)) void this.fetch();
  }
  close(): void {
    this.abort?.abort();
  }

  async fetch(): Promise<void> {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    this.asked = true;
    this.failed = false;
    try {
      const answer = log.read(await getJson('api/v1/log?last=30d', abort.signal));
      if (abort.signal.aborted) return;
      this.rows = answer?.rows ?? [];
      this.trouble = answer === null ? 'This page does not understand batond’s answer.' : '';
    } catch (error) {
      if (abort.signal.aborted) return;
      if (error instanceof ApiError && error.code === 401) this.app.refused(error.message);
      this.failed = error instanceof ApiError && error.code === 0;
      this.trouble = error instanceof ApiError ? printable(error.message, 500) : 'The changes cannot be read.';
    }
    this.draw();
  }

  private draw(): void {
    const found = this.rows.filter((row) => matches(this.search.value, [row.who, row.action, row.kind, row.object, row.change]));
    this.body.replaceChildren(...found.slice(0, kChangesShown).map((row) => this.row(row)));
    show(this.table, found.length > 0);
    const counted = found.length > kChangesShown ? `The newest ${kChangesShown} of ${plural(found.length, 'change')} in 30 days; baton log has all.` :
      found.length > 0 ? `${plural(found.length, 'change')} in 30 days` : 'Nothing was changed in 30 days, or nothing that matches.';
    put(this.note, this.trouble !== '' ? this.trouble : counted);
  }

  private row(row: LogRow): Element {
    const time_ms = Date.parse(row.at);
    const time = Number.isFinite(time_ms) ? h('time', {datetime: new Date(time_ms).toISOString(), title: day(time_ms)}, `${day(time_ms)} ${clock(time_ms)}`) : '';
    const object = `${row.kind} ${row.object}`.trim();
    return h('tr', {}, h('td', {class: 'time'}, time), h('td', {}, printable(row.who, 100)), h('td', {class: 'kind'}, printable(row.action, 20)),
      h('td', {}, printable(object, 200)), h('td', {class: 'what'}, printable(row.change, 1000)));
  }

  private readonly search: HTMLInputElement;
  private readonly note: HTMLElement;
  private readonly body: HTMLElement;
  private readonly table: HTMLElement;
  private rows: LogRow[] = [];
  private trouble = '';
  private asked = false;
  private failed = false;
  private abort: AbortController | null = null;
}
