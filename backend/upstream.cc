#include "backend/upstream.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zmq.h>

#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hash.h"
#include "net/keys.h"

namespace baton::backend {
namespace {

using nlohmann::json;

constexpr size_t kFieldsMax = 1024;  // of a message, beside what it carries
constexpr size_t kBooksNodesMax = 4096;
// A node that says hello more often is not answered each time: the answer is long.
constexpr Duration kGreetEvery = std::chrono::milliseconds(500);
// A batch that is not acknowledged after this is sent again. The other side may be slow to book.
constexpr Duration kAckPatience = std::chrono::seconds(10);
// Of silence on a new connection with keys, after which another one is made.
constexpr Duration kHandshakePatience = std::chrono::seconds(3);
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
  return fmt::format("{:016x}{:016x}", HashOf(node + "/" + source), HashOf(source + "/" + node));
}

json TeamsJson(const Books& books) {
  json uses = json::array();
  for (const teams::Use& use : books.by_team()) {
    uses.push_back({use.team, use.user, use.decayed, use.uncounted});
  }
  json held = json::object();
  for (const auto& [team, hours] : books.held()) {
    if (hours) held[team] = *hours;
  }
  return {{"teams", teams::PrintTeams(books.teams())},
          {"uses", std::move(uses)},
          {"held", std::move(held)}};
}

}  // namespace

Upstream::Upstream(boost::asio::io_context& io, const config::Options& options, std::string source,
                   Books& books, node::EventLog& log)
    : io_(io),
      options_(options),
      node_(config::NodeName(options)),
      source_(std::move(source)),
      books_(books),
      log_(log),
      beat_(io) {}

Upstream::~Upstream() { *alive_ = false; }

Result<void> Upstream::Start() {
  heard_ = MonotonicNow();
  if (auto ok = Connect(); !ok) return ok;
  Beat();
  return {};
}

