// The built page in a browser. Against a mock of batond, and with BATON_URL what any batond must
// pass, against that one.
import assert from 'node:assert/strict';
import {readFile, readdir, stat} from 'node:fs/promises';
import {createRequire} from 'node:module';
import {after, before, describe, test} from 'node:test';
import {fileURLToPath} from 'node:url';

import {launch, open} from '../browser.mjs';
import {MockServer} from '../mock_server.mjs';
import {MockWorld, kHostile} from '../mock_world.mjs';

const kViews = ['live', 'teams', 'nodes', 'pods', 'events'];
const dist = process.env.BATON_WEB_DIST ?? fileURLToPath(new URL('../../../build/release/generated/web/dist', import.meta.url));
const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

// A page on a mock; whatever went wrong on it fails the test.
function on(world, options, act) {
  return async () => {
    const server = await new MockServer(world(), options.server).start();
    const {page, context, troubles} = await open(browser, server.url, options);
    page.setDefaultTimeout(15_000);
    try {
      await act(page, server);
      assert.deepEqual(troubles, []);
      assert.equal(await page.evaluate(() => window.hacked), undefined);
    } finally {
      await context.close();
      await server.stop().catch(() => {});
    }
  };
}
const few = () => new MockWorld({gpus: 2, pods: 4});
const many = () => new MockWorld({gpus: 8, pods: 25, seed: 3});
const hostile = () => new MockWorld({gpus: 1, names: kHostile});
const alone = () => new MockWorld({gpus: 1, pods: 1});
const empty = () => new MockWorld({gpus: 1, pods: 0});

const go = (page, view) => page.evaluate((hash) => {
  location.hash = hash;
}, `#/${view}`);
// No part of the page is wider than the page.
async function fits(page, what) {
  const {inner, wide} = await page.evaluate(() => ({inner: innerWidth, wide: document.documentElement.scrollWidth}));
  assert.ok(wide <= inner, `${what}: ${wide} pixels on ${inner}`);
}
async function accessible(page, what) {
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => (await window.axe.run(document, {resultTypes: ['violations']})).violations
    .map(({id, nodes}) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary?.slice(0, 300)}`).join(' | ')}`));
  assert.deepEqual(violations, [], what);
}
async function ready(page, view) {
  await go(page, view);
  const mark = {live: '.gpu-tab', teams: '.standing[data-rows], .standing, .trouble:not([hidden])', nodes: '.nodes tbody tr', pods: '.pods tbody tr', events: '.events tbody tr'}[view];
  await page.locator(mark).first().waitFor({state: 'attached'});
}

