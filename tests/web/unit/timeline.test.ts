import assert from 'node:assert/strict';
import {test} from 'node:test';

import {type Kind, type Span, Timeline, at, bins, cover, quantile, readTimeline, summarise} from '../../../web/src/timeline';

const span = (pod: string, kind: Kind, from: number, to: number, open = false): Span => ({pod, kind, from, to, open});

test('spans that make no sense are left out, and what is no timeline is null', () => {
  for (const wrong of [null, 1, [], {}, {now_ms: 'x', spans: []}, {now_ms: 1}, {now_ms: NaN, spans: []}]) assert.equal(readTimeline(wrong), null);
  const answer = readTimeline({gpu: 'g', now_ms: 100, spans: [
    null, 7, {pod: 'a'}, {pod: 1, kind: 'hold', from_ms: 1, to_ms: 2}, {pod: 'a', kind: 'sleep', from_ms: 1, to_ms: 2},
    {pod: 'a', kind: 'hold', from_ms: 5, to_ms: 4}, {pod: 'a', kind: 'hold', from_ms: Infinity, to_ms: null},
    {pod: 'a', kind: 'hold', from_ms: 10, to_ms: 20}, {pod: 'b', kind: 'wait', from_ms: 90, to_ms: null}]});
  assert.deepEqual(answer!.spans, [span('a', 'hold', 10, 20), span('b', 'wait', 90, 100, true)]);
});

test('answers that overlap become one timeline, however each cut its first span off', () => {
  const timeline = new Timeline(1000);
  timeline.merge({gpu: 'g', now: 100, spans: [span('a', 'hold', 0, 40), span('b', 'wait', 0, 40), span('b', 'hold', 41, 100, true), span('a', 'wait', 40, 100, true)]}, 100);
  timeline.merge({gpu: 'g', now: 150, spans: [span('b', 'hold', 70, 110), span('a', 'wait', 70, 111), span('a', 'hold', 111, 150, true)]}, 80);
  const spans = timeline.within(0, 150).sort((x, y) => x.from - y.from || (x.kind < y.kind ? -1 : 1));
  assert.deepEqual(spans, [span('a', 'hold', 0, 40), span('b', 'wait', 0, 40), span('a', 'wait', 40, 111), span('b', 'hold', 41, 110), span('a', 'hold', 111, 150, true)]);
});

test('an open span that ended before this page assumed is told by the later word', () => {
  const timeline = new Timeline(1000);
  timeline.merge({gpu: 'g', now: 100, spans: [span('a', 'hold', 50, 100, true)]}, 100);
  timeline.merge({gpu: 'g', now: 110, spans: [span('a', 'hold', 50, 99)]}, 70);
  assert.deepEqual(timeline.within(0, 200), [span('a', 'hold', 50, 99)]);
});

test('a drain that the next answer does not tell was none: the token was extended', () => {
  const timeline = new Timeline(1000);
  timeline.merge({gpu: 'g', now: 100, spans: [span('a', 'hold', 50, 98), span('a', 'drain', 98, 100, true)]}, 100);
  timeline.merge({gpu: 'g', now: 110, spans: [span('a', 'hold', 50, 110, true)]}, 70);
  assert.deepEqual(timeline.within(0, 200), [span('a', 'hold', 50, 110, true)]);
  // One that ended is told.
  timeline.merge({gpu: 'g', now: 120, spans: [span('a', 'hold', 50, 118), span('a', 'drain', 118, 120, true)]}, 70);
  timeline.merge({gpu: 'g', now: 130, spans: [span('a', 'hold', 50, 118), span('a', 'drain', 118, 121)]}, 70);
  assert.deepEqual(timeline.within(0, 200).find(({kind}) => kind === 'drain'), span('a', 'drain', 118, 121));
});

test('turns that touch stay two', () => {
  const timeline = new Timeline(1000);
  timeline.merge({gpu: 'g', now: 100, spans: [span('a', 'hold', 10, 20), span('a', 'hold', 20, 30)]}, 100);
  timeline.merge({gpu: 'g', now: 100, spans: [span('a', 'hold', 10, 20), span('a', 'hold', 20, 30)]}, 100);
  assert.equal(timeline.within(0, 100).length, 2);
});

test('it keeps no more than its length, and begins anew after a gap or a clock that went back', () => {
  const timeline = new Timeline(100);
  timeline.merge({gpu: 'g', now: 100, spans: [span('a', 'hold', 10, 20), span('a', 'hold', 30, 95)]}, 100);
  timeline.merge({gpu: 'g', now: 125, spans: []}, 50);
  assert.deepEqual(timeline.within(-1e9, 1e9), [span('a', 'hold', 30, 95)]);
  assert.equal(timeline.begin, 25);
  timeline.merge({gpu: 'g', now: 1000, spans: [span('b', 'hold', 990, 1000, true)]}, 50);
  assert.deepEqual([timeline.begin, timeline.within(-1e9, 1e9).length], [950, 1]);
  timeline.merge({gpu: 'g', now: 10, spans: []}, 5);
  assert.deepEqual([timeline.begin, timeline.within(-1e9, 1e9).length], [5, 0]);
});

test('columns together cover just what the spans cover', () => {
  const covers = cover([span('a', 'hold', 5, 35), span('a', 'drain', 35, 40), span('b', 'wait', -50, 500)], 0, 100, 10);
  const a = covers.get('a')!;
  assert.deepEqual([...a.hold], [0.5, 1, 1, 0.5, 0, 0, 0, 0, 0, 0]);
  assert.deepEqual([...a.drain], [0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0]);
  assert.deepEqual([...covers.get('b')!.wait], new Array(10).fill(1));
  assert.equal(cover([span('a', 'hold', 5, 35)], 10, 10, 10).size, 0);
});

test('a drain counts once, told as a part of its hold or after it', () => {
  for (const spans of [[span('a', 'hold', 0, 30), span('a', 'drain', 30, 40)], [span('a', 'hold', 0, 40), span('a', 'drain', 30, 40)]]) {
    const a = summarise(spans, 0, 100).get('a')!;
    assert.deepEqual([a.held_ms, a.drained_ms], [40, 10]);
  }
});

test('only waits of known length are counted; the longest may still go on', () => {
  const a = summarise([span('a', 'wait', 0, 50), span('a', 'wait', 60, 70), span('a', 'wait', 80, 85), span('a', 'wait', 90, 100, true)], 0, 100).get('a')!;
  assert.deepEqual(a.waits, [5, 10]);
  assert.equal(a.waited_ms, 75);
  assert.equal(a.longest_ms, 50);
});

test('at an instant one holds or drains, others wait, the longest first', () => {
  const spans = [span('a', 'hold', 0, 40), span('a', 'drain', 30, 40), span('c', 'wait', 20, 50), span('b', 'wait', 10, 50)];
  assert.equal(at(spans, 10).token!.kind, 'hold');
  assert.equal(at(spans, 35).token!.kind, 'drain');
  assert.equal(at(spans, 45).token, null);
  assert.deepEqual(at(spans, 35).waiting.map(({pod}) => pod), ['b', 'c']);
});

test('bins and quantiles', () => {
  assert.deepEqual(bins([0.5, 1, 1.5, 2, 99], [1, 2]), [2, 2, 1]);
  assert.deepEqual([0, 0.5, 0.99, 1].map((q) => quantile([1, 2, 3, 4], q)), [1, 2, 4, 4]);
  assert.ok(Number.isNaN(quantile([], 0.5)));
});
