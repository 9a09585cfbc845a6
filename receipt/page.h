// A receipt as an HTML page for people and printers: no script, nothing from elsewhere.
//
// Pure and thread safe.
#ifndef BATON_RECEIPT_PAGE_H_
#define BATON_RECEIPT_PAGE_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace baton::receipt {

// The page of a receipt (backend/receipt.h), with room for its envelope (receipt/envelope.h).
std::string Page(const nlohmann::json& receipt);

}  // namespace baton::receipt

#endif  // BATON_RECEIPT_PAGE_H_
