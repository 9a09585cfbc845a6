// baton receipt: what a pod or a team got for its request, signed; and whether such a receipt is as
// it was signed.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/reading.h"
#include "cli/text_table.h"
#include "receipt/envelope.h"
#include "receipt/statement.h"

namespace baton::cli {
namespace {

using nlohmann::json;

constexpr size_t kPublicKeyFileMax = 64 << 10;
// A receipt is for everybody who may read the folder that it is put into.
constexpr mode_t kReceiptMode = 0644;
constexpr std::string_view kFingerprintBegin = "sha256:";

void PrintTable(const TextTable& table) {
  for (const std::string& line : table.Lines()) std::puts(line.c_str());
}

void PrintReceipt(const json& receipt) {
  const auto text = [&](const char* key) { return ToPrintable(receipt.value(key, "")); };
  std::printf("Receipt of %s %s, from %s to %s, in GPU-hours%s\n\nAsked for\n",
              text("kind").c_str(), text("name").c_str(), text("from").c_str(), text("to").c_str(),
              receipt.contains("currency") ? (", costs in " + text("currency")).c_str() : "");
  TextTable asked;
  for (const std::vector<std::string>& row : receipt::AskedTable(receipt)) {
    if (asked.columns.empty()) {
      for (const std::string& heading : row) asked.columns.push_back({heading, true});
      continue;
    }
    std::vector<std::string>& cells = asked.rows.emplace_back();
    for (const std::string& cell : row) cells.push_back(ToPrintable(cell));
  }
  PrintTable(asked);

  std::puts("\nGuaranteed and got");
  TextTable statement{{{"", true}, {"GPU-hours"}}, {}};
  for (const receipt::StatementRow& row : receipt::StatementOf(receipt.at("total"))) {
    using Kind = receipt::StatementRow::Kind;
    const bool part = row.kind == Kind::kLess || row.kind == Kind::kMore;
    const char* sign = row.kind == Kind::kLess ? "-" : row.kind == Kind::kMore ? "+" : "";
    statement.rows.push_back({(part ? "  " : "") + row.label, sign + row.hours});
  }
  PrintTable(statement);

  std::printf("\nBy %s\n", text("by").c_str());
  TextTable lines{{{"", true}}, {}};
  for (const json& line : receipt.at("lines")) {
    lines.rows.push_back({ToPrintable(receipt::NameOfLine(receipt, line))});
  }
  lines.rows.push_back({"Total"});
  for (const receipt::LineColumn& column : receipt::LineColumns(receipt)) {
    lines.columns.push_back({column.heading});
    for (size_t i = 0; i < column.cells.size(); ++i) lines.rows[i].push_back(column.cells[i]);
    lines.rows.back().push_back(column.total);
  }
  PrintTable(lines);
  for (const json& note : receipt.at("notes")) {
    std::printf("\n%s\n", ToPrintable(note.get<std::string>()).c_str());
  }
}

// A file is replaced at once, so that a full disk leaves the old one. Links, devices and pipes stay
// what they are and are written through.
Result<void> WriteReceipt(const std::string& path, const std::string& text) {
  const auto fail = [&path](const char* what) {
    return Fail(ErrorCode::kInternal,
                std::string("cannot ") + what + " " + path + ": " + std::strerror(errno));
  };
  struct stat st {};
  const bool exists = lstat(path.c_str(), &st) == 0;
  if (exists && !S_ISREG(st.st_mode)) {
    UniqueFd fd(
        open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, kReceiptMode));
    if (!fd) return fail("open");
    if (!WriteAll(fd.get(), text) || close(fd.Release()) != 0) return fail("write");
    return {};
  }
  std::string fresh = path + ".XXXXXX";
  UniqueFd fd(mkostemp(fresh.data(), O_CLOEXEC));
  if (!fd) return fail("create");
  if (WriteAll(fd.get(), text) && fchmod(fd.get(), kReceiptMode) == 0 && fsync(fd.get()) == 0 &&
      rename(fresh.c_str(), path.c_str()) == 0) {
    return {};
  }
  const auto failed = fail("write");
  unlink(fresh.c_str());
  return failed;
}

// What `baton receipt pod` and `team` were asked.
struct ReceiptAsked {
  std::string name, from, to, last, time_zone, by;
  std::string format = "table";
  std::string output;
};

int AskReceipt(const std::string& kind, const ReceiptAsked& asked, const Invocation& invocation) {
  if (asked.format != "table" && asked.format != "json" && asked.format != "html") {
    return Complain(
        {ErrorCode::kInvalid, "unknown format '" + asked.format + "'; choose table, json or html"});
  }
  if (asked.format == "table" && !asked.output.empty()) {
    return Complain(
        {ErrorCode::kInvalid, "--output needs --format json or html, which are signed"});
  }
  const Result<json> answer = Read(invocation,
                                   {{"command", "receipt"},
                                    {kind, asked.name},
                                    {"from", asked.from},
                                    {"to", asked.to},
                                    {"last", asked.last},
                                    {"time_zone", asked.time_zone},
                                    {"by", asked.by}},
                                   kAnswerPatience);
  if (!answer) return Complain(answer.error());
  if (asked.format == "table") {
    PrintReceipt(answer->at("receipt"));
    return 0;
  }
  const std::string file = answer->at(asked.format);
  if (asked.output.empty()) {
    std::fwrite(file.data(), 1, file.size(), stdout);
    return 0;
  }
  if (auto written = WriteReceipt(asked.output, file); !written) {
    return Complain(written.error());
  }
  return 0;
}

int PrintKey(const Invocation& invocation) {
  const Result<json> answer = Read(invocation, {{"command", "receipt_key"}}, kAnswerPatience);
  if (!answer) return Complain(answer.error());
  // Whoever reads PEM passes over what stands in front of it.
  std::printf("Fingerprint: %s\n%s", answer->at("fingerprint").get<std::string>().c_str(),
              answer->at("public_key").get<std::string>().c_str());
  return 0;
}

// The fingerprint that --key asks for: it is one, or the file has the key.
Result<std::string> FingerprintOf(const std::string& key) {
  if (key.starts_with(kFingerprintBegin)) return key;
  const auto pem = ReadFile(key, kPublicKeyFileMax);
  if (!pem) return tl::unexpected(pem.error());
  const auto read = receipt::PublicKey::FromPem(*pem);
  if (!read) return Fail(read.error().code, key + ": " + read.error().message);
  return read->Fingerprint();
}

// As a failed check, not as a wrong command line: a script that checks receipts tells them apart.
int Refuse(const std::string& path, const std::string& why) {
  return Complain({ErrorCode::kInternal, path + ": " + why});
}

int VerifyReceipt(const std::string& path, const std::string& key) {
  const auto file = ReadFile(path, receipt::kFileMax);
  if (!file) return Complain(file.error());
  const auto opened = receipt::Verify(*file);
  if (!opened) return Refuse(path, opened.error().message);
  const std::string signer = opened->key.Fingerprint();
  if (!key.empty()) {
    const auto wanted = FingerprintOf(key);
    if (!wanted) return Complain(wanted.error());
    if (*wanted != signer) {
      return Refuse(path,
                    "the receipt is signed by another key, " + signer + ", not by " + *wanted);
    }
  }
  // Whoever signed it may have signed anything.
  const json receipt = json::parse(opened->payload, nullptr, false);
  std::string said;
  try {
    const auto text = [&](const char* name) {
      return ToPrintable(receipt.at(name).get<std::string>());
    };
    const json& total = receipt.at("total");
    said =
        fmt::format("Receipt of {} {}, from {} to {}, issued {} by {}\n", text("kind"),
                    text("name"), text("from"), text("to"), text("issued_at"), text("issued_by"));
    // With as many decimals as the receipt has.
    const auto held = total.at("held_hours").get<double>();
    const auto guaranteed = total.at("guaranteed_hours").get<double>();
    const int decimals = std::max(DecimalsFor(held, 3), DecimalsFor(guaranteed, 3));
    said += fmt::format("Held {} GPU-hours of {} guaranteed", Fixed(held, decimals),
                        Fixed(guaranteed, decimals));
    if (total.contains("cost")) {
      const auto cost = total.at("cost").get<double>();
      said += fmt::format(", cost {} {}", Fixed(cost, DecimalsFor(cost, 2)),
                          ToPrintable(receipt.value("currency", "")));
    }
  } catch (const json::exception&) {
    return Refuse(path, "what is signed is not a receipt");
  }
  std::fputs(said.c_str(), stdout);
  std::printf("\nUnchanged since it was signed by %s\n", signer.c_str());
  if (key.empty()) {
    std::puts(
        "Anybody can sign with a key of their own: --key says whether it is the one you trust");
  }
  return 0;
}

void AddReceiptOf(CLI::App& command, const std::string& kind, Invocation& invocation) {
  CLI::App* inner = command.add_subcommand(kind, "The receipt of a " + kind);
  auto asked = std::make_shared<ReceiptAsked>();
  inner
      ->add_option("NAME", asked->name,
                   kind == "pod" ? "The pod's name, or NAMESPACE/NAME"
                                 : "The team's path; the teams below it are in it")
      ->required()
      ->type_name("");
  inner
      ->add_option("--from", asked->from,
                   "Such as 2026-11-01 or 2026-11-01T09:30; UTC unless --time-zone is given")
      ->type_name("TIME");
  inner->add_option("--to", asked->to, "End of the window, exclusive")->type_name("TIME");
  inner->add_option("--last", asked->last, "Length of the window up to now; default: 30d")
      ->type_name("TIME");
  inner
      ->add_option("--time-zone", asked->time_zone,
                   "In which days and months begin, such as Europe/Berlin; default: UTC")
      ->type_name("ZONE");
  inner
      ->add_option("--by", asked->by,
                   kind == "pod" ? "One line per: day, month, gpu; default: day, or month in "
                                   "windows of more than 62 days"
                                 : "One line per: pod, day, month, gpu; default: pod")
      ->type_name("WHAT");
  inner
      ->add_option("--format", asked->format,
                   "table; json or html: signed, for baton receipt verify")
      ->type_name("FORMAT")
      ->capture_default_str();
  inner->add_option("--output", asked->output, "File for json or html; default: standard output")
      ->type_name("FILE");
  AddReading(*inner, invocation);
  inner->footer(kind == "pod" ? R"(Examples:
  baton receipt pod train --last 7d
  baton receipt pod vision/train --from 2026-11-01 --to 2026-12-01 --format html --output train.html)"
                              : R"(Examples:
  baton receipt team research --from 2026-11-01 --to 2026-12-01
  baton receipt team research --by day --last 7d --format json --output research.json)");
  inner->callback([=, &invocation] {
    invocation.action = [=, &invocation] { return AskReceipt(kind, *asked, invocation); };
  });
}

}  // namespace

