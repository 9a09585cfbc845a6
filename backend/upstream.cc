#include "backend/upstream.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zmq.h>

#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>

#include "backend/keys.h"

namespace baton::backend {
namespace {

using nlohmann::json;

constexpr size_t kFieldsMax = 1024;  // of a message, beside what it carries
constexpr size_t kBooksNodesMax = 4096;
// A batch that is not acknowledged after this is sent again. The other side may be slow to book.
constexpr Duration kAckPatience = std::chrono::seconds(10);
constexpr Duration kBeatEvery = std::chrono::seconds(1);
// Of silence, before people are told. The other side speaks at least as often as it books.
constexpr Duration kAwayAfter = std::chrono::seconds(30);

template <class Message>
std::string Framed(const Message& message, size_t payload) {
  std::string buffer(payload + kFieldsMax, '\0');
  buffer.resize(wire::Encode(message, buffer.data(), buffer.size()));
  return buffer;
}

// A node speaks for sources of its own only, whatever it calls them.
std::string SourceOf(const std::string& node, const std::string& source) {
  return fmt::format("{:016x}{:016x}", UsageBook::GpuKey(node + "/" + source),
                     UsageBook::GpuKey(source + "/" + node));
}

json TeamsJson(const Books& books) {
  json uses = json::array();
  for (const teams::Use& use : books.uses()) uses.push_back({use.team, use.user, use.decayed});
  json held = json::object();
  for (const auto& [team, state] : books.budgets().states()) held[team] = state.held_hours;
  return {{"teams", teams::PrintTeams(books.teams())},
          {"uses", std::move(uses)},
          {"held", std::move(held)}};
}

}  // namespace

// ------------------------------------------------------------------------------- the node's side

Upstream::Upstream(boost::asio::io_context& io, const Options& options, std::string source,
                   Books& books, EventLog& log)
    : io_(io),
      options_(options),
      node_(NodeName(options)),
      source_(std::move(source)),
      books_(books),
      log_(log),
      beat_(io) {}

Upstream::~Upstream() { *alive_ = false; }

Result<void> Upstream::Start() {
  dealer_.emplace(
      io_, context_, ZMQ_DEALER,
      [this](const std::vector<std::string_view>& parts, std::string_view) { Receive(parts); });
  if (!options_.upstream.server_public_key.empty()) {
    auto keys = ReadKeyPair(options_.zmq.secret_key_file);
    if (!keys) return tl::unexpected(keys.error());
    dealer_->Set(ZMQ_CURVE_SERVERKEY, options_.upstream.server_public_key);
    dealer_->Set(ZMQ_CURVE_PUBLICKEY, keys->public_key);
    dealer_->Set(ZMQ_CURVE_SECRETKEY, keys->secret_key);
  }
  dealer_->SetLongest(wire::kBooksFrameMax);
  dealer_->Set(ZMQ_IMMEDIATE, 1);  // what cannot be sent now stays in the ledger
  dealer_->Set(ZMQ_SNDHWM, 16);
  dealer_->Set(ZMQ_RECONNECT_IVL, 100);
  dealer_->Set(ZMQ_RECONNECT_IVL_MAX, 5'000);
  dealer_->Set(ZMQ_IPV6, 1);
  dealer_->Set(ZMQ_HEARTBEAT_IVL, 2'000);
  dealer_->Set(ZMQ_HEARTBEAT_TIMEOUT, 10'000);
  if (auto ok = dealer_->Connect(options_.upstream.connect); !ok) return ok;
  dealer_->Start();
  heard_ = MonotonicNow();
  Beat();
  return {};
}

void Upstream::Stop() {
  beat_.cancel();
  if (dealer_) dealer_->Close();
  *alive_ = false;
}

std::string Upstream::Trouble() const {
  if (!refused_.empty()) return "the upstream refuses this node: " + refused_;
  if (MonotonicNow() - heard_ <= kAwayAfter + 2 * options_.ledger.every) return "";
  return fmt::format(
      "{} (upstream.connect) does not answer; what is used here waits in this node's ledger",
      options_.upstream.connect);
}

void Upstream::Beat() {
  const Instant now = MonotonicNow();
  if (sending_ && now - sent_ > kAckPatience) welcomed_ = sending_ = false;
  if (!welcomed_) SayHello();
  const bool away = !Trouble().empty();
  if (away != said_away_) {
    said_away_ = away;
    log_.Add(away ? EventLog::Level::kWarning : EventLog::Level::kInfo, "upstream",
             away ? Trouble() : options_.upstream.connect + " answers again");
  }
  beat_.expires_after(kBeatEvery);
  beat_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (!error && *alive) Beat();
  });
}

void Upstream::SayHello() {
  wire::BooksHello hello;
  hello.node.Set(node_);
  hello.source.Set(source_);
  const std::string frame = Framed(hello, 0);
  dealer_->Send({frame});
}

void Upstream::Booked() {
  more_ = true;
  if (welcomed_ && !sending_) SendNext();
}

void Upstream::SendNext() {
  sending_ = true;
  more_ = false;
  on_way_number_ = 0;
  sent_ = MonotonicNow();
  const bool asked = books_.writer().Ask([this, alive = alive_](ledger::Ledger& ledger) {
    auto spooled = ledger.Spooled(0, 1);
    std::string bytes;
    uint64_t seq = 0, number = 0;
    if (spooled && !spooled->empty()) {
      bytes = ledger::EncodeBatch(spooled->front().batch);
      seq = spooled->front().batch.seq;
      number = spooled->front().number;
    }
    boost::asio::post(io_, [this, alive, seq, number, bytes = std::move(bytes)] {
      if (!*alive || !sending_) return;
      if (number == 0) {
        sending_ = false;
        if (more_) SendNext();
        return;
      }
      wire::BooksBatch message;
      message.seq = on_way_ = seq;
      on_way_number_ = number;
      message.batch = {bytes.data(), bytes.size()};
      const std::string frame = Framed(message, bytes.size());
      sent_ = MonotonicNow();
      dealer_->Send({frame});
    });
  });
  sending_ = asked;
}

void Upstream::Receive(const std::vector<std::string_view>& parts) {
  wire::Frame frame;
  if (parts.size() != 1 ||
      frame.Parse(parts[0].data(), parts[0].size()) != wire::DecodeStatus::kOk) {
    return;
  }
  heard_ = MonotonicNow();
  if (frame.type() == wire::BooksWelcome::kType) {
    wire::BooksWelcome welcome;
    if (!frame.Read(welcome)) return;
    refused_.clear();
    welcomed_ = true;
    books_.StartAbove(welcome.seq);
    if (!sending_) SendNext();
  } else if (frame.type() == wire::BooksAck::kType) {
    wire::BooksAck ack;
    if (!frame.Read(ack) || on_way_number_ == 0 || ack.seq != on_way_) return;
    books_.writer().Ask([number = on_way_number_](ledger::Ledger& ledger) {
      (void)ledger.DropSpooled(number);  // sent again, and acknowledged again, where it stays
    });
    SendNext();
  } else if (frame.type() == wire::TeamsState::kType) {
    wire::TeamsState message;
    if (!frame.Read(message)) return;
    const json state =
        json::parse(std::string_view(message.json.data, message.json.size), nullptr, false);
    try {
      auto teams = teams::ParseTeams(state.at("teams").get<std::string>(), "upstream's teams");
      if (!teams) throw std::runtime_error(teams.error().message);
      std::vector<teams::Use> uses;
      for (const json& use : state.at("uses")) {
        uses.push_back({use.at(0), use.at(1), std::max(0.0, use.at(2).get<double>())});
      }
      books_.SetTeams(std::move(*teams), std::move(uses),
                      state.at("held").get<std::map<std::string, double>>());
    } catch (const std::exception& e) {
      log_.Add(EventLog::Level::kWarning, "upstream",
               std::string("the teams that the upstream sent make no sense: ") + e.what());
    }
  } else if (frame.type() == wire::Error::kType) {
    wire::Error error;
    if (frame.Read(error)) refused_ = error.text.view();
  }
}

// ------------------------------------------------------------------------------ the central side

BooksServer::BooksServer(boost::asio::io_context& io, Books& books, EventLog& log, Send send)
    : io_(io), books_(books), log_(log), send_(std::move(send)) {}

BooksServer::~BooksServer() { *alive_ = false; }

template <class Message>
void BooksServer::SendTo(const std::string& identity, const Message& message) {
  send_(identity, Framed(message, 0));
}

bool BooksServer::Take(const std::string& identity, std::string_view user,
                       const wire::Frame& frame) {
  auto refuse = [&](wire::ErrorKind kind, std::string_view text) {
    wire::Error error;
    error.kind = kind;
    error.text.Set(text);
    SendTo(identity, error);
  };
  if (frame.type() == wire::BooksHello::kType) {
    wire::BooksHello hello;
    if (!frame.Read(hello) || hello.node.view().empty() || hello.source.view().empty()) {
      refuse(wire::ErrorKind::kMalformed, "a field of BooksHello is wrong");
    } else if (!user.empty() && user != hello.node.view()) {
      log_.Add(EventLog::Level::kWarning, "node",
               fmt::format("the key of node {} was used for the books of node {}; refused", user,
                           hello.node.view()));
      refuse(wire::ErrorKind::kDenied,
             fmt::format("this key belongs to node {}; set node.name to it", user));
    } else if (nodes_.size() >= kBooksNodesMax &&
               identities_.count(std::string(hello.node.view())) == 0) {
      refuse(wire::ErrorKind::kLimit, "there are too many nodes");
    } else {
      OnHello(identity, user, hello);
    }
    return true;
  }
  if (frame.type() != wire::BooksBatch::kType) return false;
  wire::BooksBatch message;
  auto node = nodes_.find(identity);
  // One that this batond does not know (any more) hears nothing, and says hello again.
  if (node != nodes_.end() && frame.Read(message)) OnBatch(identity, node->second, message);
  return true;
}

void BooksServer::OnHello(const std::string& identity, std::string_view,
                          const wire::BooksHello& hello) {
  const std::string node(hello.node.view());
  if (auto it = identities_.find(node); it == identities_.end()) {
    log_.Add(EventLog::Level::kInfo, "node", "node " + node + " sends its books");
  } else if (it->second != identity) {
    nodes_.erase(it->second);
  }
  identities_[node] = identity;
  nodes_[identity] = node;
  const std::string source = SourceOf(node, std::string(hello.source.view()));
  books_.writer().Ask([this, alive = alive_, identity, source](ledger::Ledger& ledger) {
    auto last = ledger.LastOf(source);
    boost::asio::post(io_, [this, alive, identity, last = std::move(last)] {
      if (!*alive || !last) return;
      wire::BooksWelcome welcome;
      welcome.seq = last->seq;
      SendTo(identity, welcome);
      TellTeams(identity);
    });
  });
}

void BooksServer::OnBatch(const std::string& identity, const std::string& node,
                          const wire::BooksBatch& message) {
  // Taken apart on the ledger's thread: it may be long.
  books_.writer().Ask([this, alive = alive_, identity, node, seq = message.seq,
                       bytes =
                           std::string(message.batch.data, message.batch.size)](ledger::Ledger&) {
    auto batch = ledger::DecodeBatch(bytes);
    boost::asio::post(io_, [this, alive, identity, node, seq, batch = std::move(batch)]() mutable {
      if (!*alive) return;
      auto refuse = [&, this](const std::string& why) {
        log_.Add(EventLog::Level::kWarning, "node",
                 fmt::format("a batch of node {} makes no sense: {}", node, why));
      };
      if (!batch) return refuse(batch.error().message);
      if (batch->seq != seq) return refuse("its number is another");
      batch->source = SourceOf(node, batch->source);
      batch->node = node;
      books_.Put(std::move(*batch), [this, identity, node, seq](Result<bool> booked) {
        if (!booked && booked.error().code == ErrorCode::kInvalid) {
          log_.Add(EventLog::Level::kWarning, "node",
                   fmt::format("a batch of node {} is dropped: {}", node, booked.error().message));
        } else if (!booked) {
          return;  // it is sent again
        }
        wire::BooksAck ack;
        ack.seq = seq;
        SendTo(identity, ack);
      });
    });
  });
}

void BooksServer::TellTeams() {
  if (!books_.has_teams()) return;
  teams_ = TeamsJson(books_).dump(-1, ' ', false, json::error_handler_t::replace);
  for (const auto& [identity, node] : nodes_) TellTeams(identity);
}

void BooksServer::TellTeams(const std::string& identity) {
  if (!books_.has_teams()) return;
  if (teams_.empty())
    teams_ = TeamsJson(books_).dump(-1, ' ', false, json::error_handler_t::replace);
  wire::TeamsState message;
  message.json = {teams_.data(), teams_.size()};
  send_(identity, Framed(message, teams_.size()));
}

}  // namespace baton::backend
