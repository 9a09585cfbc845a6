// Generated from docs/api/openapi.json by web/generate_api.mjs; do not edit.
import {type Read, flag, list, number, object, optional, text} from './read';

export const daemon = object({
  version: text,
  mode: text,
  pid: number,
  started: text,  // RFC 3339, UTC.
  degraded: list(text),  // What does not work; empty if everything works.
  node_page: optional(text),  // Where the page of a node is, with {node} for its name; by [page] node. Absent: nowhere.
  all_nodes_page: optional(text),  // The page that has all nodes; by [page] all_nodes. Absent: there is none.
});
export type Daemon = Read<typeof daemon>;

export const unmanagedProcess = object({
  pid: number,
  user: text,  // Name of the uid on batond's machine; may be empty.
  uid: number,
  command: text,  // As /proc/PID/comm; empty: batond cannot see the process.
  container: text,  // Its container's id, by its cgroup; empty: none.
  pod: text,  // Name of the pod that it is of; empty: of none.
  memory: number,  // Bytes that it has on the GPU; 0: unknown.
});
export type UnmanagedProcess = Read<typeof unmanagedProcess>;

export const gpu = object({
  uuid: text,  // As NVML spells it.
  name: text,  // Model.
  node: text,  // Empty: this machine.
  memory: number,  // Bytes.
  present: flag,  // Whether its node has reported it.
  epoch: number,  // Number of the current token.
  holder: optional(text),  // Name of the pod that holds the token; absent if none does.
  queue: list(text),  // Names of the pods that wait.
  handoff_ns: number,  // Current cost of moving the token to another pod.
  handoff_total_ns: optional(number),  // Time in which the GPU stood still because its token moved, since the daemon started.
  grants: number,
  overruns: number,  // Number of holders that drained long after their quota.
  hung: flag,  // Whether the holder does not drain.
  link: text,  // Link to the node.
  health: optional(text),  // Only healthy GPUs get new pods.
  why: optional(text),  // Why it is not healthy.
  kernel_caps: optional(flag),  // Whether the driver can hold memory caps there beside the hook.
  kernel_caps_why: optional(text),  // Why not; empty: it can, as far as is known.
  memory_overhead: optional(number),  // Bytes that contexts and code of its pods' processes take beyond what they are charged, as NVML tells; 0 where it tells nothing.
  memory_reserve: optional(number),  // Bytes that caps of pods which share it leave free for contexts and code ([memory] reserve_mib).
  cordoned: flag,  // Whether the operator keeps new pods away.
  unmanaged: list(unmanagedProcess),  // Processes on it that launch without a token; empty where Baton does not look (GPUs of other nodes, MIG).
  vendor: optional(text),  // nvidia; or another, whose GPU a pod has as a whole and without tokens.
  numa: optional(number),  // NUMA node of its bus; -1: unknown.
  island: optional(number),  // GPUs of a node with the same number, 0 or more, are connected by NVLink; -1: no NVLink.
  pcie: optional(number),  // The same for PCIe switches; -1: none.
  bus: optional(text),  // PCI address; empty: unknown.
  mig_capable: optional(flag),
  mig_enabled: optional(flag),  // Whether only its MIG instances can be used.
  use_beyond_requests: optional(number),  // Percent of the GPU that its pods are expected to execute beyond their requests, by what they used before; below 0: less. Missing where nothing is known of them.
});
export type Gpu = Read<typeof gpu>;

