// Figures and names as people read them. Pure.

// What a tenant chose may not steer the page: control characters and those that turn the direction
// of writing become a visible mark, and nothing is longer than a line or two.
export function printable(text: string, most = 200): string {
  const shown = text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g, '\ufffd');
  const points = [...shown];
  return points.length <= most ? shown : points.slice(0, most - 1).join('') + '…';
}

// 59.6 % for 59.59; shares as small as 0.1 % are allowed, so one digit is kept. Figures and units
// stay on one line.
export function percent(value: number): string {
  return Number.isFinite(value) ? `${value.toFixed(1)}\u00a0%` : '–';
}
// A configured share: 30 %, 12.5 %.
export function share(value: number): string {
  return Number.isFinite(value) ? `${+value.toFixed(2)}\u00a0%` : '–';
}

// 1 234 567: groups of three, by a space that does not break.
export function grouped(value: number, digits = 0): string {
  if (!Number.isFinite(value)) return '–';
  const [whole = '', part] = Math.abs(value).toFixed(digits).split('.');
  const text = whole.replace(/\B(?=(\d{3})+$)/g, '\u202f') + (part ? `.${part}` : '');
  return value < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}

// Hours, dense: 0.04, 3.2, 812, 12 345.
export function hours(value: number): string {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value) < 5e-6 ? 0 : Math.abs(value);
  // What began minutes ago is not nothing.
  const digits = size === 0 || size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : Math.min(5, 1 - Math.floor(Math.log10(size)));
  return grouped(size === 0 ? 0 : value, digits);
}

// A length of time in nanoseconds, in three digits or so: 543 µs, 4.11 s, 2 h 07 min.
export function duration(ns: number): string {
  if (!Number.isFinite(ns)) return '–';
  const sign = ns < 0 ? '−' : '';
  const size = Math.abs(ns);
  const in3 = (value: number, unit: string) =>
    `${sign}${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)}\u00a0${unit}`;
  if (size === 0) return '0 s';
  if (size < 999.5e3) return in3(size / 1e3, 'µs');
  if (size < 999.5e6) return in3(size / 1e6, 'ms');
  if (size < 119.5e9) return in3(size / 1e9, 's');
  const seconds = Math.round(size / 1e9);
  const two = (value: number) => String(value).padStart(2, '0');
  if (seconds < 3600) return `${sign}${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 48 * 60) return `${sign}${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  return `${sign}${Math.floor(minutes / 1440)} d ${two(Math.floor(minutes / 60) % 24)} h`;
}

// Memory: 512 MiB, 8.0 GiB.
export function bytes(value: number): string {
  if (!Number.isFinite(value)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)}\u00a0${units[unit]}`;
}

const two = (value: number) => String(value).padStart(2, '0');
// 15:42:10, where the reader is.
export function clock(ms: number): string {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return '–';
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
export function day(ms: number): string {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return '–';
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

// Tells GPUs apart and leaves room for the rest, as `baton top` does.
export function shortGpu(uuid: string): string {
  return printable(uuid, 60).slice(0, 12);
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${grouped(count)} ${count === 1 ? one : many}`;
}
