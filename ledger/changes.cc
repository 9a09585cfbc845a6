#include "ledger/changes.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string_view>

#include "ledger/buckets.h"
#include "ledger/database.h"
#include "ledger/ledger.h"
#include "ledger/stored_text.h"

namespace baton::ledger {
namespace {

constexpr size_t kObjectMax = 16 << 10;  // bytes of `was` and of `is`

void Write(Database& database, const Change& change) {
  int64_t id = 0;
  database.Run("SELECT COALESCE(MAX(id), 0) + 1 FROM changes", {},
               [&](const Row& row) { id = row.Int(0); });
  const std::string node = Clean(change.node), who = Clean(change.who);
  const std::string action = Clean(change.action), kind = Clean(change.kind);
  const std::string object = Clean(change.object);
  const std::string was = Clean(change.was, kObjectMax), is = Clean(change.is, kObjectMax);
  database.Run(
      "INSERT INTO changes (id, at_ms, node, who, action, kind, object, was, became)"
      " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
      {id, Millis(change.at), std::string_view(node), std::string_view(who),
       std::string_view(action), std::string_view(kind), std::string_view(object),
       std::string_view(was), std::string_view(is)});
  database.Run("DELETE FROM changes WHERE id <= $1", {id - kChangesMax});
}

Settings Known(Database& database, std::string_view node) {
  Settings known;
  database.Run("SELECT kind, object, value FROM settings WHERE node = $1", {node},
               [&](const Row& row) {
                 known[{row.Text(0), row.Text(1)}] = row.Text(2);
               });
  return known;
}

}  // namespace

Result<void> Ledger::Record(const Change& change) {
  return Try([&] {
    Transaction transaction(*database_, Database::Access::kWrite);
    Write(*database_, change);
    transaction.Commit();
  });
}

Result<void> Ledger::RecordSettings(const Change& by, const Settings& settings) {
  return Try([&] {
    Transaction transaction(*database_, Database::Access::kWrite);
    const std::string node = Clean(by.node);
    const Settings known = Known(*database_, node);
    Settings now;
    for (const auto& [key, value] : settings) {
      now[{Clean(key.first), Clean(key.second)}] = Clean(value, kObjectMax);
    }
    std::set<std::pair<std::string, std::string>> keys;
    for (const auto& entry : known) keys.insert(entry.first);
    for (const auto& entry : now) keys.insert(entry.first);
    const auto in = [](const Settings& all, const auto& key) {
      const auto at = all.find(key);
      return at == all.end() ? std::string() : at->second;
    };
    for (const auto& key : keys) {
      Change change = by;
      change.kind = key.first;
      change.object = key.second;
      change.was = in(known, key);
      change.is = in(now, key);
      if (change.was == change.is) continue;
      // What a ledger begins with is nobody's change, nor what a daemon of an earlier version did
      // not write down: "config" always has a value.
      const bool begins = known.empty() || (key.first == "config" && change.was.empty());
      if (!begins) Write(*database_, change);
      const std::string_view kind = key.first, object = key.second, value = change.is;
      database_->Run("DELETE FROM settings WHERE node = $1 AND kind = $2 AND object = $3",
                     {std::string_view(node), kind, object});
      if (value.empty()) continue;
      database_->Run("INSERT INTO settings (node, kind, object, value) VALUES ($1, $2, $3, $4)",
                     {std::string_view(node), kind, object, value});
    }
    transaction.Commit();
  });
}

Result<std::vector<Change>> Ledger::Changes(const ChangesQuestion& question) {
  std::vector<Change> changes;
  auto done = Try([&] {
    changes.clear();
    const Transaction transaction(*database_, Database::Access::kRead);
    std::string sql =
        "SELECT at_ms, node, who, action, kind, object, was, became FROM changes"
        " WHERE at_ms >= $1 AND at_ms < $2";
    std::vector<Value> values{Millis(question.from), Millis(question.to)};
    const auto only = [&](const char* column, const std::string& value) {
      if (value.empty()) return;
      values.emplace_back(std::string_view(value));
      sql += std::string(" AND ") + column + " = $" + std::to_string(values.size());
    };
    only("who", question.who);
    only("kind", question.kind);
    const bool plain_pod = question.kind == "pod" && question.object.find('/') == std::string::npos;
    // What stands before or after the object's name in longer ones.
    const std::string rest = plain_pod ? "/" + question.object : question.object + "/";
    if (question.wide && !question.object.empty() && (plain_pod || question.kind == "team")) {
      values.emplace_back(std::string_view(question.object));
      const std::string own = "CAST($" + std::to_string(values.size()) + " AS TEXT)";
      values.emplace_back(std::string_view(rest));
      const std::string more = "CAST($" + std::to_string(values.size()) + " AS TEXT)";
      sql +=
          " AND (object = " + own + " OR substr(object, " +
          (plain_pod ? "length(object) - length(" + more + ") + 1)" : "1, length(" + more + "))") +
          " = " + more + ")";
    } else {
      only("object", question.object);
    }
    values.emplace_back(static_cast<int64_t>(std::min<size_t>(question.most, kChangesMax)));
    sql += " ORDER BY id DESC LIMIT $" + std::to_string(values.size());
    database_->Run(sql, values, [&](const Row& row) {
      changes.push_back({WallTime(std::chrono::milliseconds(row.Int(0))), row.Text(1), row.Text(2),
                         row.Text(3), row.Text(4), row.Text(5), row.Text(6), row.Text(7)});
    });
  });
  if (!done) return tl::unexpected(done.error());
  return changes;
}

}  // namespace baton::ledger