// Each has a page of its own, and most of them wait most of the time.
describe('the page', {concurrency: 6}, () => {
  test('the bundle is a few files with fixed names, below 200 kB, without maps or inline code', async () => {
    const names = (await readdir(dist)).sort();
    assert.deepEqual(names, ['app.css', 'app.js', 'icon.svg', 'index.html']);
    let size = 0;
    for (const name of names) size += (await stat(`${dist}/${name}`)).size;
    assert.ok(size < 200_000, `${size} bytes`);
    const html = await readFile(`${dist}/index.html`, 'utf8');
    assert.doesNotMatch(html, /<script(?![^>]* src=)|<style|style=|onload=|https?:/);
    assert.doesNotMatch(await readFile(`${dist}/app.js`, 'utf8'), /sourceMappingURL|\beval\(|innerHTML|document\.write/);
  });

  for (const [width, theme] of [[400, 'dark'], [1400, 'light']]) {
    for (const [name, world] of Object.entries({few, many, hostile, empty})) {
      test(`every view at ${width} pixels, ${theme}, ${name} pods: no error, nothing beside the page, accessible`, on(world, {width, theme}, async (page) => {
        await page.locator('.gpu-tab').first().waitFor();
        for (const view of kViews) {
          if (view === 'pods' && name === 'empty') continue;
          await ready(page, view);
          if (view === 'live' && name !== 'empty') await page.locator('.lanes tbody tr + tr, .lanes tbody:nth-of-type(2) tr').first().waitFor();
          if (view === 'teams') await page.locator('table.standing').waitFor();
          await fits(page, view);
          // Axe looks at each element by itself: more rows of a kind, or the same ones in the other
          // width and theme, tell it nothing more.
          if (name === 'few' || (width === 1400 && (name !== 'many' || view === 'live'))) await accessible(page, view);
        }
      }));
    }
  }

  test('live figures are those of the status, each second', on(few, {}, async (page, server) => {
    let achieved = 12.3;
    server.change = (status) => {
      Object.assign(status.pods[0].gpus[0], {achieved_10s: achieved, waited_1s: 45.6, phase: 'holding', throttled: false});
      return status;
    };
    const name = server.world.pods[0].name;
    const row = page.locator('.shares tbody tr', {hasText: name});
    await row.getByText('12.3 %').waitFor();
    achieved = 78.9;
    await row.getByText('78.9 %').waitFor();
    await row.getByText('45.6 %').waitFor();
    assert.equal(await row.locator('.bar').evaluate((bar) => bar.style.getPropertyValue('--achieved')), '78.90%');
    const {request} = server.world.pods[0];
    assert.equal(await row.locator('.bar').evaluate((bar) => bar.style.getPropertyValue('--request')), `${request.toFixed(2)}%`);
  }));

  for (const width of [400, 1400]) {
    test(`labels of the shares' axis are whole at ${width} pixels, 100 % too`, on(alone, {width}, async (page) => {
      await page.locator('.shares tbody tr').getByText(/^(9\d\.\d|100\.0)/).first().waitFor();
      await page.locator('.chart canvas').waitFor();
      // Each label of the shares is written up to where it ends; it must begin on the canvas.
      await page.evaluate(() => {
        window.written = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
          if (text.endsWith('%')) window.written.push({text, from: x - this.measureText(text).width, align: this.textAlign});
          return write.call(this, text, x, y);
        };
      });
      await page.waitForFunction(() => window.written.some(({text}) => text === '100 %'));
      const written = await page.evaluate(() => window.written);
      assert.deepEqual(written.filter(({from, align}) => align !== 'right' || from < 0), []);
    }));
  }

  test('the chart goes back to before the page was opened, and a long one tells of those who are gone', on(few, {}, async (page, server) => {
    // Read by the keyboard: what it says of its first instant.
    const first = async () => {
      await page.locator('.chart').focus();
      await page.keyboard.press('End');
      await page.keyboard.press('Home');
      return page.locator('.chart-box .readout').textContent();
    };
    const secondsAgo = (text) => {
      const [h, m, s] = /^(\d+):(\d+):(\d+)/.exec(text).slice(1).map(Number);
      const now = new Date();
      return (now.getHours() * 3600 + now.getMinutes() * 60 + now.getSeconds() - (h * 3600 + m * 60 + s) + 86_400) % 86_400;
    };
    const {name} = server.world.gpus[0].pods[0];
    await page.locator('.chart canvas').waitFor();
    let said = '';
    for (let i = 0; i < 20 && !(said.includes(name) && secondsAgo(said) > 200); ++i) {
      await page.waitForTimeout(200);
      said = await first();
    }
    assert.ok(secondsAgo(said) > 200 && secondsAgo(said) < 320, said);
    assert.ok(said.includes(name) && !said.includes('yesterday'), said);
    await page.locator('[aria-labelledby=chart-title]').getByRole('radio', {name: '1 day'}).click();
    await page.getByText('Achieved share, every minute').waitFor();
    said = await first();
    assert.ok(said.includes('yesterday'), said);
    const asked = server.asked.filter((path) => path.includes('/history'));
    assert.deepEqual(asked.map((path) => new URL(path, server.url).searchParams.get('last')), ['900s', '86400s']);
    // The other GPU has a history of its own.
    await page.locator('.gpu-tab').nth(1).click();
    await page.waitForFunction((uuid) => location.hash.includes(uuid), server.world.gpus[1].uuid);
    for (let i = 0; i < 20 && server.asked.filter((path) => path.includes('/history')).length < 3; ++i) await page.waitForTimeout(100);
    assert.ok(server.asked.at(-1).includes(server.world.gpus[1].uuid) || server.asked.some((path) => path.includes(`history?gpu=${server.world.gpus[1].uuid}`)));
  }));

  test('without a ledger the chart is of this page alone, and a long one says why', on(few, {server: {ledger: false}}, async (page) => {
    await page.locator('.chart canvas').waitFor();
    await page.locator('[aria-labelledby=chart-title]').getByRole('radio', {name: '1 h'}).click();
    await page.getByText('No ledger is kept here').waitFor();
  }));

  test('nodes: what their GPUs were used for, one by one, and those that are searched', on(many, {}, async (page, server) => {
    await ready(page, 'nodes');
    const names = [...new Set(server.world.gpus.map((gpu) => gpu.node))];
    await page.getByText(`${names.length} node${names.length === 1 ? '' : 's'}, ${server.world.gpus.length} GPUs`).waitFor();
    assert.equal(await page.locator('.nodes tbody tr').count(), names.length);
    const first = page.locator('.nodes tbody tr').first();
    assert.match(await first.textContent(), /70\.0\s%.*29\.0\s%/);
    await first.getByRole('button').press('Enter');
    const of_first = server.world.gpus.filter((gpu) => gpu.node === names.sort()[0]).length;
    assert.equal(await page.locator('.nodes tbody tr').count(), names.length + of_first);
    assert.equal(await page.locator('.nodes tbody tr').first().getByRole('button').getAttribute('aria-expanded'), 'true');
    assert.ok(await page.locator('.nodes tbody tr').first().getByRole('button').evaluate((button) => button === document.activeElement));
    await accessible(page, 'nodes');
    // From node to node, and to the page that has them all.
    server.change = (status) => ({...status, daemon: {...status.daemon, node_page: 'https://{node}.example:7412/', all_nodes_page: 'https://all.example/'}});
    await page.getByRole('link', {name: 'all nodes'}).waitFor();
    assert.equal(await page.getByRole('link', {name: 'all nodes'}).getAttribute('href'), 'https://all.example/');
    await page.getByRole('radio', {name: '1 day'}).click();
    const link = page.getByRole('link', {name: `Page of ${names[0]}`});
    await link.waitFor();
    assert.equal(await link.getAttribute('href'), `https://${names[0]}.example:7412/`);
    await accessible(page, 'nodes with pages');
    await fits(page, 'nodes with pages');
    // A GPU of this batond can be seen live.
    await page.locator('.nodes tbody th.below a').first().click();
    await page.locator('.gpu-tab[aria-current]').waitFor();
    await go(page, 'nodes');
    await page.getByLabel('Search').fill('no such node');
    await page.getByText('No node has these words.').waitFor();
    await page.getByLabel('Search').fill('');
    await page.getByRole('radio', {name: '7 days'}).click();
    for (let i = 0; i < 30 && !server.asked.includes('/api/v1/report?by=node,model,gpu&last=7d'); ++i) await page.waitForTimeout(100);
    assert.ok(server.asked.includes('/api/v1/report?by=node,model,gpu&last=7d'));
  }));

  test('use has its currency, and those without a team a name', on(few, {}, async (page) => {
    await go(page, 'teams');
    await page.locator('table.use').getByRole('columnheader', {name: 'Cost, EUR'}).waitFor();
    await page.locator('table.use').getByRole('columnheader', {name: 'Energy kWh'}).waitFor();
    await page.locator('table.use').getByRole('rowheader', {name: '(no team)'}).waitFor();
  }));

  test('the timeline shows what each pod held and how long it waited', on(few, {}, async (page, server) => {
    const pods = server.world.gpus[0].pods;
    await page.locator('.lanes tbody:nth-of-type(2) tr').nth(3).waitFor();
    await page.waitForFunction(() => document.querySelector('.lanes .all td.n')?.textContent?.match(/^9\d|^100/));
    for (const pod of pods) {
      const row = page.locator('.lanes tbody:nth-of-type(2) tr', {hasText: pod.name});
      const held = parseFloat(await row.locator('td.n').first().textContent());
      const total = pods.reduce((sum, one) => sum + one.request, 0);
      assert.ok(Math.abs(held - (pod.request / total) * 100) < 6, `${pod.name}: ${held} of ${pod.request}`);
      // Something is drawn in its own colour.
      assert.ok(await row.locator('canvas').evaluate((canvas) => {
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const colours = new Set();
        for (let i = 0; i < data.length; i += 4) colours.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
        return colours.size >= 2;
      }));
      const waits = page.locator('.waits tbody tr', {hasText: pod.name});
      assert.ok(Number((await waits.locator('td.n').first().textContent()).replace(/\D/g, '')) > 20);
    }
    // By the keyboard too: it stands still, and says who held the token.
    await page.locator('canvas.token').focus();
    await page.keyboard.press('PageDown');
    await page.keyboard.press('PageUp');
    await page.getByText(/s ago: .* (holds|drains), .*\sms/).waitFor();
    assert.equal(await page.getByRole('button', {name: 'Resume'}).getAttribute('aria-pressed'), 'true');
    // After the first long answer only what is new is asked for.
    const asked = server.asked.filter((path) => path.includes('/timeline'));
    assert.match(asked[0], /seconds=30$/);
    assert.ok(asked.slice(1).every((path) => Number(/seconds=(\d+)$/.exec(path)[1]) <= 5), asked.join());
  }));

  test('names of tenants are text, and their pods can be opened and explained', on(hostile, {}, async (page, server) => {
    await ready(page, 'pods');
    assert.equal(await page.locator('.pods tbody tr').count(), kHostile.length);
    assert.equal(await page.locator('main img, main script, main b').count(), 0);
    // In an order that does not move.
    await page.getByRole('button', {name: 'Pod'}).click();
    for (let i = 0; i < kHostile.length; ++i) {
      const link = page.locator('.pods tbody th a').nth(i);
      await link.click();
      await page.locator('.drawer .sentences li').first().waitFor();
      assert.equal(await page.locator('.drawer img, .drawer script, .drawer b').count(), 0);
      await page.keyboard.press('Escape');
      await page.locator('.drawer').waitFor({state: 'hidden'});
    }
    // Each was asked for by its own name.
    const asked = server.asked.filter((path) => path.startsWith('/api/v1/explain?pod=')).map((path) => new URL(path, server.url).searchParams.get('pod'));
    assert.deepEqual(new Set(asked), new Set(kHostile));
  }));

  test('200 pods: searched, sorted, and cheap to keep up to date', on(many, {}, async (page) => {
    await ready(page, 'pods');
    assert.equal(await page.locator('.pods tbody tr').count(), 200);
    await page.getByLabel('Search').fill('train speech');
    await page.getByText(/^\d+ of 200 pods$/).waitFor();
    for (const text of await page.locator('.pods tbody tr').allTextContents()) assert.match(text, /train.*research\/speech/);
    await page.getByLabel('Search').fill('');
    await page.mouse.move(0, 0);
    await page.getByRole('button', {name: 'Request'}).click();
    assert.equal(await page.locator('th[aria-sort]').getAttribute('aria-sort'), 'descending');
    const column = async () => (await page.locator('.pods tbody tr td:nth-child(6)').allTextContents()).map(parseFloat);
    const down = await column();
    assert.deepEqual(down, [...down].sort((a, b) => b - a));
    await page.getByRole('button', {name: 'Request'}).click();
    const up = await column();
    assert.deepEqual(up, [...up].sort((a, b) => a - b));
    // Rows are kept, not made anew, from second to second.
    const changed = await page.evaluate(() => new Promise((resolve) => {
      let added = 0;
      const watch = new MutationObserver((records) => {
        for (const record of records) added += [...record.addedNodes].filter((node) => node.nodeName === 'TR').length;
      });
      watch.observe(document.querySelector('.pods tbody'), {childList: true});
      setTimeout(() => resolve(added), 2500);
    }));
    assert.equal(changed, 0);
  }));

  test('teams: history, use that adds up, standing, and why', on(few, {}, async (page, server) => {
    await ready(page, 'teams');
    await page.locator('.days-chart g').nth(29).waitFor({state: 'attached'});
    await page.getByText(/held .* = 1.440 of 1.440 GPU-hours of capacity/).waitFor();
    assert.equal(await page.getByText('does not add up').count(), 0);
    const vision = page.locator('.standing tr.team', {hasText: 'vision'});
    assert.match(await vision.textContent(), /30\.0\s%.*38\.8\s%.*0\.408/);
    assert.match(await page.locator('.standing tr.user', {hasText: 'grace'}).textContent(), /∞1/);
    await vision.getByRole('button', {name: 'Explain research/vision'}).click();
    await page.locator('.drawer').getByText('research/vision has 30 of 60 shares of its parent.').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('radio', {name: '7 days'}).click();
    await page.waitForFunction(() => document.querySelectorAll('.days-chart g').length === 7);
    const stacked = page.getByRole('radiogroup', {name: 'Stacked by'});
    const parts = () => page.locator('.days-chart g').first().locator('rect').count();
    const legend = page.locator('.legend').first();
    for (const [by, name] of [['user', '<b>bold</b>'], ['GPU', 'GPU-'], ['pod', 'train'], ['team', 'research/vision']]) {
      await stacked.getByRole('radio', {name: by}).click();
      await legend.getByText(name).first().waitFor();
      assert.equal(await parts(), await legend.locator('li').count());
    }
    await stacked.getByRole('radio', {name: 'busy'}).click();
    await legend.getByText('held, not busy').waitFor();
    await page.getByRole('radiogroup', {name: 'By', exact: true}).getByRole('radio', {name: 'user'}).click();
    await page.locator('.use').getByText('<b>bold</b>').waitFor();
    // What batond books is fetched again when it says so.
    const before_it = server.asked.length;
    server.tell('ledger', {});
    for (let i = 0; i < 100 && server.asked.slice(before_it).filter((path) => /report|standing/.test(path)).length < 3; ++i) await page.waitForTimeout(50);
    assert.ok(server.asked.slice(before_it).some((path) => path.includes('/standing')));
  }));

  test('who has no team has one colour in the chart and in the table', on(few, {}, async (page, server) => {
    const report = server.world.report.bind(server.world);
    server.world.report = (by, last) => {
      const all = report(by, last);
      return {...all, rows: all.rows.filter((row) => ['', 'research/vision'].includes(row.keys ? row.keys[1] : row.key))};
    };
    await ready(page, 'teams');
    const colour = (swatch) => swatch.evaluate((element) => getComputedStyle(element).backgroundColor);
    const of_chart = page.locator('.days .legend li', {hasText: '(no team)'}).locator('.swatch');
    const of_table = page.locator('.use tbody tr', {hasText: '(no team)'}).locator('.swatch');
    assert.equal(await colour(of_table), await colour(of_chart));
  }));

  test('a team over its budget is seen', on(few, {}, async (page) => {
    await ready(page, 'teams');
    const cell = page.locator('.use tbody tr', {hasText: 'platform'}).locator('td.trouble');
    assert.match(await cell.textContent(), /^512 of 500, over$/);
    assert.equal(await page.locator('.use td.trouble').count(), 1);
  }));

  for (const width of [400, 1000, 1400]) {
    test(`GPUs that get no new pods say so, and those without tokens show none, at ${width} pixels`, on(() => new MockWorld({gpus: 5, pods: 2}), {width}, async (page, server) => {
      server.change = (status) => {
        const [cordoned, failed, mig, other] = status.gpus;
        cordoned.cordoned = true;
        Object.assign(failed, {health: 'failed', why: 'XID 79'});
        mig.mig_enabled = true;
        other.vendor = 'amd';
        for (const pod of status.pods) {
          if (pod.gpus[0].uuid === mig.uuid) pod.mode = 'mig';
          if (pod.gpus[0].uuid === other.uuid) pod.mode = 'exclusive';
          if (pod.gpus[0].uuid === cordoned.uuid) Object.assign(pod.gpus[0], {memory_released: true, throttled: false, phase: 'idle'});
        }
        return status;
      };
      const tab = (i) => page.locator('.gpu-tab').nth(i);
      const see = async (i) => {
        await tab(i).click();
        await page.locator('.gpu-tab[aria-current]').nth(0).waitFor();
        await page.waitForFunction((uuid) => document.querySelector('.gpu-head code')?.textContent === uuid, server.world.gpus[i].uuid);
      };
      await tab(0).getByText('cordoned').waitFor();
      await tab(1).getByText('failed').waitFor();
      await see(0);
      await page.getByText('Cordoned: it gets no new pods').waitFor();
      // No cell's text is wider than its cell.
      await page.locator('.shares').getByText('swapped out').first().waitFor({state: 'attached'});
      const wider = await page.locator('.shares td.phase').evaluateAll((cells) => cells.filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent));
      assert.deepEqual(wider, []);
      await see(1);
      await page.getByText('This GPU has failed, and gets no new pods: XID 79').waitFor();
      assert.ok(await page.locator('.token-view').isVisible());
      await see(2);
      assert.equal(await page.locator('.token-view').isVisible(), false);
      assert.match(await page.locator('.gpu-head .facts').textContent(), /ModeMIG$/);
      assert.match(await page.locator('.shares tbody tr').first().textContent(), /–.*by MIG/);
      await see(3);
      assert.equal(await page.locator('.token-view').isVisible(), false);
      await see(4);
      assert.ok(await page.locator('.token-view').isVisible());
      await fits(page, 'live');
      await go(page, 'pods');
      await page.locator('.pods tbody tr').first().waitFor();
      const heights = await page.locator('.pods tbody tr').evaluateAll((rows) => rows.map((row) => row.getBoundingClientRect().height));
      assert.ok(Math.max(...heights) < 40, `rows of ${Math.max(...heights)} pixels`);
      assert.ok(await page.locator('.pods').evaluate((table) => table.parentElement.scrollWidth <= table.parentElement.clientWidth), 'no column is out of sight');
    }));
  }

  test('a report that does not add up is called that', on(few, {}, async (page, server) => {
    const report = server.world.report.bind(server.world);
    server.world.report = (by, last) => ({...report(by, last), idle_hours: 0});
    await ready(page, 'teams');
    await page.getByText('This does not add up').waitFor();
  }));

  test('without a ledger the page says what batond says', on(few, {server: {ledger: false}}, async (page) => {
    await ready(page, 'teams');
    await page.getByText('No ledger is kept here; [ledger] in the configuration turns it on.').waitFor();
  }));

  test('events: the newest first, by kind and by word', on(few, {}, async (page) => {
    await ready(page, 'events');
    assert.match(await page.locator('.events tbody tr').first().textContent(), /does not drain/);
    await page.getByLabel('Kind').selectOption('pod');
    assert.equal(await page.locator('.events tbody tr').count(), 8);
    await page.getByLabel('Search', {exact: true}).fill('train-1');
    assert.equal(await page.locator('.events tbody tr').count(), 1);
  }));

  test('events: who changed what, from the ledger', on(few, {}, async (page) => {
    await ready(page, 'events');
    const rows = page.locator('.changes tbody tr');
    await rows.first().waitFor();
    assert.equal(await rows.count(), 4);
    assert.match(await rows.first().textContent(), /alice.*set.*request 30.0 -> 40.0/);
    await page.getByLabel('Search changes').fill('research');
    assert.equal(await rows.count(), 1);
    await page.getByLabel('Search changes').fill('nobody');
    await page.getByText('Nothing was changed in 30 days, or nothing that matches.').waitFor();
  }));

  test('events: without a ledger the page says what batond says', on(few, {server: {ledger: false}}, async (page) => {
    await ready(page, 'events');
    await page.getByText('No ledger is kept here; [ledger] in the configuration turns it on.').waitFor();
  }));

  test('nothing there yet: how to start a pod', on(empty, {}, async (page, server) => {
    await page.getByText('baton run --request 30 -- python train.py').first().waitFor();
    await go(page, 'pods');
    await page.getByText('No pod yet').waitFor();
    server.change = (status) => ({...status, gpus: []});
    await go(page, 'live');
    await page.getByText('batond manages no GPU').waitFor();
  }));

  test('what is wrong with a GPU, a node or the daemon is said', on(few, {}, async (page, server) => {
    server.change = (status) => {
      Object.assign(status.gpus[0], {hung: true, link: 'cut', present: false});
      status.nodes[0].link = 'cut';
      status.daemon.degraded = ['Accounts are not being kept: <i>disk full</i>.'];
      status.daemon.mode = 'observe';
      return status;
    };
    await page.getByText('The holder does not drain').waitFor();
    for (const text of ['The link to its node is cut', 'This GPU has vanished', 'Accounts are not being kept: <i>disk full</i>.', 'The link to node gpu-node-1 is cut.', 'batond runs in mode observe']) {
      await page.getByText(text, {exact: false}).first().waitFor();
    }
    await page.getByText('gone, hung, link cut').waitFor();
    await accessible(page, 'in trouble');
  }));

  test('processes without the token are named', on(few, {}, async (page, server) => {
    server.change = (status) => {
      status.gpus[0].unmanaged = [
        {pid: 4711, user: 'bob', uid: 1000, command: '<b>python</b>', container: '0123456789abcdef'.repeat(4), pod: 'train-1', memory: 3 * 2 ** 30},
        {pid: 4712, user: '', uid: 65534, command: '', container: '', pod: '', memory: 0}];
      return status;
    };
    await page.getByText('2 processes without the token').waitFor();
    const rows = page.locator('.unmanaged tbody tr');
    assert.equal(await rows.count(), 2);
    for (const text of ['4711', '<b>python</b>', 'bob', '0123456789ab', 'train-1', '3.0\u00a0GiB']) {
      assert.ok((await rows.first().textContent()).includes(text), text);
    }
    assert.match(await rows.nth(1).textContent(), /4712not visible65534/);
    await accessible(page, 'with processes without the token');
  }));

  test('a daemon that goes away is said, its figures are stale, and its return is noticed', on(few, {}, async (page, server) => {
    await page.locator('.link-state[data-link="live"]').waitFor();
    await page.locator('.shares tbody tr').first().waitFor();
    const port = server.port;
    await server.stop();
    await page.getByText(/batond has been away since \d\d:\d\d:\d\d \(\d+ s ago\)/).waitFor();
    assert.match(await page.locator('.shares').evaluate((table) => getComputedStyle(table.closest('.panel')).filter), /grayscale/);
    assert.ok(await page.locator('.shares tbody tr').count() > 0);
    await accessible(page, 'away');
    await page.setViewportSize({width: 400, height: 800});
    await fits(page, 'away');
    server.port = port;
    await server.start();
    await page.locator('.link-state[data-link="live"]').waitFor();
    await page.locator('.banner').waitFor({state: 'hidden'});
  }));

  test('a daemon that falls silent counts as away', on(few, {}, async (page, server) => {
    await page.locator('.link-state[data-link="live"]').waitFor();
    server.silent = true;
    await page.getByText('batond has stopped sending.').waitFor();
  }));

  test('a server that is no batond is called that', on(few, {}, async (page, server) => {
    server.change = () => ({hello: 'world'});
    server.streams.forEach((stream) => stream.destroy());
    await page.getByText('The server is not batond.').waitFor();
  }));

  test('a token is asked for, refused when wrong, kept for the tab, and sent with everything', on(few, {server: {token: 'sesame'}}, async (page, server) => {
    await page.locator('#token').fill('wrong');
    await page.keyboard.press('Enter');
    await page.getByText('This token was refused.').waitFor();
    await accessible(page, 'token');
    await page.locator('#token').fill('sesame');
    await page.keyboard.press('Enter');
    await page.locator('.shares tbody tr').first().waitFor();
    await page.locator('dialog.ask').waitFor({state: 'hidden'});
    await page.reload();
    await page.locator('.shares tbody tr').first().waitFor();
    assert.equal(await page.evaluate(() => Object.keys(localStorage).some((key) => localStorage.getItem(key).includes('sesame'))), false);
    server.token = 'another';
    server.streams.forEach((stream) => stream.destroy());
    await page.locator('#token').waitFor();
  }));

  test('all of it can be reached and worked by keyboard', on(few, {}, async (page) => {
    await page.locator('.shares tbody tr').first().waitFor();
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
    assert.ok(await page.evaluate(() => document.activeElement.getBoundingClientRect().top >= 0));
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'content');
    // The GPUs are one stop; arrows move among them.
    await page.keyboard.press('Tab');
    assert.match(await page.evaluate(() => document.activeElement.className), /gpu-tab/);
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction(() => document.querySelectorAll('.gpu-tab')[1].getAttribute('aria-current') === 'true');
    assert.equal(await page.evaluate(() => [...document.querySelectorAll('.gpu-tab')].indexOf(document.activeElement)), 1);
    // So is a choice.
    await page.keyboard.press('Tab');
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), '60 s');
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-checked')), 'true');
    // Into a pod's drawer, and back to where one was.
    await page.keyboard.press('Tab');
    const name = await page.evaluate(() => document.activeElement.textContent);
    await page.keyboard.press('Enter');
    await page.locator('.drawer').getByText(`${name} asks for`).waitFor();
    await page.keyboard.press('Escape');
    await page.locator('.drawer').waitFor({state: 'hidden'});
    await page.waitForFunction(() => location.hash === '#/pods');
    // Whatever has the focus shows it.
    const unseen = await page.evaluate(async () => {
      const found = [];
      for (const element of document.querySelectorAll('a[href], button, input, select, [tabindex="0"]')) {
        if (!element.checkVisibility()) continue;
        element.focus({focusVisible: true});
        if (document.activeElement === element && getComputedStyle(element).outlineStyle === 'none') found.push(element.outerHTML.slice(0, 100));
      }
      return found;
    });
    assert.deepEqual(unseen, []);
  }));

  test('the theme follows the system until one is chosen, which is kept', on(few, {theme: 'dark'}, async (page) => {
    const shown = (theme) => page.waitForFunction((want) => document.documentElement.dataset.shown === want, theme);
    await page.locator('.shares').waitFor();
    await shown('dark');
    await page.emulateMedia({colorScheme: 'light'});
    await shown('light');
    await page.getByRole('button', {name: 'Theme: auto'}).click();
    await page.getByRole('button', {name: 'Theme: light'}).click();
    await shown('dark');
    await page.reload();
    await page.getByRole('button', {name: 'Theme: dark'}).waitFor();
    await shown('dark');
  }));

  test('nothing moves by itself where less motion is asked for', on(few, {motion: 'reduce'}, async (page) => {
    await page.locator('.shares .fill').first().waitFor({state: 'attached'});
    assert.equal(await page.evaluate(() => [...document.querySelectorAll('*')].filter((element) => {
      const style = getComputedStyle(element);
      return style.animationName !== 'none' || style.transitionDuration !== '0s';
    }).length), 0);
  }));
});

