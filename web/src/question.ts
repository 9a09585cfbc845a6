// What a view asks batond, beside what the page is told anyway.
import type {App} from './app';
import {printable} from './format';
import {ApiError, getJson} from './link';

export interface Answer<T> {
  value: T | null;
  trouble: string;  // a sentence; empty where there is a value
  away: boolean;    // nobody answered: to be asked again when batond is back
}

// Null: who asked has gone on (`signal`).
export async function question<T>(app: App, path: string, read: (answer: unknown) => T | null, signal: AbortSignal): Promise<Answer<T> | null> {
  try {
    const value = read(await getJson(path, signal));
    if (signal.aborted) return null;
    return {value, trouble: value === null ? 'This page does not understand batond’s answer.' : '', away: false};
  } catch (error) {
    if (signal.aborted) return null;
    const known = error instanceof ApiError ? error : null;
    if (known?.code === 401) app.refused(known.message);
    return {value: null, trouble: known ? printable(known.message, 500) : 'batond’s answer cannot be read.', away: known?.code === 0};
  }
}
