// Tables for people and for programs. Thread safe.
#ifndef BATON_CLI_TEXT_TABLE_H_
#define BATON_CLI_TEXT_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton::cli {

// Decimals as given.
std::string Fixed(double value, int decimals = 1);
// Memory, to a tenth of a MiB or GiB.
std::string Bytes(uint64_t bytes);
// The first `width` columns of UTF-8 text; all of it for 0.
std::string Cut(const std::string& text, size_t width);

struct TextTable {
  struct Column {
    std::string heading;
    bool left = false;  // texts stand left, numbers right
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // a cell for each column

  // Leaves out these columns, by heading, the first ones first, until lines have `width` columns
  // (0: as many as there are).
  void FitTo(size_t width, const std::vector<std::string_view>& headings);
  // A heading and one line per row, each cut to `width` columns (0: as long as it gets).
  std::vector<std::string> Lines(size_t width = 0) const;
  // RFC 4180, with a heading; "\n" at the end of each line. A cell that a spreadsheet would take
  // for a formula gets an apostrophe in front.
  std::string Csv() const;
  // Cells separated by "|", in which a "|" of their own is "\|" and a "\" is "\\"; a heading
  // first.
  std::string Parsable() const;
};

}  // namespace baton::cli

#endif  // BATON_CLI_TEXT_TABLE_H_
