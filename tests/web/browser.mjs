// Debian's chromium for tests. Its headless shell where there is one: that takes half as long.
import {existsSync} from 'node:fs';

import {chromium} from 'playwright-core';

export const program = process.env.BATON_CHROMIUM ?? ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find(existsSync);

export function launch() {
  return chromium.launch({
    executablePath: program,
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
           '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
}

// A page that notes everything that went wrong on it.
export async function open(browser, url, {width = 1400, height = 900, theme = 'light', motion = 'reduce'} = {}) {
  const context = await browser.newContext({viewport: {width, height}, colorScheme: theme, reducedMotion: motion});
  const page = await context.newPage();
  const troubles = [];
  page.on('pageerror', (error) => troubles.push(`exception: ${error.stack ?? error}`));
  page.on('console', (message) => {
    // A refused or lost connection is the browser's own line, and the tests' own doing.
    if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) troubles.push(`console: ${message.text()}`);
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(url)) troubles.push(`asked elsewhere: ${request.url()}`);
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.goto(url);
  return {page, context, troubles};
}
