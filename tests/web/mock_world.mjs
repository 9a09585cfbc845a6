// A made-up cluster for tests of the page: pods take turns on GPUs by a seeded draw, in real time,
// and the answers have the shape of batond's.

// mulberry32
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export const kHostile = [
  '<img src=x onerror="window.hacked=1">',
  '"><script>window.hacked=1</script>',
  'a'.repeat(300),
  '../../../etc/passwd',
  '\u202egnp.evil\u0000\u001b[31mred',
  "javascript:window.hacked=1//'",
  '   ',
  '__proto__',
  '日本語のポッド🙂 ' + 'é'.repeat(40),
];

const kTeams = ['research/vision', 'research/speech', 'product/search', 'product/ads', 'platform'];
const kNames = ['train', 'notebook', 'eval', 'serve', 'finetune', 'index', 'embed', 'sweep'];

export class MockWorld {
  // `pods`: how many on each GPU, or their names.
  constructor({gpus = 1, pods = 4, seed = 1, names = null, back_s = 90} = {}) {
    this.draw = random(seed);
    this.gpus = [];
    this.pods = [];
    this.events = [{time_ms: Date.now() - 3_600_000, kind: 'daemon', text: 'batond 0.1.0 serves /run/baton and tcp://127.0.0.1:7411'}];
    for (let g = 0; g < gpus; ++g) {
      const uuid = `GPU-${(0xf6c69f50 + g * 77777).toString(16)}-9437-0000-0000-00000000000${g}`;
      const gpu = {uuid, node: `gpu-node-${1 + (g >> 2)}`, spans: [], holder: null, until: 0, grants: 0, pods: []};
      this.gpus.push(gpu);
      const count = names ? names.length : pods;
      const weights = Array.from({length: count}, () => 1 + Math.floor(this.draw() * 6));
      const sum = weights.reduce((a, b) => a + b, 0);
      for (let p = 0; p < count; ++p) {
        const id = this.pods.length + 1;
        const request = Math.max(0.5, Math.floor((weights[p] / sum) * 190) / 2);
        const pod = {
          id, name: names ? names[p] : `${kNames[p % kNames.length]}-${g}${p >= kNames.length ? `.${Math.floor(p / kNames.length)}` : ''}`,
          request, limit: this.draw() < 0.3 ? Math.min(100, request + 5) : 100, team: kTeams[id % kTeams.length],
          uuid, gpu, waits_since: null, held: 0, waited: 0, grants: 0, idle: this.draw() < (count > 6 ? 0.2 : 0), lag: 0,
          priority: id % 7 === 0 ? 'high' : 'low', memory: id % 3 === 0 ? 4 * 2 ** 30 : 0,
        };
        this.pods.push(pod);
        gpu.pods.push(pod);
        this.events.push({time_ms: Date.now() - 3_000_000 + id * 1000, kind: 'pod', text: `${pod.name} created: request ${pod.request}%, limit ${pod.limit}%`});
      }
    }
    this.events.push({time_ms: Date.now() - 60_000, kind: 'token', text: `${this.pods[0]?.name ?? 'nobody'} does not drain on ${this.gpus[0]?.uuid}`});
    this.events = this.events.slice(-100);
    this.begin = Date.now() - back_s * 1000;
    for (const gpu of this.gpus) {
      gpu.until = this.begin;
      for (const pod of gpu.pods) pod.waits_since = pod.idle ? null : this.begin;
    }
    this.advance(Date.now());
  }

