#include "tests/receipt/sample.h"

#include "receipt/page.h"

namespace baton::receipt {

using nlohmann::json;

json SampleReceipt() {
  return json::parse(R"({"kind": "pod", "name": "vision/train", "from": "2026-11-01T00:00:00Z",
    "to": "2026-11-03T00:00:00Z", "from_ms": 1793491200000, "to_ms": 1793664000000, "by": "day",
    "unit": "GPU-hours", "currency": "EUR", "step_s": 3600, "notes": [], "version": "0.1.0",
    "issued_at": "2026-11-26T12:00:00Z", "issued_by": "node1", "key": "sha256:00",
    "asked": [{"pod": "vision/train", "team": "research", "request": 30.0, "limit": 100.0,
      "priority": "normal", "gpus": ["GPU-5d0033f9-0000"], "memory": "4294967296",
      "to": "2026-11-02T12:00:00Z"},
     {"pod": "vision/train", "team": "research", "request": 60.0, "limit": 100.0,
      "priority": "high", "gpus": ["GPU-5d0033f9-0000"], "memory": "25%",
      "from": "2026-11-02T12:00:00Z", "who": "alice", "action": "set"}],
    "lines": [{"key": "2026-11-01", "pod_hours": 24, "guaranteed_hours": 7.2, "got_hours": 6.1,
      "beyond_hours": 0.9, "held_hours": 7.0, "busy_hours": 6.3333333, "waited_hours": 2.5,
      "memory_gib_hours": 96.25, "cost": 17.50, "less": {"no_work_hours": 1.1}},
     {"key": "2026-11-02", "pod_hours": 24, "guaranteed_hours": 10.8, "got_hours": 9.2666667,
      "beyond_hours": 0, "held_hours": 9.2666667, "busy_hours": 8.6666667, "waited_hours": 3.75,
      "memory_gib_hours": 96.5, "cost": 23.1666667,
      "less": {"no_work_hours": 0.5, "outage_hours": 1.0333333}}],
    "total": {"pod_hours": 48, "guaranteed_hours": 18.0, "got_hours": 15.3666667,
      "beyond_hours": 0.9, "held_hours": 16.2666667, "busy_hours": 15.0, "waited_hours": 6.25,
      "memory_gib_hours": 192.75, "memory_peak_gib": 3.75, "cost": 40.6666667,
      "less": {"no_work_hours": 1.6, "outage_hours": 1.0333333, "unknown_hours": 0}}})");
}

SignedSample Sign(const json& receipt, const SigningKey& key) {
  const std::string page = Page(receipt);
  json payload = receipt;
  payload["page_sha256"] = PageHash(page);
  const std::string envelope = key.Seal(payload.dump());
  return {envelope + "\n", WithEnvelope(page, envelope)};
}

}  // namespace baton::receipt
