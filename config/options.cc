#include "config/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/toml.h"
#include "config/gpu.h"
#include "devmgr/placement/request.h"
#include "net/keys.h"

namespace baton::config {
namespace {

constexpr size_t kFileMax = 1 << 20;
constexpr size_t kTicketMin = 16;

// "12500us" rather than "12.5ms": exact, and read back as the same.
std::string Exact(Duration d) {
  const int64_t ns = d.count();
  if (ns % 1'000'000'000 == 0) return fmt::format("{}s", ns / 1'000'000'000);
  if (ns % 1'000'000 == 0) return fmt::format("{}ms", ns / 1'000'000);
  if (ns % 1'000 == 0) return fmt::format("{}us", ns / 1'000);
  return fmt::format("{}ns", ns);
}

// The one list of single-valued keys, for reading and printing alike.
template <class V>
void VisitOptions(Options& o, V& v) {
  using std::chrono::hours;
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  v.Section("server");
  v.Text("socket_dir", o.server.socket_dir,
         "Folder of baton.sock (pods attach here) and control.sock (the operator's). Its folder\n"
         "pods holds baton.sock alone, for containers to mount.");
  v.Text("control_dir", o.server.control_dir,
         "Folder of control.sock instead, for containers that see socket_dir; empty: socket_dir.");
  v.Text("state_dir", o.server.state_dir, "Pods, accounts and last holders, kept over restarts.");
  v.Text(
      "lock_dir", o.server.lock_dir,
      "One lock per GPU, so that no two daemons of a machine manage the same GPU. Only root may\n"
      "write to it, and pods must not see it.");
  v.Choice("log_level", o.server.log_level, {"trace", "debug", "info", "warn", "error"},
           "trace, debug, info, warn or error.");
  std::string mode = o.server.mode == Mode::kObserve ? "observe" : "enforce";
  v.Choice("mode", mode, {"enforce", "observe"},
           "observe: measure everything and hold no pod back.");
  o.server.mode = mode == "observe" ? Mode::kObserve : Mode::kEnforce;
  v.Choice("local_gpus", o.server.local_gpus, {"auto", "yes", "no"},
           "Manage the GPUs of this machine; auto: yes unless zmq.listen is set.");
  v.Number("clients_max", o.server.clients_max, 1, 100'000, "Processes attached at once.");
  v.Number("clients_per_uid", o.server.clients_per_uid, 1, 100'000,
           "The same, for one user; processes in pods of Kubernetes count for those alone.");
  v.Number("clients_per_pod", o.server.clients_per_pod, 1, 1024, "The same, for one pod.");

  scheduler::SchedulerOptions& s = o.scheduler.scheduler;
  v.Section("scheduler");
  v.Ratio("overcommit", o.scheduler.overcommit, 0.01, 1000,
          "Requests on one GPU may add up to this many GPUs.");
  v.Time("quota_min", s.quota_min, microseconds(100), seconds(1),
         "A token's length lies between quota_min and quota_max: shorter bounds the others' wait,\n"
         "longer saves hand-offs.");
  v.Time("quota_max", s.quota_max, microseconds(100), seconds(10), nullptr);
  v.Ratio("handoff_fraction", s.handoff_fraction, 0.0001, 0.5,
          "Fraction of the GPU's time that hand-offs may cost.");
  v.Time("active_grace", s.active_grace, Duration(0), seconds(10),
         "A pod that stopped asking keeps its entitlement for this long.");
  v.Time("drain_timeout", s.drain_timeout, milliseconds(10), hours(1),
         "A holder that has not drained this long after its token ended is reported as hung ...");
  std::string action = s.drain_kill ? "kill" : "report";
  v.Choice("drain_action", action, {"report", "kill"}, "... and killed, where this says \"kill\".");
  s.drain_kill = action == "kill";
  v.Time(
      "drain_reopen", s.drain_reopen, milliseconds(1), seconds(60),
      "When the drain of one process of a pod waits for a launch of another, reopen after this.");
  v.Time("resend", s.resend, milliseconds(10), seconds(60),
         "A token that the client's reports do not confirm is sent again after this.");
  v.Time("sleep_credit", s.fairness.sleep_credit, Duration(0), seconds(60),
         "The most that a sleeping pod saves up: its request times this. Longer favours\n"
         "interactive pods.");
  v.Time("limit_window", s.fairness.limit_window, milliseconds(1), seconds(60),
         "The limit's bucket: usage may exceed limit * time by limit times this.");
  v.Time("priority_burst", s.fairness.priority_burst, Duration(0), seconds(60),
         "How far a high-priority pod may run ahead of its share.");

  devmgr::PlacementPolicy& placement = o.placement.policy;
  v.Section("placement");
  const auto rule = [&v](const char* key, devmgr::Rule& value, const char* comment) {
    std::string name(devmgr::RuleName(value));
    v.Choice(key, name, {"fgd", "remainder", "binpack", "spread", "first-fit", "random"}, comment);
    if (auto parsed = devmgr::ParseRule(name)) value = *parsed;
  };
  rule("nodes", placement.nodes,
       "Rules for a pod's node, and for its GPUs on that node. fgd and remainder: the rest stays\n"
       "most useful for pods like those seen so far; binpack: least room left; spread: most room\n"
       "left; first-fit: by name; random.");
  rule("cards", placement.cards, nullptr);
  const auto weight = [&v](const char* key, uint32_t& thousandths, const char* comment) {
    uint32_t millionths = thousandths * 1'000;
    v.Ratio(key, millionths, 0, 1, comment);
    thousandths = (millionths + 500) / 1'000;
  };
  weight(
      "memory_weight", placement.memory_weight,
      "How full a GPU is: memory_weight * memory caps + share_weight * requests. Their sum is 1.");
  weight("share_weight", placement.share_weight, nullptr);
  v.Text("mig_templates", o.placement.mig_templates,
         "File of MIG geometries by model, which replaces or extends the built-in ones.");

  v.Section("hook");
  v.Time("idle", o.hook.idle, microseconds(1), seconds(10),
         "A hook gives its token back after this long without work, or sooner where pauses are "
         "longer. About what giving it back and getting it again costs.");
  v.Time("backlog", s.backlog, microseconds(100), seconds(10),
         "A launching thread is parked above this much predicted unfinished GPU time.");
  v.Time("heartbeat", o.hook.heartbeat, milliseconds(10), seconds(60),
         "Hooks report at least this often.");
  v.Time("open_after", o.hook.open_after, milliseconds(10), hours(10),
         "A hook of mode \"open\" launches without a token after this long without a daemon.");

  v.Section("zmq");
  v.Text("listen", o.zmq.listen,
         "Where nodes connect, such as \"tcp://127.0.0.1:7411\"; empty: nowhere. Addresses other\n"
         "than loopback need secret_key_file.");
  v.Text("secret_key_file", o.zmq.secret_key_file, "Made by: baton keygen PATH");
  v.Time("heartbeat", o.zmq.heartbeat, milliseconds(10), seconds(60),
         "Each side of a link says something at least this often.");
  v.Time("lost_after", o.zmq.lost_after, milliseconds(50), hours(1),
         "Silence after which a link counts as cut.");
  v.Text("connect", o.zmq.connect, "baton-frontend: where batond listens.");
  v.Text("server_public_key", o.zmq.server_public_key,
         "baton-frontend: batond's public key; empty: loopback without keys.");
  v.Table("nodes", o.zmq.nodes,
          "Who may connect: node name = \"its public key\" (the .pub file of its key pair).");

  v.Section("ledger");
  v.Text(
      "database", o.ledger.database,
      "The ledger: \"sqlite:PATH\", \"postgresql://...\", \"none\"; empty: SQLite in state_dir.");
  v.Time("every", o.ledger.every, milliseconds(100), hours(1),
         "Interval between batches of usage.");
  ledger::Retention& r = o.ledger.retention;
  v.Hours("keep_fine", r.fine,
          "Retention of 10 s, minute, hour and day buckets; \"0s\": for ever.");
  v.Hours("keep_minutes", r.minutes, nullptr);
  v.Hours("keep_hours", r.hours, nullptr);
  v.Hours("keep_days", r.days, nullptr);
  v.Text("currency", o.ledger.currency, "Currency of the prices, for display.");
  v.Prices("prices", o.ledger.prices,
           "Price of a GPU-hour by model: \"NVIDIA H200\" = 3.5; \"\": all other models.");

  v.Section("teams");
  v.Text("file", o.teams.file, "File of the tree of teams (docs/teams.md); empty: no teams.");
  v.Choice("unknown", o.teams.unknown, {"warn", "refuse"},
           "What becomes of a new pod of a team that the file does not name.");

  v.Section("http");
  v.Text(
      "listen", o.http.listen,
      "Address of page, API and /metrics, read-only; empty: none. Addresses other than loopback\n"
      "need the three files.");
  v.Text("token_file", o.http.token_file, "File with the bearer token that every request needs.");
  v.Text("certificate_file", o.http.certificate_file, "TLS certificate: PEM, with the chain.");
  v.Text("key_file", o.http.key_file, "PEM, mode 0600.");
  v.Texts("hosts", o.http.hosts,
          "On loopback: names of a proxy in front of it, by which browsers may call it too.");

  v.Section("upstream");
  v.Text("connect", o.upstream.connect,
         "The batond that keeps the ledger of the cluster; empty: none. It receives the usage of\n"
         "this node and sends the teams.");
  v.Text("server_public_key", o.upstream.server_public_key,
         "Its public key; empty: loopback without keys.");

  v.Section("node");
  v.Text("name", o.node.name, "This machine's name towards another batond; empty: the host's.");
  v.Text("socket_dir", o.node.socket_dir,
         "baton-frontend: folder of its sockets; empty: server.socket_dir.");
}

// What the table of a pod's fields reads. Dates are null.
nlohmann::json JsonOf(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto whole = node.value_exact<int64_t>()) return *whole;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const toml::array* array = node.as_array()) {
    nlohmann::json list = nlohmann::json::array();
    for (const toml::node& entry : *array) list.push_back(JsonOf(entry));
    return list;
  }
  return {};
}

// Of an entry as it is written, before what it does not say is filled in. Files of earlier versions
// have it too, so what it says of a field that they knew does not change; a field of later is added
// where it is said.
std::string Fingerprint(const spec::PodRequest& r) {
  static const std::set<std::string_view> kFirst{
      "name",          "request",   "limit",       "memory", "priority", "team",       "user",
      "namespace",     "gpus",      "count",       "mode",   "models",   "not_models", "affinity",
      "anti_affinity", "exclusion", "independent", "uid",    "ticket"};
  const spec::CardWishes& w = r.wishes;
  std::string gpus;
  for (const std::string& gpu : w.gpus) gpus += gpu + ",";
  std::string text = fmt::format("{}|{}|{}|{}|{}|{}|{}|{:016x}|{}", r.share.request, r.share.limit,
                                 r.memory_cap, spec::PriorityName(r.share.priority), r.team, gpus,
                                 r.uid, HashOf(r.ticket), r.independent);
  if (!r.user.empty() || !r.name_space.empty()) text += "|" + r.user + "|" + r.name_space;
  std::string wishes;
  for (const auto* words : {&w.models, &w.not_models}) {
    for (const std::string& word : *words) wishes += word + ",";
    wishes += "|";
  }
  wishes += fmt::format("{}|{}|{}|{}", w.mode, w.affinity, w.anti_affinity, w.exclusion);
  if (wishes.find_first_not_of('|') != std::string::npos || r.count != 0) {
    text += fmt::format("|{}|{}", r.count, wishes);
  }
  if (r.memory_part != 0) text += fmt::format("|{} of memory", r.memory_part);
  for (const spec::PodField& field : spec::PodFields()) {
    if (kFirst.contains(field.key)) continue;
    const nlohmann::json value = spec::WriteField(field, r);
    if (!value.is_null()) text += fmt::format("|{}={}", field.key, value.dump());
  }
  return text;
}

class Reader {
 public:
  Reader(const toml::table& root, std::string file) : root_(root), file_(std::move(file)) {}

