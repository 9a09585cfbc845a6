// Pictures of every view at both widths in both themes.
import {mkdirSync} from 'node:fs';
import {fileURLToPath} from 'node:url';

import {launch, open} from '../browser.mjs';
import {MockServer} from '../mock_server.mjs';
import {MockWorld, kHostile} from '../mock_world.mjs';

const out = fileURLToPath(new URL('../shots/', import.meta.url));
mkdirSync(out, {recursive: true});
const only = process.env.SHOTS?.split(',');
const worlds = {
  few: () => new MockWorld({gpus: 2, pods: 4}),
  alone: () => new MockWorld({gpus: 1, pods: 1}),
  three: () => new MockWorld({gpus: 1, pods: 3}),
  many: () => new MockWorld({gpus: 8, pods: 25, seed: 3}),
  hostile: () => new MockWorld({gpus: 1, names: kHostile}),
  empty: () => new MockWorld({gpus: 1, pods: 0}),
};
const browser = await launch();
if (process.env.BATON_URL) {
  const {page} = await open(browser, process.env.BATON_URL, {height: 940});
  await page.waitForTimeout(60000);  // for its curves
  await page.screenshot({path: `${out}page-live.png`});
  await page.goto(`${process.env.BATON_URL}#/teams`);
  await page.waitForTimeout(1000);
  await page.screenshot({path: `${out}page-teams.png`, fullPage: true});
  await page.goto(`${process.env.BATON_URL}#/pods`);
  await page.locator('.pods tbody th a').first().click();
  await page.waitForTimeout(1000);
  await page.screenshot({path: `${out}page-pods.png`});
  await browser.close();
  process.exit();
}
for (const [name, make] of Object.entries(worlds)) {
  if (only && !only.includes(name)) continue;
  const server = await new MockServer(make()).start();
  for (const width of [1400, 400]) {
    for (const theme of ['light', 'dark']) {
      if (!['few', 'three'].includes(name) && theme === 'dark' && width === 400) continue;
      const {page, context, troubles} = await open(browser, server.url, {width, theme});
      const shot = (view) => page.screenshot({path: `${out}${name}-${view}-${width}-${theme}.png`, fullPage: true});
      await page.waitForTimeout(name === 'few' ? 7000 : 3500);
      await shot('live');
      for (const view of ['teams', 'nodes', 'pods', 'events']) {
        await page.goto(`${server.url}#/${view}`);
        await page.waitForTimeout(700);
        await shot(view);
      }
      if (name !== 'empty') {
        await page.goto(`${server.url}#/pods`);
        await page.locator('.pods tbody th a').first().click();
        await page.waitForTimeout(500);
        await page.screenshot({path: `${out}${name}-drawer-${width}-${theme}.png`});
      }
      for (const trouble of troubles) console.log(name, width, theme, trouble);
      await context.close();
    }
  }
  if (name === 'few') {
    for (const [width, theme] of [[1400, 'light'], [400, 'dark']]) {
      const {page, context} = await open(browser, server.url, {width, theme});
      await page.waitForTimeout(2500);
      await server.stop();
      await page.waitForTimeout(2500);
      await page.screenshot({path: `${out}away-${width}-${theme}.png`});
      await context.close();
      await server.start();
    }
    server.token = 'x';
    const {page, context} = await open(browser, server.url, {width: 400});
    await page.waitForTimeout(800);
    await page.screenshot({path: `${out}token-400.png`});
    await context.close();
  }
  await server.stop();
}
await browser.close();
