// A report by day as stacked bars. Pure.
import type {Report} from './model';

export interface Stack {
  by: string;  // whose the parts are: team, user, ...; empty: they are busy, and held but not busy
  series: string[];
  days: {day: string; parts: number[]; total: number}[];  // in order of time, GPU-hours
}

const kPartsMax = 7;

// What a report calls those whose team, user, ... is not set; `baton report` calls them the same.
export function unset(by: string): string {
  return `(no ${by})`;
}

// The grid of a chart whose highest bar is `most` GPU-hours: a step, how far it goes, and its labels.
// Without use it is that of one hour; 3.6 seconds are the least that it tells apart.
export function grid(most: number): {high: number; lines: {value: number; label: string}[]} {
  const top = most > 0 ? Math.max(most, kLeast) : 1;
  const step = niceStep(top / 5);
  const steps = Math.ceil(top / step - 0.001);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return {
    high: steps * step,
    lines: Array.from({length: steps + 1}, (_, i) => ({value: i * step, label: i === 0 ? '0' : (i * step).toFixed(digits)})),
  };
}
const kLeast = 0.001;

// 1, 2 or 5 times a power of ten, at least `least`.
function niceStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least * 0.999) ?? 10 * power;
}

// Of a report by day and something else ("day,team"): the largest ones, and the others together.
export function stackDays(report: Report): Stack {
  const days = new Map<string, Map<string, number>>();
  const by = report.by.split(',')[1] ?? '';
  const sums = new Map<string, number>();
  for (const row of report.rows) {
    const day = row.keys?.[0] ?? row.key;
    let of_day = days.get(day);
    if (!of_day) days.set(day, (of_day = new Map()));
    const held = Math.max(0, row.held_hours);
    const busy = Math.min(held, Math.max(0, row.busy_hours));
    const parts: [string, number][] = by ? [[row.keys?.[1] || unset(by), held]] : [['busy', busy], ['held, not busy', held - busy]];
    for (const [name, value] of parts) {
      of_day.set(name, (of_day.get(name) ?? 0) + value);
      sums.set(name, (sums.get(name) ?? 0) + value);
    }
  }
  let series = by
    ? [...sums].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name)
    : ['busy', 'held, not busy'];
  const rest = series.length > kPartsMax + 1 ? series.splice(kPartsMax) : [];
  if (rest.length > 0) series = [...series, 'others'];
  return {
    by,
    series,
    days: [...days].sort((a, b) => (a[0] < b[0] ? -1 : 1)).map(([day, of_day]) => {
      const parts = series.map((name) => name === 'others' && rest.length > 0
        ? rest.reduce((sum, one) => sum + (of_day.get(one) ?? 0), 0) : of_day.get(name) ?? 0);
      return {day, parts, total: parts.reduce((sum, value) => sum + value, 0)};
    }),
  };
}
