// A client's word (wire/word.h), as whoever takes its frames has it: the file that came with its
// Hello, mapped to be read.
#ifndef BATON_NODE_WORD_PAGE_H_
#define BATON_NODE_WORD_PAGE_H_

#include <memory>

#include "base/file.h"
#include "base/time.h"
#include "wire/word.h"

namespace baton::node {

class WordPage {
 public:
  // Null where the file is not what wire/word.h says: not of memory, of another size, or without
  // one of its seals. Then it could be taken from under those who read it, and is left in `file`.
  static std::shared_ptr<const WordPage> Map(UniqueFd& file);
  ~WordPage();
  WordPage(const WordPage&) = delete;
  WordPage& operator=(const WordPage&) = delete;

  // To be passed to others.
  int fd() const { return file_.get(); }
  // `gpu` < wire::kGpusMax.
  const wire::Word& word(uint8_t gpu) const { return words_->of[gpu]; }

 private:
  WordPage(UniqueFd file, const wire::Words* words) : file_(std::move(file)), words_(words) {}

  UniqueFd file_;
  const wire::Words* words_;
};

// The token that the word's client began last, and when, as it says; null: it has no word any more.
struct Begun {
  uint64_t epoch = 0;  // 0: none
  Instant at{};
};
Begun BegunBy(const wire::Word* word);

}  // namespace baton::node

#endif  // BATON_NODE_WORD_PAGE_H_
