#include "config/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/toml.h"
#include "net/keys.h"

namespace baton::config {
namespace {

constexpr size_t kFileMax = 1 << 20;
constexpr size_t kTicketMin = 16;

// "12500us" rather than "12.5ms": exact, and read back as the same; 400 days are "9600h".
std::string Exact(Duration d) {
  const int64_t ns = d.count();
  for (const auto& [unit, size] : {std::pair("h", int64_t{3600}), std::pair("m", int64_t{60})}) {
    if (ns != 0 && ns % (size * 1'000'000'000) == 0) {
      return fmt::format("{}{}", ns / (size * 1'000'000'000), unit);
    }
  }
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
  v.Number("frames_per_second", o.server.frames_per_second, 100, 100'000'000,
           "Read of a pod's processes together; more are read later.");
  v.Number("connects_per_second", o.server.connects_per_second, 1, 1'000'000,
           "Accepted of one user's or pod's processes; more are refused, and try again.");
  v.Time("cpu_dma_latency", o.server.cpu_dma_latency, Duration(0), seconds(1),
         "While the daemon runs, idle processors of this machine may take so long to wake up\n"
         "(/dev/cpu_dma_latency). Shorter: quicker hand-offs, and more power at idle. 0s: as the\n"
         "system has it. In whole microseconds.");

  v.Section("log");
  std::string format = o.log.format == LogFormat::kJson ? "json" : "text";
  v.Choice("format", format, {"text", "json"},
           "json: each line is an object with time, level and message.");
  o.log.format = ParseLogFormat(format);

  v.Section("scheduler");
  v.Ratio("overcommit", o.overcommit, 0.01, 1000,
          "Requests on one GPU may add up to this many GPUs.");
  o.scheduler.Visit(v);
  v.Section("placement");
  o.placement.Visit(v);
  v.Section("memory");
  v.Ratio(
      "default_cap", o.default_cap, 0, 1,
      "Memory cap of pods that ask for none, as a part of each GPU. 0: none, so that such a pod\n"
      "may have whatever the other pods have not reserved.");
  v.Number(
      "reserve_mib", o.memory_reserve_mib, 0, 1 << 24,
      "Memory of each GPU, in MiB, that caps of pods leave free for what the driver takes beside\n"
      "them: a context takes some 300 to 600 MiB for each process. A cap in percent is of the "
      "rest.\n"
      "0: the caps may add up to all of the GPU's memory. Not in modes exclusive and mig.");
  v.Number(
      "swap_budget_mib", o.swap.budget_mib, 0, 1 << 30,
      "Memory of the host that pods with swap may have pinned on each node, in MiB. 0: half of\n"
      "the memory of the machine that batond runs on.");
  v.Ratio("swap_fraction", o.swap.fraction, 0.001, 1,
          "Fraction of the time in which memory may move: a pod that was given room keeps it for\n"
          "that much longer than the moving takes.");
  v.Time("idle_release", o.swap.idle_release, Duration(0), hours(24 * 365),
         "A pod with swap that has had no work for this long is swapped out entirely, its memory\n"
         "request too, and comes back when it launches again. 0s: never, so that its memory moves\n"
         "only when others need the room. Longer: fewer pods wait for their memory to come back.");
  v.Text(
      "cgroup_root", o.kernel_caps.cgroup_root,
      "Where the machine's cgroups (v2) are mounted. Drivers from R615 on hold the cap of a pod\n"
      "in a container of its own, also for programs without the hook. Empty: the hook alone does.");
  v.Number(
      "kernel_cap_process_mib", o.kernel_caps.process_mib, 0, 1 << 20,
      "The driver counts contexts and code too, so its cap is above the pod's by this many MiB\n"
      "for each of the pod's processes.");

  v.Section("hook");
  v.Time("idle", o.hook.idle, microseconds(1), seconds(10),
         "A hook gives its token back after this long without work, or sooner where pauses are "
         "longer. About what giving it back and getting it again costs.");
  v.Time("backlog", o.scheduler.backlog, microseconds(100), seconds(10),
         "A launching thread is parked above this much predicted unfinished GPU time.");
  v.Time("heartbeat", o.hook.heartbeat, milliseconds(10), seconds(60),
         "Hooks report at least this often.");
  v.Time("open_after", o.hook.open_after, milliseconds(10), hours(10),
         "A hook of mode \"open\" launches without a token after this long without a daemon.");

  v.Section("zmq");
  o.zmq.Visit(v);
  v.Section("ledger");
  o.ledger.Visit(v);
  v.Section("teams");
  o.teams.Visit(v);
  v.Section("http");
  o.http.Visit(v);
  v.Section("page");
  o.page.Visit(v);
  v.Section("upstream");
  o.upstream.Visit(v);

  v.Section("users");
  o.users.Visit(v);
  v.Section("flavors");
  v.Flavors(o.flavors);

  v.Section("node");
  v.Text("name", o.node.name, "This machine's name towards another batond; empty: the host's.");
  v.Text("socket_dir", o.node.socket_dir,
         "baton-frontend: folder of its sockets; empty: server.socket_dir.");
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
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{:016x}|{}", r.share.request.millionths(),
                  r.share.limit.millionths(), r.memory_cap, spec::PriorityName(r.share.priority),
                  r.team, gpus, r.uid, HashOf(r.ticket), r.independent);
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
  if (r.memory_part != policy::Share(0)) {
    text += fmt::format("|{} of memory", r.memory_part.millionths());
  }
  for (const spec::PodField& field : spec::PodFields()) {
    if (kFirst.contains(field.key)) continue;
    const nlohmann::json value = spec::WriteField(field, r);
    if (!value.is_null()) text += fmt::format("|{}={}", field.key, value.dump());
  }
  return text;
}

// A price or a weight of a GPU-hour.
Result<double> PriceOf(const toml::node* node) {
  const auto price = node != nullptr && node->is_number() ? node->value<double>() : std::nullopt;
  if (price && *price >= 0 && *price <= 1e6) return *price;
  return Fail(ErrorCode::kInvalid, "it must be a number from 0 to 1000000");
}

// 2.5, or [{price = 2.5}, {from = "2026-11-01T12:00", price = 3}]. Times are UTC.
Result<ledger::ModelPrices> PricesOf(const toml::node& node) {
  const toml::array* list = node.as_array();
  if (list == nullptr) {
    return PriceOf(&node).map([](double price) { return ledger::ModelPrices(price); });
  }
  std::vector<ledger::DatedPrice> dated;
  for (const toml::node& entry : *list) {
    const toml::table* table = entry.as_table();
    const toml::node* from = table == nullptr ? nullptr : table->get("from");
    if (table == nullptr || table->size() != (from == nullptr ? 1u : 2u)) {
      return Fail(ErrorCode::kInvalid,
                  "a list of prices has entries such as {from = \"2026-11-01T12:00\", price = 3}");
    }
    const auto price = PriceOf(table->get("price"));
    if (!price) return tl::unexpected(price.error());
    ledger::WallTime at{};
    if (from != nullptr) {
      const auto text = from->value_exact<std::string>();
      const auto written = ledger::ParseWrittenTime(text ? *text : "");
      if (!written) return tl::unexpected(written.error());
      at = ledger::WallTime(written->local.time_since_epoch());
      if (at != std::chrono::floor<std::chrono::minutes>(at)) {
        return Fail(ErrorCode::kInvalid, "a price begins with a whole minute");
      }
    }
    dated.push_back({at, *price});
  }
  return ledger::ModelPrices::Make(std::move(dated));
}

std::string WrittenFrom(ledger::WallTime from) {
  const auto since = std::chrono::floor<std::chrono::seconds>(from.time_since_epoch());
  return ledger::FormatWrittenTime(std::chrono::local_seconds(since));
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
  void Ratio(const char* key, policy::Share& value, double min, double max, const char*) {
    if (const toml::node* node = Get(key)) {
      auto number = node->is_number() ? node->value<double>() : std::nullopt;
      if (number && *number >= min && *number <= max) {
        value = policy::ShareOf(*number);
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
    const toml::table* table = InnerTable(key);
    if (table == nullptr) return;
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

  void Words(const char* key, std::map<std::string, std::string>& value, const char*) {
    if (const toml::table* table = InnerTable(key)) TextsOf(*table, value);
  }
  void Hours(const char* key, std::chrono::hours& value, const char* comment) {
    Duration time = value;
    Time(key, time, Duration(0), std::chrono::hours(100'000), comment);
    value = std::chrono::ceil<std::chrono::hours>(time);
  }
  void Prices(const char* key, ledger::Prices& value, const char*) {
    ByModel(key, value, "price", [](const toml::node& entry) { return PricesOf(entry); });
  }
  void Amount(const char* key, double& value, const char*) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    const Result<double> amount = PriceOf(node);
    if (!amount) return Complain(*node, fmt::format("{}: {}", key, amount.error().message));
    value = *amount;
  }
  void Weights(const char* key, ledger::ModelWeights& value, const char*) {
    ByModel(key, value, "weight", [](const toml::node& entry) { return PriceOf(&entry); });
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
      if (auto checked = devmgr::Check(gpu); !checked)
        return Complain(row, checked.error().message);
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
    TextsOf(*table, value);
  }

  void Flavors(spec::Flavors& flavors) {
    if (table_ == nullptr) return;
    for (auto&& [name, entry] : *table_) {
      keys_.emplace(name.str());
      if (auto added = spec::AddFlavor(flavors, name.str(), JsonOf(entry)); !added) {
        return Complain(entry, added.error().message);
      }
    }
  }

  void Pods(std::vector<ConfiguredPod>& pods, const spec::Flavors& flavors) {
    for (const spec::PodField& field : spec::PodFields()) pod_keys_.emplace(field.key);
    Rows("pod", [&](const toml::table& row) {
      keys_ = pod_keys_;
      spec::PodRequest request;
      const auto said = spec::FillIn(flavors, JsonOf(row));
      if (!said) return Complain(row, said.error().message);
      for (const auto& [key, value] : said->items()) {
        const spec::PodField* field = spec::FindPodField(key);
        if (field == nullptr) continue;  // CheckKeys() says so
        if (auto read = spec::ReadField(*field, value, request); !read) {
          const toml::node* node = row.get(key);
          return Complain(node != nullptr ? *node : row, read.error().message);
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
        Complain(node, fmt::format("[{}] is no section; there are server, log, scheduler, "
                                   "placement, memory, hook, zmq, ledger, teams, http, page, "
                                   "upstream, users, flavors, node, [[gpu]] and [[pod]]",
                                   key.str()));
      }
    }
  }

 private:
  void TextsOf(const toml::table& table, std::map<std::string, std::string>& value) {
    for (auto&& [name, entry] : table) {
      const auto text = entry.value_exact<std::string>();
      if (!text) return Complain(entry, fmt::format("{} must be text in quotes", name.str()));
      value[std::string(name.str())] = *text;
    }
  }
  const toml::node* Get(const char* key) {
    keys_.insert(key);
    return table_ != nullptr ? table_->get(key) : nullptr;
  }
  // Null where there is none, or something else, which is complained of.
  const toml::table* InnerTable(const char* key) {
    const toml::node* node = Get(key);
    if (node == nullptr) return nullptr;
    if (!node->is_table()) {
      Complain(*node, fmt::format("{} is a table: write [{}.{}]", key, section_, key));
    }
    return node->as_table();
  }
  // A table with an entry for each model of GPU.
  template <class Values, class Read>
  void ByModel(const char* key, Values& values, const char* what, Read read) {
    const toml::table* table = InnerTable(key);
    if (table == nullptr) return;
    for (auto&& [name, entry] : *table) {
      auto value = read(entry);
      if (!value) {
        return Complain(entry,
                        fmt::format("the {} of {}: {}", what, name.str(), value.error().message));
      }
      values.insert_or_assign(std::string(name.str()), std::move(*value));
    }
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
  void Ratio(const char* key, policy::Share value, double, double, const char* comment) {
    Line(key, fmt::format("{}", policy::Ratio(value)), comment);
  }
  void Time(const char* key, Duration value, Duration, Duration, const char* comment) {
    Line(key, TomlText(Exact(value)), comment);
  }
  void Hours(const char* key, std::chrono::hours value, const char* comment) {
    Time(key, value, {}, {}, comment);
  }
  void Prices(const char* key, const ledger::Prices& values, const char* comment) {
    Comment(comment);
    text += fmt::format("[{}.{}]\n", section_, key);
    for (const auto& [name, prices] : values) {
      std::string list;
      for (const ledger::DatedPrice& dated : prices.dated()) {
        const bool always = dated.from == ledger::WallTime{};
        list += fmt::format("{}{{{}price = {}}}", list.empty() ? "" : ", ",
                            always ? "" : fmt::format("from = \"{}\", ", WrittenFrom(dated.from)),
                            dated.price);
      }
      text += TomlText(name) + " = ";
      text += prices.plain() ? fmt::format("{}\n", prices.dated().front().price)
                             : fmt::format("[{}]\n", list);
    }
  }
  void Amount(const char* key, double value, const char* comment) {
    Line(key, fmt::format("{}", value), comment);
  }
  void Weights(const char* key, const ledger::ModelWeights& values, const char* comment) {
    Comment(comment);
    text += fmt::format("[{}.{}]\n", section_, key);
    for (const auto& [name, value] : values) {
      text += fmt::format("{} = {}\n", TomlText(name), value);
    }
  }
  void Table(const char* key, const std::map<std::string, std::string>& values,
             const char* comment) {
    Comment(comment);
    text += fmt::format("[{}.{}]\n", section_, key);
    for (const auto& [name, value] : values) {
      text += fmt::format("{} = {}\n", TomlText(name), TomlText(value));
    }
  }
  void Words(const char* key, const std::map<std::string, std::string>& values,
             const char* comment) {
    Table(key, values, comment);
  }
  void Flavors(const spec::Flavors& flavors) {
    Comment("Sizes that pods may name, such as: small = {request = 10, memory = \"4GiB\"}");
    for (const auto& [name, flavor] : flavors) {
      const nlohmann::json said = spec::FieldsOf(flavor);
      std::string fields;
      for (const auto& [key, value] : said.items()) {
        fields += fmt::format("{}{} = {}", fields.empty() ? "" : ", ", key, value.dump());
      }
      text += fmt::format("{} = {{{}}}\n", TomlText(name), fields);
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

}  // namespace

const std::string& ControlDir(const Options& options) {
  return options.server.control_dir.empty() ? options.server.socket_dir
                                            : options.server.control_dir;
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
  reader.Pods(options.pods, options.flavors);
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
  for (const auto& checked :
       {o.scheduler.Check(), o.placement.Check(), net::CheckLinks(o.zmq, o.upstream),
        net::CheckHttpOptions(o.http), o.page.Check(), spec::CheckUsers(o.users)}) {
    if (!checked) return checked;
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
