// Who held a GPU's token and who waited, span by span. Pure but for what is kept.

export type Kind = 'hold' | 'drain' | 'wait';
export interface Span {
  pod: string;
  kind: Kind;
  from: number;  // milliseconds, on batond's clock
  to: number;    // for one that goes on: as far as is known
  open: boolean;
}
export interface Answer {
  gpu: string;
  now: number;
  spans: Span[];
}

const kSpansMax = 200_000;
const kSlack = 0.001;  // ms: what rounding may add to an edge

// Null where the answer is no timeline; spans that make no sense are left out.
export function readTimeline(value: unknown): Answer | null {
  if (typeof value !== 'object' || value === null) return null;
  const of = value as Record<string, unknown>;
  const now = of['now_ms'];
  if (typeof now !== 'number' || !Number.isFinite(now) || !Array.isArray(of['spans'])) return null;
  const spans: Span[] = [];
  for (const item of of['spans'].slice(0, kSpansMax)) {
    if (typeof item !== 'object' || item === null) continue;
    const {pod, kind, from_ms, to_ms} = item as Record<string, unknown>;
    if (typeof pod !== 'string' || (kind !== 'hold' && kind !== 'drain' && kind !== 'wait')) continue;
    if (typeof from_ms !== 'number' || !Number.isFinite(from_ms)) continue;
    const open = to_ms === null || to_ms === undefined;
    const to = open ? Math.max(now, from_ms) : to_ms;
    if (typeof to !== 'number' || !Number.isFinite(to) || to < from_ms) continue;
    spans.push({pod, kind, from: from_ms, to, open});
  }
  return {gpu: typeof of['gpu'] === 'string' ? of['gpu'] : '', now, spans};
}

// The last seconds of one GPU, put together from answers that overlap: after the first long one it
// is enough to ask for what is new.
export class Timeline {
  constructor(readonly keep_ms = 30_000) {}

  // Where the kept spans begin and how far they are known.
  begin = NaN;
  now = NaN;

  // `asked_ms`: how far back the answer goes.
  merge(answer: Answer, asked_ms: number): void {
    const since = answer.now - asked_ms;
    // The clock went back (another daemon), or time is missing in between: begin anew.
    if (!(answer.now >= this.now) || since > this.now) {
      this.lanes.clear();
      this.begin = since;
    }
    this.now = answer.now;
    for (const span of [...answer.spans].sort((a, b) => a.from - b.from)) this.add(span);
    // A drain of which the answer says nothing more was none: the token was extended.
    for (const [key, lane] of this.lanes) {
      if (!key.startsWith('drain')) continue;
      const last = lane[lane.length - 1];
      if (last?.open && last.to < answer.now) lane.pop();
    }
    const oldest = this.now - this.keep_ms;
    this.begin = Math.max(this.begin, oldest);
    for (const [key, lane] of this.lanes) {
      const gone = lane.findIndex((span) => span.to > oldest);
      if (gone < 0) this.lanes.delete(key);
      else if (gone > 0) lane.splice(0, gone);
    }
  }

  // All that touch [from, to), in no special order.
  within(from: number, to: number): Span[] {
    const spans: Span[] = [];
    for (const lane of this.lanes.values()) {
      for (const span of lane) {
        if (span.to > from && span.from < to) spans.push(span);
      }
    }
    return spans;
  }

  // A pod has at most one span of a kind at a time, so two that overlap are the same one, seen
  // twice: cut off at another place, or longer by now.
  private add(span: Span): void {
    const key = `${span.kind}\n${span.pod}`;
    let lane = this.lanes.get(key);
    if (!lane) this.lanes.set(key, (lane = []));
    let at = lane.length;
    while (at > 0 && lane[at - 1]!.from > span.from) --at;
    for (const known of [lane[at - 1], lane[at]]) {
      if (!known) continue;
      const overlap = Math.min(known.to, span.to) - Math.max(known.from, span.from);
      if (overlap <= kSlack && known.from !== span.from) continue;
      known.from = Math.min(known.from, span.from);
      // The later word wins: what was open may have ended earlier than this page assumed.
      known.to = known.open ? span.to : Math.max(known.to, span.to);
      known.open = span.open;
      return;
    }
    lane.splice(at, 0, {...span});
  }

  private readonly lanes = new Map<string, Span[]>();  // by kind and pod; by from
}

