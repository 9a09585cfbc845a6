import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {test} from 'node:test';

import {parseRoute, route} from '../../../web/src/app';
import {bytes, duration, grouped, hours, percent, printable, share} from '../../../web/src/format';
import {History} from '../../../web/src/history';
import {backoff} from '../../../web/src/link';
import {type Status, asTree, readReport, readStanding, readStatus} from '../../../web/src/model';
import {matches, sorted} from '../../../web/src/search';
import {EventParser} from '../../../web/src/sse';
import {grid, stackDays} from '../../../web/src/stack';

const sample: unknown = JSON.parse(readFileSync('data/status.json', 'utf8'));

test('what the page reads is what docs/api/openapi.json says', () => {
  execFileSync(process.execPath, ['../../web/generate_api.mjs', '--check'], {stdio: 'inherit'});
});

test('a status that batond gave is read whole', () => {
  const status = readStatus(sample)!;
  assert.equal(status.gpus.length, 2);
  assert.equal(status.pods.length, 6);
  const [pod] = status.pods;
  assert.deepEqual([pod!.name, pod!.request, pod!.limit, pod!.gpus.length, pod!.clients.length], ['a-0.0', 60, 100, 1, 1]);
  assert.equal(status.gpus[0]!.holder, 'a-0.0');
  assert.deepEqual(status.gpus[0]!.queue, ['b-0.0', 'c-0.0']);
  assert.ok(pod!.achieved_10s > 50 && pod!.gpus[0]!.waited_1s > 30);
  assert.equal(status.events.length, (sample as {events: unknown[]}).events.length);
});

test('answers of any other shape do no harm', () => {
  for (const wrong of [null, 3, 'x', [], {}, {daemon: 1}]) {
    assert.equal(readStatus(wrong), null);
    assert.equal(readReport(wrong), null);
    assert.equal(readStanding(wrong), null);
  }
  const status = readStatus({daemon: {degraded: [1, 'x']}, gpus: 'none', pods: [null, {name: 7, gpus: [{fluid: '3'}]}], events: {}})!;
  assert.deepEqual([status.daemon.degraded, status.gpus, status.events], [['x'], [], []]);
  assert.equal(status.pods[0]!.name, '');
  assert.equal(status.pods[0]!.gpus[0]!.fluid, 0);
});

test('each field of a status may be missing or of a wrong type', () => {
  // Every value of the sample in turn becomes each of these.
  const spoil = (value: unknown, path: (string | number)[], by: unknown): void => {
    let at = value as Record<string | number, unknown>;
    for (const key of path.slice(0, -1)) at = at[key] as Record<string | number, unknown>;
    if (by === undefined) delete at[path[path.length - 1]!];
    else at[path[path.length - 1]!] = by;
  };
  const paths: (string | number)[][] = [];
  const walk = (value: unknown, path: (string | number)[]): void => {
    if (path.length > 0) paths.push(path);
    if (typeof value === 'object' && value !== null) for (const [key, inner] of Object.entries(value)) walk(inner, [...path, key]);
  };
  walk(sample, []);
  assert.ok(paths.length > 300);
  const text = JSON.stringify(sample);
  for (const path of paths) {
    for (const by of [undefined, null, -1e308, '\u0000', [], {}, [[]]]) {
      const spoilt: unknown = JSON.parse(text);
      spoil(spoilt, path, by);
      readStatus(spoilt);
    }
  }
});

test('a stream of events is the same in pieces of any size', () => {
  const text = '\ufeff: hello\r\nevent: status\r\ndata: {"a":1}\r\n\r\ndata: one\ndata:two\n\nevent: ledger\ndata\n\n:beat\n\nevent: x\n\nid: 7\nretry: 1\ndata: ü\n\n';
  const want = [{event: 'status', data: '{"a":1}'}, {event: 'message', data: 'one\ntwo'}, {event: 'ledger', data: ''}, {event: 'message', data: 'ü'}];
  for (let size = 1; size <= text.length; ++size) {
    const parser = new EventParser();
    const got = [];
    for (let from = 0; from < text.length; from += size) got.push(...parser.push(text.slice(from, from + size)));
    assert.deepEqual(got, want, `pieces of ${size}`);
  }
});