  const std::string& error() const { return error_; }

  void Section(const char* name) {
    CheckKeys();  // of the section before
    section_ = name;
    sections_.insert(name);
    keys_.clear();
    table_ = nullptr;
    if (const toml::node* node = root_.get(name)) {
      table_ = node->as_table();
      if (table_ == nullptr) Complain(*node, fmt::format("{} is a table: write [{}]", name, name));
    }
  }
  void Text(const char* key, std::string& value, const char*) {
    if (const toml::node* node = Get(key)) {
      if (auto text = node->value_exact<std::string>()) {
        value = *text;
      } else {
        Complain(*node, fmt::format("{} must be text in quotes", key));
      }
    }
  }
  void Texts(const char* key, std::vector<std::string>& value, const char*) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    value.clear();
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      if (auto text = list->get(i)->value_exact<std::string>()) value.push_back(*text);
    }
    if (list == nullptr || value.size() != list->size()) {
      Complain(*node, fmt::format("{} must be a list of texts in quotes", key));
    }
  }
  void Choice(const char* key, std::string& value, std::vector<const char*> choices, const char*) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    Text(key, value, nullptr);
    std::string all;
    for (const char* choice : choices) {
      if (value == choice) return;
      all += fmt::format("{}\"{}\"", all.empty() ? "" : ", ", choice);
    }
    Complain(*node, fmt::format("{} must be one of {}", key, all));
  }
  void Number(const char* key, uint32_t& value, int64_t min, int64_t max, const char*) {
    if (const toml::node* node = Get(key)) {
      auto number = node->value_exact<int64_t>();
      if (number && *number >= min && *number <= max) {
        value = static_cast<uint32_t>(*number);
      } else {
        Complain(*node, fmt::format("{} must be a whole number from {} to {}", key, min, max));
      }
    }
  }
  // A ratio in millionths.
  void Ratio(const char* key, uint32_t& value, double min, double max, const char*) {
    if (const toml::node* node = Get(key)) {
      auto number = node->is_number() ? node->value<double>() : std::nullopt;
      if (number && *number >= min && *number <= max) {
        value = static_cast<uint32_t>(*number * 1e6 + 0.5);
      } else {
        Complain(*node, fmt::format("{} must be a number from {} to {}", key, min, max));
      }
    }
  }
  void Time(const char* key, Duration& value, Duration min, Duration max, const char*) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    auto text = node->value_exact<std::string>();
    auto time = text ? ParseDuration(*text) : Fail(ErrorCode::kInvalid, "");
    if (time && *time >= min && *time <= max) {
      value = *time;
    } else {
      Complain(*node, fmt::format("{} must be a duration from \"{}\" to \"{}\"", key, Exact(min),
                                  Exact(max)));
    }
  }
  void Table(const char* key, std::map<std::string, std::string>& value, const char*) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    const toml::table* table = node->as_table();
    if (table == nullptr) {
      return Complain(*node, fmt::format("{} is a table: write [{}.{}]", key, section_, key));
    }
    for (auto&& [name, entry] : *table) {
      auto text = entry.value_exact<std::string>();
      if (!text || !net::IsPublicKey(*text)) {
        Complain(entry, fmt::format("the key of node {} must be 40 characters of Z85, as in the "
                                    ".pub file that baton keygen writes",
                                    name.str()));
        return;
      }
      value[std::string(name.str())] = *text;
    }
  }

  void Hours(const char* key, std::chrono::hours& value, const char* comment) {
    Duration time = value;
    Time(key, time, Duration(0), std::chrono::hours(100'000), comment);
    value = std::chrono::ceil<std::chrono::hours>(time);
  }
  void Prices(const char* key, std::map<std::string, double>& value, const char*) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    const toml::table* table = node->as_table();
    if (table == nullptr) {
      return Complain(*node, fmt::format("{} is a table: write [{}.{}]", key, section_, key));
    }
    for (auto&& [name, entry] : *table) {
      const auto price = entry.is_number() ? entry.value<double>() : std::nullopt;
      if (!price || !(*price >= 0 && *price <= 1e6)) {
        return Complain(
            entry, fmt::format("the price of {} must be a number from 0 to 1000000", name.str()));
      }
      value[std::string(name.str())] = *price;
    }
  }

  void Gpus(std::vector<devmgr::GpuInfo>& gpus) {
    Rows("gpu", [&](const toml::table& row) {
      devmgr::GpuInfo gpu;
      std::string memory = "0";
      Text("uuid", gpu.uuid, nullptr);
      Text("name", gpu.name, nullptr);
      Text("memory", memory, nullptr);
      Text("vendor", gpu.vendor, nullptr);
      Environment("environment", gpu.environment);
      auto bytes = ParseBytes(memory);
      if (!bytes) return Complain(row, bytes.error().message);
      gpu.memory_bytes = *bytes;
      if (auto checked = CheckGpu(gpu); !checked) return Complain(row, checked.error().message);
      for (const devmgr::GpuInfo& other : gpus) {
        if (other.uuid == gpu.uuid) return Complain(row, "this GPU is listed twice: " + gpu.uuid);
      }
      gpus.push_back(gpu);
    });
  }

  void Environment(const char* key, std::map<std::string, std::string>& value) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    const toml::table* table = node->as_table();
    if (table == nullptr) {
      return Complain(*node,
                      fmt::format("{} is a table, such as {{ROCR_VISIBLE_DEVICES = \"0\"}}", key));
    }
    for (auto&& [name, entry] : *table) {
      const auto text = entry.value_exact<std::string>();
      if (!text) {
        return Complain(entry, fmt::format("{} must be text in quotes", name.str()));
      }
      value[std::string(name.str())] = *text;
    }
  }

  void Pods(std::vector<ConfiguredPod>& pods) {
    for (const spec::PodField& field : spec::PodFields()) pod_keys_.emplace(field.key);
    Rows("pod", [&](const toml::table& row) {
      keys_ = pod_keys_;
      spec::PodRequest request;
      for (auto&& [key, node] : row) {
        const spec::PodField* field = spec::FindPodField(key.str());
        if (field == nullptr) continue;  // CheckKeys() says so
        if (auto read = spec::ReadField(*field, JsonOf(node), request); !read) {
          return Complain(node, read.error().message);
        }
      }
      if (request.name.empty()) {
        return Complain(row, "a [[pod]] needs a name of at most 128 characters");
      }
      if (!request.ticket.empty() && request.ticket.size() < kTicketMin) {
        return Complain(row, "a ticket is 16 to 64 characters that nobody guesses");
      }
      ConfiguredPod pod{request, Fingerprint(request)};
      if (auto complete = spec::Complete(pod.request); !complete) {
        return Complain(row, complete.error().message);
      }
      for (const ConfiguredPod& other : pods) {
        if (other.request.name != request.name) continue;
        return Complain(row, "this pod is listed twice: " + request.name);
      }
      pods.push_back(std::move(pod));
    });
  }

  void Finish() {
    CheckKeys();
    for (auto&& [key, node] : root_) {
      if (sections_.count(std::string(key.str())) == 0) {
        Complain(
            node,
            fmt::format(
                "[{}] is no section; there are server, scheduler, "
                "placement, hook, zmq, ledger, teams, http, upstream, node, [[gpu]] and [[pod]]",
                key.str()));
      }
    }
  }

 private:
  const toml::node* Get(const char* key) {
    keys_.insert(key);
    return table_ != nullptr ? table_->get(key) : nullptr;
  }
  template <class Each>
  void Rows(const char* name, Each each) {
    CheckKeys();
    keys_.clear();
    table_ = nullptr;
    section_ = name;
    sections_.insert(name);
    const toml::node* node = root_.get(name);
    if (node == nullptr) return;
    const toml::array* rows = node->as_array();
    if (rows == nullptr) return Complain(*node, fmt::format("write [[{}]], one for each", name));
    for (const toml::node& row : *rows) {
      table_ = row.as_table();
      keys_.clear();
      if (table_ == nullptr) return Complain(row, fmt::format("write [[{}]], one for each", name));
      each(*table_);
      CheckKeys();
    }
    table_ = nullptr;
  }
  void CheckKeys() {
    if (table_ == nullptr) return;
    for (auto&& [key, node] : *table_) {
      if (keys_.count(std::string(key.str())) != 0) continue;
      std::string all;
      for (const std::string& known : keys_) all += (all.empty() ? "" : ", ") + known;
      Complain(node, fmt::format("[{}] has no key {}; it has {}", section_, key.str(), all));
    }
  }
  // Keeps the first complaint.
  void Complain(const toml::node& node, const std::string& what) {
    if (!error_.empty()) return;
    error_ = fmt::format("{}:{}: {}", file_, node.source().begin.line, what);
  }

  const toml::table& root_;
  const std::string file_;
  std::string error_;
  std::string section_;
  const toml::table* table_ = nullptr;
  std::set<std::string> keys_;
  std::set<std::string> pod_keys_;
  std::set<std::string> sections_;
};