export interface Cover {
  hold: Float32Array;  // of each column the part that is covered, 0 to 1
  drain: Float32Array;
  wait: Float32Array;
}
// What to draw: by pod, how much of each of `columns` equal parts of [from, to) it held, drained and
// waited. One pixel may hold several tokens; this shows them all in proportion.
export function cover(spans: readonly Span[], from: number, to: number, columns: number): Map<string, Cover> {
  const covers = new Map<string, Cover>();
  const width = (to - from) / columns;
  if (!(width > 0)) return covers;
  for (const span of spans) {
    let of_pod = covers.get(span.pod);
    if (!of_pod) {
      of_pod = {hold: new Float32Array(columns), drain: new Float32Array(columns), wait: new Float32Array(columns)};
      covers.set(span.pod, of_pod);
    }
    const parts = of_pod[span.kind];
    const begin = (Math.max(span.from, from) - from) / width;
    const end = (Math.min(span.to, to) - from) / width;
    for (let column = Math.max(0, Math.floor(begin)); column < Math.min(columns, end); ++column) {
      const part = Math.min(end, column + 1) - Math.max(begin, column);
      if (part > 0) parts[column] = Math.min(1, parts[column]! + part);
    }
  }
  return covers;
}

export interface Summary {
  held_ms: number;     // granted to drained
  drained_ms: number;  // the part of it in which it drained
  waited_ms: number;
  longest_ms: number;  // wait, also of one that goes on
  waits: number[];     // those that began and ended in the window, ascending
}
export function summarise(spans: readonly Span[], from: number, to: number): Map<string, Summary> {
  const all = new Map<string, Summary>();
  const had = new Map<string, [number, number][]>();
  for (const span of spans) {
    let of_pod = all.get(span.pod);
    if (!of_pod) {
      all.set(span.pod, (of_pod = {held_ms: 0, drained_ms: 0, waited_ms: 0, longest_ms: 0, waits: []}));
      had.set(span.pod, []);
    }
    const begin = Math.max(span.from, from);
    const end = Math.min(span.to, to);
    if (span.kind === 'wait') {
      of_pod.waited_ms += end - begin;
      of_pod.longest_ms = Math.max(of_pod.longest_ms, span.to - span.from);
      // One that began with the window or goes on has no known length.
      if (!span.open && span.from > from && span.to <= to) of_pod.waits.push(span.to - span.from);
      continue;
    }
    if (span.kind === 'drain') of_pod.drained_ms += end - begin;
    had.get(span.pod)!.push([begin, end]);
  }
  for (const [pod, of_pod] of all) {
    of_pod.waits.sort((a, b) => a - b);
    // Whether a drain is told as a part of its hold or after it: their union is what was held.
    let covered = -Infinity;
    for (const [begin, end] of had.get(pod)!.sort((a, b) => a[0] - b[0])) {
      of_pod.held_ms += Math.max(0, end - Math.max(begin, covered));
      covered = Math.max(covered, end);
    }
  }
  return all;
}

// The span of each kind at an instant: who holds (or drains), and who waits.
export function at(spans: readonly Span[], time: number): {token: Span | null; waiting: Span[]} {
  let token: Span | null = null;
  const waiting: Span[] = [];
  for (const span of spans) {
    if (span.from > time || span.to <= time) continue;
    if (span.kind === 'wait') waiting.push(span);
    // A drain lies within or after its hold, whichever way it is told; it says more.
    else if (!token || span.kind === 'drain') token = span;
  }
  waiting.sort((a, b) => a.from - b.from || (a.pod < b.pod ? -1 : 1));
  return {token, waiting};
}

// Upper bounds of the bins, in milliseconds; a last bin has all above.
export const kWaitBins = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

// How many of `lengths` are in (bound before, bound], and at last above all bounds.
export function bins(lengths: readonly number[], bounds: readonly number[]): number[] {
  const counts = new Array<number>(bounds.length + 1).fill(0);
  for (const length of lengths) {
    let bin = bounds.findIndex((bound) => length <= bound);
    if (bin < 0) bin = bounds.length;
    counts[bin]! += 1;
  }
  return counts;
}

// The nearest-rank quantile of ascending values; NaN of none.
export function quantile(sorted: readonly number[], q: number): number {
  if (sorted.length === 0) return NaN;
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))]!;
}
