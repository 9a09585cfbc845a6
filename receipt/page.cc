#include "receipt/page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "receipt/envelope.h"
#include "receipt/statement.h"

namespace baton::receipt {
namespace {

using nlohmann::json;

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #fff; --band: #f3f5f7; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa5b1; --line: #3b434c; --paper: #14181d; --band: #1d232a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem; }
header { display: flex; flex-wrap: wrap; gap: 1rem 3rem; justify-content: space-between; border-bottom: 2px solid var(--ink); padding-bottom: 1rem; }
h1 { font-size: 1.6rem; margin: 0; }
h1 span { display: block; font-size: 1.05rem; font-weight: 600; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .1rem .9rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.wide th, .wide td { white-space: nowrap; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { padding: .22rem .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; border-bottom-color: var(--ink); }
tbody th { font-weight: 400; }
.n { text-align: right; white-space: nowrap; }
.sum th, .sum td { font-weight: 700; background: var(--band); }
.part th { padding-left: 1.5rem; }
footer { margin-top: 1.5rem; padding-top: .7rem; border-top: 1px solid var(--line); color: var(--soft); font-size: .85rem; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .9em; overflow-wrap: anywhere; }
@page { size: A4; margin: 12mm; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --band: #f0f0f0; }
  body { font-size: 8pt; line-height: 1.2; }
  header { padding-bottom: 3pt; }
  dl { grid-template-columns: auto auto auto auto; }
  main { max-width: none; padding: 0; }
  h1 { font-size: 14pt; }
  h1 span { font-size: 10pt; }
  h2 { font-size: 9.5pt; margin: 6pt 0 1pt; }
  th, td { padding: .8pt 4pt; }
  tr { break-inside: avoid; }
  .wide th { white-space: normal; overflow-wrap: anywhere; }
  footer { font-size: 7pt; margin-top: 6pt; padding-top: 3pt; }
  footer p { margin: 0 0 3pt; }
}
)";

// As commands print it, too: a name may have characters that turn the text around it.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : ToPrintable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Cell(std::string_view text, bool number = false) {
  return fmt::format("<td{}>{}</td>", number ? " class=\"n\"" : "", Escaped(text));
}
std::string Heading(std::string_view text, const char* scope, bool number = false) {
  return fmt::format("<th scope=\"{}\"{}>{}</th>", scope, number ? " class=\"n\"" : "",
                     Escaped(text));
}

// What this is, when it was made, and by whom.
std::string Head(const json& receipt, const std::string& subject) {
  std::string html =
      fmt::format("<header>\n<h1>GPU receipt<span>{}</span></h1>\n<dl>\n", Escaped(subject));
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, Escaped(value));
  };
  add("From", receipt.value("from", ""));
  add("To", receipt.value("to", ""));
  add("Time zone", receipt.value("time_zone", ""));
  for (const LineColumn& column : LineColumns(receipt)) {
    if (column.heading == "Held") add("Held", column.total + " GPU-hours");
    if (column.heading == "Cost") add("Cost", column.total + " " + receipt.value("currency", ""));
  }
  add("Issued", receipt.value("issued_at", ""));
  add("Issued by", receipt.value("issued_by", ""));
  return html + "</dl>\n</header>\n";
}