test('a stream without an end of line or event is given up', () => {
  const parser = new EventParser(1000);
  assert.throws(() => parser.push('x'.repeat(1001)), RangeError);
  const lines = new EventParser(1000);
  assert.throws(() => {
    for (let i = 0; i < 200; ++i) lines.push('data: 0123456789\n');
  }, RangeError);
});

test('tries grow apart up to a bound', () => {
  assert.deepEqual([1, 2, 3, 4].map((failures) => backoff(failures, 0.5)), [500, 1000, 2000, 4000]);
  assert.equal(backoff(1000, 0.5), 15_000);
  assert.ok(backoff(5, 0) < backoff(5, 0.999));
});

test('what tenants chose is shown, not obeyed', () => {
  assert.equal(printable('a\u0000b\u202ec\u001b[1m\n'), 'a\ufffdb\ufffdc\ufffd[1m\ufffd');
  assert.equal([...printable('🙂'.repeat(500))].length, 200);
  assert.equal(printable('日本'), '日本');
});

test('routes bring every name back, and a broken one harms nothing', () => {
  for (const name of ['a', 'a/b', '../..', '%', '#', '?', 'ü 🙂', '__proto__']) assert.deepEqual(parseRoute(route('pods', name)), ['pods', name]);
  assert.deepEqual(parseRoute('#/pods/%E0%A4%A'), ['pods', '']);
  assert.deepEqual(parseRoute(''), ['', '']);
});

test('figures', () => {
  assert.deepEqual([0, 543e3, 12.34e6, 4.105e9, 119.6e9, 3.7e12, 4.2e14, -2e6].map(duration),
                   ['0 s', '543\u00a0µs', '12.3\u00a0ms', '4.11\u00a0s', '2 min 00 s', '1 h 01 min', '4 d 20 h', '−2.00\u00a0ms']);
  assert.deepEqual([0, 1023, 1536, 141 * 2 ** 30].map(bytes), ['0\u00a0B', '1023\u00a0B', '1.5\u00a0KiB', '141\u00a0GiB']);
  assert.deepEqual([percent(59.59), percent(NaN), share(30), share(12.5)], ['59.6\u00a0%', '–', '30\u00a0%', '12.5\u00a0%']);
  assert.deepEqual([grouped(1234567), grouped(-1234.5, 1), grouped(-0.001, 1), grouped(NaN)], ['1\u202f234\u202f567', '−1\u202f234.5', '0.0', '–']);
  assert.deepEqual([0, 1e-9, -1e-9, 0.00432, 0.042, 0.42, 31.25, 812.4].map(hours), ['0', '0', '0', '0.0043', '0.042', '0.42', '31.3', '812']);
});

test('searching takes each word anywhere, sorting leaves equals in place and unknowns last', () => {
  assert.ok(matches('VIS train', ['train-1', 'research/vision']));
  assert.ok(!matches('vis serve', ['train-1', 'research/vision']));
  assert.ok(matches('   ', []));
  const rows = [{n: 'b', v: 1}, {n: 'a', v: NaN}, {n: 'c', v: 3}, {n: 'd', v: 1}];
  const columns = [{key: 'v', head: '', value: (row: {v: number}) => row.v}];
  assert.equal(sorted(rows, columns, {key: 'v', descending: false}).map(({n}) => n).join(''), 'bdca');
  assert.equal(sorted(rows, columns, {key: 'v', descending: true}).map(({n}) => n).join(''), 'cbda');
  const names = ['pod-10', 'pod-9', 'pod-1'].map((n) => ({n}));
  assert.equal(sorted(names, [{key: 'n', head: '', value: (row: {n: string}) => row.n}], {key: 'n', descending: false}).map(({n}) => n).join(), 'pod-1,pod-9,pod-10');
});