void AddReceipt(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand(
      "receipt", "What a pod or a team got for its request, signed; verify such a receipt");
  command->footer(R"(Examples:
  baton receipt team research --from 2026-11-01 --to 2026-12-01
  baton receipt pod train --last 7d --format html --output train.html
  baton receipt key > batond.pub
  baton receipt verify train.html --key batond.pub

What was asked for, what was guaranteed (the request, for as long as the pod was there), what it got
of that, and why less. The figures are those of baton report. docs/ledger.md says how reasons are
found.)");
  command->require_subcommand(0, 1);
  for (const char* kind : {"pod", "team"}) AddReceiptOf(*command, kind, invocation);

  CLI::App* key = command->add_subcommand("key", "The public key of this batond's receipts");
  AddReading(*key, invocation);
  key->footer(R"(Examples:
  baton receipt key > batond.pub

In PEM, with the fingerprint above it. Hand it to those who verify by a way that you trust.)");
  key->callback(
      [&invocation] { invocation.action = [&invocation] { return PrintKey(invocation); }; });

  CLI::App* verify =
      command->add_subcommand("verify", "Whether a receipt is as it was signed; needs no batond");
  struct ToVerify {
    std::string file, key;
  };
  auto given = std::make_shared<ToVerify>();
  verify->add_option("FILE", given->file, "The receipt: json or html")->required()->type_name("");
  verify
      ->add_option("--key", given->key,
                   "Whose signature it must be: a file of baton receipt key, or its fingerprint")
      ->type_name("FILE|FINGERPRINT");
  verify->footer(R"(Examples:
  baton receipt verify train.html --key batond.pub
  baton receipt verify train.json --key sha256:0123...

Without --key it says that the receipt is unchanged and which key signed it, which is named in the
receipt. Anybody can sign with a key of their own, so trust needs --key. Exit status 1: the receipt
was changed, cut short, or signed by another key; nothing of it is to be believed then.)");
  verify->callback([=, &invocation] {
    invocation.action = [=] {
      // Of a script's variable that is not set: without --key any signature would do.
      if (verify->count("--key") > 0 && given->key.empty()) {
        return Complain({ErrorCode::kInvalid,
                         "--key is empty; name the file of 'baton receipt key', or its "
                         "fingerprint"});
      }
      return VerifyReceipt(given->file, given->key);
    };
  });
}

}  // namespace baton::cli
