// Searching and sorting tables. Pure.

export interface Column<T> {
  key: string;
  head: string;
  number?: boolean;
  value: (row: T) => string | number;
}
export interface Sorting {
  key: string;
  descending: boolean;
}

// Whether each word of `query` is in one of the texts, in whatever case.
export function matches(query: string, texts: readonly string[]): boolean {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== '');
  if (words.length === 0) return true;
  const all = texts.map((text) => text.toLowerCase());
  return words.every((word) => all.some((text) => text.includes(word)));
}

// A sorted copy; equal rows keep their order, and what is no number comes last either way.
export function sorted<T>(rows: readonly T[], columns: readonly Column<T>[], by: Sorting): T[] {
  const column = columns.find(({key}) => key === by.key);
  if (!column) return [...rows];
  const sign = by.descending ? -1 : 1;
  const unknown = (value: string | number) => typeof value === 'number' && Number.isNaN(value);
  return rows.map((row) => ({row, value: column.value(row)})).sort((a, b) => {
    if (unknown(a.value) || unknown(b.value)) return Number(unknown(a.value)) - Number(unknown(b.value));
    if (typeof a.value === 'number' && typeof b.value === 'number') return sign * (a.value - b.value);
    return sign * order.compare(String(a.value), String(b.value));
  }).map(({row}) => row);
}
const order = new Intl.Collator('en', {numeric: true});