class Printer {
 public:
  std::string text;

  void Section(const char* name) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", name);
    section_ = name;
  }
  void Text(const char* key, const std::string& value, const char* comment) {
    Line(key, TomlText(value), comment);
  }
  void Texts(const char* key, const std::vector<std::string>& values, const char* comment) {
    std::string list;
    for (const std::string& value : values) list += (list.empty() ? "" : ", ") + TomlText(value);
    Line(key, "[" + list + "]", comment);
  }
  void Choice(const char* key, const std::string& value, const std::vector<const char*>&,
              const char* comment) {
    Line(key, TomlText(value), comment);
  }
  void Number(const char* key, uint32_t value, int64_t, int64_t, const char* comment) {
    Line(key, std::to_string(value), comment);
  }
  void Ratio(const char* key, uint32_t value, double, double, const char* comment) {
    Line(key, fmt::format("{}", value / 1e6), comment);
  }
  void Time(const char* key, Duration value, Duration, Duration, const char* comment) {
    Line(key, TomlText(Exact(value)), comment);
  }
  void Hours(const char* key, std::chrono::hours value, const char* comment) {
    Time(key, value, {}, {}, comment);
  }
  void Prices(const char* key, const std::map<std::string, double>& values, const char* comment) {
    Comment(comment);
    text += fmt::format("[{}.{}]\n", section_, key);
    for (const auto& [name, value] : values)
      text += fmt::format("{} = {}\n", TomlText(name), value);
  }
  void Table(const char* key, const std::map<std::string, std::string>& values,
             const char* comment) {
    Comment(comment);
    text += fmt::format("[{}.{}]\n", section_, key);
    for (const auto& [name, value] : values) {
      text += fmt::format("{} = {}\n", TomlText(name), TomlText(value));
    }
  }
  void Line(const char* key, const std::string& value, const char* comment) {
    Comment(comment);
    text += fmt::format("{} = {}\n", key, value);
  }

 private:
  void Comment(const char* comment) {
    if (comment == nullptr) return;
    text += "# ";
    for (const char* c = comment; *c != '\0'; ++c) {
      text += *c;
      if (*c == '\n') text += "# ";
    }
    text += '\n';
  }
  std::string section_;
};

