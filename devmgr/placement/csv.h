// Tables of comma-separated values that people and programs write for our tools: cluster traces.
#ifndef BATON_DEVMGR_PLACEMENT_CSV_H_
#define BATON_DEVMGR_PLACEMENT_CSV_H_

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::devmgr {

// Without quotes; the first line names the columns, empty lines are passed over. Read from the
// first row to the last. The text must outlive it. Not thread safe.
class Csv {
 public:
  // The columns are numbered as they stand in `columns`. Of those after the first `needed` a file
  // may lack some; then their texts are empty. Columns of other names are ignored. kInvalid: the
  // text is empty, or lacks a column.
  static Result<Csv> Open(std::string_view text, const std::vector<std::string_view>& columns,
                          size_t needed);

  // Goes to the next row. False at the end. Afterwards check error().
  bool Row();
  std::string_view Text(size_t column) const {
    const size_t at = columns_[column];
    return at < fields_.size() ? fields_[at] : std::string_view();
  }
  // A number from 0 to `most`; of another text error() says so.
  template <class N>
  N Number(size_t column, N most) {
    const std::string_view text = Text(column);
    N value{};
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if ((code != std::errc() || end != text.data() + text.size() || !(value >= N{}) ||
         value > most) &&
        error_.empty()) {
      error_ = fmt::format("line {}: '{}' is not a number up to {}", line_, text, most);
    }
    return value;
  }
  // The first thing that was wrong, with its line; empty: nothing.
  const std::string& error() const { return error_; }
  // Of the row, from 1.
  size_t line() const { return line_; }

 private:
  explicit Csv(std::string_view text) : rest_(text) {}
  bool Next();

  std::string_view rest_;
  std::vector<std::string_view> fields_;
  std::vector<size_t> columns_;
  size_t width_ = 0;
  size_t line_ = 0;
  std::string error_;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_CSV_H_
