// batond's answers, as this page uses them. Read with suspicion: what is missing or of another type
// becomes a default, lists are bounded, and nothing here throws. Pure.

export interface Histogram {
  le_s: number[];    // upper bounds, in seconds, ascending
  counts: number[];  // of each by itself; one more than bounds: those above the last
}
export interface PodOnGpu {
  uuid: string;
  node: string;
  phase: string;
  fluid: number;  // percent of the GPU that the pod is due just now
  throttled: boolean;
  lag_ns: number;
  achieved_1s: number;
  achieved_10s: number;
  achieved_60s: number;
  waited_1s: number;
  memory_used: number;
  held_ns: number;
  busy_ns: number;
  waited_ns: number;
  unmanaged_ns: number;
  launches: number;
  grants: number;
  revocations: number;
  wait_histogram: Histogram | null;
}
export interface PodClient {
  pid: number;
  command: string;
  uid: number;
  connected: boolean;
  phase: string;
}
export interface Pod {
  id: string;
  name: string;
  team: string;
  priority: string;
  phase: string;
  gang: boolean;
  request: number;  // percent of each of its GPUs
  limit: number;
  memory: number;  // bytes on each GPU; 0: no cap
  memory_used: number;
  uid: number;
  achieved_1s: number;  // summed over its GPUs
  achieved_10s: number;
  achieved_60s: number;
  held_ns: number;
  busy_ns: number;
  waited_ns: number;
  unmanaged_ns: number;
  lag_ns: number;
  launches: number;
  grants: number;
  revocations: number;
  gpus: PodOnGpu[];
  clients: PodClient[];
}
export interface Gpu {
  uuid: string;
  name: string;
  node: string;
  memory: number;
  present: boolean;
  hung: boolean;
  link: string;
  holder: string | null;
  queue: string[];
  handoff_ns: number;
  grants: number;
  overruns: number;
}
export interface NodeLink {
  name: string;
  link: string;
  clients: number;
  silent_ms: number;
}
export interface DaemonEvent {
  time_ms: number;
  kind: string;
  text: string;
}
export interface Status {
  version: string;
  mode: string;
  pid: number;
  started: string;
  degraded: string[];
  gpus: Gpu[];
  pods: Pod[];
  nodes: NodeLink[];
  events: DaemonEvent[];
}

export type Achieved = 'achieved_1s' | 'achieved_10s' | 'achieved_60s';

export interface ReportRow {
  key: string;
  team: string;
  held_hours: number;
  busy_hours: number;
  memory_gib_hours: number;
  waited_hours: number;
  efficiency: number;  // busy of held, 0 to 1; NaN: nothing held
  launches: number;
  cost: number | null;
}
export interface Report {
  from_ms: number;
  to_ms: number;
  by: string;
  rows: ReportRow[];
  idle_hours: number;
  unattributed_hours: number;
  capacity_hours: number;
}
export interface StandingRow {
  team: string;
  user: string;  // empty: the team itself
  raw_shares: number;
  normalized_shares: number;
  raw_usage_hours: number;
  normalized_usage: number;
  effective_usage: number;
  factor: number;
  level_fs: number;  // Infinity: it used nothing
  rank: number;      // of a user, from 1; 0: no user
  fair_tree: number;
}
export interface Standing {
  half_life_s: number;
  k: number;
  rows: StandingRow[];
}

type Fields = Record<string, unknown>;
const kListMax = 20_000;

function fields(value: unknown): Fields | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : null;
}
function number(of: Fields, key: string, otherwise = 0): number {
  const value = of[key];
  return typeof value === 'number' && Number.isFinite(value) ? value : otherwise;
}
function text(of: Fields, key: string, otherwise = ''): string {
  const value = of[key];
  return typeof value === 'string' ? value : otherwise;
}
function flag(of: Fields, key: string, otherwise = false): boolean {
  const value = of[key];
  return typeof value === 'boolean' ? value : otherwise;
}
function list<T>(value: unknown, read: (item: unknown) => T | null): T[] {
  if (!Array.isArray(value)) return [];
  const items: T[] = [];
  for (const item of value.slice(0, kListMax)) {
    const read_item = read(item);
    if (read_item !== null) items.push(read_item);
  }
  return items;
}
function objects<T>(value: unknown, read: (of: Fields) => T | null): T[] {
  return list(value, (item) => {
    const of = fields(item);
    return of ? read(of) : null;
  });
}
export function texts(value: unknown): string[] {
  return list(value, (item) => (typeof item === 'string' ? item : null));
}
function numbers(value: unknown): number[] {
  return list(value, (item) => (typeof item === 'number' && Number.isFinite(item) ? item : null));
}

function readHistogram(value: unknown): Histogram | null {
  const of = fields(value);
  if (!of) return null;
  const le_s = numbers(of['le_s']);
  const counts = numbers(of['counts']).map((count) => Math.max(0, count));
  if (le_s.length === 0 || counts.length < le_s.length || counts.length > le_s.length + 1) return null;
  if (le_s.some((bound, i) => i > 0 && bound <= le_s[i - 1]!)) return null;
  return {le_s, counts};
}