export const podOnGpu = object({
  uuid: text,
  node: text,
  phase: text,
  fluid: number,  // Entitlement: its share among the pods that are active now.
  throttled: flag,  // Whether its limit holds it back.
  lag_ns: number,  // Held time it is owed; negative: ahead.
  achieved_1s: number,  // Over the last 1 s.
  achieved_10s: number,  // Over the last 10 s.
  achieved_60s: number,  // Over the last 60 s.
  waited_1s: number,  // Fraction of the last second in which it waited, in percent.
  sm_utilization: optional(number),  // Of the GPU, or its MIG instance: how much its SMs were busy with it in the last seconds, in percent; absent where NVML does not tell.
  memory_utilization: optional(number),  // The same of reading and writing device memory; of a MIG instance, of the bandwidth.
  memory_used: number,  // Bytes.
  kernel_cap: optional(flag),  // Of a pod with a memory cap: whether the driver holds it too, in every container of the pod.
  kernel_cap_why: optional(text),  // Why not; empty: it does, or the pod has no process there.
  memory_swapped: optional(number),  // Of a pod with swap: bytes of them that are moved to the host.
  memory_released: optional(flag),  // Of a pod with swap: all of them are moved to the host, for it has had no work for idle_release.
  held_ns: number,  // Held time: grant to drained.
  busy_ns: number,  // Held time in which the GPU executed.
  waited_ns: number,  // Waited and did not hold.
  unmanaged_ns: number,  // Launched without a token while no daemon answered.
  launches: number,
  copies_bytes: number,
  grants: number,
  revocations: number,
});
export type PodOnGpu = Read<typeof podOnGpu>;

export const podClient = object({
  pid: number,
  command: text,
  uid: number,
  connected: flag,
  phase: text,
});
export type PodClient = Read<typeof podClient>;

export const pod = object({
  name: text,
  id: number,
  request: number,  // Guaranteed while it has work.
  limit: number,  // Never exceeded.
  memory: number,  // Bytes it may allocate on each GPU; 0: no cap.
  memory_percent: number,  // Cap in percent of each GPU's memory, if requested in percent; else 0. `memory` is then that of the first GPU.
  mode: text,  // How its GPUs are shared.
  priority: text,  // low is the normal one.
  team: text,  // A path; may be empty.
  user: text,  // May be empty.
  namespace: text,  // Of Kubernetes; may be empty.
  uid: number,  // User whose processes may attach; -1: any user with the ticket.
  cgroup: text,  // Uid of the Kubernetes pod whose processes may attach; empty: any.
  gang: flag,  // Whether it gets the tokens of all its GPUs, and of its gang's other pods, together or none.
  gang_name: text,  // Gang of several pods that it is in; empty: none.
  gang_missing: number,  // Pods that its gang waits for before any of them launches.
  phase: text,  // Phase of its busiest client.
  held_ns: number,  // Held time: grant to drained.
  busy_ns: number,  // Held time in which the GPU executed.
  waited_ns: number,  // Waited and did not hold.
  unmanaged_ns: number,  // Launched without a token while no daemon answered.
  launches: number,
  copies_bytes: number,
  grants: number,
  revocations: number,
  memory_used: number,  // Bytes.
  memory_swapped: optional(number),  // Of a pod with swap: bytes of them that are moved to the host.
  memory_released: optional(flag),  // Of a pod with swap: all of them are moved to the host, for it has had no work for idle_release.
  lag_ns: number,  // Held time it is owed; negative: ahead.
  achieved_1s: number,  // Over the last 1 s. The sum over its GPUs.
  achieved_10s: number,  // Over the last 10 s. The sum over its GPUs.
  achieved_60s: number,  // Over the last 60 s. The sum over its GPUs.
  latency_ns: optional(number),  // Of a pod with a latency: within its request it begins so soon after it asks.
  latency_waits: optional(number),  // Likewise: its waits that ended with a token, since the daemon started.
  latency_late: optional(number),  // Those of them that were longer than the latency.
  latency_ahead: optional(number),  // Those of the longer ones in which the pod had used more than its request pays for.
  latency_note: optional(text),  // Why the latency may be missed, by what was measured: a sentence; absent: nothing says so.
  gpus: list(podOnGpu),
  clients: list(podClient),
});
export type Pod = Read<typeof pod>;

export const client = object({
  id: number,
  pid: number,
  node: text,
  pod: text,  // Name.
  command: text,
  connected: flag,
  phase: text,
});
export type Client = Read<typeof client>;

export const node = object({
  name: text,
  link: text,
  clients: number,
  silent_ms: number,  // Time since its last message.
});
export type Node = Read<typeof node>;

export const event = object({
  time_ms: number,  // Unix time.
  kind: text,
  text: text,
});
export type Event = Read<typeof event>;

