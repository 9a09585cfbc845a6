// A receipt as batond makes one, for tests of what is done with it.
#ifndef BATON_TESTS_RECEIPT_SAMPLE_H_
#define BATON_TESTS_RECEIPT_SAMPLE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "receipt/envelope.h"

namespace baton::receipt {

// Of a pod and two days, with a price.
nlohmann::json SampleReceipt();

struct SignedSample {
  std::string json, html;  // the files
};
SignedSample Sign(const nlohmann::json& receipt, const SigningKey& key);

}  // namespace baton::receipt

#endif  // BATON_TESTS_RECEIPT_SAMPLE_H_
