#include "cli/text_table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "base/parse.h"

namespace baton::cli {
namespace {

// Columns that a terminal shows for UTF-8 text: all bytes but continuations.
size_t Columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<size_t> WidthsOf(const TextTable& table) {
  std::vector<size_t> widths;
  for (const TextTable::Column& column : table.columns) widths.push_back(Columns(column.heading));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  return widths;
}

std::string CsvCell(std::string cell) {
  const bool number = cell.find_first_not_of("0123456789.-e") == std::string::npos;
  if (!cell.empty() && !number && std::string_view("=+-@\t").find(cell[0]) != std::string::npos) {
    cell.insert(0, "'");
  }
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string ParsableCell(const std::string& cell) {
  std::string out;
  for (const char c : cell) {
    if (c == '|' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

template <class Each>
std::string Joined(const TextTable& table, char between, Each each) {
  std::string text;
  auto line = [&](auto cell, size_t size) {
    for (size_t i = 0; i < size; ++i)
      text += (i > 0 ? std::string(1, between) : "") + each(cell(i));
    text += '\n';
  };
  line([&](size_t i) { return table.columns[i].heading; }, table.columns.size());
  for (const auto& row : table.rows) line([&](size_t i) { return row[i]; }, row.size());
  return text;
}

}  // namespace

std::string Fixed(double value, int decimals) {
  std::array<char, 64> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  return buffer.data();
}

std::string Bytes(uint64_t bytes) {
  if (bytes < 1u << 20) return FormatBytes(bytes);
  const double mib = static_cast<double>(bytes) / (1 << 20);
  if (mib < 1'024) return Fixed(mib) + "MiB";
  return Fixed(mib / 1'024) + "GiB";
}

std::string Cut(const std::string& text, size_t width) {
  if (width == 0 || Columns(text) <= width) return text;
  size_t end = 0;
  for (size_t columns = 0; end < text.size(); ++end) {
    if ((text[end] & 0xc0) != 0x80 && ++columns > width) break;
  }
  return text.substr(0, end);
}

void TextTable::FitTo(size_t width, const std::vector<std::string_view>& headings) {
  for (const std::string_view heading : headings) {
    const std::vector<size_t> widths = WidthsOf(*this);
    const size_t all = std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
    if (width == 0 || all <= width) return;
    const auto named = std::find_if(columns.begin(), columns.end(), [&](const Column& column) {
      return column.heading == heading;
    });
    if (named == columns.end()) continue;
    const std::ptrdiff_t at = named - columns.begin();
    columns.erase(named);
    for (auto& row : rows) row.erase(row.begin() + at);
  }
}

std::vector<std::string> TextTable::Lines(size_t width) const {
  const std::vector<size_t> widths = WidthsOf(*this);
  std::vector<std::string> lines;
  auto add = [&](auto cell) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string space(widths[i] - Columns(cell(i)), ' ');
      line += columns[i].left ? cell(i) + space : space + cell(i);
      line += i + 1 < columns.size() ? "  " : "";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(Cut(line, width));
  };
  add([&](size_t i) { return columns[i].heading; });
  for (const auto& row : rows) add([&](size_t i) { return row[i]; });
  return lines;
}

std::string TextTable::Csv() const { return Joined(*this, ',', CsvCell); }

std::string TextTable::Parsable() const { return Joined(*this, '|', ParsableCell); }

}  // namespace baton::cli