  advance(now) {
    for (const gpu of this.gpus) {
      while (gpu.until < now) {
        const wanting = gpu.pods.filter((pod) => !pod.idle);
        if (wanting.length === 0) {
          gpu.until = now;
          break;
        }
        const from = gpu.until + 0.05;
        for (const pod of wanting) if (pod.waits_since === null) pod.waits_since = from;
        // Whoever is furthest below its share, with a bit of noise.
        const total = wanting.reduce((sum, pod) => sum + pod.request, 0);
        wanting.sort((a, b) => b.lag / b.request - a.lag / a.request);
        const pod = wanting[0];
        const length = 18 + this.draw() * 14;
        const drain = 0.4 + this.draw() * 2;
        const to = from + length + drain;
        if (from > pod.waits_since) gpu.spans.push({pod: pod.name, kind: 'wait', from_ms: pod.waits_since, to_ms: from});
        gpu.spans.push({pod: pod.name, kind: 'hold', from_ms: from, to_ms: from + length});
        gpu.spans.push({pod: pod.name, kind: 'drain', from_ms: from + length, to_ms: to});
        for (const other of wanting) other.lag += ((to - from) * other.request) / total;
        pod.lag -= to - from;
        pod.held += to - from;
        pod.waited += from - pod.waits_since;
        pod.waits_since = to;
        pod.grants += 1;
        gpu.grants += 1;
        gpu.holder = pod.name;
        gpu.until = to;
      }
      const old = now - 65_000;
      const first = gpu.spans.findIndex((span) => (span.to_ms ?? now) > old);
      if (first > 0) gpu.spans.splice(0, first);
    }
  }

  over(pod, kinds, ms, now) {
    let sum = 0;
    for (const span of pod.gpu.spans) {
      if (span.pod !== pod.name || !kinds.includes(span.kind)) continue;
      sum += Math.max(0, Math.min(span.to_ms, now) - Math.max(span.from_ms, now - ms));
    }
    if (kinds.includes('wait') && pod.waits_since !== null) sum += Math.max(0, now - Math.max(pod.waits_since, now - ms));
    return Math.min(100, (sum / ms) * 100);
  }

  status() {
    const now = Date.now();
    this.advance(now);
    const ns = (ms) => Math.round(ms * 1e6);
    return {
      daemon: {version: '0.1.0', mode: 'enforce', pid: 4242, started: '2026-11-21T09:00:00Z', degraded: []},
      gpus: this.gpus.map((gpu) => ({
        uuid: gpu.uuid, name: 'NVIDIA H200', node: gpu.node, memory: 141 * 2 ** 30, present: true, epoch: 7, handoff_ns: 412_000,
        grants: gpu.grants, overruns: 3, hung: false, link: 'up', unmanaged: [], ...(gpu.holder === null ? {} : {holder: gpu.holder}),
        queue: gpu.pods.filter((pod) => !pod.idle && pod.name !== gpu.holder).map((pod) => pod.name),
      })),
      pods: this.pods.map((pod) => {
        const phase = pod.idle ? 'idle' : pod.gpu.holder === pod.name ? 'holding' : 'waiting';
        const usage = {
          held_ns: ns(pod.held), busy_ns: ns(pod.held * 0.94), waited_ns: ns(pod.waited), unmanaged_ns: 0, launches: pod.grants * 25,
          copies_bytes: 0, grants: pod.grants, revocations: 0, memory_used: pod.idle ? 0 : (1 + (pod.id % 5)) * 2 ** 30, lag_ns: ns(pod.lag),
          achieved_1s: this.over(pod, ['hold', 'drain'], 1000, now), achieved_10s: this.over(pod, ['hold', 'drain'], 10_000, now),
          achieved_60s: this.over(pod, ['hold', 'drain'], 60_000, now),
        };
        return {
          ...usage, name: pod.name, id: pod.id, request: pod.request, limit: pod.limit, memory: pod.memory, priority: pod.priority,
          team: pod.team, uid: 1000, gang: false, gang_name: '', gang_missing: 0, phase,
          gpus: [{...usage, uuid: pod.uuid, node: pod.gpu.node, phase, fluid: pod.idle ? 0 : pod.request, throttled: pod.limit < 100 && !pod.idle,
                  waited_1s: this.over(pod, ['wait'], 1000, now)}],
          clients: pod.idle ? [] : [{pid: 1000 + pod.id, command: `python ${pod.name}.py --epochs 90`, uid: 1000, connected: true, phase}],
        };
      }),
      clients: [], nodes: [...new Set(this.gpus.map((gpu) => gpu.node))].map((name) => ({name, link: 'up', clients: 3, silent_ms: 0})),
      events: this.events,
    };
  }

