// batond's answers, as this page uses them. Pure.
import * as api from './api';

export type {Event as DaemonEvent, Gpu, Pod, PodOnGpu, Report, Status, UnmanagedProcess} from './api';
export type Achieved = 'achieved_1s' | 'achieved_10s' | 'achieved_60s';
export interface StandingRow extends api.StandingRow {
  level_fs: number;  // Infinity: it used nothing
}
export interface Standing extends api.Standing {
  rows: StandingRow[];
}

// Each is null where the value is no such answer at all.
export function readStatus(value: unknown): api.Status | null {
  return has(value, 'daemon', (daemon) => api.daemon.read(daemon) !== null) ? api.status.read(value) : null;
}
export function readReport(value: unknown): api.Report | null {
  return has(value, 'rows', Array.isArray) ? api.report.read(value) : null;
}
export function readStanding(value: unknown): Standing | null {
  const standing = has(value, 'rows', Array.isArray) ? api.standing.read(value) : null;
  return standing && {...standing, rows: standing.rows.map((row) => ({...row, level_fs: row.level_fs ?? Infinity}))};
}
export function readHistory(value: unknown): api.History | null {
  return has(value, 'rows', Array.isArray) ? api.history.read(value) : null;
}
function has(value: unknown, key: string, is: (of: unknown) => boolean): boolean {
  return typeof value === 'object' && value !== null && is((value as Record<string, unknown>)[key]);
}

// The part of `pod` that is on `uuid`.
export function onGpu(pod: api.Pod, uuid: string): api.PodOnGpu | null {
  return pod.gpus.find((part) => part.uuid === uuid) ?? null;
}

// Whether the pod launches under the GPU's token. By MIG and MPS the hardware divides the GPU, and
// one of another vendor a pod has as a whole.
export function byToken(pod: {mode: string}, gpu: {vendor: string | null}): boolean {
  return pod.mode !== 'mig' && pod.mode !== 'mps' && (gpu.vendor || 'nvidia') === 'nvidia';
}

// Rows in the order of the tree of teams, each with its depth: a team, its users, its child teams.
export function asTree(rows: readonly StandingRow[]): {row: StandingRow; depth: number}[] {
  const path = (row: StandingRow) => row.team.split('/').filter((part) => part !== '');
  const before = (a: StandingRow, b: StandingRow): number => {
    const one = path(a);
    const two = path(b);
    for (let i = 0; i < Math.min(one.length, two.length); ++i) {
      if (one[i] !== two[i]) return one[i]! < two[i]! ? -1 : 1;
    }
    if (one.length !== two.length) return one.length - two.length;
    return a.user < b.user ? -1 : a.user > b.user ? 1 : 0;
  };
  return [...rows].sort(before).map((row) => ({
    row,
    depth: Math.max(0, path(row).length - (row.user === '' ? 1 : 0)),
  }));
}
