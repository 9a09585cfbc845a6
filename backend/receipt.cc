#include "backend/receipt.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "backend/books.h"
#include "ledger/receipt.h"
#include "ledger/report.h"
#include "receipt/envelope.h"
#include "receipt/page.h"

namespace baton::backend {
namespace {

using nlohmann::json;

// Another daemon may record something between the three queries.
constexpr int kReceiptTries = 4;
const ledger::WallTime kEver = std::chrono::sys_days(std::chrono::year(3000) / 1 / 1);

std::string KeyFileOf(const config::Options& options) {
  return options.server.state_dir + "/receipt.key";
}

// What is not UTF-8 replaced: a name may be of any bytes.
std::string WithoutBrokenText(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// By what its lines are: what was said; else a pod's days, or months of a long time, and a team's
// pods.
Result<ledger::By> LinesBy(const std::string& said, bool of_pod, ledger::Window window) {
  if (said.empty()) {
    if (!of_pod) return ledger::By::kPod;
    return window.to - window.from <= std::chrono::hours(24 * 62) ? ledger::By::kDay
                                                                  : ledger::By::kMonth;
  }
  for (const auto by : {ledger::By::kDay, ledger::By::kMonth, ledger::By::kPod, ledger::By::kGpu}) {
    if (said == ledger::ByName(by)) return by;
  }
  return Fail(ErrorCode::kInvalid,
              "a receipt is by day, month, pod or gpu, not by '" + said.substr(0, 64) + "'");
}

// What signs: where it is from, and when.
struct Issuer {
  std::string node;
  std::string key_file;
};

Result<json> Issue(json receipt, const Issuer& issuer, const ledger::TimeZone& zone) {
  const auto key = receipt::SigningKey::OpenOrMake(issuer.key_file);
  if (!key) return tl::unexpected(key.error());
  receipt["issued_at"] = ledger::FormatTime(ledger::WallNow(), zone);
  receipt["issued_by"] = issuer.node;
  receipt["version"] = BATON_VERSION;
  receipt["key"] = key->public_key().Fingerprint();
  receipt = json::parse(WithoutBrokenText(receipt));
  const std::string page = receipt::Page(receipt);
  json payload = receipt;
  payload["page_sha256"] = receipt::PageHash(page);
  const std::string envelope = key->Seal(payload.dump());
  return json{{"receipt", std::move(receipt)},
              {"json", envelope + "\n"},
              {"html", receipt::WithEnvelope(page, envelope)}};
}

}  // namespace

Result<ReportAnswer> AskReceipt(const std::map<std::string, std::string>& field,
                                const ReportView& view) {
  if (field.at("pod").empty() == field.at("team").empty()) {
    return Fail(ErrorCode::kInvalid, "receipt takes either pod or team");
  }
  return LedgerQuery([field, present = PresentPods(view.arbiter),
                      prices = view.options.ledger.prices, currency = view.options.ledger.currency,
                      factors = view.options.ledger.factors(),
                      issuer = Issuer{config::NodeName(view.options), KeyFileOf(view.options)}](
                         ledger::Ledger& ledger) -> Result<json> {
    Result<ledger::Question> said = QuestionOf(field, prices);
    if (!said) return tl::unexpected(said.error());
    ledger::Question& question = *said;
    const auto by = LinesBy(field.at("by"), !question.pod.empty(), question.window);
    if (!by) return tl::unexpected(by.error());
    question.by = {*by};
    ledger::Question by_total = question;
    by_total.by = {ledger::By::kTotal};
    const auto changes = ledger.Changes(
        {.from = {}, .to = kEver, .kind = "pod", .most = static_cast<size_t>(ledger::kChangesMax)});
    if (!changes) return tl::unexpected(changes.error());
    const std::vector<ledger::Term> terms =
        ledger::TermsOf(*changes, AsInTheLog(present), issuer.node);
    Result<json> receipt = json();
    for (int tried = 0; tried < kReceiptTries; ++tried) {
      const auto uses = ledger.Query(question);
      if (!uses) return tl::unexpected(uses.error());
      const auto whole = ledger.Query(by_total);
      if (!whole) return tl::unexpected(whole.error());
      const auto history = ledger.Steps(question);
      if (!history) return tl::unexpected(history.error());
      receipt = ledger::ReceiptJson(question, *uses, *whole, *history, terms, prices, currency,
                                    factors, !field.at("to").empty());
      if (receipt || receipt.error().code != ErrorCode::kUnavailable) break;
    }
    if (!receipt) return receipt;
    if (receipt->at("lines").empty() && receipt->at("asked").empty()) {
      return Fail(ErrorCode::kNotFound,
                  "nothing is known of this " + receipt->at("kind").get<std::string>() +
                      " in this time; 'baton report' with --by pod or --by team lists what is");
    }
    return Issue(std::move(*receipt), issuer, question.zone);
  });
}

Result<ReportAnswer> AskReceiptKey(const std::map<std::string, std::string>&,
                                   const ReportView& view) {
  return LedgerQuery([file = KeyFileOf(view.options)](ledger::Ledger&) -> Result<json> {
    const auto key = receipt::SigningKey::OpenOrMake(file);
    if (!key) return tl::unexpected(key.error());
    return json{{"public_key", key->public_key().Pem()},
                {"fingerprint", key->public_key().Fingerprint()}};
  });
}

}  // namespace baton::backend
