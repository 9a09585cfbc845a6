import {strict as assert} from 'node:assert';
import {test} from 'node:test';

import type {Report} from '../../../web/src/api';
import {nodesOf, pageOf, sum} from '../../../web/src/node_use';

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

test('a node has a page where the template makes an address of the web, whatever its name', () => {
  assert.equal(pageOf('https://{node}:7412/', 'gpu-1'), 'https://gpu-1:7412/');
  assert.equal(pageOf('https://proxy/{node}/', 'a/../b?c'), 'https://proxy/a%2F..%2Fb%3Fc/');
  assert.equal(pageOf('https://{node}:7412/', 'evil.example/'), null);
  for (const template of ['', 'javascript:alert(1)//{node}', '{node}', 'data:text/html,{node}']) assert.equal(pageOf(template, 'javascript:alert(1)'), null);
});