  timeline(uuid, seconds) {
    const now = Date.now();
    this.advance(now);
    const gpu = this.gpus.find((one) => one.uuid === uuid);
    if (!gpu) return null;
    const since = now - seconds * 1000;
    const spans = gpu.spans.filter((span) => span.to_ms > since && span.from_ms < now)
      .map((span) => (span.to_ms > now ? {...span, to_ms: null} : span));
    for (const pod of gpu.pods) {
      if (pod.waits_since !== null && pod.waits_since < now) spans.push({pod: pod.name, kind: 'wait', from_ms: pod.waits_since, to_ms: null});
    }
    return {gpu: uuid, now_ms: now, spans};
  }

  // What each had since long before the page was opened, and one that is gone.
  history(uuid, last) {
    const gpu = this.gpus.find((one) => one.uuid === uuid);
    const seconds = Number(/^(\d+)s$/.exec(last)?.[1]);
    if (!gpu || !seconds) return null;
    const bucket_s = seconds <= 3600 ? 10 : 60;
    const to = Date.now();
    const begin_s = Math.ceil((to / 1000 - seconds) / bucket_s) * bucket_s;
    const buckets = Math.floor(to / 1000 / bucket_s) - begin_s / bucket_s;
    const draw = random(seconds);
    const row = (pod, share, count) => ({pod, namespace: '', begin_s, held: Array.from({length: count}, () => Math.round(10 * share * (0.9 + 0.2 * draw())) / 10)});
    const rows = gpu.pods.filter((pod) => !pod.idle).map((pod) => row(pod.name, pod.request / 2, buckets));
    if (gpu.pods.length > 0) rows.push(row('yesterday', 40, Math.floor(buckets / 3)));
    return {gpu: uuid, from: new Date(to - seconds * 1000).toISOString(), to: new Date(to).toISOString(), bucket_s, rows};
  }

  report(by, last) {
    const days = {'1h': 1 / 24, '1d': 1, '7d': 7, '30d': 30, '90d': 90}[last];
    if (!days) return null;
    const draw = random(days);
    const to = Date.now();
    const row = (key, held, more = {}) => ({key, held_hours: held, busy_hours: held * 0.9, memory_gib_hours: held * 21, waited_hours: held * 0.8,
                                            efficiency: 0.9, launches: Math.round(held * 90_000), energy_kwh: held * 0.6, ...more});
    let held = 0;
    const by_day = [];
    for (let d = days - 1; d >= 0; --d) {
      const hours = 24 * this.gpus.length * (0.3 + 0.6 * draw());
      held += hours;
      by_day.push(row(new Date(to - d * 86_400_000).toISOString().slice(0, 10), hours));
    }
    const capacity = 24 * this.gpus.length * days;
    const split = (names, more = () => ({})) => names.map((name, i) => row(name, (held * (i + 1)) / ((names.length * (names.length + 1)) / 2), more(name, i)));
    // One for each day and name, of which the first have most.
    const by_both = (names) => by_day.flatMap((of_day) => names.map((name, i) =>
      ({...row(`${of_day.key}, ${name}`, (of_day.held_hours * (i + 1)) / ((names.length * (names.length + 1)) / 2)), keys: [of_day.key, name]})));
    const rows = {
      'day,team': () => by_both(['', ...kTeams]),
      'day,user': () => by_both(['ada', 'grace', 'linus', '<b>bold</b>']),
      'day,pod': () => by_both(this.pods.map((pod) => pod.name)),
      'day,gpu': () => by_both(this.gpus.map((gpu) => gpu.uuid)),
      'node,model,gpu': () => this.gpus.map((gpu) => ({...row(`${gpu.node}, NVIDIA H200, ${gpu.uuid}`, (capacity / this.gpus.length) * 0.7, {keys: [gpu.node, 'NVIDIA H200', gpu.uuid]}),
                                                        capacity_hours: capacity / this.gpus.length, idle_hours: (capacity / this.gpus.length) * 0.29, unattributed_hours: (capacity / this.gpus.length) * 0.01})),
      day: () => by_day,
      team: () => split(['', ...kTeams], (name) => ({cost: 123.456, ...(name === 'platform'
        ? {budget_hours: 500, budget_held_hours: 512.3, budget_period_s: 2_592_000, over_budget: true} : {})})),
      user: () => split(['ada', 'grace', 'linus', '<b>bold</b>'], () => ({team: 'research/vision'})),
      pod: () => split(this.pods.map((pod) => pod.name), (_name, i) => ({team: this.pods[i].team})),
      gpu: () => split(this.gpus.map((gpu) => gpu.uuid)),
    }[by];
    if (!rows) return null;
    return {from_ms: to - days * 86_400_000, to_ms: to, by, rows: rows(), idle_hours: (capacity - held) * 0.96,
            unattributed_hours: (capacity - held) * 0.04, capacity_hours: capacity, currency: 'EUR', energy_kwh: held * 0.6, idle_energy_kwh: (capacity - held) * 0.1};
  }

