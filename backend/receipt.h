// `baton receipt`: what a pod or a team asked for, was guaranteed and got, signed by this daemon.
#ifndef BATON_BACKEND_RECEIPT_H_
#define BATON_BACKEND_RECEIPT_H_

#include <map>
#include <string>

#include "backend/reports.h"

namespace baton::backend {

// Fields: pod or team; from, to, last, time_zone; by: day, month, pod or gpu. The answer:
// {receipt: what ledger::ReceiptJson() says, with issued_at, issued_by (the node), version and key
// (the fingerprint); json: the same, signed, as a file; html: the same as a page, signed}.
Result<ReportAnswer> AskReceipt(const std::map<std::string, std::string>& field,
                                const ReportView& view);
// {public_key (PEM), fingerprint} of the key that receipts are signed with. It is in
// state_dir/receipt.key, and made at its first use.
Result<ReportAnswer> AskReceiptKey(const std::map<std::string, std::string>& field,
                                   const ReportView& view);

}  // namespace baton::backend

#endif  // BATON_BACKEND_RECEIPT_H_