// Of an endpoint of ZeroMQ. What only begins like one of ours may be a name ("127.example"), or a
// source with another machine behind it ("tcp://127.0.0.1:0;other:7411").
bool IsLoopback(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://", kName = "localhost:";
  if (endpoint.starts_with("ipc://")) return true;
  if (!endpoint.starts_with(kTcp)) return false;
  std::string where(endpoint.substr(kTcp.size()));
  if (where.starts_with(kName)) where.replace(0, kName.size(), "127.0.0.1:");
  if (where.ends_with(":*")) where.back() = '0';  // any port
  const auto address = net::ParseListen(where);
  return address && address->loopback;
}

}  // namespace

net::HttpOptions HttpOptionsOf(const Options& options) {
  net::HttpOptions to;
  to.listen = options.http.listen;
  to.token_file = options.http.token_file;
  to.certificate_file = options.http.certificate_file;
  to.key_file = options.http.key_file;
  to.hosts = options.http.hosts;
  return to;
}

std::string NodeName(const Options& options) {
  if (!options.node.name.empty()) return options.node.name;
  char name[65] = {};
  gethostname(name, sizeof name - 1);
  return name[0] != '\0' ? name : "node";
}

Result<Options> ParseOptions(const std::string& text, const std::string& name) {
  const auto parsed = ParseToml(text, name);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  Options options;
  Reader reader(*parsed, name);
  VisitOptions(options, reader);
  reader.Gpus(options.gpus);
  reader.Pods(options.pods);
  reader.Finish();
  if (!reader.error().empty()) return Fail(ErrorCode::kInvalid, reader.error());
  if (auto checked = CheckOptions(options); !checked) {
    return Fail(checked.error().code, name + ": " + checked.error().message);
  }
  return options;
}