// The current state. Shares (request, limit, fluid, achieved, waited) are in percent of one GPU. Times ending in _ns are cumulative nanoseconds that survive restarts, except lag_ns.
export const status = object({
  daemon: daemon,
  gpus: list(gpu),
  pods: list(pod),
  clients: list(client),
  nodes: list(node),
  events: list(event),  // Oldest first.
  ok: optional(flag),  // Of the control socket only; always true.
});
export type Status = Read<typeof status>;

export const reportRow = object({
  key: text,  // A team's path, a user, a day such as 2026-11-21, a month such as 2026-11, ...; empty for total, and if unset. Where the report is by several: all of them, for people.
  keys: optional(list(text)),  // Where the report is by several: a key for each, in that order.
  from: optional(text),  // RFC 3339. By day or month: its beginning, as far as it lies in the window.
  to: optional(text),  // RFC 3339. By day or month: its end.
  team: optional(text),  // Team of a user or a pod.
  held_hours: number,  // Held time, which is what is charged.
  busy_hours: number,  // Held time in which the GPU executed.
  waited_hours: number,  // Waited and did not hold.
  unmanaged_hours: number,  // Launched without a token while no daemon answered.
  memory_gib_hours: number,
  efficiency: number,  // busy / held; 0 if nothing was held.
  launches: number,
  grants: number,
  allocated: optional(flag),  // True if none of it was held by tokens: an instance by MIG, a part by MPS or a GPU of another vendor, which counts as held for as long as a pod has it.
  measured: optional(flag),  // Where allocated is true: true if NVML told how much of it was used, so that busy_hours and efficiency are known.
  cost: optional(number),  // Present if prices are configured.
  capacity_hours: optional(number),  // Of this row; by gpu, node, model, day, month, price or several of these, in a report of all use only.
  idle_hours: optional(number),  // Of this row; by gpu, node, model, day, month, price or several of these, in a report of all use only.
  unattributed_hours: optional(number),  // Of this row; by gpu, node, model, day, month, price or several of these, in a report of all use only.
  price: optional(number),  // Of a GPU-hour; by model or by price, where all of the row had the same one.
  budget_hours: optional(number),  // By team: the budget of the team and all below it, in any budget_period_s.
  budget_period_s: optional(number),
  budget_held_hours: optional(number),  // Held by the team and all below it in the last budget_period_s, whatever the window.
  over_budget: optional(flag),
  energy_kwh: optional(number),  // Energy of the GPUs that these pods took. Present if some GPU's energy was measured in the window.
  energy_cost: optional(number),  // Of energy_kwh; no part of cost. Present if a price of energy is configured.
  carbon_kg: optional(number),  // Of energy_kwh: kilograms of CO2, or what warms as much. Present if the grams of a kilowatt-hour are configured.
  idle_energy_kwh: optional(number),  // What the GPUs of this row took beside their pods; by gpu, node, model, day, month, price or several of these, in a report of all use only.
  idle_energy_cost: optional(number),
  idle_carbon_kg: optional(number),
});
export type ReportRow = Read<typeof reportRow>;

export const report = object({
  from: text,  // RFC 3339, in UTC or with the offset of time_zone. The window of the answer: [from, to).
  to: text,  // RFC 3339.
  from_ms: number,  // Unix time.
  to_ms: number,
  by: text,  // What the rows are by, as it was asked.
  time_zone: optional(text),  // Of the answer's times, days and months. Absent for UTC.
  unit: text,
  rows: list(reportRow),
  held_hours: number,  // The sum of the rows.
  others_hours: optional(number),  // Held by those whom the question leaves out. Present if it asks for some only.
  capacity_hours: number,  // Time of all present GPUs in the window: held + others + idle + unattributed.
  idle_hours: number,  // No pod held the GPU or waited for it.
  unattributed_hours: number,  // The rest: hand-offs, waits at a limit, work without a token, absence of the daemon.
  currency: optional(text),  // Currency of the costs. Present if prices, or a price of energy, are configured; may be empty.
  cost: optional(number),
  others_cost: optional(number),
  idle_cost: optional(number),
  unattributed_cost: optional(number),
  energy_kwh: optional(number),  // Energy of the GPUs that these rows' pods took. Present, like all energy, if some GPU's energy was measured in the window.
  energy_cost: optional(number),  // Of energy_kwh, in the currency; no part of cost. Present, like all costs of energy, if a price of energy is configured.
  carbon_kg: optional(number),  // Of energy_kwh: kilograms of CO2, or what warms as much. Present, like all of them, if the grams of a kilowatt-hour are configured.
  others_energy_kwh: optional(number),  // Taken by the pods that the report leaves out.
  others_energy_cost: optional(number),
  others_carbon_kg: optional(number),
  idle_energy_kwh: optional(number),  // What the GPUs took beside their pods.
  idle_energy_cost: optional(number),
  idle_carbon_kg: optional(number),
});
export type Report = Read<typeof report>;

