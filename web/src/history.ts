// The last minutes of achieved shares, one value a second, kept in this page only. What was before is
// in the ledger (past.ts). Pure but for what it keeps.
import type {Status} from './model';

// What uPlot draws: x in seconds since 1970, then one list a pod; null where there is nothing.
export interface Lines {
  xs: number[];
  ys: (number | null)[][];
}

export class History {
  // `most`: values kept of each pod. A pause longer than `gap_ms` breaks the line.
  constructor(private readonly most = 900, private readonly gap_ms = 3500) {}

  add(now_ms: number, status: Status): void {
    const last = this.times[this.times.length - 1];
    if (last !== undefined && now_ms <= last) return;
    // What was not seen is not drawn.
    if (last !== undefined && now_ms - last > this.gap_ms) this.row(last + 1, null);
    this.row(now_ms, status);
  }

  // Of these pods on `uuid`, in their order, since `from_ms`.
  lines(uuid: string, pods: readonly string[], from_ms: number): Lines {
    let begin = this.times.findIndex((time) => time >= from_ms);
    if (begin < 0) begin = this.times.length;
    const of_gpu = this.gpus.get(uuid);
    return {
      xs: this.times.slice(begin).map((time) => time / 1000),
      ys: pods.map((pod) => of_gpu?.get(pod)?.slice(begin) ?? this.times.slice(begin).map(() => null)),
    };
  }

  // When what is kept begins; NaN: nothing is.
  get begin_ms(): number {
    return this.times[0] ?? NaN;
  }

  private row(time: number, status: Status | null): void {
    const before = this.times.length;
    this.times.push(time);
    for (const pod of status?.pods ?? []) {
      for (const part of pod.gpus) {
        let of_gpu = this.gpus.get(part.uuid);
        if (!of_gpu) this.gpus.set(part.uuid, (of_gpu = new Map()));
        let values = of_gpu.get(pod.name);
        if (!values) of_gpu.set(pod.name, (values = new Array<number | null>(before).fill(null)));
        if (values.length === before) values.push(part.achieved_1s);
      }
    }
    const drop = Math.max(0, this.times.length - this.most);
    if (drop > 0) this.times.splice(0, drop);
    for (const [uuid, of_gpu] of this.gpus) {
      for (const [pod, values] of of_gpu) {
        if (values.length === before) values.push(null);
        if (drop > 0) values.splice(0, drop);
        // Whoever is long gone is forgotten.
        if (drop > 0 && values.every((value) => value === null)) of_gpu.delete(pod);
      }
      if (of_gpu.size === 0) this.gpus.delete(uuid);
    }
  }

  private readonly times: number[] = [];
  private readonly gpus = new Map<string, Map<string, (number | null)[]>>();
}