Result<Options> LoadOptions(const std::string& path) {
  auto text = ReadFile(path, kFileMax);
  if (!text) return Fail(text.error().code, "configuration: " + text.error().message);
  return ParseOptions(*text, path);
}

Result<void> CheckOptions(const Options& o) {
  const scheduler::SchedulerOptions& s = o.scheduler.scheduler;
  if (s.quota_min > s.quota_max) {
    return Fail(ErrorCode::kInvalid, "quota_min is above quota_max; lower it or raise quota_max");
  }
  if (o.placement.policy.memory_weight + o.placement.policy.share_weight != 1'000) {
    return Fail(ErrorCode::kInvalid,
                "placement.memory_weight and placement.share_weight must add up to 1");
  }
  if (o.zmq.lost_after < 2 * o.zmq.heartbeat) {
    return Fail(ErrorCode::kInvalid, "zmq.lost_after must be at least twice zmq.heartbeat");
  }
  if (!o.zmq.listen.empty() && o.zmq.secret_key_file.empty() && !IsLoopback(o.zmq.listen)) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("zmq.listen = \"{}\" is not a loopback address and there is no key; "
                            "make one with 'baton keygen PATH' and set zmq.secret_key_file, or "
                            "listen on tcp://127.0.0.1:7411",
                            o.zmq.listen));
  }
  if (!o.zmq.listen.empty() && !o.zmq.secret_key_file.empty() && o.zmq.nodes.empty()) {
    return Fail(ErrorCode::kInvalid,
                "zmq.secret_key_file is set but [zmq.nodes] lists nobody who may connect; add a "
                "line: NAME = \"PUBLIC KEY\"");
  }
  for (const auto& [key, name] :
       {std::pair(o.zmq.server_public_key, "zmq.server_public_key"),
        std::pair(o.upstream.server_public_key, "upstream.server_public_key")}) {
    if (key.empty()) continue;
    if (!net::IsPublicKey(key)) {
      return Fail(ErrorCode::kInvalid, fmt::format("{} must be 40 characters of Z85", name));
    }
    if (o.zmq.secret_key_file.empty()) {
      return Fail(ErrorCode::kInvalid, fmt::format("{} needs zmq.secret_key_file beside it", name));
    }
  }
  if (auto checked = net::CheckHttpOptions(HttpOptionsOf(o)); !checked) return checked;
  if (!o.upstream.connect.empty() && o.upstream.server_public_key.empty() &&
      !IsLoopback(o.upstream.connect)) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("upstream.connect = \"{}\" is not a loopback address and there is no "
                            "upstream.server_public_key; set it to that batond's public key",
                            o.upstream.connect));
  }
  if (!o.upstream.connect.empty() && o.ledger.database == "none") {
    return Fail(ErrorCode::kInvalid,
                "upstream.connect needs a ledger here: it keeps what could not be sent yet");
  }
  return {};
}

