import {strict as assert} from 'node:assert';
import {test} from 'node:test';

import type {Report} from '../../../web/src/api';
import {nodesOf, sum} from '../../../web/src/node_use';

const row = (keys: string[] | null, held: number, capacity: number | null = 1) => ({
  keys, key: '', held_hours: held, busy_hours: held / 2, waited_hours: 2 * held, capacity_hours: capacity,
  idle_hours: capacity === null ? null : capacity - held, unattributed_hours: 0,
});
const report = (...rows: ReturnType<typeof row>[]) => ({rows} as unknown as Report);

test('GPUs stand under their node, nodes as people count, and sums are of their GPUs', () => {
  const nodes = nodesOf(report(row(['n10', 'T4', 'b'], 0.5), row(['n2', 'H200', 'z'], 0.25), row(['n10', 'H200', 'a'], 1)));
  assert.deepEqual(nodes.map(({node, models, gpus}) => [node, models, gpus.map((gpu) => gpu.uuid)]),
                   [['n2', ['H200'], ['z']], ['n10', ['H200', 'T4'], ['a', 'b']]]);
  assert.deepEqual(sum(nodes), {capacity: 3, held: 1.75, busy: 0.875, idle: 1.25, unattributed: 0, waited: 3.5});
  const {capacity, held, idle} = nodes[1]!;
  assert.deepEqual({capacity, held, idle}, {capacity: 2, held: 1.5, idle: 0.5});
});

test('rows without their keys or their capacity are no node, and no error', () => {
  assert.deepEqual(nodesOf(report(row(null, 1), row(['n'], 1))), []);
  assert.equal(nodesOf(report(row(['n', 'm', 'g'], 0, null)))[0]!.capacity, 0);
});
