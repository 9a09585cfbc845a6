import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {test} from 'node:test';

import {ColourBook, apart, distance, hash, kColours, kDark, kEyes, kLight, linear} from '../../../web/src/colours';

// WCAG 2.1, relative luminance and contrast.
const luminance = ([r, g, b]: readonly [number, number, number]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
function contrast(a: string, b: string): number {
  const [high, low] = [luminance(linear(a)), luminance(linear(b))].sort((x, y) => y - x) as [number, number];
  return (high + 0.05) / (low + 0.05);
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
          const far = distance(one, two, eye);
          assert.ok(far >= 0.095, `${one} and ${two}: ${far.toFixed(3)}`);
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

test('colours that follow each other differ clearly', () => {
  for (let i = 0; i < kColours; ++i) assert.ok(apart(i, (i + 1) % kColours) >= 0.12, `${i}`);
});

test('three pods on one GPU differ clearly to all eyes, whatever their names', () => {
  for (let i = 0; i < 500; ++i) {
    const pods = ['a', 'b', 'c'].map((name) => ({name: `${name}-${i}`, places: ['g']}));
    const book = new ColourBook();
    book.meet(pods);
    const [a, b, c] = pods.map(({name}) => book.of(name)) as [number, number, number];
    assert.ok(Math.min(apart(a, b), apart(a, c), apart(b, c)) >= 0.115, `${i}: ${a} ${b} ${c}`);
  }
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