// What any batond must pass that has pods with work.
const real = process.env.BATON_URL;
const skip = real ? false : 'BATON_URL names no batond';
async function withReal(options, act) {
  const {page, context, troubles} = await open(browser, real, options);
  page.setDefaultTimeout(20_000);
  try {
    if (process.env.BATON_TOKEN) {
      await page.locator('#token').fill(process.env.BATON_TOKEN);
      await page.keyboard.press('Enter');
    }
    await page.locator('.link-state[data-link="live"]').waitFor();
    await act(page);
    assert.deepEqual(troubles, []);
  } finally {
    await context.close();
  }
}

test('a real batond fills every view', {skip}, async () => {
  await Promise.all([[400, 'dark'], [1400, 'light']].map(([width, theme]) => withReal({width, theme}, async (page) => {
    for (const view of kViews) {
      await ready(page, view);
      // Of the page as it is drawn, not as it is being drawn.
      await page.waitForTimeout(300);
      await fits(page, view);
      await accessible(page, view);
      if (process.env.BATON_SHOTS) await page.screenshot({path: `${process.env.BATON_SHOTS}/real-${view}-${width}-${theme}.png`, fullPage: true});
    }
  })));
});

test('shares converge on the page of a real batond, and pods are found there', {skip}, () => withReal({}, async (page) => {
  await page.getByRole('radio', {name: '10 s'}).click();
  const shares = () => page.locator('.shares tbody tr').evaluateAll((rows) => rows.map((row) => {
    const [achieved, , due] = [...row.querySelectorAll('td.n')].map((cell) => parseFloat(cell.textContent));
    return {pod: row.querySelector('th').textContent, achieved, due};
  }));
  let seen = [];
  const converged = () => seen.length > 0 && seen.every(({achieved, due}) => Math.abs(achieved - due) <= 5);
  for (const end = Date.now() + 20_000; !converged() && Date.now() < end;) {
    await page.waitForTimeout(250);
    seen = await shares();
  }
  assert.ok(converged(), `not within 5 points of what is due: ${JSON.stringify(seen)}`);
  assert.ok(seen.some(({due}) => due > 0), JSON.stringify(seen));
  await ready(page, 'pods');
  const all = await page.locator('.pods tbody tr').count();
  const name = (await page.locator('.pods tbody th a').first().textContent()).trim();
  await page.getByLabel('Search').fill(name);
  // The page looks for it a moment after the last key.
  await page.waitForFunction((name) => {
    const rows = [...document.querySelectorAll('.pods tbody tr')];
    return rows.length > 0 && rows.every((row) => row.textContent.includes(name));
  }, name);
  await page.getByLabel('Search').fill('nobody is called this');
  await page.waitForFunction(() => document.querySelectorAll('.pods tbody tr').length === 0);
  await page.getByLabel('Search').fill('');
  await page.waitForFunction((count) => document.querySelectorAll('.pods tbody tr').length === count, all);
}));
