// How often a test repeats what it draws at random. Release draws all; a sanitizer looks for errors
// that hardly depend on the numbers drawn, and makes each round several times as long.
// (Of rapidcheck's properties, CMakePresets.json says it for `dev`.)
#ifndef BATON_TESTS_ROUNDS_H_
#define BATON_TESTS_ROUNDS_H_

namespace baton {

constexpr int Rounds(int in_release) {
#ifdef BATON_SANITIZED
  return in_release / 20;
#else
  return in_release;
#endif
}

}  // namespace baton

#endif  // BATON_TESTS_ROUNDS_H_