  standing() {
    const team = (name, shares, normalized, used) => ({team: name, user: '', raw_shares: shares, normalized_shares: normalized, raw_usage_hours: used * 812, uncounted_hours: used * 203,
      normalized_usage: used, effective_usage: used, factor: 2 ** (-used / normalized), level_fs: used > 0 ? normalized / used : null, rank: 0, fair_tree: 0});
    const user = (of, name, rank, used) => ({...team(of, 10, 0.1, used), user: name, rank, fair_tree: 1 / rank});
    return {half_life_s: 604_800, k: 1, uncontended_use: 0, rows: [
      team('', 1, 1, 1), team('research', 60, 0.6, 0.5), team('research/vision', 30, 0.3, 0.3875), user('research/vision', 'ada', 2, 0.2), user('research/vision', 'grace', 1, 0),
      team('research/speech', 30, 0.3, 0.1125), team('product', 30, 0.3, 0.4), team('product/search', 1, 0.15, 0.3), team('product/ads', 1, 0.15, 0.1), team('platform', 10, 0.1, 0.1),
    ]};
  }

  log() {
    const row = (minutes, who, action, kind, object, change) => ({at: new Date(Date.now() - minutes * 60_000).toISOString().replace(/\.\d+/, ''),
      node: 'node1', who, action, kind, object, change, was: null, is: null});
    const named = this.pods[0]?.name ?? 'gone';
    return {from: '', to: '', more: false, rows: [
      row(1, 'alice', 'set', 'pod', named, 'limit 80.0 -> 100.0, request 30.0 -> 40.0'),
      row(50, 'configuration', 'configure', 'team', 'research', 'weight 3 -> 5'),
      row(70, 'root', 'cordon', 'gpu', this.gpus[0]?.uuid ?? '', ''),
      row(4000, '<b onclick="hacked = 1">', 'create', 'pod', '../x', 'request <img src=x onerror="hacked = 1">'),
    ]};
  }

  explain(kind, name) {
    if (kind === 'team') return {sentences: [`${name} has 30 of 60 shares of its parent.`, 'It used 38.8 % of what was used, decayed by half each 7 days, of 30.0 % that it is due.', 'So it comes after teams that used less when there is time left over.']};
    const pod = this.pods.find((one) => one.name === name);
    if (!pod) return null;
    return {sentences: [`${pod.name} asks for ${pod.request} % and may have up to ${pod.limit} %.`, 'It got what it asked for over the last minute.', '<b>This is no markup.</b>']};
  }
}