std::string Asked(const json& receipt) {
  const std::vector<std::vector<std::string>> table = AskedTable(receipt);
  std::string html = "<h2>What was asked for</h2>\n";
  if (table.size() == 1) return html + "<p>Nothing is known of it.</p>\n";
  html +=
      "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"What was asked "
      "for\">\n<table>\n<thead><tr>";
  for (const std::string& heading : table.front()) html += Heading(heading, "col");
  html += "</tr></thead>\n<tbody>\n";
  for (size_t i = 1; i < table.size(); ++i) {
    html += "<tr>" + Heading(table[i].front(), "row");
    for (size_t j = 1; j < table[i].size(); ++j) html += Cell(table[i][j]);
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n</div>\n";
}

std::string Statement(const json& receipt) {
  std::string html = "<h2>What was guaranteed, and what it got</h2>\n<table>\n<thead><tr>" +
                     Heading("What", "col") + Heading("GPU-hours", "col", true) +
                     "</tr></thead>\n<tbody>\n";
  for (const StatementRow& row : StatementOf(receipt.at("total"))) {
    const bool part =
        row.kind == StatementRow::Kind::kLess || row.kind == StatementRow::Kind::kMore;
    const bool sum = row.kind == StatementRow::Kind::kSum;
    const char* sign = row.kind == StatementRow::Kind::kLess   ? "\u2212 "
                       : row.kind == StatementRow::Kind::kMore ? "+ "
                                                               : "";
    html += fmt::format("<tr{}>{}{}</tr>\n",
                        part  ? " class=\"part\""
                        : sum ? " class=\"sum\""
                              : "",
                        Heading(row.label, "row"), Cell(sign + row.hours, true));
  }
  return html + "</tbody>\n</table>\n";
}

std::string Lines(const json& receipt) {
  const std::vector<LineColumn> columns = LineColumns(receipt);
  const std::string by = receipt.at("by");
  const std::string currency = receipt.value("currency", "");
  std::string html = fmt::format(
      "<h2>By {}</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"By "
      "{}\">\n<table>\n<caption>In GPU-hours{}</caption>\n<thead><tr>{}",
      by, by, currency.empty() ? "" : Escaped(", costs in " + currency),
      Heading(std::string(1, static_cast<char>(by[0] - 'a' + 'A')) + by.substr(1), "col"));
  for (const LineColumn& column : columns) html += Heading(column.heading, "col", true);
  html += "</tr></thead>\n<tbody>\n";
  const json& lines = receipt.at("lines");
  for (size_t i = 0; i < lines.size(); ++i) {
    html += "<tr>" + Heading(NameOfLine(receipt, lines[i]), "row");
    for (const LineColumn& column : columns) html += Cell(column.cells[i], true);
    html += "</tr>\n";
  }
  html += "</tbody>\n<tfoot><tr class=\"sum\">" + Heading("Total", "row");
  for (const LineColumn& column : columns) html += Cell(column.total, true);
  return html + "</tr></tfoot>\n</table>\n</div>\n";
}

std::string Foot(const json& receipt) {
  const double peak = receipt.at("total").value("memory_peak_gib", 0.0);
  std::string html = fmt::format(
      "<footer>\n<p>At most {:.2f} GiB of GPU memory at a time, on one GPU. Held: the pod had the "
      "GPU for itself; busy: the GPU worked meanwhile; waited: it had work, and another pod had "
      "the GPU. Reckoned in steps of {}. Columns are rounded so that they add up.</p>\n",
      peak, Escaped(StepText(receipt)));
  for (const json& note : receipt.at("notes")) {
    html += fmt::format("<p>{}</p>\n", Escaped(note.get<std::string>()));
  }
  return html +
         fmt::format(
             "<p>Signed with Ed25519 by the key <code>{0}</code>. <code>baton receipt verify FILE "
             "--key {0}</code> says whether this page is as it was signed; ask the operator for "
             "the "
             "key's fingerprint.</p>\n</footer>\n",
             Escaped(receipt.value("key", "")));
}

}  // namespace

std::string Page(const json& receipt) {
  const std::string subject = fmt::format("{} {}", receipt.at("kind") == "pod" ? "Pod" : "Team",
                                          receipt.at("name").get<std::string>());
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta "
      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>GPU receipt: {}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<main>\n{}{}{}{}{}</main>\n{}{}\n</body>\n</html>\n",
      Escaped(subject), kStyle, Head(receipt, subject), Asked(receipt), Statement(receipt),
      Lines(receipt), Foot(receipt), kEnvelopeBegin, kEnvelopeEnd);
}

}  // namespace baton::receipt
