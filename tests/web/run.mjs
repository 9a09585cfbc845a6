// node run.mjs unit|browser|shots. What it does: see the usage below.
import {spawnSync} from 'node:child_process';
import {existsSync, mkdtempSync, readdirSync, rmSync, statSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';

const usage = `Usage: node tests/web/run.mjs unit|browser|shots [NODE-TEST-ARGUMENTS...]

  unit      the page's types, and tests of its pure parts in Node alone
  browser   the built page (of build/release, or BATON_WEB_DIST) in chromium, against a mock of batond.
            BATON_URL=http://127.0.0.1:7412/ adds the tests that any batond must pass, against that
            one. Exit status 77 where there is no chromium (BATON_CHROMIUM names another one).
  shots     pictures of every view, width and theme into tests/web/shots, to be looked at. With
            BATON_URL the README's pictures instead, of that batond.
`;
const here = fileURLToPath(new URL('.', import.meta.url));
const what = process.argv[2];
if (!['unit', 'browser', 'shots'].includes(what)) {
  process.stderr.write(usage);
  process.exit(what === '--help' ? 0 : 2);
}
// npm's own record of what it installed: older than the lock file, or not there, and it is due again.
const installedAt = statSync(join(here, 'node_modules/.package-lock.json'), {throwIfNoEntry: false})?.mtimeMs ?? 0;
if (installedAt < statSync(join(here, 'package-lock.json')).mtimeMs) {
  const installed = spawnSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], {cwd: here, stdio: 'inherit'});
  if (installed.status !== 0) process.exit(1);
}
function node(args) {
  const done = spawnSync(process.execPath, args, {cwd: here, stdio: 'inherit'});
  process.exitCode = done.status ?? 1;
}

if (what === 'unit') {
  const {build} = await import('esbuild');
  node(['node_modules/typescript/bin/tsc', '--noEmit']);
  if (process.exitCode) process.exit();
  const out = mkdtempSync(join(tmpdir(), 'baton-web-'));
  const tests = readdirSync(join(here, 'unit')).filter((name) => name.endsWith('.test.ts'));
  await build({entryPoints: tests.map((name) => join(here, 'unit', name)), bundle: true, platform: 'node', format: 'esm', outdir: out,
               outExtension: {'.js': '.mjs'}, logLevel: 'warning'});
  node(['--test', ...process.argv.slice(3), ...tests.map((name) => join(out, name.replace(/\.ts$/, '.mjs')))]);
  rmSync(out, {recursive: true, force: true});
} else if (!existsSync((await import('./browser.mjs')).program ?? '')) {
  process.stderr.write('skipped: there is no chromium (scripts/setup installs it)\n');
  process.exit(77);
} else {
  node(what === 'shots' ? ['browser/shots.mjs'] : ['--test', ...process.argv.slice(3), 'browser/page.test.mjs']);
}