export const standingRow = object({
  team: text,  // A path; empty: all teams together.
  user: text,  // Empty: the row of the team itself.
  raw_shares: number,
  normalized_shares: number,
  raw_usage_hours: number,  // Decayed use of this row that is held against it, in GPU-hours.
  uncounted_hours: number,  // Decayed use of this row that is not held against it, since no other team wanted it, in GPU-hours.
  normalized_usage: number,
  effective_usage: number,
  factor: number,  // 2^(-effective usage / shares).
  level_fs: optional(number),  // Shares / usage among siblings; null: infinite.
  rank: number,  // Rank in the Fair Tree; equal users have the same rank.
  fair_tree: number,
});
export type StandingRow = Read<typeof standingRow>;

export const forecastPoint = object({
  at_s: number,  // From now.
  gpus: list(number),  // Of each team, as in teams: GPUs that it has from then on.
  usage: list(number),  // Of each team: its part of all decayed use.
});
export type ForecastPoint = Read<typeof forecastPoint>;

// How shares and use of teams develop, if all pods that are there always have work.
export const forecast = object({
  teams: list(text),  // Those that have pods.
  points: list(forecastPoint),  // By time, from now on.
});
export type Forecast = Read<typeof forecast>;

export const standing = object({
  half_life_s: number,
  k: number,  // Weight of history; 0: none.
  uncontended_use: number,  // How much of the use that no other team wanted is held against a team.
  rows: list(standingRow),
  forecast: optional(forecast),
});
export type Standing = Read<typeof standing>;

export const explanation = object({
  sentences: list(text),  // In reading order.
});
export type Explanation = Read<typeof explanation>;

export const logRow = object({
  at: text,  // RFC 3339, UTC.
  node: text,  // Of the daemon that did it.
  who: text,  // A user of the machine, "uid 1000", "root", "node N" (its operator), or "configuration".
  action: text,  // create, set, move, delete, cordon, uncordon, release, configure; more: a user's further changes in an hour, counted.
  kind: text,  // Of the object: pod, gpu, team, teams, price, model or config.
  object: text,  // A pod's NAMESPACE/NAME or NAME, a GPU's uuid, a team's path, a model.
  change: text,  // In words: request 30 -> 40.
});
export type LogRow = Read<typeof logRow>;

// Changes in the window [from, to), the newest first.
export const log = object({
  from: text,  // RFC 3339, UTC.
  to: text,  // RFC 3339, UTC.
  more: flag,  // There are older ones in the window.
  rows: list(logRow),
});
export type Log = Read<typeof log>;

export const historyRow = object({
  pod: text,  // Name.
  namespace: text,
  begin_s: number,  // When the first bucket begins, in seconds since 1970.
  held: list(number),  // Percent of the GPU that it held, bucket by bucket to its last one.
});
export type HistoryRow = Read<typeof historyRow>;

export const history = object({
  gpu: text,  // uuid.
  from: text,  // RFC 3339.
  to: text,
  bucket_s: number,  // Length of a bucket: 10 s in windows up to an hour, a minute up to a day, else an hour; coarser where that is no longer kept.
  rows: list(historyRow),  // By namespace, then pod; none of a pod that used nothing.
});
export type History = Read<typeof history>;
