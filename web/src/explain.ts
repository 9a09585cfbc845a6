// Why somebody gets what they get, in batond's own sentences, in a drawer at the side.
import {explanation} from './api';
import type {App} from './app';
import {h, named, put, show} from './dom';
import {printable} from './format';
import {ApiError, getJson} from './link';

export class Drawer {
  readonly element: HTMLDialogElement;
  // What the view adds below the sentences.
  readonly more: HTMLElement;

  constructor(private readonly app: App, private readonly onClose: () => void) {
    this.title = h('h2', {id: 'drawer-title', tabindex: -1});
    this.sentences = h('ul', {class: 'sentences'});
    this.note = h('p', {class: 'note', role: 'status'});
    this.again = h('button', {type: 'button', onclick: () => void this.ask()}, 'Ask again');
    this.more = h('div');
    this.element = h('dialog', {class: 'drawer', 'aria-labelledby': 'drawer-title', onclose: () => this.closed()},
      h('div', {class: 'panel-head'}, this.title, h('button', {type: 'button', onclick: () => this.element.close()}, 'Close')),
      h('section', {}, h('div', {class: 'panel-head'}, h('h3', {}, 'Why it gets what it gets'), this.again), this.note, this.sentences),
      this.more);
    // A click beside it closes it, as Escape does.
    this.element.addEventListener('click', (event) => event.target === this.element && this.element.close());
  }

  get open(): boolean {
    return this.element.open;
  }

  show(kind: 'pod' | 'team', name: string): void {
    const path = `api/v1/explain?${kind}=${encodeURIComponent(name)}`;
    if (this.path === path && this.element.open) return;
    this.path = path;
    this.title.replaceChildren(kind === 'pod' ? 'Pod ' : 'Team ', named(name));
    if (!this.element.open) this.element.showModal();
    this.title.focus();
    void this.ask();
  }

  close(): void {
    if (this.element.open) this.element.close();
  }

  private closed(): void {
    this.path = '';
    this.abort?.abort();
    this.onClose();
  }

  private async ask(): Promise<void> {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    this.sentences.replaceChildren();
    this.say('Asking batond…');
    try {
      const answer = await getJson(this.path, abort.signal);
      const sentences = explanation.read(answer)?.sentences ?? [];
      this.sentences.replaceChildren(...sentences.slice(0, 200).map((text) => h('li', {}, printable(text, 1000))));
      this.say(sentences.length === 0 ? 'batond has no explanation.' : '');
    } catch (error) {
      if (abort.signal.aborted) return;
      this.say(error instanceof ApiError ? printable(error.message, 500) : 'The explanation cannot be read.');
      if (error instanceof ApiError && error.code === 401) this.app.refused(error.message);
    }
  }
  private say(text: string): void {
    put(this.note, text);
    show(this.note, text !== '');
  }

  private readonly title: HTMLElement;
  private readonly sentences: HTMLElement;
  private readonly note: HTMLElement;
  private readonly again: HTMLElement;
  private path = '';
  private abort: AbortController | null = null;
}
