// What happened lately: batond's last hundred lines, the newest first.
import type {App, View} from './app';
import {Keyed, h, put, set, show} from './dom';
import {clock, day, plural, printable} from './format';
import type {DaemonEvent} from './model';
import {matches} from './search';

export class EventsView implements View {
  readonly element: HTMLElement;

  constructor(private readonly app: App) {
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
          this.body), this.none));
    this.rows = new Keyed<DaemonEvent, {element: Element}>(this.body,
      (event) => `${event.time_ms} ${event.kind} ${event.text}`,
      (event) => ({element: h('tr', {},
        h('td', {class: 'time'}, h('time', {datetime: new Date(event.time_ms).toISOString(), title: day(event.time_ms)}, clock(event.time_ms))),
        h('td', {class: 'kind'}, printable(event.kind, 20)), h('td', {class: 'what'}, printable(event.text, 1000)))}),
      () => {});
  }

  update(): void {
    this.draw();
  }
  close(): void {}

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

  private readonly search: HTMLInputElement;
  private readonly kind: HTMLSelectElement;
  private readonly count: HTMLElement;
  private readonly body: HTMLElement;
  private readonly none: HTMLElement;
  private readonly rows: Keyed<DaemonEvent, {element: Element}>;
}
