import {strict as assert} from 'node:assert';
import {test} from 'node:test';

import {Past, joined} from '../../../web/src/past';

const iso = (seconds: number) => new Date(seconds * 1000).toISOString();
const past = (to_s: number, ...rows: [string, number, number[]][]) => new Past({
  gpu: 'g', from: iso(0), to: iso(to_s), bucket_s: 10,
  rows: rows.map(([pod, begin_s, held]) => ({pod, namespace: '', begin_s, held})),
});

test('each bucket stands at its middle, and nobody has anything before or after its own', () => {
  const of = past(1100, ['a', 1000, [10, 20, 30]], ['b', 1020, [5, 0, 7]]);
  assert.equal(of.begin_ms, 1_000_000);
  assert.deepEqual(of.lines(['a', 'b', 'nobody'], 0, Infinity), {
    xs: [1005, 1015, 1025, 1035, 1045, 1055, 1065, 1075, 1085],
    ys: [[10, 20, 30, null, null, null, null, null, null], [null, null, 5, 0, 7, null, null, null, null],
         [null, null, null, null, null, null, null, null, null]],
  });
  assert.deepEqual(of.pods, ['a', 'b']);
});

test('what is not booked yet is not drawn, nor what is outside', () => {
  const of = past(1034, ['a', 1000, [10, 20, 30, 1]]);
  assert.equal(of.end_ms, 1_020_000);
  assert.deepEqual(of.lines(['a'], 0, Infinity).xs, [1005, 1015]);
  assert.deepEqual(of.lines(['a'], 1_005_000, 1_015_000).xs, [1005]);
  assert.deepEqual(of.lines(['a'], 1_005_001, Infinity).xs, [1015]);
});

test('an answer without anybody, or that makes no sense, is no line', () => {
  assert.deepEqual(past(1100).lines(['a'], 0, Infinity), {xs: [], ys: [[]]});
  assert.deepEqual(past(0, ['a', 1000, [1]]).lines(['a'], 0, Infinity).xs, []);
});

test('one follows the other', () => {
  assert.deepEqual(joined({xs: [1, 2], ys: [[1, null], [3, 4]]}, {xs: [5], ys: [[6], [7]]}),
                   {xs: [1, 2, 5], ys: [[1, null, 6], [3, 4, 7]]});
});
