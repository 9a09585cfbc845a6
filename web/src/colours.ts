// A pod's colour: by its name, the same each time; pods on one GPU differ as long as there are
// enough, and few pods differ clearly. What the colour says is always said in words or by position
// too. Pure but for what is kept.

// Told apart by people with any of the common colour deficiencies, those that follow each other
// best, and against the page in its light and dark themes; tests/web/unit/colours.test.ts holds both
// to figures. app.css has the same.
export const kLight = ['#3163d6', '#693111', '#1699ad', '#970e5c', '#9a8b21', '#476c0f', '#581191', '#ae5f66'];
export const kDark = ['#639ffc', '#edac91', '#5aedf1', '#e665b8', '#d4e33b', '#178968', '#8054c4', '#d44606'];
export const kColours = kLight.length;

// FNV-1a.
export function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; ++i) {
    value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0;
  }
  return value >>> 0;
}

type Three = readonly [number, number, number];
const times = (m: readonly number[], [x, y, z]: Three): Three => [0, 3, 6].map((at) => m[at]! * x + m[at + 1]! * y + m[at + 2]! * z) as unknown as Three;
// Usual eyes, and those without one kind of cones: Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
export const kEyes: Readonly<Record<string, readonly number[]>> = {
  usual: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protanopia: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deuteranopia: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  tritanopia: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};
export function linear(hex: string): Three {
  return [1, 3, 5].map((at) => {
    const c = parseInt(hex.slice(at, at + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  }) as unknown as Three;
}
// Oklab (Ottosson 2020), as an eye sees the colour.
function oklab(hex: string, eye: readonly number[]): Three {
  const seen = times(eye, linear(hex)).map((c) => Math.min(1, Math.max(0, c))) as unknown as Three;
  const cones = times([0.4122214708, 0.5363325363, 0.0514459929, 0.2119034982, 0.6806995451, 0.1073969566, 0.0883024619, 0.2817188376, 0.6299787005], seen);
  return times([0.2104542553, 0.793617785, -0.0040720468, 1.9779984951, -2.428592205, 0.4505937099, 0.0259040371, 0.7827717662, -0.808675766],
               cones.map(Math.cbrt) as unknown as Three);
}
// How far two colours are apart to an eye; 0.02 is about what can just be told apart side by side.
export function distance(one: string, two: string, eye: readonly number[]): number {
  const [a, b] = [oklab(one, eye), oklab(two, eye)];
  return Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}
// The least of both themes and all eyes, for each two of the palette.
const kApart = kLight.map((_one, i) => kLight.map((_two, j) =>
  Math.min(...[kLight, kDark].flatMap((palette) => Object.values(kEyes).map((eye) => distance(palette[i]!, palette[j]!, eye))))));
export const apart = (one: number, two: number): number => kApart[one]![two]!;
// Who is as far from all others beside it keeps the colour of its name.
const kClear = 0.12;

export interface Wearer {
  name: string;
  places: readonly string[];  // where it should differ from the others: its GPUs
}

// `first`: the colour of the name. `beside`, `everywhere`: how many wear each colour there.
function choose(first: number, beside: readonly number[], everywhere: readonly number[]): number {
  const least = Math.min(...beside);
  const worn = beside.flatMap((count, colour) => (count > 0 ? [colour] : []));
  const clear = (colour: number) => Math.min(...worn.filter((other) => other !== colour).map((other) => apart(colour, other)));
  if (beside[first] === least && clear(first) >= kClear) return first;
  const open = kLight.map((_colour, i) => (first + i) % kColours).filter((colour) => beside[colour] === least);
  return open.reduce((best, colour) => {
    const further = clear(colour) - clear(best);
    return further > 0 || (further === 0 && everywhere[colour]! < everywhere[best]!) ? colour : best;
  });
}

export class ColourBook {
  // `kept`: what an earlier page said by save(); anything else is taken for nothing.
  constructor(kept: unknown = null) {
    if (!Array.isArray(kept)) return;
    for (const pair of kept.slice(0, kKeptMax)) {
      if (!Array.isArray(pair) || typeof pair[0] !== 'string') continue;
      if (Number.isInteger(pair[1]) && pair[1] >= 0 && pair[1] < kColours) this.worn.set(pair[0], pair[1]);
    }
  }

  // Gives the newcomers among `all` a colour: the one of their name where it is clear of those that
  // are worn in the same places, else the one that is furthest from them. When all are worn there,
  // the one that the fewest wear.
  meet(all: readonly Wearer[]): boolean {
    if (all.every(({name}) => this.worn.has(name))) return false;
    const none = () => new Array<number>(kColours).fill(0);
    const everywhere = none();
    const taken = new Map<string, number[]>();  // place → how many wear each colour
    const note = (wearer: Wearer, colour: number) => {
      everywhere[colour]! += 1;
      for (const place of wearer.places) {
        let counts = taken.get(place);
        if (!counts) taken.set(place, (counts = none()));
        counts[colour]! += 1;
      }
    };
    for (const wearer of all) {
      const colour = this.worn.get(wearer.name);
      if (colour !== undefined) note(wearer, colour);
    }
    for (const wearer of all) {
      if (this.worn.has(wearer.name)) continue;
      const beside = none();
      for (const place of wearer.places) taken.get(place)?.forEach((count, colour) => (beside[colour]! += count));
      const best = choose(hash(wearer.name) % kColours, beside, everywhere);
      this.worn.set(wearer.name, best);
      note(wearer, best);
    }
    return true;
  }

  of(name: string): number {
    return this.worn.get(name) ?? hash(name) % kColours;
  }

  // The latest ones, for the next page.
  save(): [string, number][] {
    return [...this.worn].slice(-kKeptMax);
  }

  private readonly worn = new Map<string, number>();
}
const kKeptMax = 500;