Result<void> Upstream::Connect() {
  const std::string& file = options_.upstream.server_public_key_file;
  const std::string server_key = net::ServerKey(options_.upstream.server_public_key, file);
  if (server_key.empty() && !file.empty()) return {};
  dealer_.emplace(
      io_, context_, ZMQ_DEALER,
      [this](const std::vector<std::string_view>& parts, std::string_view) { Receive(parts); });
  if (!server_key.empty()) {
    auto keys = net::ReadKeyPair(options_.zmq.secret_key_file);
    if (!keys) return tl::unexpected(keys.error());
    dealer_->Set(ZMQ_CURVE_SERVERKEY, server_key);
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
  connected_ = MonotonicNow();
  if (auto ok = dealer_->Connect(options_.upstream.connect); !ok) return ok;
  dealer_->Start();
  server_key_ = server_key;
  return {};
}

void Upstream::ConnectAnew() {
  const std::string key =
      net::ServerKey(options_.upstream.server_public_key, options_.upstream.server_public_key_file);
  const bool other = !key.empty() && key != server_key_;
  // ZeroMQ tries no more after a refusal, and this node may be listed by now.
  const Duration patience =
      heard_ < connected_ ? kHandshakePatience : kAwayAfter + 2 * options_.ledger.every;
  const bool silent =
      dealer_ && !key.empty() && MonotonicNow() - std::max(heard_, connected_) > patience;
  if (!other && !silent) return;
  welcomed_ = sending_ = false;
  dealer_.reset();
  // The key pair was there when this started; should it be gone, it is looked for again.
  (void)Connect();
}

void Upstream::Stop() {
  beat_.cancel();
  if (dealer_) dealer_->Close();
  *alive_ = false;
}

std::string Upstream::Trouble() const {
  if (!refused_.empty()) return "the upstream refuses this node: " + refused_;
  if (server_key_.empty() && !options_.upstream.server_public_key_file.empty()) {
    return fmt::format(
        "{} (upstream.server_public_key_file) holds no public key yet; usage waits "
        "in this node's ledger",
        options_.upstream.server_public_key_file);
  }
  if (MonotonicNow() - heard_ <= kAwayAfter + 2 * options_.ledger.every) return "";
  return fmt::format("{} (upstream.connect) does not answer; usage waits in this node's ledger",
                     options_.upstream.connect);
}

void Upstream::Beat() {
  const Instant now = MonotonicNow();
  if (sending_ && now - sent_ > kAckPatience) welcomed_ = sending_ = false;
  ConnectAnew();
  if (!welcomed_) SayHello();
  const bool away = !Trouble().empty();
  if (away != said_away_) {
    said_away_ = away;
    log_.Add(away ? node::EventLog::Level::kWarning : node::EventLog::Level::kInfo, "upstream",
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
  if (dealer_) dealer_->Send({frame});
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
      if (dealer_) dealer_->Send({frame});
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
    // Where it stays in the spool it is sent again, but only once patience has ended: at once, a
    // disk without room would keep both sides busy for nothing.
    (void)books_.writer().Ask(
        [this, alive = alive_, number = std::exchange(on_way_number_, 0)](ledger::Ledger& ledger) {
          const bool dropped = ledger.DropSpooled(number).has_value();
          boost::asio::post(io_, [this, alive, dropped] {
            if (*alive && dropped && sending_) SendNext();
          });
        });
  } else if (frame.type() == wire::TeamsState::kType) {
    wire::TeamsState message;
    if (!frame.Read(message)) return;
    const json state =
        json::parse(std::string_view(message.json.data, message.json.size), nullptr, false);
    try {
      // The text rarely changes, and taking it apart takes this loop's time.
      const auto& text = state.at("teams").get_ref<const std::string&>();
      if (text != teams_text_ || text.empty()) {
        auto teams = teams::ParseTeams(text, "upstream's teams");
        if (!teams) throw std::runtime_error(teams.error().message);
        teams_ = std::move(*teams);
        teams_text_ = text;
      }
      std::vector<teams::Use> uses;
      for (const json& use : state.at("uses")) {
        uses.push_back({use.at(0), use.at(1), std::max(0.0, use.at(2).get<double>())});
        // An upstream of the version before counts all use.
        if (use.size() > 3) uses.back().uncounted = std::max(0.0, use.at(3).get<double>());
      }
      Books::Held held;
      for (const auto& [team, hours] : state.at("held").items()) held[team] = hours.get<double>();
      books_.FollowUpstream();
      books_.SetTeams(teams_, std::move(uses), std::move(held));
    } catch (const std::exception& e) {
      log_.Add(node::EventLog::Level::kWarning, "upstream",
               std::string("the upstream sent malformed teams: ") + e.what());
    }
  } else if (frame.type() == wire::Error::kType) {
    wire::Error error;
    if (frame.Read(error)) refused_ = error.text.view();
  }
}

BooksServer::BooksServer(boost::asio::io_context& io, Books& books, node::EventLog& log, Send send,
                         WhyNot why_not)
    : io_(io), books_(books), log_(log), send_(std::move(send)), why_not_(std::move(why_not)) {}

BooksServer::~BooksServer() { *alive_ = false; }

template <class Message>
void BooksServer::SendTo(const std::string& identity, const Message& message) {
  send_(identity, Framed(message, 0));
}

bool BooksServer::Take(const std::string& identity, std::string_view key,
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
    } else if (const std::string why = why_not_(key, hello.node.view()); !why.empty()) {
      log_.Add(node::EventLog::Level::kWarning, "node",
               fmt::format("refused usage of node {}: {}", hello.node.view(), why));
      refuse(wire::ErrorKind::kDenied, why);
    } else if (nodes_.size() >= kBooksNodesMax &&
               nodes_.count(std::string(hello.node.view())) == 0) {
      refuse(wire::ErrorKind::kLimit, "there are too many nodes");
    } else {
      OnHello(identity, hello);
    }
    return true;
  }
  if (frame.type() != wire::BooksBatch::kType) return false;
  wire::BooksBatch message;
  const auto name = names_.find(identity);
  // One that this batond does not know (any more) hears nothing, and says hello again.
  if (name != names_.end() && why_not_(key, name->second).empty() && frame.Read(message)) {
    OnBatch(identity, name->second, message);
  }
  return true;
}

