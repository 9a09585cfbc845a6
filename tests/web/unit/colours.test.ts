import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {test} from 'node:test';

import {ColourBook, hash, kColours, kDark, kLight} from '../../../web/src/colours';

type Rgb = [number, number, number];
const channels = (hex: string): Rgb => [1, 3, 5].map((at) => {
  const c = parseInt(hex.slice(at, at + 2), 16) / 255;
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
}) as Rgb;
// WCAG 2.1, relative luminance and contrast.
const luminance = ([r, g, b]: Rgb) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
function contrast(a: string, b: string): number {
  const [high, low] = [luminance(channels(a)), luminance(channels(b))].sort((x, y) => y - x) as [number, number];
  return (high + 0.05) / (low + 0.05);
}
// Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
const kEyes: Record<string, number[]> = {
  usual: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protanopia: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deuteranopia: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  tritanopia: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};
function seen(hex: string, eye: number[]): Rgb {
  const c = channels(hex);
  return [0, 1, 2].map((row) => Math.min(1, Math.max(0, eye[3 * row]! * c[0] + eye[3 * row + 1]! * c[1] + eye[3 * row + 2]! * c[2]))) as Rgb;
}
// Oklab (Ottosson 2020); 0.02 is about what can just be told apart side by side.
function oklab([r, g, b]: Rgb): Rgb {
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
          0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}
const css = readFileSync('../../web/src/app.css', 'utf8');
function variable(name: string, dark: boolean): string {
  const block = css.slice(dark ? css.indexOf(':root[data-shown="dark"]') : css.indexOf(':root'));
  return new RegExp(`--${name}: (#[0-9a-f]{6})`).exec(block)![1]!;
}

for (const [theme, colours, dark] of [['light', kLight, false], ['dark', kDark, true]] as const) {
  test(`the ${theme} theme's colours are those of the style sheet`, () => {
    assert.deepEqual(colours.map((_colour, i) => variable(`c${i}`, dark)), colours);
  });
  test(`the ${theme} theme's colours stand out from panel and page`, () => {
    for (const colour of colours) {
      assert.ok(contrast(colour, variable('panel', dark)) >= 3, colour);
      assert.ok(contrast(colour, variable('page', dark)) >= 3, colour);
    }
  });
  test(`the ${theme} theme's text can be read`, () => {
    for (const ink of ['ink', 'ink-2', 'link', 'bad', 'good', 'warn']) {
      for (const back of ['panel', 'page']) {
        assert.ok(contrast(variable(ink, dark), variable(back, dark)) >= 4.5, `${ink} on ${back}`);
      }
    }
  });
  for (const [name, eye] of Object.entries(kEyes)) {
    test(`the ${theme} theme's colours differ to ${name === 'usual' ? 'most eyes' : `eyes with ${name}`}`, () => {
      for (const [i, one] of colours.entries()) {
        for (const two of colours.slice(0, i)) {
          const [a, b] = [oklab(seen(one, eye)), oklab(seen(two, eye))];
          const apart = Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
          assert.ok(apart >= 0.08, `${one} and ${two}: ${apart.toFixed(3)}`);
        }
      }
    });
  }
}

test('a pod has the same colour on every page, whoever came first', () => {
  const one = new ColourBook();
  const two = new ColourBook();
  one.meet([{name: 'train', places: ['g']}]);
  two.meet([{name: 'train', places: ['other']}]);
  assert.equal(one.of('train'), two.of('train'));
  assert.equal(one.of('train'), hash('train') % kColours);
});

test('pods on one GPU differ as long as there are colours', () => {
  const book = new ColourBook();
  const pods = Array.from({length: kColours}, (_, i) => ({name: `pod-${i}`, places: ['g']}));
  for (let i = 1; i <= kColours; ++i) book.meet(pods.slice(0, i));
  assert.equal(new Set(pods.map((pod) => book.of(pod.name))).size, kColours);
});

test('colours stay while pods come and go, and over a reload', () => {
  const book = new ColourBook();
  book.meet([{name: 'a', places: ['g']}, {name: 'b', places: ['g']}]);
  const [a, b] = [book.of('a'), book.of('b')];
  book.meet([{name: 'c', places: ['g']}]);
  const again = new ColourBook(JSON.parse(JSON.stringify(book.save())));
  assert.deepEqual([again.of('a'), again.of('b')], [a, b]);
  assert.equal(again.meet([{name: 'a', places: ['g']}]), false);
});

test('what a browser kept that is no book of colours is taken for nothing', () => {
  for (const kept of [null, 1, {}, [1, 2], [['a', 99], ['b', 'x'], [3, 3], ['d', -1], ['e', 1.5]]]) {
    assert.equal(new ColourBook(kept).save().length, 0);
  }
});
