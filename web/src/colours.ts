// A pod's colour: by its name, the same each time; pods on one GPU differ as long as there are
// enough. What the colour says is always said in words or by position too. Pure but for what is kept.

// Told apart by people with any of the common colour deficiencies, and against the page in its
// light and dark themes; tests/web/unit/colours.test.ts holds both to figures. app.css has the same.
export const kLight = ['#2f2d91', '#bc7d19', '#2e7a50', '#855489', '#199693', '#71153d', '#495704', '#786cc2'];
export const kDark = ['#92a0f9', '#f07554', '#5ae297', '#e4bbfe', '#2292a9', '#b05138', '#ebb00f', '#705dc8'];
export const kColours = kLight.length;

// FNV-1a.
export function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; ++i) {
    value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0;
  }
  return value >>> 0;
}

export interface Wearer {
  name: string;
  places: readonly string[];  // where it should differ from the others: its GPUs
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

  // Gives the newcomers among `all` a colour: the one of their name, or the next that nobody has
  // who is in the same places. True when anybody was new.
  meet(all: readonly Wearer[]): boolean {
    if (all.every(({name}) => this.worn.has(name))) return false;
    const taken = new Map<string, number[]>();  // place → how many wear each colour
    const note = (wearer: Wearer, colour: number) => {
      for (const place of wearer.places) {
        let counts = taken.get(place);
        if (!counts) taken.set(place, (counts = new Array<number>(kColours).fill(0)));
        counts[colour]! += 1;
      }
    };
    for (const wearer of all) {
      const colour = this.worn.get(wearer.name);
      if (colour !== undefined) note(wearer, colour);
    }
    for (const wearer of all) {
      if (this.worn.has(wearer.name)) continue;
      const first = hash(wearer.name) % kColours;
      let best = first;
      let least = Infinity;
      for (let i = 0; i < kColours; ++i) {
        const colour = (first + i) % kColours;
        const count = wearer.places.reduce((sum, place) => sum + (taken.get(place)?.[colour] ?? 0), 0);
        if (count < least) [best, least] = [colour, count];
      }
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
