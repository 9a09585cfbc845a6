// Stands in for batond's HTTP server: the built page, its API over a MockWorld, and what can go
// wrong. Headers are those that batond sends.
import {readFile} from 'node:fs/promises';
import {createServer} from 'node:http';
import {fileURLToPath} from 'node:url';

const kDist = process.env.BATON_WEB_DIST ?? fileURLToPath(new URL('../../build/release/generated/web/dist', import.meta.url));
const kTypes = {'/index.html': 'text/html; charset=utf-8', '/app.js': 'text/javascript; charset=utf-8',
                '/app.css': 'text/css; charset=utf-8', '/icon.svg': 'image/svg+xml'};
const kHeaders = {
  'Content-Security-Policy': "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
};

export class MockServer {
  // world: what answers; token: what must be sent; ledger: whether reports are kept.
  constructor(world, {token = null, ledger = true, port = 0, every_ms = 1000} = {}) {
    Object.assign(this, {world, token, ledger, port, every_ms, streams: new Set(), asked: []});
    this.change = (status) => status;  // a test's last word on each status
    this.silent = false;               // the streams stay open and say nothing
  }

  async start() {
    this.server = createServer((request, response) => void this.answer(request, response).catch(() => response.destroy()));
    this.server.keepAliveTimeout = 1000;
    await new Promise((resolve) => this.server.listen(this.port, '127.0.0.1', resolve));
    this.port = this.server.address().port;
    this.timer = setInterval(() => this.tell(), this.every_ms);
    return this;
  }
  // As when the daemon dies: every connection ends, nobody listens.
  async stop() {
    clearInterval(this.timer);
    this.streams.clear();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
  get url() {
    return `http://127.0.0.1:${this.port}/`;
  }
  status() {
    return this.change(this.world.status());
  }
  tell(event = 'status', data = null) {
    if (this.silent) return;
    const text = `event: ${event}\ndata: ${JSON.stringify(data ?? this.status())}\n\n`;
    for (const stream of this.streams) stream.write(text);
  }

  async answer(request, response) {
    const url = new URL(request.url, 'http://mock');
    const path = url.pathname === '/' ? '/index.html' : url.pathname;
    const headers = {...kHeaders};
    const json = (code, body) => {
      response.writeHead(code, {...headers, 'Content-Type': 'application/json', 'Cache-Control': 'no-store'});
      response.end(JSON.stringify(body));
    };
    if (request.method !== 'GET' && request.method !== 'HEAD') return json(405, {error: 'Only GET and HEAD are answered here.', code: 'invalid'});
    if (kTypes[path]) {
      const body = await readFile(`${kDist}${path}`);
      response.writeHead(200, {...headers, 'Content-Type': kTypes[path]});
      return void response.end(body);
    }
    if (!path.startsWith('/api/v1/')) return json(404, {error: 'Nothing is here.', code: 'not_found'});
    this.asked.push(request.url);
    if (this.token !== null && request.headers.authorization !== `Bearer ${this.token}`) {
      return json(401, {error: 'Send the bearer token that token_file holds.', code: 'denied'});
    }
    const parts = path.slice('/api/v1/'.length).split('/').map(decodeURIComponent);
    const known = (body, what) => (body ? json(200, body) : json(404, {error: `There is no such ${what}.`, code: 'not_found'}));
    const booked = (make, what) => (this.ledger ? known(make(), what) : json(503, {error: 'No ledger is kept here; [ledger] in the configuration turns it on.', code: 'unavailable'}));
    switch (parts[0]) {
      case 'status': return json(200, this.status());
      case 'timeline': return known(this.world.timeline(url.searchParams.get('gpu'), Number(url.searchParams.get('seconds'))), 'GPU');
      case 'report': return booked(() => this.world.report(url.searchParams.get('by'), url.searchParams.get('last')), 'report');
      case 'history': return booked(() => this.world.history(url.searchParams.get('gpu'), url.searchParams.get('last')), 'GPU');
      case 'standing': return booked(() => this.world.standing(), 'standing');
      case 'log': return booked(() => this.world.log(), 'log');
      case 'explain': {
        const [[kind, name] = []] = url.searchParams;
        return known(this.world.explain(kind, name), kind);
      }
      case 'stream':
        response.writeHead(200, {...headers, 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store'});
        response.write(': batond\n\n');
        this.streams.add(response);
        response.on('close', () => this.streams.delete(response));
        return;
      default: return json(404, {error: 'Nothing is here.', code: 'not_found'});
    }
  }
}
