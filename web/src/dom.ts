// Making and changing elements. Text goes in as text, never as HTML: names are what tenants chose.
import {printable} from './format';

export type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

// h('button', {type: 'button', onclick: act, 'aria-pressed': 'true'}, 'Pause'). False, null and
// undefined leave an attribute out; true gives it without a value.
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  apply(element, attributes, children);
  return element;
}
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  apply(element, attributes, children);
  return element;
}
function apply(element: Element, attributes: Attributes, children: Child[]): void {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(key.slice(2), value as EventListener);
    else set(element, key, value);
  }
  append(element, ...children);
}
export function append(parent: Element, ...children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) parent.append(child);
  }
}

// The setters touch the document only where something changes: a page of 200 pods is updated each
// second.
export function set(element: Element, key: string, value: string | number | boolean | null | undefined): void {
  if (value === false || value === null || value === undefined) {
    if (element.hasAttribute(key)) element.removeAttribute(key);
    return;
  }
  const text = value === true ? '' : String(value);
  if (element.getAttribute(key) !== text) element.setAttribute(key, text);
}
export function put(node: Element, text: string): void {
  if (node.childNodes.length !== 1 || node.firstChild?.nodeType !== Node.TEXT_NODE) node.textContent = text;
  else if (node.firstChild.nodeValue !== text) node.firstChild.nodeValue = text;
}
// A length or colour that a style sheet reads as var(--name). By the object model, which the content
// security policy allows, not by a style attribute in text.
export function setVar(element: HTMLElement | SVGElement, name: string, value: string): void {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}
export function show(element: HTMLElement, shown: boolean): void {
  if (element.hidden === shown) element.hidden = !shown;
}

function shownName(name: string): string {
  return name === '' ? '(no name)' : name.trim() === '' ? '(blank)' : printable(name);
}
// A name from outside, kept apart from the text around it in direction too.
export function named(name: string, attributes: Attributes = {}): HTMLElement {
  const shown = shownName(name);
  return h('bdi', {title: shown, ...attributes}, shown);
}
export function putName(element: HTMLElement, name: string): void {
  const shown = shownName(name);
  put(element, shown);
  set(element, 'title', shown);
}
export function swatch(colour: number): HTMLElement {
  return h('span', {class: `swatch c${colour}`, 'aria-hidden': 'true'});
}

// Keeps the children of `parent` in step with `items`: one element for each key, in this order.
export class Keyed<T, R extends {element: Element}> {
  constructor(private readonly parent: Element, private readonly key: (item: T) => string,
              private readonly make: (item: T) => R, private readonly update: (row: R, item: T) => void) {}

  show(items: readonly T[]): void {
    const gone = new Set(this.rows.keys());
    let next = this.parent.firstElementChild;
    for (const [i, item] of items.entries()) {
      let key = this.key(item);
      // Two of a key cannot be told apart; the second gets a place of its own.
      if (!gone.has(key) && this.rows.has(key)) key += `\n${i}`;
      let row = this.rows.get(key);
      if (!row) this.rows.set(key, (row = this.make(item)));
      gone.delete(key);
      this.update(row, item);
      if (row.element === next) next = next.nextElementSibling;
      else this.parent.insertBefore(row.element, next);
    }
    for (const key of gone) {
      this.rows.get(key)!.element.remove();
      this.rows.delete(key);
    }
  }

  get(key: string): R | undefined {
    return this.rows.get(key);
  }

  private readonly rows = new Map<string, R>();
}

// A group of buttons of which one is chosen, as radio buttons are: one stop of the Tab key, arrows
// move within.
export function choice<T extends string>(label: string, options: readonly (readonly [T, string])[], chosen: T,
                                         onChoose: (value: T) => void): HTMLElement {
  const group = h('div', {class: 'choice', role: 'radiogroup', 'aria-label': label});
  const buttons = options.map(([value, text]) =>
    h('button', {type: 'button', role: 'radio', 'data-value': value, onclick: () => choose(value, false)}, text));
  const choose = (value: T, focus: boolean) => {
    for (const button of buttons) {
      const is = button.dataset['value'] === value;
      set(button, 'aria-checked', String(is));
      button.tabIndex = is ? 0 : -1;
      if (is && focus) button.focus();
    }
    if (value !== chosen) {
      chosen = value;
      onChoose(value);
    }
  };
  choose(chosen, false);
  append(group, ...buttons);
  arrows(group, () => buttons, (button) => choose(button.dataset['value'] as T, true));
  return group;
}

// Arrow keys, Home and End move among `items` (roving focus).
export function arrows<E extends HTMLElement>(group: HTMLElement, items: () => readonly E[], move: (to: E) => void): void {
  group.addEventListener('keydown', (event) => {
    const all = items();
    const from = all.findIndex((item) => item === document.activeElement);
    if (from < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const to = step !== undefined ? (from + step + all.length) % all.length
      : event.key === 'Home' ? 0 : event.key === 'End' ? all.length - 1 : -1;
    const item = all[to];
    if (!item) return;
    event.preventDefault();
    move(item);
  });
}