function statusWith(...shares: [string, number][]): Status {
  return readStatus({daemon: {}, pods: shares.map(([name, achieved_1s]) => ({name, gpus: [{uuid: 'g', achieved_1s}]}))})!;
}
test('the history is as long as it says, breaks where nothing was seen, and forgets who left', () => {
  const history = new History(5, 3500);
  history.add(1000, statusWith(['a', 10]));
  history.add(2000, statusWith(['a', 20], ['b', 5]));
  history.add(2000, statusWith(['a', 99]));  // the clock did not move
  assert.deepEqual(history.lines('g', ['a', 'b', 'nobody'], 0), {xs: [1, 2], ys: [[10, 20], [null, 5], [null, null]]});
  history.add(10_000, statusWith(['b', 6]));
  assert.deepEqual(history.lines('g', ['a', 'b'], 0), {xs: [1, 2, 2.001, 10], ys: [[10, 20, null, null], [null, 5, null, 6]]});
  for (let t = 11; t < 16; ++t) history.add(t * 1000, statusWith(['b', t]));
  assert.deepEqual(history.lines('g', ['a', 'b'], 12_500), {xs: [13, 14, 15], ys: [[null, null, null], [13, 14, 15]]});
  assert.equal(history.begin_ms, 11_000);
});

test('days stack to what was held: busy or not, or by what the report is by beside the day', () => {
  const row = (key: string, held_hours: number, busy_hours: number, keys?: string[]) => ({key, keys, held_hours, busy_hours});
  const plain = stackDays(readReport({by: 'day', rows: [row('2026-11-02', 4, 3), row('2026-11-01', 2, 2)]})!);
  assert.deepEqual(plain, {by: '', series: ['busy', 'held, not busy'], days: [{day: '2026-11-01', parts: [2, 0], total: 2}, {day: '2026-11-02', parts: [3, 1], total: 4}]});
  const of = (day: string, user: string, held: number) => row(`${day}, ${user}`, held, 0, [day, user]);
  const users = stackDays(readReport({by: 'day,user', rows: [of('2026-11-02', 'ada', 4), of('2026-11-01', 'ada', 1), of('2026-11-01', '', 2)]})!);
  assert.deepEqual(users, {by: 'user', series: ['ada', '(no user)'], days: [{day: '2026-11-01', parts: [1, 2], total: 3}, {day: '2026-11-02', parts: [4, 0], total: 4}]});
  const many = stackDays(readReport({by: 'day,team', rows: Array.from({length: 12}, (_, i) => of('2026-11-01', `t${i}`, 12 - i))})!);
  assert.deepEqual(many.series, ['t0', 't1', 't2', 't3', 't4', 't5', 't6', 'others']);
  assert.equal(many.days[0]!.total, 78);
});

test('the standing is a tree: teams, then their users, then their child teams', () => {
  const row = (team: string, user = '') => ({team, user, level_fs: null});
  const rows = readStanding({rows: [row('r/v'), row('p'), row('r/v', 'ada'), row('r'), row('r-x'), row('')]})!.rows;
  assert.deepEqual(asTree(rows).map(({row: {team, user}, depth}) => `${depth} ${team} ${user}`), ['0  ', '0 p ', '0 r ', '1 r/v ', '2 r/v ada', '0 r-x ']);
  assert.equal(rows[0]!.level_fs, Infinity);
});

test('the axis of days has labels that people read, whatever was used', () => {
  const labels = (most: number) => grid(most).lines.map(({label}) => label);
  assert.deepEqual(labels(41.2), ['0', '10', '20', '30', '40', '50']);
  assert.deepEqual(labels(1), ['0', '0.2', '0.4', '0.6', '0.8', '1.0']);
  assert.deepEqual(labels(0.0123), ['0', '0.005', '0.010', '0.015']);
  // Nothing, and a millisecond: no exponents.
  assert.deepEqual(labels(0), labels(1));
  assert.deepEqual(labels(3e-7), ['0', '0.0002', '0.0004', '0.0006', '0.0008', '0.0010']);
  for (let most = 1e-9; most < 1e7; most *= 1.7) {
    const {high, lines} = grid(most);
    assert.ok(high >= most && lines.length <= 7 && lines.length >= 3, String(most));
    assert.ok(lines.every(({label}) => /^\d+(\.\d+)?$/.test(label) && label.length <= 8), labels(most).join());
  }
});