std::string PrintOptions(const Options& options) {
  Options copy = options;
  Printer printer;
  VisitOptions(copy, printer);
  for (const devmgr::GpuInfo& gpu : options.gpus) {
    printer.text += "\n[[gpu]]\n";
    printer.Text("uuid", gpu.uuid, nullptr);
    printer.Text("name", gpu.name, nullptr);
    printer.Text("memory", std::to_string(gpu.memory_bytes), nullptr);
    if (gpu.by_token()) continue;
    printer.Text("vendor", gpu.vendor, nullptr);
    std::string environment;
    for (const auto& [name, value] : gpu.environment) {
      environment +=
          fmt::format("{}{} = {}", environment.empty() ? "" : ", ", name, TomlText(value));
    }
    printer.Line("environment", "{" + environment + "}", nullptr);
  }
  for (const ConfiguredPod& pod : options.pods) {
    printer.text += "\n[[pod]]\n";
    for (const spec::PodField& field : spec::PodFields()) {
      const nlohmann::json value = spec::WriteField(field, pod.request);
      // Texts, numbers and lists of JSON are TOML as well.
      if (value.is_null()) continue;
      if (field.key == "ticket") {
        printer.text += "# ticket: a secret that is set in the file\n";
      } else {
        printer.Line(std::string(field.key).c_str(), value.dump(), nullptr);
      }
    }
  }
  return printer.text;
}

}  // namespace baton::config
