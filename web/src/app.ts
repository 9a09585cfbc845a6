// What the views share.
import type {ColourBook} from './colours';
import type {History} from './history';
import type {LinkState} from './link';
import type {Status} from './model';

export interface App {
  readonly status: Status | null;
  readonly state: LinkState;
  readonly history: History;
  readonly colours: ColourBook;
  // Tells batond's refusal of a token, met by a view's own question.
  refused(why: string): void;
  announce(text: string): void;  // to screen readers
}

export interface View {
  readonly element: HTMLElement;
  // Something new is known, the theme is another, or the route's `rest` is.
  update(rest: string): void;
  // The ledger booked something.
  ledger?(): void;
  close(): void;
}

export const kFirstPod = 'baton run --request 30 -- python train.py';

// "#/pods/a%2Fb" → ["pods", "a/b"].
export function parseRoute(hash: string): [string, string] {
  const [, view = '', ...rest] = hash.split('/');
  try {
    return [view, decodeURIComponent(rest.join('/'))];
  } catch {
    return [view, ''];
  }
}
export function route(view: string, rest = ''): string {
  return `#/${view}${rest === '' ? '' : `/${encodeURIComponent(rest)}`}`;
}