void BooksServer::OnHello(const std::string& identity, const wire::BooksHello& hello) {
  const std::string node(hello.node.view());
  const Instant now = MonotonicNow();
  // A peer is one node at a time.
  if (auto was = names_.find(identity); was != names_.end() && was->second != node) {
    nodes_.erase(was->second);
  }
  auto [it, fresh] = nodes_.try_emplace(node);
  if (fresh) {
    log_.Add(node::EventLog::Level::kInfo, "node", "node " + node + " sends its usage");
  } else if (it->second.identity != identity) {
    names_.erase(it->second.identity);
  } else if (now - it->second.greeted < kGreetEvery) {
    return;
  }
  it->second.identity = identity;
  it->second.greeted = now;
  names_[identity] = node;
  const std::string source = SourceOf(node, std::string(hello.source.view()));
  books_.writer().Ask([this, alive = alive_, identity, source](ledger::Ledger& ledger) {
    auto last = ledger.LastOf(source);
    boost::asio::post(io_, [this, alive, identity, last = std::move(last)] {
      if (!*alive || !last) return;
      wire::BooksWelcome welcome;
      welcome.seq = last->seq;
      SendTo(identity, welcome);
      (void)TellTeams(identity);
    });
  });
}

void BooksServer::OnBatch(const std::string& identity, const std::string& node,
                          const wire::BooksBatch& message) {
  // One at a time: while the ledger is away a node sends the same one again and again.
  auto from = nodes_.find(node);
  if (from == nodes_.end() || from->second.booking) return;
  // Taken apart on the ledger's thread: it may be long.
  from->second.booking = books_.writer().Ask([this, alive = alive_, identity, node,
                                              seq = message.seq,
                                              bytes = std::string(message.batch.data,
                                                                  message.batch.size)](
                                                 ledger::Ledger&) {
    auto batch = ledger::DecodeBatch(bytes);
    boost::asio::post(io_, [this, alive, identity, node, seq, batch = std::move(batch)]() mutable {
      if (!*alive) return;
      auto refuse = [&, this](const std::string& why) {
        BookedBatch(node);
        log_.Add(node::EventLog::Level::kWarning, "node",
                 fmt::format("a batch of node {} makes no sense and is dropped: {}", node, why));
        // Sent again it would make no more; the next one has the same totals and later ones.
        wire::BooksAck ack;
        ack.seq = seq;
        SendTo(identity, ack);
      };
      if (!batch) return refuse(batch.error().message);
      if (batch->seq != seq) return refuse("its number is another");
      batch->source = SourceOf(node, batch->source);
      batch->node = node;
      books_.Put(std::move(*batch), [this, alive, identity, node, seq](Result<bool> booked) {
        if (!*alive) return;
        BookedBatch(node);
        if (!booked && booked.error().code == ErrorCode::kInvalid) {
          log_.Add(node::EventLog::Level::kWarning, "node",
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

void BooksServer::BookedBatch(const std::string& node) {
  if (auto it = nodes_.find(node); it != nodes_.end()) it->second.booking = false;
}

// Nodes go by what they heard last until the ledger has said: what is not known yet is no news.
void BooksServer::WriteTeams() {
  teams_.clear();
  if (!books_.has_teams() || !books_.looked()) return;
  teams_ = TeamsJson(books_).dump(-1, ' ', false, json::error_handler_t::replace);
  const bool too_long = teams_.size() + kFieldsMax > wire::kBooksFrameMax;
  if (too_long) teams_.clear();
  if (too_long && !std::exchange(too_long_, true)) {
    log_.Add(node::EventLog::Level::kWarning, "team",
             "too many teams to send to the nodes; they keep the teams they have");
  }
}

void BooksServer::TellTeams() {
  WriteTeams();
  for (auto it = names_.begin(); it != names_.end();) {
    if (TellTeams(it->first)) {
      ++it;
      continue;
    }
    nodes_.erase(it->second);
    it = names_.erase(it);
  }
}

bool BooksServer::TellTeams(const std::string& identity) {
  if (teams_.empty()) WriteTeams();
  if (teams_.empty()) return true;
  wire::TeamsState message;
  message.json = {teams_.data(), teams_.size()};
  return send_(identity, Framed(message, teams_.size()));
}

}  // namespace baton::backend
