// What the ledger keeps of one GPU: who had how much of it, bucket by bucket. It goes back to before
// this page was opened. Pure.
import type {History as Answer} from './api';
import type {Lines} from './history';

// Until then a bucket may not be booked yet: [ledger] every, as it is without a configuration.
const kBooked_ms = 10_000;

export class Past {
  readonly bucket_ms: number;
  readonly begin_ms: number;  // NaN: nobody had anything
  readonly end_ms: number;    // of the last bucket that is over

  constructor(answer: Answer) {
    this.bucket_ms = Math.max(1, answer.bucket_s) * 1000;
    const begins = answer.rows.map((row) => row.begin_s * 1000);
    this.begin_ms = begins.length > 0 ? begins.reduce((one, other) => Math.min(one, other)) : NaN;
    this.end_ms = Math.floor(((Date.parse(answer.to) || 0) - kBooked_ms) / this.bucket_ms) * this.bucket_ms;
    for (const row of answer.rows) this.rows.set(row.pod, {begin: row.begin_s * 1000, held: row.held});
  }

  // Who had something, the most first.
  get pods(): string[] {
    const all = (pod: string) => this.rows.get(pod)!.held.reduce((sum, part) => sum + part, 0);
    return [...this.rows.keys()].map((pod) => [pod, all(pod)] as const).sort((a, b) => b[1] - a[1]).map(([pod]) => pod);
  }

  // Of these pods, each bucket at its middle, as far as that is in [from, to).
  lines(pods: readonly string[], from_ms: number, to_ms: number): Lines {
    const times: number[] = [];
    const half = this.bucket_ms / 2;
    const first = Math.ceil((Math.max(from_ms, this.begin_ms) - half) / this.bucket_ms) * this.bucket_ms;
    // The beginning of a bucket is a multiple of its length, but for a hole in the answer.
    for (let t = first; t + this.bucket_ms <= this.end_ms && t + half < to_ms; t += this.bucket_ms) times.push(t);
    return {
      xs: times.map((time) => (time + half) / 1000),
      ys: pods.map((pod) => {
        const row = this.rows.get(pod);
        return times.map((time) => row?.held[Math.round((time - row.begin) / this.bucket_ms)] ?? null);
      }),
    };
  }

  private readonly rows = new Map<string, {begin: number; held: readonly number[]}>();
}

// One behind the other, of the same pods.
export function joined(before: Lines, after: Lines): Lines {
  return {xs: [...before.xs, ...after.xs], ys: before.ys.map((values, i) => [...values, ...(after.ys[i] ?? [])])};
}
