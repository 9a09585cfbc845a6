// The page: its frame, which view is shown, and the link to batond.
import './app.css';

import {type App, type View, parseRoute, route} from './app';
import {ColourBook} from './colours';
import {append, h, named, put, set, show} from './dom';
import {EventsView} from './events';
import {clock, day, printable} from './format';
import {History} from './history';
import {Link, type LinkState} from './link';
import {LiveView} from './live';
import type {Status} from './model';
import {pageOf} from './node_use';
import {NodesView} from './nodes';
import {PodsView} from './pods';
import {TeamsView} from './teams';

const kViews = [
  ['live', 'Live', LiveView],
  ['teams', 'Teams', TeamsView],
  ['nodes', 'Nodes', NodesView],
  ['pods', 'Pods', PodsView],
  ['events', 'Events', EventsView],
] as const;

// What the browser keeps for the next visit; it may refuse to.
function keep(key: string, value: string): void {
  try {
    localStorage.setItem(`baton.${key}`, value);
  } catch {
    // then it is as on a first visit
  }
}
function kept(key: string): string | null {
  try {
    return localStorage.getItem(`baton.${key}`);
  } catch {
    return null;
  }
}
function keptColours(): unknown {
  try {
    return JSON.parse(kept('colours') ?? 'null');
  } catch {
    return null;
  }
}

class Page implements App {
  status: Status | null = null;
  state: LinkState = {kind: 'connecting'};
  readonly history = new History();
  readonly colours = new ColourBook(keptColours());

