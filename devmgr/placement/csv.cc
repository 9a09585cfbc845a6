#include "devmgr/placement/csv.h"

#include <algorithm>

namespace baton::devmgr {

Result<Csv> Csv::Open(std::string_view text, const std::vector<std::string_view>& columns,
                      size_t needed) {
  Csv csv(text);
  if (!csv.Next()) return Fail(ErrorCode::kInvalid, "the file is empty");
  for (const std::string_view name : columns) {
    const auto at = std::find(csv.fields_.begin(), csv.fields_.end(), name);
    if (at == csv.fields_.end() && csv.columns_.size() < needed) {
      return Fail(ErrorCode::kInvalid, fmt::format("line 1: there is no column '{}'", name));
    }
    csv.columns_.push_back(static_cast<size_t>(at - csv.fields_.begin()));
  }
  csv.width_ = csv.fields_.size();
  return csv;
}

bool Csv::Row() {
  if (!error_.empty() || !Next()) return false;
  if (fields_.size() == width_) return true;
  error_ = fmt::format("line {}: {} columns, not {}", line_, fields_.size(), width_);
  return false;
}

bool Csv::Next() {
  std::string_view line;
  do {
    if (rest_.empty()) return false;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  } while (line.empty());
  fields_.clear();
  for (;;) {
    const size_t comma = line.find(',');
    fields_.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return true;
    line.remove_prefix(comma + 1);
  }
}

}  // namespace baton::devmgr
