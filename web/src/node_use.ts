// What the GPUs of each node were used for, from a report by node, model and GPU. Pure.
import type {Report} from './api';

export interface Use {
  capacity: number;  // GPU-hours that are in the books
  held: number;
  busy: number;
  idle: number;
  unattributed: number;
  waited: number;    // pod-hours
}
export interface GpuUse extends Use {
  uuid: string;
  model: string;
}
export interface NodeUse extends Use {
  node: string;
  models: string[];  // each once, by name
  gpus: GpuUse[];    // by uuid
}

const kNothing: Use = {capacity: 0, held: 0, busy: 0, idle: 0, unattributed: 0, waited: 0};
export function sum(all: readonly Use[]): Use {
  const total = {...kNothing};
  for (const use of all) {
    for (const key of Object.keys(kNothing) as (keyof Use)[]) total[key] += use[key];
  }
  return total;
}

// Where a node's page is, by a template with {node} for its name; null: that makes no address of the
// web.
export function pageOf(template: string, node: string): string | null {
  try {
    const url = new URL(template.replaceAll('{node}', encodeURIComponent(node)));
    return url.protocol === 'https:' || url.protocol === 'http:' ? url.href : null;
  } catch {
    return null;
  }
}

// By name, as people count: node-2 before node-10.
export function nodesOf(report: Report): NodeUse[] {
  const nodes = new Map<string, GpuUse[]>();
  for (const row of report.rows) {
    const [node, model, uuid] = row.keys ?? [];
    if (node === undefined || model === undefined || uuid === undefined) continue;
    let gpus = nodes.get(node);
    if (!gpus) nodes.set(node, (gpus = []));
    gpus.push({uuid, model, capacity: row.capacity_hours ?? 0, held: row.held_hours, busy: row.busy_hours,
               idle: row.idle_hours ?? 0, unattributed: row.unattributed_hours ?? 0, waited: row.waited_hours});
  }
  const order = new Intl.Collator('en', {numeric: true});
  return [...nodes].sort(([a], [b]) => order.compare(a, b)).map(([node, gpus]) => ({
    node, ...sum(gpus), models: [...new Set(gpus.map((gpu) => gpu.model))].sort(),
    gpus: gpus.sort((a, b) => (a.uuid < b.uuid ? -1 : 1)),
  }));
}
