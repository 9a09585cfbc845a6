// The page's link to batond: its questions with the bearer token, and the stream of what happens,
// kept up for as long as the page is open.
import {readStatus, type Status} from './model';
import {EventParser} from './sse';

export class ApiError extends Error {
  // `code`: HTTP's; 0: no answer at all.
  constructor(readonly code: number, message: string) {
    super(message);
  }
}

const kTokenKey = 'baton.token';
// The token lives as long as the tab. A browser that keeps nothing keeps it in memory.
let memory: string | null = null;
export function bearer(): string | null {
  try {
    return sessionStorage.getItem(kTokenKey) ?? memory;
  } catch {
    return memory;
  }
}
export function setBearer(token: string | null): void {
  memory = token;
  try {
    if (token === null) sessionStorage.removeItem(kTokenKey);
    else sessionStorage.setItem(kTokenKey, token);
  } catch {
    // in memory then
  }
}

async function ask(path: string, signal: AbortSignal, accept: string): Promise<Response> {
  const headers: Record<string, string> = {Accept: accept};
  const token = bearer();
  if (token !== null) headers['Authorization'] = `Bearer ${token}`;
  let response: Response;
  try {
    response = await fetch(path, {headers, signal, cache: 'no-store', credentials: 'same-origin', redirect: 'error'});
  } catch (error) {
    if (signal.aborted && signal.reason instanceof ApiError) throw signal.reason;
    if (signal.aborted) throw error;
    throw new ApiError(0, 'batond does not answer.');
  }
  if (response.ok) return response;
  let message = '';
  try {
    const body: unknown = JSON.parse(await response.text());
    if (typeof body === 'object' && body !== null && 'error' in body && typeof body.error === 'string') {
      message = body.error;
    }
  } catch {
    // no sentence, then
  }
  throw new ApiError(response.status, message || `batond answered with HTTP status ${response.status}.`);
}

const kAnswerMs = 15_000;
// A signal that also ends after `ms`, with a sentence.
function within(ms: number, outer: AbortSignal | undefined): {signal: AbortSignal; done: () => void} {
  const own = new AbortController();
  const timer = setTimeout(() => own.abort(new ApiError(0, 'batond takes too long to answer.')), ms);
  const end = () => own.abort(outer?.reason);
  if (outer?.aborted) end();
  outer?.addEventListener('abort', end, {once: true});
  return {
    signal: own.signal,
    done: () => {
      clearTimeout(timer);
      outer?.removeEventListener('abort', end);
    },
  };
}

// The JSON at `path`, relative to the page. Throws ApiError with a sentence, or the abort's reason.
export async function getJson(path: string, outer?: AbortSignal): Promise<unknown> {
  const {signal, done} = within(kAnswerMs, outer);
  try {
    const response = await ask(path, signal, 'application/json');
    try {
      return await response.json();
    } catch (error) {
      if (signal.aborted) throw signal.reason instanceof ApiError ? signal.reason : error;
      throw new ApiError(response.status, 'batond’s answer is not JSON.');
    }
  } finally {
    done();
  }
}

export type LinkState =
  | {kind: 'connecting'}
  | {kind: 'live'}
  | {kind: 'away'; since_ms: number; retry_ms: number; why: string}
  | {kind: 'token'; refused: boolean; why: string};

const kSilenceMs = 6000;  // batond speaks each second
const kBackoffMs = 500;
const kBackoffMaxMs = 15_000;
// How long to wait before the try after `failures` ones in a row; `random` in [0, 1) keeps many
// pages from coming back at the same instant.
export function backoff(failures: number, random: number): number {
  const exact = Math.min(kBackoffMaxMs, kBackoffMs * 2 ** Math.max(0, Math.min(failures - 1, 20)));
  return exact * (0.75 + 0.5 * random);
}

export interface LinkListener {
  onStatus(status: Status): void;
  onLedger(): void;
  onState(state: LinkState): void;
}

export class Link {
  constructor(private readonly listener: LinkListener) {}

  state: LinkState = {kind: 'connecting'};

  start(): void {
    void this.run();
    addEventListener('online', () => this.retry());
    document.addEventListener('visibilitychange', () => document.hidden || this.retry());
  }
  // At once, where it waits for the next try.
  retry(): void {
    if (this.state.kind === 'away') this.wake();
  }
  setToken(token: string): void {
    setBearer(token);
    this.wake();
  }
  // Some answer said that the token is not (or no longer) good.
  refused(why: string): void {
    if (this.state.kind !== 'token') this.current?.abort(new ApiError(401, why));
  }

  private async run(): Promise<void> {
    for (;;) {
      const end = new AbortController();
      this.current = end;
      let error: unknown = null;
      try {
        await this.follow(end);
      } catch (thrown) {
        error = end.signal.aborted && end.signal.reason instanceof ApiError ? end.signal.reason : thrown;
      }
      end.abort();
      if (error instanceof ApiError && error.code === 401) {
        const refused = bearer() !== null;
        setBearer(null);
        this.enter({kind: 'token', refused, why: error.message});
        await this.rest(Infinity);
        this.enter({kind: 'connecting'});
        continue;
      }
      const why = error instanceof ApiError ? error.message : 'The connection to batond ended.';
      this.failures += 1;
      const wait = backoff(this.failures, Math.random());
      this.enter({kind: 'away', since_ms: this.heard_ms, retry_ms: Date.now() + wait, why});
      await this.rest(wait);
    }
  }

  // Listens until something fails.
  private async follow(end: AbortController): Promise<void> {
    this.take(await getJson('api/v1/status', end.signal));
    const silent = () => end.abort(new ApiError(0, 'batond has stopped sending.'));
    let watch = setTimeout(silent, kSilenceMs);
    try {
      const response = await ask('api/v1/stream', end.signal, 'text/event-stream');
      if (!response.body) throw new ApiError(0, 'This browser cannot read a stream.');
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      const parser = new EventParser();
      for (;;) {
        const {done, value} = await reader.read();
        if (done) throw new ApiError(0, 'batond closed the connection.');
        let latest: string | null = null;
        for (const event of parser.push(decoder.decode(value, {stream: true}))) {
          if (event.event === 'status') latest = event.data;
          else if (event.event === 'ledger') this.listener.onLedger();
        }
        if (latest === null) continue;
        clearTimeout(watch);
        watch = setTimeout(silent, kSilenceMs);
        this.take(JSON.parse(latest));
      }
    } catch (error) {
      if (error instanceof SyntaxError || error instanceof RangeError) {
        throw new ApiError(0, 'This page does not understand what batond sent.');
      }
      throw error;
    } finally {
      clearTimeout(watch);
    }
  }

  private take(answer: unknown): void {
    const status = readStatus(answer);
    if (!status) throw new ApiError(0, 'The server is not batond.');
    this.failures = 0;
    this.heard_ms = Date.now();
    if (this.state.kind !== 'live') this.enter({kind: 'live'});
    this.listener.onStatus(status);
  }

  private enter(state: LinkState): void {
    this.state = state;
    this.listener.onState(state);
  }
  private rest(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === Infinity ? undefined : setTimeout(() => this.wake(), ms);
      this.wake = () => {
        clearTimeout(timer);
        this.wake = () => {};
        resolve();
      };
    });
  }

  private wake: () => void = () => {};
  private current: AbortController | null = null;
  private failures = 0;
  private heard_ms = Date.now();  // when batond was last there, as far as this page knows
}
