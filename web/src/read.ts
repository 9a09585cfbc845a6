// Reads JSON with suspicion: a missing field, or one of another type, becomes a default; lists are
// bounded; nothing here throws. Pure.

export interface Reader<T> {
  read(value: unknown): T | null;  // null: the value is of another type
  absent(): T;                     // what stands for a missing field
}
export type Read<R> = R extends Reader<infer T> ? T : never;

const kListMax = 20_000;

export const text: Reader<string> = {read: (value) => (typeof value === 'string' ? value : null), absent: () => ''};
export const flag: Reader<boolean> = {read: (value) => (typeof value === 'boolean' ? value : null), absent: () => false};
export const number: Reader<number> = {
  read: (value) => (typeof value === 'number' && Number.isFinite(value) ? value : null),
  absent: () => 0,
};
export function optional<T>(of: Reader<T>): Reader<T | null> {
  return {read: of.read, absent: () => null};
}
// Items of another type are left out.
export function list<T>(of: Reader<T>): Reader<T[]> {
  const read = (value: unknown) =>
    Array.isArray(value) ? value.slice(0, kListMax).map(of.read).filter((item): item is T & {} => item !== null) : null;
  return {read, absent: () => []};
}
export function object<F extends Record<string, Reader<unknown>>>(fields: F): Reader<{[K in keyof F]: Read<F[K]>}> {
  const read = (value: unknown) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
    const of = value as Record<string, unknown>;
    return Object.fromEntries(Object.entries(fields).map(([key, field]) => [key, field.read(of[key]) ?? field.absent()])) as
      {[K in keyof F]: Read<F[K]>};
  };
  return {read, absent: () => read({})!};
}
