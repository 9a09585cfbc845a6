// A receipt's figures as people read them, on the page and in the terminal: rounded so that what is
// printed adds up, as whoever checks an invoice with a calculator expects.
//
// Pure and thread safe.
#ifndef BATON_RECEIPT_STATEMENT_H_
#define BATON_RECEIPT_STATEMENT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace baton::receipt {

// Figures whose printed values add up to the printed total, which is their sum: each is within one
// unit of the last decimal of its own value.
std::vector<std::string> Rounded(const std::vector<double>& values, double total, int decimals);

struct StatementRow {
  enum class Kind { kFirst, kLess, kMore, kSum };
  Kind kind = Kind::kFirst;
  std::string label;  // in words, without a full stop
  std::string hours;  // without its sign
};
// From what was guaranteed to what was held, of a receipt's total: guaranteed - reasons = got, got
// + beyond = held, to the last decimal. Reasons of nothing are left out.
std::vector<StatementRow> StatementOf(const nlohmann::json& total);

// A column of the lines, with its figures as they are printed.
struct LineColumn {
  std::string heading;
  std::vector<std::string> cells;  // one for each line
  std::string total;
};
// The figures of a receipt's lines; their names are NameOfLine()'s.
std::vector<LineColumn> LineColumns(const nlohmann::json& receipt);
std::string NameOfLine(const nlohmann::json& receipt, const nlohmann::json& line);

// A row of `asked`: when, and what, as cells; headings in front.
std::vector<std::vector<std::string>> AskedTable(const nlohmann::json& receipt);

// "an hour": how long the receipt's longest steps are.
std::string StepText(const nlohmann::json& receipt);

}  // namespace baton::receipt

#endif  // BATON_RECEIPT_STATEMENT_H_