function readUsage(of: Fields) {
  return {
    held_ns: number(of, 'held_ns'),
    busy_ns: number(of, 'busy_ns'),
    waited_ns: number(of, 'waited_ns'),
    unmanaged_ns: number(of, 'unmanaged_ns'),
    launches: number(of, 'launches'),
    grants: number(of, 'grants'),
    revocations: number(of, 'revocations'),
    memory_used: number(of, 'memory_used'),
    lag_ns: number(of, 'lag_ns'),
    achieved_1s: number(of, 'achieved_1s'),
    achieved_10s: number(of, 'achieved_10s'),
    achieved_60s: number(of, 'achieved_60s'),
  };
}

function readPodOnGpu(of: Fields): PodOnGpu {
  return {
    ...readUsage(of),
    uuid: text(of, 'uuid'),
    node: text(of, 'node'),
    phase: text(of, 'phase', 'unknown'),
    fluid: number(of, 'fluid'),
    throttled: flag(of, 'throttled'),
    waited_1s: number(of, 'waited_1s'),
    wait_histogram: readHistogram(of['wait_histogram']),
  };
}

function readPod(of: Fields): Pod | null {
  const name = text(of, 'name');
  const id = of['id'];
  return {
    ...readUsage(of),
    id: typeof id === 'number' || typeof id === 'string' ? String(id) : name,
    name,
    team: text(of, 'team'),
    priority: text(of, 'priority', 'low'),
    phase: text(of, 'phase', 'unknown'),
    gang: flag(of, 'gang'),
    request: number(of, 'request'),
    limit: number(of, 'limit', 100),
    memory: number(of, 'memory'),
    uid: number(of, 'uid', -1),
    gpus: objects(of['gpus'], readPodOnGpu),
    clients: objects(of['clients'], (client) => ({
      pid: number(client, 'pid'),
      command: text(client, 'command'),
      uid: number(client, 'uid', -1),
      connected: flag(client, 'connected', true),
      phase: text(client, 'phase', 'unknown'),
    })),
  };
}

// Null where the answer is no status at all.
export function readStatus(value: unknown): Status | null {
  const of = fields(value);
  const daemon = of ? fields(of['daemon']) : null;
  if (!of || !daemon) return null;
  return {
    version: text(daemon, 'version'),
    mode: text(daemon, 'mode', 'enforce'),
    pid: number(daemon, 'pid'),
    started: text(daemon, 'started'),
    degraded: texts(daemon['degraded']),
    gpus: objects(of['gpus'], (gpu) => ({
      uuid: text(gpu, 'uuid'),
      name: text(gpu, 'name'),
      node: text(gpu, 'node'),
      memory: number(gpu, 'memory'),
      present: flag(gpu, 'present', true),
      hung: flag(gpu, 'hung'),
      link: text(gpu, 'link', 'up'),
      holder: typeof gpu['holder'] === 'string' ? gpu['holder'] : null,
      queue: texts(gpu['queue']),
      handoff_ns: number(gpu, 'handoff_ns'),
      grants: number(gpu, 'grants'),
      overruns: number(gpu, 'overruns'),
    })),
    pods: objects(of['pods'], readPod),
    nodes: objects(of['nodes'], (node) => ({
      name: text(node, 'name'),
      link: text(node, 'link', 'up'),
      clients: number(node, 'clients'),
      silent_ms: number(node, 'silent_ms'),
    })),
    events: objects(of['events'], (event) => ({
      time_ms: number(event, 'time_ms'),
      kind: text(event, 'kind'),
      text: text(event, 'text'),
    })),
  };
}

export function readReport(value: unknown): Report | null {
  const of = fields(value);
  if (!of || !Array.isArray(of['rows'])) return null;
  return {
    from_ms: number(of, 'from_ms'),
    to_ms: number(of, 'to_ms'),
    by: text(of, 'by'),
    rows: objects(of['rows'], (row) => ({
      key: text(row, 'key'),
      team: text(row, 'team'),
      held_hours: number(row, 'held_hours'),
      busy_hours: number(row, 'busy_hours'),
      memory_gib_hours: number(row, 'memory_gib_hours'),
      waited_hours: number(row, 'waited_hours'),
      efficiency: number(row, 'efficiency', NaN),
      launches: number(row, 'launches'),
      cost: typeof row['cost'] === 'number' ? number(row, 'cost') : null,
    })),
    idle_hours: number(of, 'idle_hours'),
    unattributed_hours: number(of, 'unattributed_hours'),
    capacity_hours: number(of, 'capacity_hours'),
  };
}

export function readStanding(value: unknown): Standing | null {
  const of = fields(value);
  if (!of || !Array.isArray(of['rows'])) return null;
  return {
    half_life_s: number(of, 'half_life_s'),
    k: number(of, 'k'),
    rows: objects(of['rows'], (row) => ({
      team: text(row, 'team'),
      user: text(row, 'user'),
      raw_shares: number(row, 'raw_shares'),
      normalized_shares: number(row, 'normalized_shares'),
      raw_usage_hours: number(row, 'raw_usage_hours'),
      normalized_usage: number(row, 'normalized_usage'),
      effective_usage: number(row, 'effective_usage'),
      factor: number(row, 'factor'),
      level_fs: number(row, 'level_fs', Infinity),
      rank: number(row, 'rank'),
      fair_tree: number(row, 'fair_tree'),
    })),
  };
}

// The part of `pod` that is on `uuid`.
export function onGpu(pod: Pod, uuid: string): PodOnGpu | null {
  return pod.gpus.find((part) => part.uuid === uuid) ?? null;
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