  constructor() {
    this.applyTheme();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.applyTheme();
      this.draw();
    });
    append(document.body,
      h('a', {class: 'skip', href: '#content', onclick: (event: Event) => {
        event.preventDefault();
        this.main.focus();
      }}, 'Skip to content'),
      h('header', {}, h('span', {class: 'brand'}, 'Baton'),
        h('nav', {'aria-label': 'Views'}, ...this.links), this.allNodes, this.daemon, this.linkText, this.themeButton),
      this.banner, this.notes, this.main, this.speech, this.tokenDialog);
    addEventListener('hashchange', () => this.go());
    document.addEventListener('visibilitychange', () => document.hidden || this.draw());
    setInterval(() => this.drawLink(), 1000);
    this.go();
    this.drawLink();
    this.link.start();
  }

  refused(why: string): void {
    this.link.refused(why);
  }
  announce(text: string): void {
    put(this.speech, text);
  }

  private onStatus(status: Status): void {
    this.status = status;
    this.history.add(Date.now(), status);
    const met = this.colours.meet(status.pods.map((pod) => ({name: pod.name, places: pod.gpus.map((part) => part.uuid)})));
    if (met) keep('colours', JSON.stringify(this.colours.save()));
    this.drawDaemon(status);
    // Nobody looks at a hidden page; it is drawn when somebody does.
    if (!document.hidden) this.draw();
  }

  private onState(state: LinkState): void {
    const before = this.state.kind;
    this.state = state;
    if (state.kind === 'away' && before !== 'away') this.announce('batond is away. The figures are stale.');
    if (state.kind === 'live' && before === 'away') this.announce('batond is back.');
    if (state.kind === 'token') {
      put(this.tokenNote, state.refused ? 'This token was refused.' : '');
      if (!this.tokenDialog.open) this.tokenDialog.showModal();
    } else if (this.tokenDialog.open && state.kind === 'live') {
      this.tokenDialog.close();
    }
    this.drawLink();
    this.draw();
  }

  private go(): void {
    const [name, rest] = parseRoute(location.hash);
    const wanted = kViews.find(([key]) => key === name) ?? kViews[0];
    this.rest = wanted[0] === name ? rest : '';
    if (this.shown !== wanted[0]) {
      this.view?.close();
      this.shown = wanted[0];
      this.view = new wanted[2](this);
      this.main.replaceChildren(this.waiting, this.view.element);
      scrollTo(0, 0);
      document.title = `${wanted[1]} – Baton`;
      if (name !== '') this.announce(wanted[1]);
    }
    kViews.forEach(([key], i) => set(this.links[i]!, 'aria-current', key === this.shown ? 'page' : null));
    this.draw();
  }

  private draw(): void {
    const known = this.status !== null;
    show(this.waiting, !known);
    if (this.view) show(this.view.element, known);
    if (known) this.view?.update(this.rest);
  }

  private drawLink(): void {
    const state = this.state;
    const now = Date.now();
    set(document.documentElement, 'data-link', state.kind);
    put(this.linkText, {connecting: 'connecting', live: 'live', away: 'away', token: 'no token'}[state.kind]);
    set(this.linkText, 'data-link', state.kind);
    put(this.waiting, state.kind === 'token' ? 'batond asks for a token.'
      : state.kind === 'away' ? 'No data yet: batond has not answered since this page was opened.' : 'Asking batond…');
    show(this.banner, state.kind === 'away');
    if (state.kind !== 'away') return;
    const ago = Math.max(0, Math.round((now - state.since_ms) / 1000));
    const at = day(state.since_ms) === day(now) ? clock(state.since_ms) : `${day(state.since_ms)} ${clock(state.since_ms)}`;
    const next = Math.ceil((state.retry_ms - now) / 1000);
    put(this.bannerText, `batond has been away since ${at} (${ago} s ago). ${printable(state.why, 300)}${this.status ? ' All figures are from that time.' : ''} ${next > 0 ? `Next try in ${next} s.` : 'Trying…'}`);
  }

  private drawDaemon(status: Status): void {
    put(this.daemon, `batond ${printable(status.daemon.version, 20)}${status.daemon.mode === 'enforce' ? '' : ` · ${printable(status.daemon.mode, 20)}`}`);
    const all = pageOf(status.daemon.all_nodes_page ?? '', '');
    set(this.allNodes, 'href', all);
    show(this.allNodes, all !== null);
    set(this.daemon, 'title', `process ${status.daemon.pid}, since ${printable(status.daemon.started, 40)}`);
    const notes = [
      ...(status.daemon.mode === 'observe' ? ['batond runs in mode observe: it measures everything, and no pod waits.'] : []),
      ...status.daemon.degraded.map((text) => printable(text, 500)),
      ...status.nodes.filter((node) => node.link === 'cut').map((node) => `The link to node ${printable(node.name, 60)} is cut.`),
    ].slice(0, 20);
    const key = JSON.stringify(notes);
    if (this.notes.dataset['is'] === key) return;
    this.notes.dataset['is'] = key;
    this.notesList.replaceChildren(...notes.map((text) => h('li', {}, text)));
    show(this.notes, notes.length > 0);
  }

  private applyTheme(): void {
    const dark = this.theme === 'dark' || (this.theme === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
    set(document.documentElement, 'data-shown', dark ? 'dark' : 'light');
    put(this.themeButton, `Theme: ${this.theme}`);
  }
  private nextTheme(): void {
    this.theme = ({auto: 'light', light: 'dark', dark: 'auto'} as const)[this.theme];
    keep('theme', this.theme);
    this.applyTheme();
    this.draw();
  }

  private theme: 'auto' | 'light' | 'dark' = (['light', 'dark'] as const).find((name) => name === kept('theme')) ?? 'auto';
  private shown = '';
  private rest = '';
  private view: View | null = null;
  private readonly link = new Link({
    onStatus: (status) => this.onStatus(status),
    onLedger: () => this.view?.ledger?.(),
    onState: (state) => this.onState(state),
  });
  private readonly links = kViews.map(([key, name]) => h('a', {href: route(key)}, name));
  private readonly allNodes = h('a', {class: 'out', hidden: true}, 'all nodes');
  private readonly daemon = h('span', {class: 'daemon'});
  private readonly linkText = h('span', {class: 'link-state'});
  private readonly themeButton = h('button', {type: 'button', class: 'theme', onclick: () => this.nextTheme()});
  private readonly bannerText = h('span');
  private readonly banner = h('section', {class: 'banner', 'aria-label': 'batond is away', hidden: true}, this.bannerText,
    h('button', {type: 'button', onclick: () => this.link.retry()}, 'Try now'));
  private readonly notesList = h('ul');
  private readonly notes = h('section', {class: 'notes', hidden: true, 'aria-label': 'Warnings of batond'}, this.notesList);
  private readonly waiting = h('p', {class: 'waiting'});
  private readonly main = h('main', {id: 'content', tabindex: -1});
  private readonly speech = h('div', {class: 'unseen', role: 'status', 'aria-live': 'polite'});
  private readonly tokenNote = h('p', {class: 'trouble', role: 'status'});
  private readonly tokenInput = h('input', {type: 'password', id: 'token', autocomplete: 'off', required: true, maxlength: 4096});
  private readonly tokenDialog = this.makeTokenDialog();

  private makeTokenDialog(): HTMLDialogElement {
    const dialog = h('dialog', {class: 'ask', 'aria-labelledby': 'ask-title'},
      h('form', {method: 'dialog', onsubmit: (event: Event) => {
        event.preventDefault();
        const token = this.tokenInput.value.trim();
        this.tokenInput.value = '';
        if (token !== '') this.link.setToken(token);
      }},
        h('h2', {id: 'ask-title'}, 'batond asks for a token'),
        h('p', {}, 'The token is in the file that batond’s ', h('code', {}, 'token_file'), ' names. This page keeps it until the tab is closed, and sends it to ', named(location.host || 'this server'), ' only.'),
        h('label', {for: 'token'}, 'Token'), this.tokenInput, this.tokenNote,
        h('button', {type: 'submit'}, 'Continue')));
    // Without a token there is nothing to see behind it.
    dialog.addEventListener('cancel', (event) => event.preventDefault());
    return dialog;
  }
}

new Page();
